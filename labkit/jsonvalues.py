"""Which values the journal holds: those that come back from JSON exactly as they went in."""

import json
import re

from labkit.errors import Any, PermanentError

__all__ = ["MAX_DEPTH", "NotJSON", "to_json"]

MAX_DEPTH = 500  # fixed: a process with a deeper stack, such as a kernel, must read it too
SURROGATE = re.compile("[\ud800-\udfff]")
ENCODE = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
INSTEAD = "build it of dict with str keys, list, str, int, finite float, bool and None"


class NotJSON(PermanentError): ...


def to_json(value: Any, name: str = "the output") -> str:
    """JSON text. Raises NotJSON unless json.loads gives an equal value of the same types back."""
    _check(value, name)
    try:
        return ENCODE(value)
    except (ValueError, RecursionError) as error:  # an int of 5,000 digits
        raise NotJSON(f"{name}: {error}; use a str for a long number") from None


def _check(root: Any, name: str) -> None:  # without recursion, since it judges the depth
    todo = [(root, name, 0)]
    while todo:
        value, where, depth = todo.pop()
        kind = type(value)  # exact: an OrderedDict or an IntEnum comes back as another type
        if depth > MAX_DEPTH:
            raise NotJSON(f"{name} is nested deeper than {MAX_DEPTH} levels; use a flat list")
        if kind is dict:
            if not all(type(key) is str for key in value):
                raise NotJSON(f"{where} has a key that is no str; {INSTEAD}")
            todo += [(key, f"a key of {where}", depth) for key in value]
            todo += [(item, f"{where}.{key:.40}", depth + 1) for key, item in value.items()]
        elif kind is list:
            todo += [(item, f"{where}[{i}]", depth + 1) for i, item in enumerate(value)]
        elif kind not in (str, int, float, bool, type(None)):
            raise NotJSON(f"{where} is of type {kind.__name__}; {INSTEAD}")
        elif kind is str and SURROGATE.search(value):
            raise NotJSON(f"{where} has a lone surrogate; use text.encode('utf-8', 'replace')")
        elif kind is float and value - value != 0:
            raise NotJSON(f"{where} is {value}, which JSON has no number for; use None or a str")
