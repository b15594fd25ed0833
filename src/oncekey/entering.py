"""The way into an attempt block, in both colours."""

from __future__ import annotations

from types import TracebackType

from oncekey import attempt, attempt_async
from oncekey.attempt import Attempt
from oncekey.attempt_async import AsyncAttempt
from oncekey.core.call import Call
from oncekey.view import View


class Entering:
    """The way into an attempt: `with` it in code that blocks, `async with` it in coroutines."""

    _attempt: Attempt
    _attempt_async: AsyncAttempt

    def __init__(self, view: View, call: Call) -> None:
        """The call that is to be attempted."""
        self._view = view
        self._call = call

    def __enter__(self) -> Attempt:
        """The attempt: running, or a duplicate with its result."""
        core, active, call = self._view.use(self._call, self._call.terms)
        self._attempt = attempt.enter(core.engine(), call, active=active)
        return self._attempt.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """The attempt has ended."""
        self._attempt.__exit__(kind, error, trace)

    async def __aenter__(self) -> AsyncAttempt:
        """The attempt: running, or a duplicate with its result."""
        core, active, call = self._view.use(self._call, self._call.terms)
        engine = core.engine_async()
        self._attempt_async = await attempt_async.enter(engine, call, active=active)
        return await self._attempt_async.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """The attempt has ended."""
        await self._attempt_async.__aexit__(kind, error, trace)
