"""One advance of one run, under one lease: context, then model and tools in turn, to the end.

The loop is the same for a new run and for one that a kill left behind: it asks the table of
`recovery` about each step and reuses what has a checkpoint. The only call to the outside is in
`_call`, between the transaction that stores the attempt and the one that stores how it ended."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, NoReturn

from labkit.durable import errors, model, records, recovery, tools
from labkit.durable.context import ContextItem, ContextRequest
from labkit.durable.definition import AgentDefinition, DefinitionRegistry
from labkit.durable.errors import FailureClassification
from labkit.durable.lease import Held, Result
from labkit.durable.plain import dump, load
from labkit.durable.records import Change, Failed, NewStep, RunStatus, StepAttempt, StepType
from labkit.durable.recovery import Last, Next, change_for, decide, kind_of, last_of
from labkit.durable.snapshot import ModelPurpose
from labkit.durable.store import RunStore
from labkit.durable.updates import Broadcast, RunUpdateType
from labkit.errors import describe

__all__ = ["DEFINITION_GONE", "Advance", "Stopped"]

MODEL_BUDGET_EXCEEDED = "MODEL_EXECUTION_BUDGET_EXCEEDED"
DEFINITION_GONE = Change(RunStatus.WAITING, waiting_reason=records.REASON_DEFINITION_UNAVAILABLE)


class Stopped(Exception):
    """The run is no longer RUNNING; the store says what it is now."""


class _Work(NamedTuple):
    """A step and how it is called; `call` gives the text that becomes the checkpoint."""

    step: NewStep
    call: Callable[[StepAttempt], Awaitable[str]]
    timeout_s: float | None
    asserts: type[errors.StepFailure]


class Advance:
    """`authorised`: the open attempt that a RETRY_STEP has stored, to be called, not recovered."""

    def __init__(
        self, store: RunStore, held: Held, inspection: records.RunInspection, live: Broadcast
    ) -> None:
        self._store, self._held, self._live = store, held, live
        self._run, self._snapshot = inspection.run, inspection.run.snapshot
        self._steps: dict[str, Any] = {step.step_id: step for step in inspection.steps}
        self._outputs = {each.step_id: each.output for each in inspection.checkpoints}
        self._attempts: dict[str, list[StepAttempt]] = {}
        for attempt in inspection.attempts:
            self._attempts.setdefault(attempt.step_id, []).append(attempt)
        self.authorised: StepAttempt | None = None

    @property
    def open_attempt(self) -> StepAttempt | None:
        every = (attempts[-1] for attempts in self._attempts.values() if attempts)
        return next((each for each in every if each.status is records.StepStatus.RUNNING), None)

    async def run(self, registry: DefinitionRegistry) -> None:
        """Always leaves by an exception: Stopped, or what kept the run from being advanced."""
        if not self.authorised:
            await self.normalise()
        await self._safe_point()
        definition = await self._definition(registry)
        items = await self._context(definition)
        turns: list[model.ModelTurn] = []
        while True:
            step_id = f"model-{len(turns) + 1}"
            response = await self._ask_model(definition, step_id, items, turns)
            if not response.tool_calls:
                await self._finish(response.content)
            calls = enumerate(response.tool_calls, start=1)
            outcomes = [
                await self._use_tool(definition, f"{step_id}.tool-{n}", call) for n, call in calls
            ]
            turns.append(model.ModelTurn(response, tuple(outcomes)))

    async def normalise(self) -> None:
        """Transaction 4: an attempt that a crash cut off is UNCERTAIN, and what follows from it."""
        if not (attempt := self.open_attempt):
            return
        step = self._steps[attempt.step_id]
        kind = kind_of(step.step_type, step.name, self._snapshot)
        code = recovery.UNCONFIRMED[step.step_type]
        found = decide(kind, Last.CRASHED, attempt.number, self._snapshot)
        why = "cut off: its outcome is unknown and its effect may exist"
        failed = Failed(FailureClassification.UNCERTAIN, code, why)
        change = change_for(found, kind, step.step_id, code)
        await self._store_failure(attempt, failed, change, True)

    async def _safe_point(self) -> None:
        """Here, and only here, a request to cancel is obeyed: nothing is in flight."""
        if self._held.cancel_requested:
            await self._change(Change(RunStatus.CANCELLED))

    async def _definition(self, registry: DefinitionRegistry) -> AgentDefinition:
        try:
            return registry.resolve(self._run.definition_id, self._run.definition_version)
        except errors.DefinitionNotFoundError:
            await self._change(DEFINITION_GONE)

    async def _finish(self, output: str | None) -> None:
        if output is None:
            raise errors.RunStoreIntegrityError("the last checkpoint is no answer; restore it")
        await self._safe_point()
        await self._change(Change(RunStatus.SUCCEEDED, output=output))

    async def _change(self, change: Change) -> NoReturn:
        """The last write of an advance."""
        await self._held.write(lambda: self._store.change_run(self._held.hold, change))
        raise Stopped

    async def _context(self, definition: AgentDefinition) -> tuple[ContextItem, ...]:
        provider = definition.context_provider
        if not self._snapshot.has_context_provider:
            return ()

        async def provide(attempt: StepAttempt) -> str:
            assert provider
            items = list(await provider.provide(ContextRequest(self._run.input)))
            if not all(isinstance(item, ContextItem) for item in items):
                raise TypeError("a context provider returns ContextItems, and this one did not")
            return dump(items)

        step = NewStep("context", StepType.CONTEXT)
        work = _Work(step, provide, None, errors.StepFailure)
        return await self._result_of(work, tuple[ContextItem, ...], provider is not None)

    async def _ask_model(
        self,
        definition: AgentDefinition,
        step_id: str,
        items: tuple[ContextItem, ...],
        turns: Sequence[model.ModelTurn],
    ) -> model.ModelResponse:
        snapshot = self._snapshot
        request = model.ModelRequest(
            input=self._run.input,
            instructions=snapshot.instructions,
            history=self._run.history,
            context_items=items,
            tools=snapshot.tool_declarations,
            turns=tuple(turns),
        )
        names = [tool.name for tool in snapshot.tool_declarations]

        async def ask(attempt: StepAttempt) -> str:
            adapter = definition.model_adapter
            if isinstance(adapter, model.StreamingModelAdapter):
                response = await self._stream(adapter, request, attempt)
            else:
                response = await adapter.generate(request)
            return dump(model.require_contract(response, names))

        step = NewStep(step_id, StepType.MODEL, purpose=ModelPurpose.PRIMARY)
        work = _Work(step, ask, snapshot.model_timeout_s, errors.ModelFailure)
        return await self._result_of(work, model.ModelResponse)

    async def _stream(
        self, adapter: model.StreamingModelAdapter, request: model.ModelRequest, of: StepAttempt
    ) -> model.ModelResponse | None:
        """Passes the deltas on. Raises ModelFailure unless one response comes, and comes last."""
        response: model.ModelResponse | None = None
        async for part in adapter.stream(request):
            if response is not None:
                raise model.violation("the stream went on after its response")
            if isinstance(part, model.ModelResponse):
                response = part
            elif isinstance(part, model.ModelDelta):
                self._publish(RunUpdateType.MODEL_DELTA, of, content=part.content)
                await asyncio.sleep(0)  # whoever watches sees it now
            else:
                kind = type(part).__name__
                raise model.violation(f"a {kind} in the stream; it takes ModelDeltas")
        return response

    async def _use_tool(
        self, definition: AgentDefinition, step_id: str, call: tools.ToolCall
    ) -> tools.ToolOutcome:
        tool, declared = definition.tool(call.tool_name), self._snapshot.declaration(call.tool_name)

        async def invoke(attempt: StepAttempt) -> str:
            assert tool
            of = {name: getattr(attempt, name) for name in ("run_id", "step_id", "attempt_id")}
            key = f"{attempt.run_id}:{attempt.step_id}"
            outcome = await tool.invoke(tools.ToolRequest(**vars(call), **of, idempotency_key=key))
            return dump(tools.require_outcome(outcome, call))

        effect, timeout_s = (declared.effect, declared.timeout_s) if declared else (None, None)
        step = NewStep(step_id, StepType.TOOL, call.tool_name, effect, call)
        work = _Work(step, invoke, timeout_s, errors.ToolFailure)
        return await self._result_of(work, tools.ToolOutcome, tool is not None)

    async def _result_of(
        self, work: _Work, kind_of_result: type[Result], is_callable: bool = True
    ) -> Result:
        """The checkpoint of a step: the stored one, or that of as many attempts as are allowed."""
        step_id = work.step.step_id
        kind = kind_of(work.step.step_type, work.step.name, self._snapshot)
        while step_id not in self._outputs:
            attempts = self._attempts.setdefault(step_id, [])
            if self.authorised and self.authorised.step_id == step_id:
                attempt, self.authorised = self.authorised, None
                await self._call(work, kind, attempt)
                continue
            found = decide(kind, last_of(attempts, False), len(attempts), self._snapshot)
            code = attempts[-1].error_code if attempts else None
            if change := change_for(found, kind, step_id, code):
                await self._change(change)
            if found is Next.RETRY and (policy := self._snapshot.retry_policy) and policy.delay:
                clock = self._store.clock
                await self._held.renewing(clock.sleep_until(clock.now() + policy.delay))
            await self._safe_point()
            if not is_callable:
                await self._change(DEFINITION_GONE)
            await self._call(work, kind, await self._begin(work.step))
        result: Result = load(kind_of_result, self._outputs[step_id])
        return result

    async def _begin(self, step: NewStep) -> StepAttempt:
        await asyncio.sleep(0)  # with many runs in one loop, renewals get their turn
        await self._held.require()
        budget = self._snapshot.model_execution_budget.of(step.purpose) if step.purpose else None
        store, hold = self._store, self._held.hold
        attempt, receipt = await self._held.write(lambda: store.begin_attempt(hold, step, budget))
        self._held.note(receipt)
        if attempt is None:
            await self._safe_point()
            await self._change(Change(RunStatus.FAILED, error_code=MODEL_BUDGET_EXCEEDED))
        self._steps[step.step_id] = step
        self._attempts[step.step_id].append(attempt)
        return attempt

    async def _call(self, work: _Work, kind: str, attempt: StepAttempt) -> None:
        """Dispatches the open attempt and stores how it ended. The lease is looked at last."""
        self._publish(RunUpdateType.STEP_STARTED, attempt, step_type=work.step.step_type)
        if self._live.readers:
            await asyncio.sleep(0)  # whoever watches may take long, and the lease may end meanwhile
        await self._held.require()
        is_safe = kind not in (tools.ToolEffect.NON_IDEMPOTENT, recovery.UNDECLARED)
        call = attempt_call(work, attempt, is_safe=is_safe)
        ended = await self._held.renewing(call)  # a busy store outside a call must find an end
        if isinstance(ended, Failed):
            await self._fail(kind, attempt, ended)
        else:
            await self._succeed(work.step, attempt, ended)

    async def _succeed(self, step: NewStep, attempt: StepAttempt, output: str) -> None:
        hold = self._held.hold
        receipt = await self._held.write(lambda: self._store.record_success(hold, attempt, output))
        self._held.note(receipt)
        self._outputs[attempt.step_id] = output
        del self._attempts[attempt.step_id]  # of which nothing more is asked
        self._publish(RunUpdateType.STEP_COMPLETED, attempt, step_type=step.step_type)

    async def _fail(self, kind: str, attempt: StepAttempt, failed: Failed) -> None:
        is_unsure = failed.classification is FailureClassification.UNCERTAIN
        last = Last.TIMED_OUT if is_unsure else Last(failed.classification.value)
        found = decide(kind, last, attempt.number, self._snapshot)
        change = change_for(found, kind, attempt.step_id, failed.code)
        await self._store_failure(attempt, failed, change, False)

    async def _store_failure(
        self, attempt: StepAttempt, failed: Failed, change: Change | None, recovered: bool
    ) -> None:
        store, hold = self._store, self._held.hold
        receipt = await self._held.write(
            lambda: store.record_failure(hold, attempt, failed, change=change, recovered=recovered)
        )
        self._held.note(receipt)
        kind, code = failed.classification, failed.code
        ended = replace(attempt, status=records.StepStatus.FAILED, classification=kind)
        self._attempts[attempt.step_id][-1] = replace(ended, error_code=code)
        self._publish(RunUpdateType.ATTEMPT_FAILED, attempt, status=kind)
        if change:
            raise Stopped

    def _publish(self, kind: RunUpdateType, attempt: StepAttempt, **more: Any) -> None:
        of = {"step_id": attempt.step_id, "attempt_id": attempt.attempt_id, **more}
        self._live.publish(kind, self._store.clock, run_id=attempt.run_id, **of)


async def attempt_call(work: _Work, attempt: StepAttempt, *, is_safe: bool) -> str | Failed:
    """The result, or how it failed.

    Only `work.asserts` says what happened outside: a tool that asks a model in its turn may meet a
    ModelFailure after it has sent its mail. `is_safe`: any other exception leaves nothing in doubt.
    A cancelled task leaves as CancelledError: that is no failure of the call. Anything that no
    program should swallow, such as KeyboardInterrupt, leaves too."""
    limit = asyncio.timeout(work.timeout_s)
    try:
        if work.timeout_s is None:
            return await work.call(attempt)
        async with limit:
            return await work.call(attempt)
    except work.asserts as failure:
        text = str(getattr(failure, "code", "FAILED"))[:100]
        code = text.encode("utf-8", "backslashreplace").decode()
        return Failed(failure.classification, code, describe(failure))
    except TimeoutError as error:
        if limit.expired():
            why = f"no answer within {work.timeout_s:g} s"
            return Failed(FailureClassification.UNCERTAIN, "TIMED_OUT", why)
        return _unexpected(error, is_safe)
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        return _unexpected(error, is_safe)  # the callee was cancelled by somebody else
    except Exception as error:
        return _unexpected(error, is_safe)


def _unexpected(error: BaseException, is_safe: bool) -> Failed:
    kind = FailureClassification.PERMANENT if is_safe else FailureClassification.UNCERTAIN
    return Failed(kind, "UNCLASSIFIED_FAILURE", describe(error))
