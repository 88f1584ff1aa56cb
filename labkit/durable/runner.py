"""The commands of a run. Each looks, takes the lease, and lets one advance go as far as it can."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import uuid4

from labkit.durable import errors, records
from labkit.durable.advance import DEFINITION_GONE, Advance, Stopped
from labkit.durable.definition import DefinitionRegistry
from labkit.durable.lease import Held, Result, patiently
from labkit.durable.plain import build, dump
from labkit.durable.records import Change, Claim, RunInspection, RunRecord, RunStatus, RunSummary
from labkit.durable.resolution import RunResolution
from labkit.durable.store import RunStore
from labkit.durable.updates import Broadcast, RunUpdate, RunUpdateType
from labkit.errors import BadInput, LabkitError, ensure

__all__ = ["DEFAULT_LEASE_TTL", "Recovered", "Runner"]

DEFAULT_LEASE_TTL = timedelta(seconds=30)
_RUN_IT = Change(RunStatus.RUNNING)


class Recovered(NamedTuple):
    """What `recover_all` made of one run: how it stands, or why it could not be advanced."""

    run_id: str
    run: RunRecord | None
    error: Exception | None


class Runner:
    """Advances runs of the registered definitions. `owner` names it in leases and journal."""

    def __init__(
        self,
        registry: DefinitionRegistry,
        store: RunStore,
        *,
        owner: str | None = None,
        lease_ttl: timedelta = DEFAULT_LEASE_TTL,
    ) -> None:
        fits = timedelta(milliseconds=1) <= lease_ttl <= timedelta(days=366)
        ensure(fits, BadInput(f"lease_ttl={lease_ttl}: it is from 1 ms to 366 days"))
        self.registry, self.store = registry, store
        self.owner, self._ttl = owner or f"runner-{uuid4().hex}", lease_ttl
        self._live: dict[str, Broadcast] = {}

    async def get_run(self, run_id: str) -> RunRecord:
        """Raises RunNotFoundError."""
        return await self.store.get_run(run_id)

    async def inspect_run(self, run_id: str) -> RunInspection:
        """One consistent snapshot of all that is stored. Raises RunNotFoundError."""
        return await self.store.inspect_run(run_id)

    async def list_runs(self, **wanted: Any) -> list[RunSummary]:
        """The oldest first; `wanted` are the fields of RunFilter, each with its default."""
        asked = records.RunFilter(**wanted)
        fits = asked.lease in (None, "expired") and asked.status in (None, *RunStatus)
        fits = fits and type(asked.limit) is int and 0 < asked.limit < 1 << 31
        ensure(fits, BadInput(f"{asked} is no filter: a status, lease='expired', limit from 1 on"))
        return await self.store.list_runs(asked)

    async def subscribe_run(self, run_id: str) -> AsyncIterator[RunUpdate]:
        """Updates of this runner's advance, until it ends: `gather` it, first, with `start_run`."""
        await self.store.get_run(run_id)
        live = self._live.setdefault(run_id, Broadcast())
        async for update in live.read():
            yield update
        if not live.is_on and self._live.get(run_id) is live:
            del self._live[run_id]

    async def create_run(
        self,
        definition_id: str,
        version: str,
        input: str,
        *,
        run_id: str | None = None,
        history: Sequence[records.ConversationMessage] = (),
    ) -> RunRecord:
        """Stores the run with what its definition declares now; calls nothing.

        The same `run_id` with an equal request gives the stored run. Raises DuplicateRunError for
        another request, DefinitionNotFoundError, and ValueError for a blank id."""
        blank = ValueError("run_id is blank or no text; leave it out to get a new one")
        ensure(run_id is None or (isinstance(run_id, str) and run_id.strip()), blank)
        ensure(isinstance(input, str), BadInput(f"the input is no text: {type(input).__name__}"))
        try:
            made = json.loads(dump(list(history))) if history != () else []
            told = build(tuple[records.ConversationMessage, ...], made)
        except (TypeError, ValueError, AttributeError) as error:
            raise BadInput(f"the history is no list of ConversationMessage: {error}") from error
        definition = self.registry.resolve(definition_id, version)
        now = self.store.clock.now()
        run = RunRecord(
            run_id=run_id or uuid4().hex,
            definition_id=definition_id,
            definition_version=version,
            input=input,
            history=told,
            snapshot=definition.frozen_snapshot(),
            created_at=now,
            updated_at=now,
        )
        return await self._write(lambda: self.store.create_run(run))

    async def start_run(self, run_id: str) -> RunRecord:
        """Advances a CREATED run. Raises IllegalRunTransitionError for any other."""
        with self._broadcast(run_id) as live:
            run = await self.store.summarise_run(run_id)
            why = f"run {run_id} is {run.status}; only a CREATED one is started"
            ensure(run.status is RunStatus.CREATED, errors.IllegalRunTransitionError(why))
            self.registry.resolve(run.definition_id, run.definition_version)
            return await self._advance(run, _RUN_IT, live)

    async def resume_run(self, run_id: str) -> RunRecord:
        """Goes on with a run that was left behind, by what the store can prove.

        A run that waits for the application is returned as it is. Raises IllegalRunTransitionError
        for a terminal run and LeaseNotHeldError while another advance holds it."""
        with self._broadcast(run_id) as live:
            run = await self.store.summarise_run(run_id)
            if run.status.is_terminal:
                raise errors.IllegalRunTransitionError(f"run {run_id} has ended: {run.status}")
            is_there = self.registry.is_registered(run.definition_id, run.definition_version)
            waits_for_definition = run.waiting_reason == records.REASON_DEFINITION_UNAVAILABLE
            if run.status is RunStatus.WAITING and not (waits_for_definition and is_there):
                return await self.store.get_run(run_id)
            if run.status is RunStatus.RUNNING:
                return await self._advance(run, None, live)
            return await self._advance(run, _RUN_IT if is_there else DEFINITION_GONE, live)

    async def resolve_run(
        self, run_id: str, resolution: RunResolution, expected_version: int
    ) -> RunRecord:
        """Gives the application's answer to a WAITING run, and goes on. Raises
        IllegalRunTransitionError, ResolutionNotAllowedError or StaleRunVersionError for an answer
        that does not fit; then nothing has changed."""
        with self._broadcast(run_id) as live:
            if retries := resolution.action is records.ResolutionAction.RETRY_STEP:
                await self._require_tool(run_id)
            claim = Claim(run_id, self.owner, self._ttl, expected_version)
            inspection = await self._write(lambda: self.store.resolve_run(claim, resolution))
            return await self._go_on(inspection, live, retries=retries)

    async def cancel_run(self, run_id: str, expected_version: int | None = None) -> RunRecord:
        """Asks for the end of a run: at once where nobody advances it, else at the next safe point.

        No call is made, and one in flight is not killed: what it did is stored first. An effect
        that nobody can prove beats the request: the run WAITs, and the request stays."""
        run = await self.store.summarise_run(run_id)
        if run.status.is_terminal:
            raise errors.IllegalRunTransitionError(f"run {run_id} is {run.status}: it has ended")
        if run.status is not RunStatus.RUNNING:
            version = run.version if expected_version is None else expected_version
            claim = Claim(run_id, self.owner, self._ttl, version)
            cancelled = Change(RunStatus.CANCELLED)
            return (await self._write(lambda: self.store.acquire_lease(claim, cancelled))).run
        asked = await self._write(
            lambda: self.store.request_cancel(run_id, self.owner, expected_version=expected_version)
        )
        if asked.has_valid_lease(self.store.clock.now()):
            return await self.store.get_run(run_id)
        with self._broadcast(run_id) as live:
            try:
                return await self._advance(asked, None, live)
            except (errors.LeaseNotHeldError, errors.RunRefused):  # another was faster, and obeys
                return await self.store.get_run(run_id)

    async def recover_all(self, limit: int = 100, after: str | None = None) -> list[Recovered]:
        """Resumes, side by side, the RUNNING runs that nobody holds; a bad one stops no other."""
        runs = await self.list_runs(lease="expired", limit=limit, after=after)
        return list(await asyncio.gather(*(self._recover(run.run_id) for run in runs)))

    async def _recover(self, run_id: str) -> Recovered:
        try:
            return Recovered(run_id, await self.resume_run(run_id), None)
        except Exception as error:
            return Recovered(run_id, None, error)

    async def _require_tool(self, run_id: str) -> None:
        """Raises ResolutionNotAllowedError where the tool of a step to be retried is not here."""
        found = await self.store.inspect_run(run_id)
        run, key = found.run, (found.run.definition_id, found.run.definition_version)
        names = [step.name or "" for step in found.steps if step.step_id == run.waiting_step_id]
        is_there = self.registry.is_registered(*key)
        if not (is_there and all(map(self.registry.resolve(*key).tool, names))):
            raise errors.ResolutionNotAllowedError(f"RETRY_STEP: {' '.join(key)} has no such tool")

    async def _advance(self, run: RunSummary, change: Change | None, live: Broadcast) -> RunRecord:
        claim = Claim(run.run_id, self.owner, self._ttl, run.version)
        inspection = await self._write(lambda: self.store.acquire_lease(claim, change))
        return await self._go_on(inspection, live)

    async def _go_on(
        self, inspection: RunInspection, live: Broadcast, *, retries: bool = False
    ) -> RunRecord:
        """From the lease to where the run cannot go further. In any case the lease is given back.
        `retries`: the open attempt is one that the application has just asked for."""
        run = inspection.run
        self._publish_status(live, run)
        if run.status is not RunStatus.RUNNING:
            return run
        held = Held(self.store, run, self._ttl)
        advance = Advance(self.store, held, inspection, live)
        advance.authorised = advance.open_attempt if retries else None
        try:
            await advance.run(self.registry)
        except Stopped:
            ended = await self.store.get_run(run.run_id, run)
        except BaseException:
            await self._let_go(advance, held)
            raise
        self._publish_status(live, ended)
        return ended

    async def _let_go(self, advance: Advance, held: Held) -> None:
        """Leaves the run as recovery would find it, so that anybody can go on at once."""
        # Where this cannot be written the run stays as a crash leaves it; the first error counts.
        with suppress(LabkitError):
            try:
                await advance.normalise()
            except Stopped:
                return
            await held.write(lambda: self.store.release_lease(held.hold))

    async def _write(self, verb: Callable[[], Awaitable[Result]]) -> Result:
        end = self.store.clock.now() + self._ttl
        return await patiently(verb, self.store.clock, lambda: end)

    @contextmanager
    def _broadcast(self, run_id: str) -> Iterator[Broadcast]:
        """The broadcast of a run while it is advanced. A second command, which the store will
        refuse, must not take it from the first."""
        ensure(isinstance(run_id, str), BadInput("run_id is no text; give run.run_id, awaited"))
        live = self._live.setdefault(run_id, Broadcast())
        if live.is_on:
            yield Broadcast()
            return
        live.is_on = True
        try:
            yield live
        finally:
            live.close()
            self._live.pop(run_id, None)

    def _publish_status(self, live: Broadcast, run: RunRecord) -> None:
        of = {"run_id": run.run_id, "status": run.status}
        live.publish(RunUpdateType.STATUS_CHANGED, self.store.clock, **of)
