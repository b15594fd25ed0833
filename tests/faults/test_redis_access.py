"""Redis refuses its own user for a while, in the middle of a run: what ran is kept and recorded."""

import logging
from contextlib import closing

import pytest
import redis

from oncekey import ConfigurationError, NotRecordedError, Once, StoreError
from oncekey.engine import engine, engine_async
from oncekey.stores import AsyncRedisStore
from tests.faults.colours import COLOURS
from tests.patience import until_async

TRIES = 3
WORDS = ("NOAUTH", "NOPERM", "WRONGPASS")


class Access:
    """What a user of the server may do, changed by an administrator whom nothing concerns."""

    user, password = "app", ":right@"

    def __init__(self, server):
        with server.client() as client:
            client.acl_setuser("admin", enabled=True, nopass=True, keys=["*"], commands=["+@all"])
        self.admins_url = server.url.replace("redis://", "redis://admin:any@")
        self._admin = redis.Redis.from_url(self.admins_url)
        self.tell("ACL", "SETUSER", "app", "on", ">right", "~*", "&*", "+@all")
        login = f"{self.user}{self.password}" if self.password else ""
        self.url = server.url.replace("redis://", f"redis://{login}")

    def tell(self, *words):
        self._admin.execute_command(*words)

    def refusals(self):
        """How often the server has refused somebody."""
        counted = self._admin.info("errorstats")
        return sum(counted.get(f"errorstat_{word}", {"count": 0})["count"] for word in WORDS)

    def close(self):
        self._admin.close()


class Scripts(Access):
    """Scripts are forbidden; the connections stay."""

    told = "does not allow this user what oncekey needs"

    def refuse(self):
        self.tell("ACL", "SETUSER", "app", "-eval", "-evalsha")

    def allow(self):
        self.tell("ACL", "SETUSER", "app", "+eval", "+evalsha")


class Password(Access):
    """The password is another one, and who has logged in before is sent away."""

    told = "refused the user name or the password"

    def refuse(self):
        self.tell("ACL", "SETUSER", "app", "resetpass", ">rotated")
        self.tell("CLIENT", "KILL", "USER", "app")

    def allow(self):
        self.tell("ACL", "SETUSER", "app", "resetpass", ">right")


class FirstPassword(Access):
    """Everybody was let in, and now a password is required."""

    user, password = "default", ""
    told = "wants a password"

    def refuse(self):
        self.tell("CONFIG", "SET", "requirepass", "secret")
        self.tell("CLIENT", "KILL", "USER", "default")

    def allow(self):
        self.tell("CONFIG", "SET", "requirepass", "")


@pytest.fixture(params=[Scripts, Password, FirstPassword], ids=lambda kind: kind.__name__)
def access(request, another_redis):
    access = request.param(another_redis())
    yield access
    access.close()


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    """A settle that is refused goes to the background at once."""
    for module in (engine, engine_async):
        monkeypatch.setattr(module, "SETTLE_PATIENCE", 0.0)


@pytest.fixture(params=COLOURS)
def colour(request):
    return request.param


@pytest.fixture
def caller(access, colour):
    caller = colour(Once(access.url, cache=False))
    yield caller
    caller.close()


@pytest.fixture
def seen(access):
    """The records as the administrator sees them."""
    with closing(Once(access.admins_url)) as once:
        yield once


def refused_some_more(access):
    """A condition: the server has refused several requests since now."""
    enough = access.refusals() + TRIES
    return lambda: access.refusals() >= enough


def loud(caplog):
    """The errors of the background, one for each kind."""
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    said = [record.getMessage().partition(":")[0] for record in errors]
    return [words for words in said if "not processing" not in words]


def recovered(once):
    """A condition: it is known that the store records again."""
    return lambda: not once.core.breaker.open


def test_a_run_keeps_its_lease_while_renewals_are_refused(access, caller, seen, until, caplog):
    ran = []

    def work():
        ran.append("effect")
        until(lambda: seen.get("charge").updated > seen.get("charge").started)  # renewed
        access.refuse()
        until(refused_some_more(access))
        before = seen.get("charge")
        access.allow()
        until(lambda: seen.get("charge").lease_end > before.lease_end)  # and renewed again
        return "done"

    assert caller.run("charge", work, lease="900ms") == "done"
    record = seen.get("charge")
    assert (record.status, record.attempt, record.uncertain) == ("completed", 1, False)
    assert caller.run("charge", work) == "done"
    assert ran == ["effect"]
    assert loud(caplog) == ["a lease cannot be renewed, which goes on being tried"]


def test_a_settle_that_is_refused_is_made_in_the_background(access, caller, seen, until, caplog):
    ran = []

    def work():
        ran.append("effect")
        access.refuse()
        return "done"

    with pytest.raises(NotRecordedError, match="charge"):
        caller.run("charge", work, lease="1h")
    with pytest.raises(StoreError, match=access.told):
        caller.run("another", lambda: pytest.fail("it ran"))
    until(refused_some_more(access))
    assert seen.get("charge").status == "running"
    access.allow()
    until(lambda: seen.get("charge").status == "completed")
    until(recovered(caller.once))
    assert caller.run("charge", work) == "done"
    assert ran == ["effect"]
    assert loud(caplog) == [
        "task completed, but not recorded yet [charge]",
        "the store refuses to be told, which goes on being tried",
    ]


def test_a_release_that_is_refused_is_made_in_the_background(access, caller, seen, until):
    def work():
        access.refuse()
        raise ValueError

    with pytest.raises(ValueError):
        caller.run("charge", work, lease="1h")
    until(refused_some_more(access))
    assert seen.get("charge").status == "running"
    access.allow()
    until(lambda: seen.get("charge").status == "released")
    assert caller.run("charge", lambda: "done") == "done"


def test_who_is_refused_from_the_start_is_told_what_to_correct(access, caller):
    access.refuse()
    with pytest.raises(ConfigurationError, match=access.told) as caught:
        caller.run("charge", lambda: pytest.fail("it ran"))
    assert isinstance(caught.value, StoreError)  # passwords change while programs run
    assert caught.value.happened is False


def test_a_call_that_may_fail_open_runs_while_its_claim_is_refused(access, caller, seen, until):
    ran = []

    def work():
        ran.append("effect")
        access.allow()
        until(lambda: seen.get("charge") is not None)  # claimed as soon as that is possible
        return "done"

    access.refuse()
    assert caller.run("charge", work, fail_mode="open", lease="1h") == "done"
    until(lambda: seen.get("charge").status == "completed")
    assert caller.run("charge", work) == "done"
    assert ran == ["effect"]


async def test_so_it_is_with_a_store_of_coroutines(access, seen, caplog):
    """Here the keeper asks on the loop, over the wires that all coroutines share."""
    once, ran = Once(AsyncRedisStore.from_url(access.url), cache=False), []

    async def work():
        ran.append("effect")
        access.refuse()
        await until_async(refused_some_more(access))
        before = seen.get("charge")
        access.allow()
        await until_async(lambda: seen.get("charge").lease_end > before.lease_end)
        access.refuse()
        return "done"

    with pytest.raises(NotRecordedError, match="charge"):
        await once.options(lease="900ms").run_async("charge", work)
    await until_async(refused_some_more(access))
    access.allow()
    await until_async(lambda: seen.get("charge").status == "completed")
    await until_async(recovered(once))
    assert await once.run_async("charge", work) == "done"
    assert ran == ["effect"]
    assert loud(caplog) == [
        "a lease cannot be renewed, which goes on being tried",
        "task completed, but not recorded yet [charge]",
        "the store refuses to be told, which goes on being tried",
    ]
    await once.aclose()
