"""A plugin of pytest, by `-p` before all others: nbval is loaded in a third of a second, not three.

It loads nbformat, nbformat jsonschema, and that a grammar of what an IRI is, if there is one; to
build it takes longer than all other imports of pytest together, in each of its processes. No
schema of a notebook asks for an IRI. None is Python's way to say that a module is not there.
"""

import sys

sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
