"""A view of a `Once`: what its doors stand on, and what `options()` makes another one of."""

from __future__ import annotations

from secrets import token_hex

from oncekey.call import Call
from oncekey.core import Core
from oncekey.options import UNSET, Options
from oncekey.policy import Policy, Terms
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

    def use(self, call: Call | None, terms: Terms) -> tuple[Core, bool, Call]:
        """The core, whether it protects, and the call; one without a key has one of its own."""
        if call is None:
            return self._core, False, Call(scope=None, key=token_hex(16), terms=terms)
        return self._core, self.active and not switched_off(), call

    def _in(self, scope: str | None) -> str | None:
        return self._scope if scope is UNSET else scope
