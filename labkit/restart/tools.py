"""The tools. Each takes (input, ctx, idem_key) and returns a JSON value.

`ctx[i]` is the committed output of step i. `idem_key` stays the same in every attempt: a tool with an effect outside hands
it on, so that the outside world can tell a repetition. A step may run twice; only its key makes that once in outcome.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from labkit.errors import (
    BadInput,
    Interrupted,
    NotFound,
    PermanentError,
    ToolError,
    UsageError,
    describe,
)
from labkit.files import publish_once

__all__ = [
    "BUILT_IN",
    "Completed",
    "Tool",
    "artifacts_folder",
    "fetch",
    "load_tools",
    "run_command",
    "summarize",
    "write_artifact",
]

Tool = Callable[[Any, Mapping[int, Any], str], Any]

START = (
    os.getcwd()
)  # fixed before a tool can change the working directory: a retry must find the same folder


def fetch(input: Any, ctx: Mapping[int, Any], idem_key: str) -> dict[str, Any]:
    """Reads a text file; `sha256` is of its bytes."""
    import hashlib

    path = os.path.join(START, input["path"])
    try:
        with open(path, "rb") as file:
            content = file.read()
        text = content.decode("utf-8-sig")  # a BOM is not a part of the text
    except UnicodeDecodeError as error:
        raise ToolError(
            f"{input['path']} is not UTF-8 text (byte {error.start}); convert it, then run again"
        ) from None
    except OSError as error:
        raise ToolError(f"cannot read {input['path']}: {error.strerror}") from None
    return {"chars": len(text), "sha256": hashlib.sha256(content).hexdigest(), "text": text}


def summarize(input: Any, ctx: Mapping[int, Any], idem_key: str) -> dict[str, Any]:
    """The first three lines that are not empty, or with AGENT_LLM=ollama what the model says."""
    text = _field(ctx, input["from"], "text")
    if os.environ.get("AGENT_LLM") == "ollama":
        return {"summary": _ask_ollama(f"Summarize in three lines:\n\n{text}"), "engine": "ollama"}
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return {"summary": "\n".join(lines[:3]), "engine": "stub"}


def write_artifact(input: Any, ctx: Mapping[int, Any], idem_key: str) -> dict[str, Any]:
    """Publishes the summary as IDEM_KEY.md, once however often it runs."""
    content = _field(ctx, input["from"], "summary").encode()
    shown = os.environ.get("AGENT_ARTIFACTS") or "artifacts"
    if os.environ.get("AGENT_UNSAFE_EFFECTS") == "1":
        return {"path": _append_report(content, shown), "deduplicated": False}
    deduplicated = publish_once(artifacts_folder(), f"{idem_key}.md", content)
    return {"path": os.path.join(shown, f"{idem_key}.md"), "deduplicated": deduplicated}


BUILT_IN: dict[str, Tool] = {
    "fetch": fetch,
    "summarize": summarize,
    "write_artifact": write_artifact,
}


def artifacts_folder() -> str:
    return os.path.join(START, os.environ.get("AGENT_ARTIFACTS") or "artifacts")


class Completed(NamedTuple):
    code: int  # negative: ended by that signal
    stdout: bytes
    stderr: bytes


def run_command(argv: Sequence[str]) -> Completed:
    """Runs a command that cannot outlive the agent: its process group is killed when the agent dies.

    A command started by a bare `subprocess` can go on after the kill, and act beside the next run.
    Raises ToolError if it cannot start.
    """
    from labkit import guard

    try:
        command = guard.start(argv, stdout=-1, stderr=-1)  # subprocess.PIPE
    except OSError as error:
        raise ToolError(f"cannot start {argv[0]}: {error.strerror}") from None
    try:
        stdout, stderr = command.communicate()
        return Completed(command.wait(), stdout, stderr)
    finally:
        command.close()


def load_tools(paths: Sequence[str]) -> dict[str, Tool]:
    """The built-in tools and the functions defined in the learner's files, without those that begin with an underscore.

    Raises UsageError for a name that is taken, BadInput for a file that fails, NotFound.
    """
    tools = dict(BUILT_IN)
    for path in paths:
        for name, tool in _functions_of(path).items():
            if name in tools:
                raise UsageError(
                    f"--tools {path}: {name} is already the name of a tool; choose another name"
                )
            tools[name] = tool
    return tools


def _functions_of(path: str) -> dict[str, Tool]:
    import sys
    from types import FunctionType, ModuleType

    module = ModuleType(
        f"labkit_tools_{len(sys.modules)}"
    )  # no learner's file can hide a module of Python
    module.__file__ = os.path.abspath(path)
    try:
        with open(path, "rb") as file:
            source = file.read()
    except OSError as error:
        raise NotFound(f"--tools {path}: {error.strerror}; check the path") from None
    sys.modules[module.__name__] = module  # dataclasses and pickle look their module up
    try:
        exec(compile(source, module.__file__, "exec"), module.__dict__)
    except Interrupted:
        raise
    except (
        BaseException
    ) as error:  # also a SystemExit: a file that ends the process is not a file of tools
        raise BadInput(
            f"--tools {path}: {describe(error)}; mend the file, nothing was written"
        ) from None
    found = vars(module).items()
    return {
        n: f
        for n, f in found
        if isinstance(f, FunctionType) and f.__module__ == module.__name__ and not n.startswith("_")
    }


def _field(ctx: Mapping[int, Any], source: int, name: str) -> str:
    """What a built-in tool needs of a step; the output of a learner's tool can be anything, and stays what it is."""
    output = ctx[source]
    if not (isinstance(output, dict) and isinstance(output.get(name), str)):
        raise PermanentError(
            f"the output of step {source} has no text {name!r}; let its tool return {{{name!r}: ...}}"
        )
    return str(output[name])


def _append_report(content: bytes, shown: str) -> str:
    """The negative control: an effect without a key, which a second attempt doubles."""
    os.makedirs(artifacts_folder(), exist_ok=True)
    with open(os.path.join(artifacts_folder(), "report.log"), "ab") as file:
        file.write(content + b"\n---\n")
    return os.path.join(shown, "report.log")


def _ask_ollama(prompt: str) -> str:
    import json
    import urllib.request

    url = (os.environ.get("OLLAMA_URL") or "http://127.0.0.1:11434").rstrip("/") + "/api/generate"
    body = {
        "model": os.environ.get("OLLAMA_MODEL") or "llama3.2",
        "prompt": prompt,
        "stream": False,
    }
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({})
    )  # a prompt for this machine does not go through a proxy
    try:
        request = urllib.request.Request(
            url, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with opener.open(request, timeout=300) as answer:
            return str(json.load(answer)["response"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ToolError(
            f"the model at {url} did not answer ({describe(error)}); is Ollama running?"
        ) from None
