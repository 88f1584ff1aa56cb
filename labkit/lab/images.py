"""All disks that a power cut can leave of a small program: what a reader finds on each.

The program publishes one report of three sectors. It is recorded once by a real run under strace;
what nothing had forced to the disk is then kept or lost, in every way.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from labkit.chaos.disk import SECTOR, Bind, Image, Resize, Sync, Told, Write
from labkit.chaos.powerloss import plan_cuts
from labkit.chaos.recording import record_files
from labkit.chaos.scenario import Scenario, Workshop, scratch
from labkit.errors import LabkitError
from labkit.lab.scenarios.one_report import FOLDER, NAME, TEXT

if TYPE_CHECKING:
    import pandas as pd

    from labkit.lab.pictures import Picture

__all__ = ["Disks", "Sight", "calls", "disks"]

MODULE = "labkit.lab.scenarios.one_report"
MOST = 400  # images of one run; a small program has fewer
KEPT, ZEROS, MISSING = "kept", "zeros", "missing"
SECTORS = -(-len(TEXT) // SECTOR)
NOTHING, WHOLE = "no report", "the whole report"


class Sight(NamedTuple):
    """One disk. `told`: the program had said `published` before the cut. `sectors` of the report,
    none where a reader finds no report."""

    told: bool
    paths: tuple[str, ...]
    sectors: tuple[str, ...]

    @property
    def is_broken(self) -> bool:
        """A report that is there must be whole; one that was acknowledged must be there."""
        if self.sectors:
            return set(self.sectors) != {KEPT}
        return self.told

    @property
    def finds(self) -> str:
        """What a reader finds, in words."""
        if not self.sectors:
            return NOTHING
        if set(self.sectors) == {KEPT}:
            return WHOLE
        return "an empty file" if set(self.sectors) == {MISSING} else ", ".join(self.sectors)


class Disks(NamedTuple):
    """`sights` are the different ones, the better ones first. `ops` are the calls; `settled`
    is for each the number of the call that forced it to the disk, or None."""

    sights: tuple[Sight, ...]
    ops: tuple[str, ...]
    settled: tuple[int | None, ...]

    @property
    def broken(self) -> list[Sight]:
        return [sight for sight in self.sights if sight.is_broken]

    def __repr__(self) -> str:
        return f"{len(self.sights)} different disks, {len(self.broken)} of them broken"

    def table(self) -> pd.DataFrame:
        """A row for each different disk: was the program done, what a reader finds, the verdict."""
        import pandas as pd

        rows = [
            ("yes" if s.told else "no", s.finds, "broken" if s.is_broken else "held")
            for s in self.sights
        ]
        return pd.DataFrame(rows, columns=["said published", "a reader finds", "verdict"])

    def draw_sectors(self) -> Picture:
        """A row of squares for each disk after the program had said `published`."""
        from labkit.lab import pictures_of_disks

        return pictures_of_disks.draw_sectors([s for s in self.sights if s.told])

    def draw_waits(self) -> Picture:
        """A bar for each call, from the call to the fsync that forced it to the disk."""
        from labkit.lab import pictures_of_disks

        return pictures_of_disks.draw_waits(self.ops, self.settled)


def disks(*argv: str) -> Disks:
    """The disks of `one_report` with these arguments. Raises NotFound without strace, LabkitError
    for a recording with a doubt, UsageError for a program that fails unharmed."""
    with tempfile.TemporaryDirectory(prefix="labkit-disks-", dir=scratch()) as root:
        material = {} if argv[0] == "nested" else {f"{FOLDER}/.keep": ""}
        scenario = Scenario(run=[sys.executable, "-m", MODULE, *argv], material=material)
        workshop = Workshop(scenario, Path(root))
        if workshop.code:
            raise LabkitError(f"the program exits {workshop.code}")
        recording = record_files(workshop)
        if recording.doubts:
            raise LabkitError(f"the recording has doubts: {'; '.join(recording.doubts)}")
        disk = recording.disk
        cases = plan_cuts(recording, MOST)
    sights = (_see(disk.image(case.cut), bool(case.told)) for case in cases)
    kept = [at for at, event in enumerate(disk.events) if _changes(event)]
    last = len(disk.events)
    pending = set(disk.pending(last))
    settling = {at: _settled_by(disk.events, at) for at in kept}
    return Disks(
        tuple(sorted(set(sights), key=_rank)),
        tuple(_word(recording.ops[at]) for at in kept),
        tuple(None if at in pending else _number(kept, settling[at]) for at in kept),
    )


def calls(disks: Disks) -> pd.DataFrame:
    """The calls of the recorded run, numbered in their order."""
    import pandas as pd

    return pd.DataFrame({"call": [op for op in disks.ops if op != "says published"]})


def _rank(sight: Sight) -> tuple[object, ...]:
    """First those before the program was done; of the others the whole, the torn, the empty."""
    order = (KEPT, ZEROS, MISSING)
    return sight.told, [order.index(word) for word in sight.sectors or (MISSING,) * 4], sight.paths


def _changes(event: object) -> bool:
    return isinstance(event, Write | Resize | Bind | Sync | Told)


def _settled_by(events: Sequence[object], at: int) -> int | None:
    """The first sync after `at` of the same file or folder."""
    event = events[at]
    if not isinstance(event, Write | Resize | Bind):
        return at
    later = (n for n, e in enumerate(events) if n > at and isinstance(e, Sync))
    return next((n for n in later if getattr(events[n], "inode", 0) in (None, event.inode)), None)


def _number(kept: Sequence[int], at: int | None) -> int | None:
    return None if at is None else kept.index(at)


def _word(op: str) -> str:
    """A call without what chance has put into a name."""
    if op == "tell":
        return "says published"
    return re.sub(r"\.[0-9a-f]{8}\.tmp", ".tmp", op)


def _see(image: Image, told: bool) -> Sight:
    paths = tuple(sorted(p for p in _all(image) if "/." not in p and p != "tmp"))
    found = [inode for name, inode in image.files if name.endswith(f"/{NAME}") and "/." not in name]
    sectors = tuple(_sectors(image.contents[found[0]])) if found else ()
    return Sight(told, paths, sectors)


def _all(image: Image) -> Iterable[str]:
    return [*image.folders, *(name for name, _ in image.files)]


def _sectors(content: bytes) -> Iterable[str]:
    for at in range(SECTORS):
        here, wanted = (text[at * SECTOR : (at + 1) * SECTOR] for text in (content, TEXT))
        yield KEPT if here == wanted else MISSING if not here else ZEROS
