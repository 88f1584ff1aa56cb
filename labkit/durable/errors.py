"""What the durable run refuses, in one tree under LabkitError; the codes are those of the commands.

LabkitError
|- RunNotFoundError          1    no run of this id
|- LeaseNotHeldError         3    another advance holds the run, or this one lost it
|- DefinitionError          65
|  |- DefinitionConflictError     this id and version is registered already
|  |- DefinitionNotFoundError     nobody registered this exact id and version
|- RunRefused               65    the command does not fit the run; nothing was changed
|  |- DuplicateRunError           the id belongs to a run of another input
|  |- IllegalRunTransitionError   the run's status does not allow it
|  |- StaleRunVersionError        based on a state that is no more
|  |- ResolutionNotAllowedError   no answer to what this run waits for
|- StoreError               74    the storage failed; nothing of that transaction is stored
|  |- RunStoreIntegrityError      damaged, newer, or sealed with another key; left as it is
|  |- StoreBusyError        75    another process kept the store busy
|- StepFailure                    what an adapter raises to say how its call failed
   |- ModelFailure
   |- ToolFailure                 TRANSIENT or PERMANENT: no effect happened"""

from datetime import datetime
from enum import StrEnum
from typing import Any

from labkit.errors import LabkitError

__all__ = [
    "DefinitionConflictError", "DefinitionError", "DefinitionNotFoundError", "DuplicateRunError",
    "FailureClassification", "IllegalRunTransitionError", "LeaseNotHeldError", "ModelFailure",
    "ResolutionNotAllowedError", "RunNotFoundError", "RunRefused", "RunStoreIntegrityError",
    "StaleRunVersionError", "StepFailure", "StoreBusyError", "StoreError", "ToolFailure",
]  # fmt: skip


class FailureClassification(StrEnum):
    """TRANSIENT may be tried again, PERMANENT not. UNCERTAIN: nobody can say what happened."""

    TRANSIENT, PERMANENT, UNCERTAIN = "TRANSIENT", "PERMANENT", "UNCERTAIN"


class RunNotFoundError(LabkitError, code=1): ...


class LeaseNotHeldError(LabkitError, code=3):
    """Carries who holds the lease now (None: nobody) and until when it is valid."""

    def __init__(self, message: str, owner: str | None, expires_at: datetime | None) -> None:
        super().__init__(message)
        self.owner, self.expires_at = owner, expires_at

    def __reduce__(self) -> Any:
        return type(self), (str(self), self.owner, self.expires_at)


class DefinitionError(LabkitError, code=65): ...


class DefinitionConflictError(DefinitionError, code=65): ...


class DefinitionNotFoundError(DefinitionError, code=65): ...


class RunRefused(LabkitError, code=65): ...


class DuplicateRunError(RunRefused, code=65): ...


class IllegalRunTransitionError(RunRefused, code=65): ...


class StaleRunVersionError(RunRefused, code=65): ...


class ResolutionNotAllowedError(RunRefused, code=65): ...


class StoreError(LabkitError, code=74): ...


class RunStoreIntegrityError(StoreError, code=74): ...


class StoreBusyError(StoreError, code=75): ...


class StepFailure(LabkitError):
    """Raised by an adapter: the class decides what may follow, the code is kept as metadata."""

    def __init__(
        self, classification: FailureClassification, code: str = "FAILED", message: str = ""
    ) -> None:
        super().__init__(message or str(code))
        self.classification = FailureClassification(classification)
        self.code = str(code or "FAILED")

    def __reduce__(self) -> Any:  # a tool may work in another process
        return type(self), (self.classification, self.code, str(self))


class ModelFailure(StepFailure): ...


class ToolFailure(StepFailure): ...
