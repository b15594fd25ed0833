"""The claim and the completion inside the user's transaction."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from oncekey.core import machine
from oncekey.core.requests import Answer, Claim, Granted, Settle
from oncekey.errors import StoreError
from oncekey.messages import rows
from oncekey.messages.config import InboxConfig
from oncekey.messages.open_transaction_async import AsyncOpenTransaction
from oncekey.messages.statements import MYSQL, SQLITE, Values

_TRIES: Final = 8
_LIMIT: Final = (
    "SELECT current_setting('lock_timeout'), set_config('lock_timeout', CAST(:limit AS text), true)"
)
_RESTORE: Final = "SELECT set_config('lock_timeout', CAST(:limit AS text), true)"

# Of MySQL, which counts whole seconds, and takes nothing back when a savepoint is rolled back.
_LIMIT_MYSQL: Final = (
    "SET @oncekey_patience = @@SESSION.innodb_lock_wait_timeout, "
    "SESSION innodb_lock_wait_timeout = :limit"
)
_RESTORE_MYSQL: Final = "SET SESSION innodb_lock_wait_timeout = @oncekey_patience"


class AsyncTransaction:
    """The user's transaction, and the inbox's table seen from inside it."""

    def __init__(self, config: InboxConfig, given: Any) -> None:
        """Check the connection.

        Raise ConfigurationError if it is outside a transaction or for the other kind of code.
        """
        self._table = config.tables("a transaction")
        self._limit = config.lock_timeout
        self._open = AsyncOpenTransaction(self._table.own, given)
        self._connection = self._open.connection

    def inside(self) -> bool:
        """Return whether the connection is in a transaction."""
        return self._connection.inside()

    def without_savepoint(self) -> bool:
        """Return whether the driver knows that the transaction of the claim is over."""
        return self._connection.without_savepoint()

    async def begin(self) -> None:
        """Make sure that the table exists, and that the connection is to a database of its kind."""
        await self._open.begin()

    async def roll_back(self) -> None:
        """Undo what was done since the savepoint, and free the row for others."""
        await self._connection.roll_back()

    async def claim(self, ask: Claim) -> Answer:
        """Claim the message after a savepoint. Other claims wait for the end of the transaction.

        What follows can be undone without the whole transaction.
        """
        table = self._table
        values = rows.of_claim(table.dialect, ask, self._open.identity, ask.ttl)
        if self._limit is None:
            found = await self._open.run(table.sql.claim_new, values, self._connection.claim_new)
            found = found or await self._open.run(table.sql.claim, values)
        else:
            await self._open.run("", {}, self._savepoint)
            found = await self._in_time(table.sql.claim, values)
        return await self._answer(ask, found)

    async def _in_time(self, statement: str, values: Values) -> list[Any]:
        """Run the statement, which waits for locked rows no longer than the user wants."""
        limit = self._limit
        if limit is None:
            return await self._open.run(statement, values)
        if self._table.dialect is MYSQL:
            await self._open.run(_LIMIT_MYSQL, {"limit": -(-limit // 1000)})
            try:
                return await self._open.run(statement, values)
            finally:
                with suppress(Exception):  # the connection may be gone
                    await self._open.run(_RESTORE_MYSQL, {})
        ((before, _),) = await self._open.run(_LIMIT, {"limit": f"{limit}ms"})
        found = await self._open.run(statement, values)
        await self._open.run(_RESTORE, {"limit": before})
        return found

    async def _savepoint(self, statement: str, values: Values) -> list[Any]:  # noqa: ARG002 - as the transaction runs it
        await self._connection.savepoint()
        return []

    async def _answer(self, ask: Claim, found: list[Any]) -> Answer:
        table = self._table
        for _ in range(_TRIES):
            if found:
                record = rows.granted(found[0], ask, ask.ttl)
                return Granted(record, record.started)
            now, before = await self._read(ask.scope, ask.key)
            if before is not None:
                after, answer = machine.claim(before, ask, now)
                if after is before:  # otherwise it has become free since
                    return answer
            # Each try has its own time: a lease that was alive at the last try may be over by now.
            values = rows.of_claim(table.dialect, ask, self._open.identity, ask.ttl)
            found = await self._open.run(table.sql.claim, values)
        msg = f"{ask.key!r} was changed by others again and again; nothing was claimed"
        raise StoreError(msg, happened=False)

    async def claim_many(self, asks: list[Claim]) -> list[Answer]:
        """Claim the messages after a savepoint, in the order of their keys. Return the answers.

        A server claims all of them with the same statements. SQLite is in this process, so that one
        statement for each costs no round trips.
        """
        table = self._table
        await self._open.run("", {}, self._savepoint)
        if table.dialect is SQLITE:
            return [await self._answer(ask, []) for ask in asks]
        values = rows.of_claims(table.dialect, asks, self._open.identity)
        claimed = await self._in_time(table.sql.claim_many, values)
        found = {rows.text(row[0]): row[1:] for row in claimed}
        known = await self._read_many([ask for ask in asks if ask.key not in found])
        answers: list[Answer] = []
        for ask in asks:
            if ask.key in found:
                record = rows.granted(found[ask.key], ask, ask.ttl)
                answers.append(Granted(record, record.started))
                continue
            now, old = known[ask.key]
            after, answer = (None, None) if old is None else machine.claim(old, ask, now)
            if answer is None or after is not old:  # it has become free since
                answer = await self._answer(ask, [])
            answers.append(answer)
        return answers

    async def _read_many(self, asks: list[Claim]) -> dict[str, Any]:
        """Return the time and the record for each key."""
        if not asks:
            return {}
        table, scope = self._table, asks[0].scope
        values = rows.of_claims(table.dialect, asks, self._open.identity)
        read = {}
        for key, *row in await self._open.run(table.sql.read_many, values):
            identity, now, record = rows.read(row, scope, key)
            if identity != self._open.identity:
                raise self._open.elsewhere()
            read[rows.text(key)] = now, record
        if not read:
            raise self._open.elsewhere()
        return read

    async def settle_many(self, asks: list[Settle]) -> bool:
        """Set the marks and release the savepoint. Return whether all of them were owned."""
        table = self._table
        if not asks:
            pass
        elif table.dialect is SQLITE:
            for ask in asks:
                values = rows.of_settle(table.dialect, ask, self._open.identity)
                if not await self._open.run(table.sql.complete, values):
                    return False
        else:
            values = rows.of_settles(table.dialect, asks, self._open.identity)
            if table.dialect is MYSQL:  # as `run_last` does
                await self._connection.release()
                return len(await self._open.run(table.sql.complete_many, values)) == len(asks)
            if len(await self._open.run(table.sql.complete_many, values)) != len(asks):
                return False
        await self._connection.release()
        return True

    async def settle(self, ask: Settle) -> bool:
        """Set the mark if the attempt still owns the message. Return whether it does."""
        table = self._table
        values = rows.of_settle(table.dialect, ask, self._open.identity)
        if await self._open.run(table.sql.complete, values):
            return True
        await self._read(ask.scope, ask.key)
        return False

    async def settle_last(self, ask: Settle) -> bool:
        """Do the same, and leave what was done since the claim to the transaction."""
        table = self._table
        values = rows.of_settle(table.dialect, ask, self._open.identity)
        return bool(await self._open.run(table.sql.complete, values, self._connection.run_last))

    async def _read(self, scope: str | None, key: str) -> Any:
        """Return the time and the record.

        Raise ConfigurationError if this is another database than the table's.
        """
        table = self._table
        found = await self._open.run(table.sql.read_here, rows.of_place(table.dialect, scope, key))
        identity, now, record = rows.read(found[0], scope, key)
        if identity != self._open.identity:
            raise self._open.elsewhere()
        return now, record
