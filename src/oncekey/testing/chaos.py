"""Chaos: a handler is run with duplicates, overlaps, crashes and lost replies, and counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

from oncekey.engine.breaker import Breaker
from oncekey.engine.runtime import Core
from oncekey.errors import ConfigurationError
from oncekey.once import Once
from oncekey.stores.base import Store
from oncekey.testing.chaos_report import ChaosError, Report
from oncekey.testing.chaos_store import ChaosStore, FlightsApart
from oncekey.testing.clock import FakeClock
from oncekey.testing.effects import AsyncEffect, Effect, checked_name
from oncekey.testing.playing import Playing
from oncekey.testing.schedules import schedules

E = TypeVar("E", bound=Effect)


class Chaos:
    """A small world for one handler: a store in memory, a clock that stands still, and effects.

    `chaos.once` is a `Once` in this world; `chaos.use(once)` moves one of yours into it.
    """

    def __init__(self) -> None:
        """Nothing has been declared, and nothing has happened."""
        self.clock: Final = FakeClock()
        self._store: Final = ChaosStore(self.clock)
        self._effects: Final[dict[str, Effect]] = {}
        self._moved: Final[list[tuple[Core, dict[str, Any]]]] = []
        self._once: Once | None = None

    @property
    def once(self) -> Once:
        """A `Once` for handlers that are made inside the test."""
        if self._once is None:
            self._once = self.use(Once("memory://", observers=()))
        return self._once

    def use(self, once: Once) -> Once:
        """Your own `Once`, and all that was made with it, keeps its records here until the end."""
        if not isinstance(once, Once):
            msg = f"use takes the Once that your code has, not {once!r}"
            raise ConfigurationError(msg)
        core = once._core  # noqa: SLF001 - the same library
        store = cast("Store", self._store)  # its verbs are made in a loop
        self._moved.append((core, dict(vars(core))))
        vars(core).update(
            _blocking=store,
            _awaiting=None,
            _behind=store,
            _breaker=Breaker(store),
            _engine=None,
            _engine_async=None,
            cache=None,
            flights=FlightsApart(),
        )
        return once

    def effect(
        self, name: str, function: Callable[..., Any] | None = None, *, key: str = "idempotency_key"
    ) -> Effect:
        """Something that must happen once, to be called in place of the real thing.

        It calls `function`, where there is one. An argument named `key` is an idempotency key.
        """
        return self._declared(Effect(checked_name(name), function, key))

    def effect_async(
        self, name: str, function: Callable[..., Any] | None = None, *, key: str = "idempotency_key"
    ) -> AsyncEffect:
        """The same for code that awaits it."""
        return self._declared(AsyncEffect(checked_name(name), function, key))

    def _declared(self, effect: E) -> E:
        if effect.name in self._effects:
            msg = f"there is an effect {effect.name!r} already; each needs its own name"
            raise ConfigurationError(msg)
        self._effects[effect.name] = effect
        return effect

    def run(
        self,
        call: Callable[[], Any],
        *,
        reset: Callable[[], object] | None = None,
        busy: Callable[[Any], bool] | None = None,
    ) -> Report:
        """What came of everything that was tried with the call; `ChaosError` if anything is wrong.

        `call` makes one call of your handler, and may be a coroutine function. What it returns
        must be the same for every caller. `reset` puts your own state back before each schedule;
        `busy` says which answers mean "ask again later", where that is not an exception.
        """
        if not callable(call):
            msg = f"run takes a function that calls your handler, not {call!r}"
            raise ConfigurationError(msg)
        if not self._effects:
            msg = "declare what must happen once first, as in chaos.effect('charge')"
            raise ConfigurationError(msg)
        playing = Playing(
            call,
            self._store,
            self._effects,
            reset=reset or (lambda: None),
            busy=busy or (lambda _: False),
        )
        expected, points = playing.undisturbed()
        report = Report(expected, [playing.play(one, expected) for one in schedules(points)])
        if report.wrong:
            raise ChaosError(str(report))
        return report

    def close(self) -> None:
        """Every `Once` is as it was."""
        while self._moved:
            core, before = self._moved.pop()
            vars(core).clear()
            vars(core).update(before)
