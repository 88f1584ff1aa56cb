"""The agent's own command line, with a witness outside: each call of a tool is a line in $WITNESS.

The line is the effect's key. A --tools file cannot do this: it may not replace a built-in tool.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

from labkit.restart.__main__ import main
from labkit.restart.tools import TOOLS, Tool


def witnessed(tool: Tool) -> Tool:
    def call(input: Any, ctx: Mapping[int, Any], idem_key: str) -> Any:
        with open(os.environ["WITNESS"], "a", encoding="utf-8") as file:
            file.write(f"{idem_key}\n")
        return tool(input, ctx, idem_key)

    return call


if __name__ == "__main__":
    TOOLS.update({name: witnessed(tool) for name, tool in TOOLS.items()})
    sys.exit(main())
