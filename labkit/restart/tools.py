"""The tools. Each takes (input, ctx, idem_key) and returns a JSON value; ctx[i] is step i's output.

`idem_key` is the same in every attempt: a tool with an effect outside hands it on, so that the world
can tell a repetition. A step may run twice; only its key makes that once in outcome.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from labkit.errors import (
    BadInput, Interrupted, NotFound, PermanentError, ToolError, UsageError, describe
)  # fmt: skip
from labkit.files import publish_once

Context = Mapping[int, Any]
Tool = Callable[[Any, Context, str], Any]
START = os.getcwd()  # before a tool can change it: a retry must find the same folder


def fetch(input: Any, ctx: Context, idem_key: str) -> dict[str, Any]:
    """Reads a text file; `sha256` is of its bytes."""
    import hashlib

    try:
        with open(os.path.join(START, input["path"]), "rb") as file:
            content = file.read()
        text = content.decode("utf-8-sig")  # a BOM is no part of the text
    except (OSError, UnicodeDecodeError) as error:
        raise ToolError(f"cannot read {input['path']} as UTF-8: {error}") from None
    return {"chars": len(text), "sha256": hashlib.sha256(content).hexdigest(), "text": text}


def summarize(input: Any, ctx: Context, idem_key: str) -> dict[str, Any]:
    """The first three lines that are not empty; with AGENT_LLM=ollama, what the model says."""
    text = _text_of(ctx, input["from"], "text")
    if os.environ.get("AGENT_LLM"):
        return {"summary": _ask_ollama(f"Summarize in three lines:\n\n{text}"), "engine": "ollama"}
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return {"summary": "\n".join(lines[:3]), "engine": "stub"}


def write_artifact(input: Any, ctx: Context, idem_key: str) -> dict[str, Any]:
    """Publishes the summary as IDEM_KEY.md, once however often it runs."""
    content, folder = _text_of(ctx, input["from"], "summary").encode(), artifacts_folder()
    if os.environ.get("AGENT_UNSAFE_EFFECTS") == "1":  # the negative control: no key, so it doubles
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "report.log"), "ab") as file:
            file.write(content + b"\n---\n")
        return {"path": _shown(folder, "report.log"), "deduplicated": False}
    deduplicated = publish_once(folder, f"{idem_key}.md", content)
    return {"path": _shown(folder, f"{idem_key}.md"), "deduplicated": deduplicated}


TOOLS: dict[str, Tool] = {t.__name__: t for t in (fetch, summarize, write_artifact)}


def artifacts_folder() -> str:
    return os.path.join(START, os.environ.get("AGENT_ARTIFACTS") or "artifacts")


def run_command(argv: Sequence[str]) -> tuple[int, bytes, bytes]:
    """For a learner's tool: (status, stdout, stderr) of a command that cannot outlive the agent.

    What a bare `subprocess` starts can go on after the kill, and act beside the next run.
    """
    from labkit import guard

    with guard.start(argv, stdout=-1, stderr=-1) as command:  # subprocess.PIPE
        stdout, stderr = command.communicate()
        return command.wait(), stdout, stderr


def load_tools(paths: Sequence[str]) -> dict[str, Tool]:
    """The built-in tools, and the functions without leading underscore that the files define."""
    tools = dict(TOOLS)
    for path in paths:
        found = _functions_of(path)
        if taken := sorted(set(tools) & set(found)):
            raise UsageError(f"--tools {path}: {taken[0]} is a tool already; rename the function")
        tools |= found
    return tools


def _functions_of(path: str) -> dict[str, Tool]:
    import runpy
    from types import FunctionType

    if not os.path.isfile(path):
        raise NotFound(f"--tools {path}: no such file; check the path")
    try:
        names = runpy.run_path(path, run_name="labkit_tools")
    except Interrupted:
        raise
    except BaseException as error:  # SystemExit too
        raise BadInput(f"--tools {path}: {describe(error)}; mend the file") from None
    functions = {n: f for n, f in names.items() if isinstance(f, FunctionType) and n[0] != "_"}
    return {n: f for n, f in functions.items() if f.__module__ == "labkit_tools"}


def _text_of(ctx: Context, source: int, field: str) -> str:
    output = ctx[source]  # a learner's tool may have given anything
    if isinstance(output, dict) and isinstance(output.get(field), str):
        return str(output[field])
    raise PermanentError(f"step {source} gave no text {field!r}; let its tool return one")


def _shown(folder: str, name: str) -> str:
    return os.path.join(os.path.relpath(folder, START), name)


def _ask_ollama(prompt: str) -> str:
    import json
    import urllib.request as http

    url = (os.environ.get("OLLAMA_URL") or "http://127.0.0.1:11434") + "/api/generate"
    model = os.environ.get("OLLAMA_MODEL") or "llama3.2"
    body = json.dumps({"model": model, "prompt": prompt, "stream": False}).encode()
    direct = http.build_opener(http.ProxyHandler({}))  # a prompt for this machine stays on it
    try:
        with direct.open(http.Request(url, body, {"Content-Type": "application/json"})) as answer:
            return str(json.load(answer)["response"])
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise ToolError(f"no answer from the model at {url}: {describe(error)}") from None
