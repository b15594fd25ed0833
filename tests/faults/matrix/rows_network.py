"""Rows about the way to the store: lost replies, no way at all, refusals, crowds that come back."""

import random
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from typing import Any

import psycopg
import redis

from oncekey import Once, StoreError
from oncekey.observe import Event
from oncekey.stores import MySQLStore, PostgresStore
from tests.faults.line import LossyLine, is_mysql_verb, is_postgres_verb, is_redis_verb
from tests.faults.matrix.cells import Cell, cell
from tests.faults.matrix.crowd import Crowd
from tests.faults.matrix.gate import Gate
from tests.faults.matrix.lab import Lab, Result, Run
from tests.faults.matrix.spec import Surface
from tests.faults.matrix.store_servers import MariaDBPlace, PostgresPlace, RedisPlace
from tests.faults.matrix.verdict import Figures
from tests.patience import until

WITH_SERVER = ("redis", "postgres", "mariadb")
TIMEOUT = 0.5


class Sometimes:
    """A plan for a line: each reply is lost with this chance."""

    def __init__(self, chance: float) -> None:
        self._chance, self._random = chance, random.Random(7)  # noqa: S311 - no secret

    def __bool__(self) -> bool:
        return True

    def pop(self, _place: int) -> bool:
        return self._random.random() < self._chance


def through(url: str, real: int, port: int) -> str:
    """The same URL by way of another port."""
    return url.replace(f":{real}/", f":{port}/")


IS_VERB = {"redis": is_redis_verb, "postgres": is_postgres_verb, "mariadb": is_mysql_verb}


def _lossy(surface: Surface) -> Cell:
    """F2: one reply in ten is lost, of claims and settles alike; the verb was done."""

    def run(lab: Lab, store: str) -> Result:
        place = lab.places.get(store)
        line = LossyLine(place.port, IS_VERB[store])
        try:
            line.plan = Sometimes(0.1)
            url = through(place.fresh(), place.port, line.port)
            figures = lab.crowd(
                Run(
                    place=url,
                    surface=surface,
                    mode="bare",
                    keys=60 if lab.small else 300,
                    options={"lease": "20s", "settle_patience": 5.0},
                )
            )
        finally:
            line.plan = []
            line.close()
        return Result(
            figures=figures,
            passed=figures.clean and not figures.asked_again and line.lost > 5,
            promise="1 effect per key, the same answer for all",
            notes={"replies lost": line.lost},
        )

    return run


for _surface in ("function", "coroutine", "job", "http"):
    cell("F2", "replies of the store are lost", WITH_SERVER, surface=_surface, mode="bare")(
        _lossy(_surface)
    )


def quick(store: str, url: str) -> Any:
    """The store, which gives up a server that does not answer after half a second."""
    if store == "postgres":
        return PostgresStore(url, timeout=TIMEOUT, patience=TIMEOUT)
    if store == "mariadb":
        return MySQLStore(url, timeout=TIMEOUT, patience=TIMEOUT)
    return f"{url}?socket_timeout={TIMEOUT}&socket_connect_timeout={TIMEOUT}"


@cell("F9", "no way to the store: refused, silent, late", WITH_SERVER, mode="bare")
def no_way(lab: Lab, store: str) -> Result:
    """F9: closed refuses in time and runs nothing; open runs everything and counts it."""
    calls = 10 if lab.small else 30
    slowest: dict[str, float] = {}
    wrong: list[str] = []
    figures = Figures()
    for trouble in ("refused", "silent", "late"):
        for mode in ("closed", "open"):
            with ExitStack() as stack:
                place = stack.enter_context(lab.places.another(store))
                gate = Gate(place.port)
                stack.callback(gate.close)
                url = through(place.fresh(), place.port, gate.port)
                ran: list[int] = []
                told: list[Event] = []
                observers: list[Callable[[Event], None]] = [told.append]
                once = Once(quick(store, url), cache=False, observers=observers)
                stack.enter_context(closing(once))
                until(partial(_warm, once))
                if trouble == "refused":
                    place.kill()
                elif trouble == "silent":
                    gate.freeze()
                else:
                    gate.delay(5.0)
                took = []
                view = once.options(fail_mode=mode)
                for number in range(calls):
                    began = time.monotonic()
                    try:
                        view.run(f"k{number}", partial(ran.append, number))
                    except StoreError:
                        if mode == "open":
                            wrong.append(f"{trouble}: open refused")
                    took.append(time.monotonic() - began)
                slowest[f"{trouble}, {mode}, s"] = round(max(took), 2)
                counted = sum(event.name == "unprotected" for event in told)
                figures.operations += calls
                figures.keys += calls
                if mode == "closed" and ran:
                    wrong.append(f"{trouble}: closed ran {len(ran)}")
                if mode == "open" and not len(ran) == counted == calls:
                    wrong.append(f"{trouble}: open ran {len(ran)} and counted {counted} of {calls}")
                gate.thaw()
                gate.delay(0.0)
                gate.cut()
    # A claim of unknown outcome is asked for four times before it is given up. libpq gives a
    # connection that is being opened two seconds at least. A starved machine needs a second more.
    each = 2.0 if store == "postgres" else TIMEOUT
    slow = {name: one for name, one in slowest.items() if one > 4 * each + 3.0}
    return Result(
        figures=figures,
        passed=not wrong and not slow,
        promise="closed runs nothing; open runs and counts all; both decide in time",
        notes={**slowest, "wrong": wrong, "slow": slow} if wrong or slow else slowest,
    )


def _warm(once: Once) -> bool:
    """Open a connection, and make the tables. A starved machine may take longer than TIMEOUT."""
    try:
        once.run("warm", lambda: None)
    except StoreError:
        return False
    return True


@cell("F15", "510 callers come back after an outage", WITH_SERVER, surface="coroutine", mode="bare")
def storm(lab: Lab, store: str) -> Result:
    """F15: all retry at once when the store is back; single flight keeps them off it."""
    outage = 1.5 if lab.small else 5.0
    keys = 5 if lab.small else 20
    with lab.places.another(store) as place:
        url = place.fresh()
        with closing(Once(url, observers=())) as once:
            once.run("warm", lambda: None)
        place.kill()
        back: list[float] = []
        began = time.monotonic()

        def trouble(_crowd: Crowd) -> None:
            if not back and time.monotonic() - began > outage:
                place.start()
                back.append(time.monotonic())

        options = {"callers": 170, "together": True, "lease": "20s", "effect": 0.01}
        figures = lab.crowd(
            Run(place=url, surface="coroutine", mode="bare", keys=keys, options=options), trouble
        )
        notes: dict[str, Any] = {"callers": 510}
        asked = 0
        if store == "redis":
            with place.redis.client() as client:
                stats = client.info("commandstats")
            asked = sum(
                stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("evalsha", "eval")
            )
            notes["verbs per key at the server"] = round(asked / keys, 1)
    return Result(
        figures=figures,
        passed=figures.clean and not figures.asked_again and asked / keys < 40,
        promise="1 effect per key; the server is not stormed",
        notes=notes,
    )


@cell("F22", "scripts flushed, read-only, full, clients sent away", WITH_SERVER, mode="bare")
def replies(lab: Lab, store: str) -> Result:
    """F22: the server answers with errors of every kind while the crowd works."""
    seconds = 3.0 if lab.small else 12.0
    done: dict[str, int] = {}
    with lab.places.another(store) as place:
        url = place.fresh()
        if store == "redis":
            troubles = _redis_troubles(place)
        elif store == "postgres":
            troubles = _postgres_troubles(place, url)
            url = _clerk(place, url)
        else:
            troubles = _mariadb_troubles(place)
            url = _mariadb_clerk(place, url)
        due = time.monotonic() + 0.3

        def trouble(_crowd: Crowd) -> None:
            nonlocal due
            if time.monotonic() >= due:
                name = sorted(troubles)[sum(done.values()) % len(troubles)]
                troubles[name]()
                done[name] = done.get(name, 0) + 1
                due = time.monotonic() + 0.15

        figures = lab.crowd(
            Run(place=url, mode="bare", seconds=seconds, options={"lease": "20s"}), trouble
        )
    return Result(
        figures=figures,
        passed=figures.clean and not figures.asked_again and len(done) == len(troubles),
        promise="unknown is never taken for not done: 1 effect per key",
        notes=done,
    )


def _redis_troubles(place: RedisPlace) -> dict[str, Callable[[], None]]:
    def with_client(act: Callable[[Any], None]) -> Callable[[], None]:
        def do() -> None:
            with place.redis.client() as client:
                act(client)

        return do

    def read_only(client: Any) -> None:
        client.replicaof("127.0.0.1", 1)  # nobody is there, so nothing is copied from it
        time.sleep(0.05)
        client.replicaof("NO", "ONE")

    def full(client: Any) -> None:
        client.config_set("maxmemory", "1")
        time.sleep(0.05)
        client.config_set("maxmemory", "0")

    def forbidden(client: Any) -> None:
        client.execute_command("ACL", "SETUSER", "default", "-eval", "-evalsha")
        time.sleep(0.05)
        client.execute_command("ACL", "SETUSER", "default", "+eval", "+evalsha")

    def locked(client: Any) -> None:
        client.config_set("requirepass", "rotated")
        client.client_kill_filter(_type="normal")
        time.sleep(0.05)
        client.config_set("requirepass", "")

    return {
        "NOPERM": with_client(forbidden),
        "NOAUTH": with_client(locked),
        "SCRIPT FLUSH": with_client(lambda client: client.script_flush()),
        "READONLY": with_client(read_only),
        "OOM": with_client(full),
        "CLIENT KILL": with_client(lambda client: client.client_kill_filter(_type="normal")),
        "stands still": lambda: _still(place),
    }


_MAY_WRITE = "SELECT, INSERT, UPDATE, DELETE ON oncekey_records"


def _clerk(place: PostgresPlace, url: str) -> str:
    """The URL of the same store, for a role that may only do what it is granted."""
    with closing(Once(url, observers=())) as once:
        once.get("warm")  # which makes the tables
    with psycopg.connect(url, autocommit=True) as owner:
        owner.execute("CREATE ROLE clerk LOGIN PASSWORD 'pw'")
        owner.execute("GRANT SELECT ON oncekey_schema TO clerk")
        owner.execute(f"GRANT {_MAY_WRITE} TO clerk")
    return url.replace(f"postgres:{place.postgres.password}", "clerk:pw")


def _postgres_troubles(place: PostgresPlace, url: str) -> dict[str, Callable[[], None]]:
    def forbidden() -> None:
        with psycopg.connect(url, autocommit=True) as owner:
            owner.execute(f"REVOKE {_MAY_WRITE} FROM clerk")
            time.sleep(0.05)
            owner.execute(f"GRANT {_MAY_WRITE} TO clerk")

    def sql(statement: str) -> Callable[[], None]:
        def do() -> None:
            with place.connect() as connection:
                connection.execute(statement)

        return do

    return {
        "57P01 connections ended": sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
            " AND backend_type = 'client backend'"
        ),
        "42501 permission revoked": forbidden,
        "57014 statements cancelled": sql(
            "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
            " AND backend_type = 'client backend'"
        ),
        "stands still": lambda: _still(place),
    }


_CLERK = "clerk@'%'"


def _may_write_here(place: MariaDBPlace) -> str:
    return f"SELECT, INSERT, UPDATE, DELETE ON {place.database}.oncekey_records"


def _mariadb_clerk(place: MariaDBPlace, url: str) -> str:
    """The URL of the same store, for a user who may only do what it is granted."""
    with closing(Once(url, observers=())) as once:
        once.get("warm")  # which makes the tables
    place.mariadb.say(
        f"CREATE USER {_CLERK} IDENTIFIED BY 'pw'",
        f"GRANT EXECUTE ON {place.database}.* TO {_CLERK}",
        f"GRANT SELECT ON {place.database}.oncekey_schema TO {_CLERK}",
        f"GRANT {_may_write_here(place)} TO {_CLERK}",
    )
    return url.replace("root@", "clerk:pw@")


def _mariadb_troubles(place: MariaDBPlace) -> dict[str, Callable[[], None]]:
    say = place.mariadb.say

    def forbidden() -> None:
        say(f"REVOKE {_may_write_here(place)} FROM {_CLERK}")
        time.sleep(0.05)
        say(f"GRANT {_may_write_here(place)} TO {_CLERK}")

    return {
        "connections ended": lambda: say("KILL USER clerk"),
        "1142 permission revoked": forbidden,
        "1317 statements cancelled": lambda: say("KILL QUERY USER clerk"),
        "stands still": lambda: _still(place),
    }


def _still(place: RedisPlace | PostgresPlace | MariaDBPlace) -> None:
    place.send(signal.SIGSTOP)
    time.sleep(0.2)
    place.send(signal.SIGCONT)


REFUSED_FOR, ALLOWED_FOR = 3.0, 2.0
"""Seconds: of three renewals, 4 s apart, one at least is refused; a lease of 12 s outlasts that."""


def _refused(surface: Surface) -> Cell:
    """F33: the server refuses its own user for a while, again and again, while code runs."""

    def run(lab: Lab, store: str) -> Result:
        with lab.places.another(store) as place:
            url = place.fresh()
            if store == "redis":
                refusals = _redis_refusals(place)
            elif store == "postgres":
                refusals = _postgres_refusals(place, url)
                url = _clerk(place, url)
            else:
                refusals = _mariadb_refusals(place)
                url = _mariadb_clerk(place, url)
            ways = Refusals(refusals)
            figures = lab.crowd(
                Run(
                    place=url,
                    surface=surface,
                    mode="bare",
                    keys=12 if lab.small else 36,
                    options={"lease": "12s", "effect": 14.0, "wait": "20s"},
                ),
                ways,
                heal=ways.heal,
            )
        renewals = figures.told.get("renewal_failed", 0)
        return Result(
            figures=figures,
            passed=figures.clean and not figures.asked_again and renewals > 0,
            promise="renewals and settles go on: 1 effect per key",
            notes={
                "times refused": ways.count,
                "renewals refused": renewals,
                "settles refused": figures.told.get("not_recorded", 0),
            },
        )

    return run


class Refusals:
    """Ways to refuse and to allow again, taken in turn while a crowd works."""

    def __init__(self, ways: list[tuple[Callable[[], None], Callable[[], None]]]) -> None:
        self._ways = ways
        self._allow: Callable[[], None] | None = None
        self._due = time.monotonic() + ALLOWED_FOR
        self.count = 0

    def __call__(self, crowd: Crowd) -> None:
        if time.monotonic() < self._due:
            return
        if self._allow is not None:
            self.heal(crowd)
            self._due = time.monotonic() + ALLOWED_FOR
            return
        refuse, self._allow = self._ways[self.count % len(self._ways)]
        refuse()
        self.count += 1
        self._due = time.monotonic() + REFUSED_FOR

    def heal(self, _crowd: Crowd) -> None:
        """What was refused is allowed."""
        if self._allow is not None:
            self._allow()
            self._allow = None


def _redis_refusals(
    place: RedisPlace,
) -> list[tuple[Callable[[], None], Callable[[], None]]]:
    def tell(*commands: tuple[str, ...]) -> Callable[[], None]:
        def do() -> None:
            with place.redis.client() as client:
                for words in commands:
                    client.execute_command(*words)

        return do

    def rotated() -> None:
        with place.redis.client() as client:
            client.config_set("requirepass", "rotated")
            client.client_kill_filter(_type="normal")

    def restored() -> None:
        url = place.redis.url.replace("redis://", "redis://:rotated@")
        with redis.Redis.from_url(url) as client:
            client.config_set("requirepass", "")

    scripts = (
        tell(("ACL", "SETUSER", "default", "-eval", "-evalsha")),
        tell(("ACL", "SETUSER", "default", "+eval", "+evalsha")),
    )
    return [scripts, (rotated, restored)]


def _postgres_refusals(
    place: PostgresPlace, url: str
) -> list[tuple[Callable[[], None], Callable[[], None]]]:
    def tell(*statements: str) -> Callable[[], None]:
        def do() -> None:
            with psycopg.connect(url, autocommit=True) as owner:
                for statement in statements:
                    owner.execute(statement)

        return do

    sent_away = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'clerk'"
    return [
        (tell(f"REVOKE {_MAY_WRITE} FROM clerk"), tell(f"GRANT {_MAY_WRITE} TO clerk")),
        (tell("ALTER ROLE clerk NOLOGIN", sent_away), tell("ALTER ROLE clerk LOGIN")),
    ]


def _mariadb_refusals(
    place: MariaDBPlace,
) -> list[tuple[Callable[[], None], Callable[[], None]]]:
    def tell(*statements: str) -> Callable[[], None]:
        return lambda: place.mariadb.say(*statements)

    rights = _may_write_here(place)
    return [
        (tell(f"REVOKE {rights} FROM {_CLERK}"), tell(f"GRANT {rights} TO {_CLERK}")),
        (
            tell(f"ALTER USER {_CLERK} ACCOUNT LOCK", "KILL USER clerk"),
            tell(f"ALTER USER {_CLERK} ACCOUNT UNLOCK"),
        ),
    ]


for _surface in ("function", "coroutine"):
    cell(
        "F33",
        "the store refuses its user while code runs",
        WITH_SERVER,
        surface=_surface,
        mode="bare",
    )(
        _refused(_surface)  # type: ignore[arg-type]  # literals of the table
    )
