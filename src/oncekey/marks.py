"""The front door to markers and plain results, without functions, in both colours."""

from __future__ import annotations

from typing import Any

from oncekey.duration import Duration
from oncekey.policy import Terms
from oncekey.simple import Simple
from oncekey.simple_async import AsyncSimple
from oncekey.view import View


class Marks(View):
    """The markers and plain results of a `Once`."""

    def check(self, key: str, ttl: Duration | None = None) -> bool:
        """Whether the key is new: True for one caller until the ttl is over.

        While the store is down, True where calls fail open, else StoreError.
        """
        return self._simple().check(self._scope, key, self._lasting(ttl))

    def keep_result(self, key: str, value: object, ttl: Duration | None = None) -> None:
        """The plain value is kept under the key until the ttl is over."""
        self._simple().keep_result(self._scope, key, value, self._lasting(ttl))

    def read_result(self, key: str, default: Any = None) -> Any:  # noqa: ANN401 - the user's value
        """The plain value that was kept, or the default."""
        return self._simple().read_result(self._scope, key, default, self._terms)

    async def check_async(self, key: str, ttl: Duration | None = None) -> bool:
        """Whether the key is new: True for one caller until the ttl is over."""
        return await self._simple_async().check(self._scope, key, self._lasting(ttl))

    async def keep_result_async(self, key: str, value: object, ttl: Duration | None = None) -> None:
        """The plain value is kept under the key until the ttl is over."""
        await self._simple_async().keep_result(self._scope, key, value, self._lasting(ttl))

    async def read_result_async(self, key: str, default: Any = None) -> Any:  # noqa: ANN401 - the user's value
        """The plain value that was kept, or the default."""
        return await self._simple_async().read_result(self._scope, key, default, self._terms)

    def _simple(self) -> Simple:
        return Simple(self._core, self._core.store)

    def _simple_async(self) -> AsyncSimple:
        return AsyncSimple(self._core, self._core.store_async)

    def _lasting(self, ttl: Duration | None) -> Terms:
        return self._terms if ttl is None else self._options.having(fields={"ttl": ttl}).terms()
