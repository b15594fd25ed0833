"""A synchronous standby of PostgreSQL that goes away and comes back, as a server sees it.

There is no second server: a standby that `synchronous_standby_names` demands and that never
connects is one that is away, and without the demand every commit that waits for it is confirmed.
"""

import psycopg
import pytest

from tests.patience import until

_WAITING = (
    "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep' "
    "AND datname = current_database() AND application_name = %s"
)
_COMMIT = b"SELECT pg_logical_emit_message(true, 'test', 'a commit that waits')"


class Standby:
    """The standby of one server, which must be restartable: all its databases are concerned."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._admin = psycopg.connect(url, autocommit=True)
        self._probe = psycopg.connect(url, autocommit=True, application_name="probe")
        self._admin.execute("SET synchronous_commit = local")

    def leave(self) -> None:
        """From now on every commit that asks for a standby waits."""
        self._admin.execute("ALTER SYSTEM SET synchronous_standby_names = 'absent'")
        self._admin.execute("SELECT pg_reload_conf()")
        until(self._commits_wait)

    def come_back(self) -> None:
        """Confirm the commits that wait, and all that follow."""
        self._admin.execute("ALTER SYSTEM RESET synchronous_standby_names")
        self._admin.execute("SELECT pg_reload_conf()")

    def waiting(self, name: str = "oncekey") -> list[int]:
        """Return the backends whose commits wait for the standby."""
        return [pid for (pid,) in self._admin.execute(_WAITING, [name]).fetchall()]

    def give_up_waiting(self) -> None:
        """Cancel the waits: the commits are confirmed by this server alone."""
        for pid in self.waiting():
            self._admin.execute("SELECT pg_cancel_backend(%s)", [pid])

    def close(self) -> None:
        self.come_back()
        self._probe.pgconn.finish()
        self._admin.close()

    def _commits_wait(self) -> bool:
        """Return whether the server has taken notice, which it does after a while."""
        pgconn = self._probe.pgconn
        if not pgconn.is_busy():
            while pgconn.get_result() is not None:
                pass
            pgconn.send_query(_COMMIT)
        pgconn.consume_input()
        return bool(self.waiting("probe"))


@pytest.fixture
def standby(breakable_postgres):
    """A standby of a server of its own, and an empty database there."""
    standby = Standby(breakable_postgres.new_database())
    yield standby
    standby.close()
