"""The plan: a goal and fixed steps, checked whole at `create`, so that no run need doubt it."""

import json
import re
from collections.abc import Collection

from labkit.errors import Any, BadInput, LabkitError, ensure
from labkit.jsonvalues import to_json

TASK_ID = re.compile("[A-Za-z0-9][A-Za-z0-9._-]{0,99}")  # can be part of a file's name anywhere
BUILT_IN = {  # the one key of a tool's input, what it needs from the step `from`, what it gives
    "fetch": ("path", "", ("chars", "sha256", "text")),
    "summarize": ("from", "text", ("engine", "summary")),
    "write_artifact": ("from", "summary", ("deduplicated", "path"))}  # fmt: skip


def check_task_id(task_id: str) -> None:
    rule = "use 1 to 100 of A-Z a-z 0-9 . _ - and begin with a letter or a digit"
    ensure(TASK_ID.fullmatch(task_id), BadInput(f"task id {task_id[:110]!r}: {rule}"))


def read_plan(content: bytes, tools: Collection[str]) -> dict[str, Any]:
    """The plan, or BadInput with the path of its first fault, as in `steps[2].input.from`."""
    try:
        plan = json.loads(content.decode("utf-8-sig"))
        to_json(plan, "plan")
    except (ValueError, RecursionError, LabkitError) as error:
        raise BadInput(f"the plan is no JSON in UTF-8: {error}") from None
    _check_keys(plan, "", ("goal", "steps"))
    goal, steps = plan["goal"], plan["steps"]
    ensure(isinstance(goal, str) and goal.strip(), BadInput("goal: must be text"))
    ensure(isinstance(steps, list) and steps, BadInput("steps: must be a list with a step in it"))
    for idx, step in enumerate(steps):
        _check_step(idx, step, steps, tools)
    return {"goal": goal, "steps": steps}


def _check_step(idx: int, step: Any, steps: list[Any], tools: Collection[str]) -> None:
    _check_keys(step, f"steps[{idx}]", ("tool", "input"))
    here, tool, given = f"steps[{idx}]", step["tool"], step["input"]
    unknown = BadInput(f"{here}.tool: {tool!r:.80} is none of {', '.join(sorted(tools))}")
    ensure(isinstance(tool, str) and tool in tools, unknown)
    key, needs, _ = BUILT_IN.get(tool, ("", "", ()))
    _check_keys(given, f"{here}.input", (key,) if key else None)
    is_path = isinstance(given.get("path"), str) and given["path"] and "\0" not in given["path"]
    ensure(key != "path" or is_path, BadInput(f"{here}.input.path: must be the path of a file"))
    if "from" not in given:
        return
    here, source = f"{here}.input.from", given["from"]
    is_earlier = type(source) is int and 0 <= source < idx  # True is an int to isinstance
    ensure(is_earlier, BadInput(f"{here}: {source!r:.80} is not the number of an earlier step"))
    tool = steps[source]["tool"]
    gives = BUILT_IN[tool][2] if tool in BUILT_IN and needs else (needs,)
    ensure(needs in gives, BadInput(f"{here}: {tool} gives {gives}, not {needs!r}"))


def _check_keys(value: Any, here: str, keys: tuple[str, ...] | None) -> None:
    ensure(isinstance(value, dict), BadInput(f"{here or 'the plan'}: must be an object"))
    for key in sorted(set(value) ^ set(keys)) if keys else ():
        raise BadInput(f"{here}.{key:.80}: {'unknown' if key in value else 'missing'}".lstrip("."))
