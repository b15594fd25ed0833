"""The front door to records: looking at them and changing them by hand, in both colours."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Final

from oncekey.admin import Admin
from oncekey.admin_async import AsyncAdmin
from oncekey.admin_rules import MISSING, resolution
from oncekey.core.key import checked_scope
from oncekey.core.record import Record, Status
from oncekey.duration import Duration, microseconds, seconds
from oncekey.errors import ConfigurationError
from oncekey.options import UNSET
from oncekey.view import View

_STATUSES: Final = ("running", "completed", "failed", "released", "held")


class Records(View):
    """The records of a `Once`."""

    def get(self, key: str, *, scope: str | None = UNSET) -> Record | None:
        """The record of the key, if there is one."""
        return self._admin().get(self._in(scope), key)

    def scan(self, *, scope: str | None = UNSET, status: Status | None = None) -> Iterator[Record]:
        """All records, or those of one scope or status, in the order of scope and key."""
        within = None if scope is UNSET else checked_scope(scope)
        return self._admin().scan(within, any_scope=scope is UNSET, status=_checked_status(status))

    def forget(self, key: str, *, scope: str | None = UNSET, force: bool = False) -> bool:
        """The key is as if it had never been used; whether it had been.

        A running or held record is only forgotten by force, and its attempt is lost.
        """
        return self._admin().forget(self._in(scope), key, force=force)

    def resolve(
        self,
        key: str,
        *,
        scope: str | None = UNSET,
        result: object = MISSING,
        error: BaseException | None = None,
        retry: bool = False,
    ) -> bool:
        """A held record ends with this result or error, or may run again; False: it is not held."""
        ended = resolution(result=result, error=error, retry=retry, ttl=self._terms.ttl)
        return self._admin().resolve(self._in(scope), key, ended)

    def purge(self, *, grace: Duration = 0, progress: Callable[[int], None] | None = None) -> int:
        """Records that expired longer ago than `grace` are gone; how many.

        `progress` hears the count after each batch.
        """
        return self._admin().purge(_grace(grace), progress)

    async def get_async(self, key: str, *, scope: str | None = UNSET) -> Record | None:
        """The record of the key, if there is one."""
        return await self._admin_async().get(self._in(scope), key)

    def scan_async(
        self, *, scope: str | None = UNSET, status: Status | None = None
    ) -> AsyncIterator[Record]:
        """All records, or those of one scope or status, in the order of scope and key."""
        within = None if scope is UNSET else checked_scope(scope)
        admin = self._admin_async()
        return admin.scan(within, any_scope=scope is UNSET, status=_checked_status(status))

    async def forget_async(
        self, key: str, *, scope: str | None = UNSET, force: bool = False
    ) -> bool:
        """The key is as if it had never been used; whether it had been."""
        return await self._admin_async().forget(self._in(scope), key, force=force)

    async def resolve_async(
        self,
        key: str,
        *,
        scope: str | None = UNSET,
        result: object = MISSING,
        error: BaseException | None = None,
        retry: bool = False,
    ) -> bool:
        """A held record ends with this result or error, or may run again; False: it is not held."""
        ended = resolution(result=result, error=error, retry=retry, ttl=self._terms.ttl)
        return await self._admin_async().resolve(self._in(scope), key, ended)

    async def purge_async(
        self, *, grace: Duration = 0, progress: Callable[[int], None] | None = None
    ) -> int:
        """Records that expired longer ago than `grace` are gone; how many."""
        return await self._admin_async().purge(_grace(grace), progress)

    def _admin(self) -> Admin:
        return Admin(self._core, self._core.store)

    def _admin_async(self) -> AsyncAdmin:
        return AsyncAdmin(self._core, self._core.store_async)


def _grace(grace: Duration) -> int:
    return microseconds(seconds(grace, "grace", zero=True))


def _checked_status(status: object) -> Any:  # noqa: ANN401 - a Status
    if status is not None and status not in _STATUSES:
        msg = f"a status is one of {', '.join(_STATUSES)}, not {status!r}"
        raise ConfigurationError(msg)
    return status
