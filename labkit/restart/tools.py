"""The tools: (input, ctx, idem_key) to a JSON value; ctx[i] is the committed output of step i.
A tool may run twice with one idem_key: if it has an effect, the key makes that once in outcome."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence

from labkit import errors
from labkit.errors import Any
from labkit.files import publish_once

Tool = Callable[[Any, Mapping[int, Any], str], Any]
with errors.storage_faults("the working folder is gone"):
    START = os.getcwd()  # before a tool can change it: a retry must find the same folder
ARTIFACTS = os.path.join(START, os.environ.get("AGENT_ARTIFACTS") or "artifacts")


def fetch(input: Any, ctx: Mapping[int, Any], idem_key: str) -> dict[str, Any]:
    """Reads a text file; `sha256` is of its bytes."""
    import hashlib

    try:
        with open(os.path.join(START, input["path"]), "rb") as file:
            content = file.read()
        text = content.decode("utf-8-sig")  # a BOM is no part of the text
    except (OSError, ValueError) as error:
        raise errors.ToolError(f"{input['path']}: {errors.describe(error)}") from None
    return {"chars": len(text), "sha256": hashlib.sha256(content).hexdigest(), "text": text}


def summarize(input: Any, ctx: Mapping[int, Any], idem_key: str) -> dict[str, Any]:
    """The first three lines that are not empty; with AGENT_LLM=ollama, what the model says."""
    text = _text_of(ctx, input["from"], "text")
    if os.environ.get("AGENT_LLM"):
        return {"summary": _ask_ollama(f"Summarize in three lines:\n\n{text}"), "engine": "ollama"}
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return {"summary": "\n".join(lines[:3]), "engine": "stub"}


def write_artifact(input: Any, ctx: Mapping[int, Any], idem_key: str) -> dict[str, Any]:
    """Publishes the summary as IDEM_KEY.md, once however often it runs."""
    content, folder = _text_of(ctx, input["from"], "summary").encode(), ARTIFACTS
    name, same = f"{idem_key}.md", False
    if os.environ.get("AGENT_UNSAFE_EFFECTS") == "1":  # the negative control: it has no key
        os.makedirs(folder, exist_ok=True)
        name = "report.log"
        with open(os.path.join(folder, name), "ab") as file:
            file.write(content + b"\n---\n")
    else:
        same = publish_once(folder, name, content)
    return {"path": os.path.relpath(os.path.join(folder, name), START), "deduplicated": same}


TOOLS: dict[str, Tool] = {t.__name__: t for t in (fetch, summarize, write_artifact)}


def run_command(argv: list[str]) -> tuple[int, bytes, bytes]:
    """(status, stdout, stderr) of a command that, unlike in `subprocess`, dies with the agent."""
    from labkit import guard

    with guard.start(argv, stdout=-1, stderr=-1) as command:  # subprocess.PIPE
        stdout, stderr = command.communicate()
        return command.wait(), stdout, stderr


def load_tools(paths: Sequence[str]) -> dict[str, Tool]:
    """The built-in tools, and the functions without leading underscore that the files define."""
    tools = dict(TOOLS)
    for path in paths:
        for name, tool in _run_file(path).items():
            if name[0] != "_" and getattr(tool, "__module__", "") == "labkit_tools":
                taken = errors.UsageError(f"--tools {path}: {name} is a tool already; rename yours")
                errors.ensure(tools.setdefault(name, tool) is tool, taken)
    return tools


def _run_file(path: str) -> dict[str, Any]:
    errors.ensure(os.path.isfile(path), errors.NotFound(f"no file {path}; check --tools"))
    module = sys.modules["labkit_tools"] = type(sys)("labkit_tools")  # dataclasses look there
    try:
        with open(path, "rb") as file:
            exec(compile(file.read(), path, "exec"), vars(module))
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise errors.BadInput(f"--tools {path}: {errors.describe(error)}; mend it") from None
    return {name: f for name, f in vars(module).items() if type(f) is type(_run_file)}


def _text_of(ctx: Mapping[int, Any], source: int, field: str) -> str:
    output = ctx[source]  # a learner's tool may have given anything
    if not isinstance(output, dict) or not isinstance(output.get(field), str):
        raise errors.PermanentError(f"step {source} gave no text {field!r}: let its tool return it")
    return str(output[field])


def _ask_ollama(prompt: str) -> str:
    import json
    import urllib.request as http

    url = (os.environ.get("OLLAMA_URL") or "http://127.0.0.1:11434") + "/api/generate"
    ask = {"model": os.environ.get("OLLAMA_MODEL") or "llama3.2", "prompt": prompt, "stream": False}
    direct = http.build_opener(http.ProxyHandler({}))  # a prompt for this machine stays on it
    try:
        request = http.Request(url, json.dumps(ask).encode(), {"Content-Type": "application/json"})
        with direct.open(request, timeout=300) as answer:
            text = json.load(answer)["response"]
        errors.ensure(isinstance(text, str), ValueError("its response is no text"))
        return str(text)
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise errors.ToolError(f"no answer from {url}: {errors.describe(error)}") from None
