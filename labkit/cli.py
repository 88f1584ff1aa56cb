"""`labkit COMMAND ...`: imports only the command that was chosen.

The agent's start-up time is one of the figures this project is measured by, so this module knows
the commands by name and imports one of them after the choice.
"""

import sys
from importlib import import_module

from labkit.errors import Fatal, LabkitError

__all__ = ["COMMANDS", "main"]

# command: (module, function of (argv) -> exit code, one line of help)
COMMANDS = {
    "agent": ("labkit.restart.__main__", "main", "create, run and inspect a task of the agent"),
    "demo": ("labkit.lab.demo", "main", "kill and resume an agent here, in this terminal"),
    "doctor": ("labkit.lab.doctor", "main", "check this machine and say what is missing"),
    "journal": ("labkit.journal.command", "main", "copy or read a journal"),
    "open": ("labkit.lab.workbook", "open_command", "copy notebooks into your workbook"),
}

_USAGE = 64  # os.EX_USAGE
_INTERRUPTED = 130


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code; 64 for a command that does not exist."""
    args = sys.argv[1:] if argv is None else argv
    if args and args[0] in ("-h", "--help", "help"):
        print(_help())
        return 0
    if not args or args[0] not in COMMANDS:
        problem = f"no command {args[0]!r}" if args else "a command is missing"
        print(f"labkit: {problem}; choose one of {', '.join(COMMANDS)}", file=sys.stderr)
        return _USAGE
    return _call(args[0], args[1:])


def _call(command: str, rest: list[str]) -> int:
    module, function, _ = COMMANDS[command]
    # The agent also answers to `python -m labkit.restart`, so it is told how it was called.
    named = {"prog": "labkit agent"} if command == "agent" else {}
    try:
        code: int = getattr(import_module(module), function)(rest, **named)
    except (LabkitError, Fatal) as error:
        print(f"labkit {command}: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print(f"labkit {command}: interrupted", file=sys.stderr)
        return _INTERRUPTED
    return code


def _help() -> str:
    lines = [f"  {name:<8} {what}" for name, (_, _, what) in COMMANDS.items()]
    last = "labkit COMMAND --help says more"
    return "\n".join(["usage: labkit COMMAND ...", "", *lines, "", last])
