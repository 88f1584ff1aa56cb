"""`labkit COMMAND ...`: imports only the command that was chosen.

The agent's start-up time is one of the figures this project is measured by, so this module stands
on `sys` alone and knows the other commands by name.
"""

import sys

__all__ = ["COMMANDS", "main"]

# command: (module, function of (argv) -> exit code, one line of help)
COMMANDS = {
    "agent": ("labkit.restart.__main__", "main", "create, run and inspect a task of the agent"),
    "demo": ("labkit.lab.demo", "main", "kill and resume an agent here, in this terminal"),
    "doctor": ("labkit.lab.doctor", "main", "check this machine and say what is missing"),
    "journal": ("labkit.journal.command", "main", "copy or read a journal"),
    "open": ("labkit.lab.workbook", "open_command", "copy a notebook into your workbook"),
}

_USAGE = 64  # os.EX_USAGE, which Windows does not have


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code; 64 for a command that does not exist."""
    args = sys.argv[1:] if argv is None else argv
    if not args or args[0] in ("-h", "--help", "help"):
        print(_help())
        return 0 if args else _USAGE
    if args[0] not in COMMANDS:
        print(f"labkit: no command {args[0]!r}; there is {_names()}", file=sys.stderr)
        return _USAGE
    return _call(args[0], args[1:])


def _call(command: str, rest: list[str]) -> int:
    module, function, _ = COMMANDS[command]
    # __import__ and not importlib, whose own import costs more than this whole module.
    run = getattr(__import__(module, fromlist=[function]), function)
    code: int = run(rest)
    return code


def _names() -> str:
    return ", ".join(COMMANDS)


def _help() -> str:
    lines = [f"  {name:<8} {what}" for name, (_, _, what) in COMMANDS.items()]
    return "\n".join(["usage: labkit COMMAND ...", "", *lines, "", "labkit COMMAND --help says more"])
