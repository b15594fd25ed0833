"""PostgreSQL records nothing for a while: then nothing new is begun that could not be recorded."""

import psycopg
import pytest

from oncekey import NotRecordedError, Once, StoreError
from oncekey.engine import engine, engine_async
from tests.faults.colours import COLOURS
from tests.servers.postgres_fixtures import postgres, postgres_url  # noqa: F401 - fixtures

SETTLES = "oncekey_settle_v1, oncekey_settle_bound_v1, oncekey_settles_v1"


class Recording:
    """The permission of the role `clerk` to record what was done."""

    def __init__(self, owners_url, url):
        self.url = url
        self._owner = psycopg.connect(owners_url, autocommit=True)
        with_tables = Once(owners_url)
        with_tables.get("charge")
        with_tables.close()
        self._owner.execute("CREATE ROLE clerk LOGIN PASSWORD 'pw'")
        self._owner.execute("GRANT SELECT ON oncekey_schema TO clerk")
        self._owner.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON oncekey_records TO clerk")

    def refuse(self):
        self._owner.execute(f"REVOKE EXECUTE ON FUNCTION {SETTLES} FROM public")

    def allow(self):
        self._owner.execute(f"GRANT EXECUTE ON FUNCTION {SETTLES} TO public")

    def close(self):
        self._owner.execute("DROP OWNED BY clerk")
        self._owner.execute("DROP ROLE clerk")
        self._owner.close()


@pytest.fixture
def recording(postgres, postgres_url):  # noqa: F811 - the fixtures from above
    url = postgres_url.replace(f"postgres:{postgres.password}", "clerk:pw")
    recording = Recording(postgres_url, url)
    yield recording
    recording.close()


@pytest.fixture(params=COLOURS)
def caller(request, recording, monkeypatch):
    for module in (engine, engine_async):
        monkeypatch.setattr(module, "SETTLE_PATIENCE", 0.0)
    caller = request.param(Once(recording.url, cache=False))
    yield caller
    caller.close()


def refuses(caller):
    """A condition: the store is known to record nothing, and closed calls are refused."""

    def refused():
        try:
            caller.run("look", lambda: "looked")
        except NotRecordedError:
            return False
        except StoreError:
            return True
        pytest.fail("the store records")

    return refused


def test_nothing_new_is_begun_while_nothing_can_be_recorded(recording, caller, until):
    ran = []

    def work():
        ran.append("effect")
        recording.refuse()
        return "done"

    with pytest.raises(NotRecordedError):
        caller.run("charge", work, lease="1h")
    until(refuses(caller))
    with pytest.raises(StoreError, match="the store records nothing: the role may not") as caught:
        caller.run("another", lambda: pytest.fail("it ran"))
    assert caught.value.happened is False
    assert caller.run("third", lambda: "ran", fail_mode="open") == "ran"  # as the policy says
    recording.allow()
    until(lambda: caller.once.get("charge").status == "completed")
    until(lambda: not caller.once.core.breaker.open)
    assert caller.run("another", lambda: "ran") == "ran"
    assert caller.run("charge", work) == "done"
    assert ran == ["effect"]
    until(lambda: {record.key for record in caller.once.scan()} >= {"charge", "another", "third"})
    assert not [record for record in caller.once.scan() if record.key.startswith("oncekey.")]
