"""`labkit COMMAND ...`: imports only the command that was chosen.

The agent's start-up time is one of the figures this project is measured by, so this module knows
the commands by name and imports one of them after the choice.
"""

import os
import sys
from importlib import import_module

from labkit import __version__
from labkit.errors import Fatal, LabkitError, UsageError

__all__ = ["COMMANDS", "main"]

# command: (module, function of (argv) -> exit code, one line of help)
COMMANDS = {
    "agent": ("labkit.restart.__main__", "main", "create, run and inspect a task of the agent"),
    "chaos": ("labkit.chaos.command", "main", "break a program on purpose and say what broke"),
    "demo": ("labkit.lab.demo", "main", "kill and resume an agent here, in this terminal"),
    "doctor": ("labkit.lab.doctor", "main", "check this machine and say what is missing"),
    "journal": ("labkit.journal.command", "main", "copy or read a journal"),
    "open": ("labkit.lab.workbook", "open_command", "copy notebooks into your workbook"),
    "progress": ("labkit.lab.report", "progress_command", "say what is answered and what is next"),
    "reset": ("labkit.lab.workbook", "reset_command", "move your copy aside, make a fresh one"),
    "runs": ("labkit.runs", "main", "list, show, resume or answer durable runs"),
}

_INTERRUPTED, _STORAGE_FAULT = 130, 74


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code; 64 for a command that does not exist."""
    args = sys.argv[1:] if argv is None else argv
    known = args[0] if args and args[0] in COMMANDS else ""
    _speak_utf8()
    try:
        code = _call(known, args[1:]) if known else _help(args)
        if sys.stdout is not None:
            sys.stdout.flush()  # here, where a reader that has left can still be met quietly
    except (LabkitError, Fatal) as error:
        _complain(known, str(error))
        code = error.exit_code
    except KeyboardInterrupt:
        _complain(known, "interrupted")
        code = _INTERRUPTED
    except BrokenPipeError:  # `labkit doctor | head` has read enough
        code = 0
    except OSError as error:
        what = error.filename or "the output"
        _complain(known, f"{what}: {error.strerror}; mend the storage, try again")
        code = _STORAGE_FAULT
    _settle_output()
    return code


def _call(command: str, rest: list[str]) -> int:
    module, function, _ = COMMANDS[command]
    # The agent also answers to `python -m labkit.restart`, so it is told how it was called.
    named = {"prog": "labkit agent"} if command == "agent" else {}
    try:
        return int(getattr(import_module(module), function)(rest, **named))
    except SystemExit as leaving:  # argparse does after its help
        return int(leaving.code or 0)


def _settle_output() -> None:
    """What cannot be written is dropped: Python tries once more at its end, and exits with 120."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except (OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _help(args: list[str]) -> int:
    """Prints what there is. Raises UsageError unless that is what was asked for."""
    if args == ["--version"]:
        print(f"labkit {__version__}")
        return 0
    if not args or args[0] not in ("-h", "--help", "help"):
        problem = f"no command {args[0]!r}" if args else "a command is missing"
        raise UsageError(f"{problem}; choose one of {', '.join(COMMANDS)}")
    lines = [f"  {name:<8} {what}" for name, (_, _, what) in COMMANDS.items()]
    print("usage: labkit COMMAND ...", "", *lines, "", "labkit COMMAND --help says more", sep="\n")
    return 0


def _speak_utf8() -> None:
    """A terminal in ASCII must not turn a name in another alphabet into a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def _complain(command: str, message: str) -> None:
    """One line, whatever is in the message: it can hold the name of a file or what a tool said."""
    line = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in message)
    try:
        sys.stderr.write(f"labkit {command}".rstrip() + f": {line}\n")
        sys.stderr.flush()
    except (AttributeError, OSError, ValueError):  # nobody reads it
        sys.stderr = None  # else Python's own flush at the end exits with 120
