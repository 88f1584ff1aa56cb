"""The plan: a goal and fixed steps, checked whole before anything is stored, so that a restart never has to doubt it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from labkit.errors import BadInput
from labkit.jsonvalues import NotJSON, to_json

__all__ = ["FIELDS", "Plan", "check_task_id", "read_plan"]

Plan = dict[
    str, Any
]  # {"goal": str, "steps": [{"tool": str, "input": {...}}, ...]}, as read_plan has checked it

FIELDS = {  # of each built-in tool: what its input holds, what it needs from the step named by `from`, what it gives
    "fetch": (("path",), None, ("chars", "sha256", "text")),
    "summarize": (("from",), "text", ("engine", "summary")),
    "write_artifact": (("from",), "summary", ("deduplicated", "path")),
}

TASK_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def check_task_id(task_id: str) -> None:
    """Raises BadInput unless the id can be a part of a file's name on every system, the same bytes everywhere."""
    if not TASK_ID.fullmatch(task_id):
        raise BadInput(
            f"task id {task_id[:120]!r}: use 1 to 100 of A-Z a-z 0-9 . _ - and begin with a letter or a digit"
        )


def read_plan(text: bytes, name: str, tools: Mapping[str, Any]) -> Plan:
    """The plan in a file's bytes. Raises BadInput with the path of the first fault, as in `steps[2].input.from`."""
    try:
        plan = json.loads(
            text.decode("utf-8-sig"), parse_constant=_refuse_constant, object_pairs_hook=_unique
        )
        to_json(plan)
        _check(plan, tools)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError, ValueError) as error:
        raise BadInput(f"{name}: not JSON in UTF-8 ({error})") from None
    except (NotJSON, BadInput) as error:
        raise BadInput(f"{name}: {error}") from None
    return dict(plan)


def _check(plan: Any, tools: Mapping[str, Any]) -> None:
    _require_keys(plan, "the plan", ("goal", "steps"))
    if not (isinstance(plan["goal"], str) and plan["goal"].strip()):
        raise BadInput("goal: must be a text that is not empty")
    if not (isinstance(plan["steps"], list) and plan["steps"]):
        raise BadInput("steps: must be a list of at least one step")
    for idx, step in enumerate(plan["steps"]):
        _check_step(idx, step, plan["steps"], tools)


def _check_step(idx: int, step: Any, steps: list[Any], tools: Mapping[str, Any]) -> None:
    here = f"steps[{idx}]"
    _require_keys(step, here, ("tool", "input"))
    tool, given = step["tool"], step["input"]
    if not (isinstance(tool, str) and tool in tools):
        raise BadInput(
            f"{here}.tool: no tool is named {tool!r:.80}; there are {', '.join(sorted(tools))} (--tools FILE.py adds your own)"
        )
    keys, needs, _ = FIELDS.get(tool, (None, None, ()))
    if keys:
        _require_keys(given, f"{here}.input", keys)
    elif not isinstance(given, dict):
        raise BadInput(f"{here}.input: must be an object")
    if tool == "fetch" and not (
        isinstance(given["path"], str) and given["path"] and "\0" not in given["path"]
    ):
        raise BadInput(f"{here}.input.path: must be the path of a file")
    if "from" in given:
        _check_source(f"{here}.input.from", given["from"], idx, steps, needs)


def _check_source(here: str, source: Any, idx: int, steps: list[Any], needs: str | None) -> None:
    if type(source) is not int or not 0 <= source < idx:  # a bool is an int to isinstance
        raise BadInput(
            f"{here}: must be the number of an earlier step ({f'0 to {idx - 1}' if idx else 'the first step has none'}), not {source!r:.80}"
        )
    tool = steps[source]["tool"]
    if needs and tool in FIELDS and needs not in FIELDS[tool][2]:
        raise BadInput(
            f"{here}: step {source} ({tool}) gives {', '.join(FIELDS[tool][2])}; this step needs {needs}"
        )


def _require_keys(value: Any, here: str, keys: tuple[str, ...]) -> None:
    if not isinstance(value, dict):
        raise BadInput(f"{here}: must be an object with {' and '.join(keys)}")
    for key in keys:
        if key not in value:
            raise BadInput(
                f"{here}.{key}: is missing" if here != "the plan" else f"{key}: is missing"
            )
    for key in value:
        if key not in keys:
            raise BadInput(f"{here}: unknown key {key!r:.80}; use {' and '.join(keys)} only")


def _refuse_constant(name: str) -> None:
    raise BadInput(f"{name} is not a JSON number")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """json keeps the last of two equal keys; a plan that says two things is refused."""
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise BadInput(
            f"the key {next(k for k in keys if keys.count(k) > 1)!r:.80} appears twice in one object"
        )
    return found
