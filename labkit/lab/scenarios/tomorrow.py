"""A clock that is days ahead, for one Python process: the second attempt may come much later."""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

__all__ = ["clock"]

DAY_S = 86_400.0


@contextmanager
def clock(days: int) -> Iterator[None]:
    """Within it `time` and `datetime` say what they will say in so many days."""
    shift = days * DAY_S
    real = {name: getattr(time, name) for name in ("time", "localtime", "gmtime")}

    def now() -> float:
        return float(real["time"]() + shift)

    def broken_down(name: str) -> Any:
        return lambda seconds=None: real[name](now() if seconds is None else seconds)

    strftime = time.strftime

    class Date(datetime.date):
        @classmethod
        def today(cls) -> Any:
            return cls.fromtimestamp(now())

    class DateTime(datetime.datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return cls.fromtimestamp(now(), tz)

        @classmethod
        def today(cls) -> Any:
            return cls.fromtimestamp(now())

        @classmethod
        def utcnow(cls) -> Any:
            return cls.fromtimestamp(now(), datetime.UTC).replace(tzinfo=None)

    with (
        mock.patch.multiple(
            time,
            time=now,
            time_ns=lambda: int(now() * 1e9),
            localtime=broken_down("localtime"),
            gmtime=broken_down("gmtime"),
            strftime=lambda form, *when: strftime(form, *(when or (real["localtime"](now()),))),
        ),
        mock.patch.multiple(datetime, date=Date, datetime=DateTime),
    ):
        yield
