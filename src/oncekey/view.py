"""A view of a `Once`: what its doors stand on, and what `options()` makes another one of."""

from __future__ import annotations

from secrets import token_hex
from typing import Any

from oncekey.core.call import Call
from oncekey.engine.runtime import Core
from oncekey.options import UNSET, Options
from oncekey.policy import Policy, Terms
from oncekey.stores import AsyncStore, Store
from oncekey.switch import switched_off


class View:
    """A core, seen with some options."""

    active: bool
    _core: Core
    _options: Options
    _scope: str | None
    _terms: Terms

    @property
    def policy(self) -> Policy:
        """What was said about protection so far, and nothing that was not."""
        return self._options.policy

    @property
    def store(self) -> Store:
        """The store, for code that blocks."""
        return self._core.store

    @property
    def store_async(self) -> AsyncStore:
        """The store, for coroutines."""
        return self._core.store_async

    def having(self, **said: Any) -> Options:
        """The options of this view, with whatever is said in place of what was there."""
        return self._options.having(**said)

    def use(self, call: Call | None, terms: Terms) -> tuple[Core, bool, Call]:
        """The core, whether it protects, and the call; one without a key has one of its own."""
        if call is None:
            return self._core, False, Call(scope=None, key=token_hex(16), terms=terms)
        return self._core, self.active and not switched_off(), call

    def _in(self, scope: str | None) -> str | None:
        return self._scope if scope is UNSET else scope
