"""The picture in the README: the timeline of a kill and a recovery that really happened."""

from __future__ import annotations

import tempfile
from pathlib import Path

from labkit.errors import LabkitError
from labkit.journal import timeline
from labkit.lab.demo import CRASH_AT, TASK
from labkit.lab.folder import RUN_IDS, fresh_folder
from labkit.lab.places import originals

__all__ = ["PICTURE", "draw"]

PICTURE = "timeline.png"


def draw(path: Path) -> str:
    """Runs the demo's scenario in a temporary folder, saves its timeline, returns its sentence.

    Raises LabkitError if the agent was not killed, or did not come to its end.
    """
    with tempfile.TemporaryDirectory(prefix="labkit-readme-") as parent:
        folder = fresh_folder(Path(parent), "readme")
        try:
            folder.start(f"agent create {TASK} plan.json", {}).finish()
            killed = folder.start(f"agent run {TASK}", {"AGENT_CRASH_AT": CRASH_AT}).finish()
            resumed = folder.start(f"agent run {TASK}", {}).finish()
        finally:
            folder.close()
        if not killed.killed or resumed.code != 0:
            raise LabkitError(f"the picture was not drawn: {killed!r}, then {resumed!r}")
        picture = timeline(str(folder.database), TASK, killed=RUN_IDS[:1])
        picture.save(path)
        return picture.summary


if __name__ == "__main__":
    draw(originals() / PICTURE)
