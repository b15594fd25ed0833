"""The front door itself: keys, scopes, options, methods, environment, and what it refuses."""

import asyncio
import functools
import logging
from collections.abc import AsyncIterator, Awaitable, Iterator
from dataclasses import dataclass

import pytest

import oncekey
from oncekey import (
    ConfigurationError,
    InvalidKeyError,
    Once,
    Policy,
    StoreError,
    current,
    current_async,
    functions,
)
from oncekey.stores import MemoryStore, SQLiteStore, open_store
from oncekey.stores.adapters import Inline
from oncekey.testing import disabled
from tests.functions.calls import Order, answer_two


@pytest.fixture
def memory():
    return Once("memory://", observers=())


# Keys and scopes


def test_a_function_without_a_scope_has_its_own(memory):
    @memory("k")
    def one() -> int:
        return 1

    @memory("k")
    def two() -> int:
        return 2

    assert (one(), two()) == (1, 2)
    assert one.record().scope.endswith("one")
    assert one.record().scope.startswith(__name__)
    assert one.record().label.endswith("one")


def test_the_scope_of_the_once_is_that_of_its_functions_and_runs(memory):
    scoped = Once("memory://", scope="billing", observers=())

    @scoped("k")
    def charge() -> int:
        return 1

    charge()
    scoped.run("r", answer_two)
    assert [record.scope for record in scoped.scan()] == ["billing", "billing"]
    assert scoped.options(scope=None).get("r") is None
    assert scoped.get("r").value == 2
    assert scoped.options(scope="billing").get("r").value == 2


@pytest.mark.row("J5")
def test_a_key_function_is_given_the_arguments(memory):
    @memory(lambda job, **rest: f"{job['type']}:{job['id']}")
    def handle(job: dict[str, str], retries: int = 0) -> str:
        return job["id"]

    assert handle({"type": "mail", "id": "7"}) == "7"
    assert handle.key({"type": "mail", "id": "7"}) == "mail:7"
    assert handle.record({"type": "mail", "id": "7"}).key == "mail:7"
    assert handle.forget({"type": "mail", "id": "7"})
    assert handle.record({"type": "mail", "id": "7"}) is None
    assert not handle.forget({"type": "mail", "id": "7"})


async def test_a_protected_coroutine_function_has_the_same_extras(memory):
    @memory("mail:{n}")
    async def send(n: int) -> int:
        return n

    assert await send(1) == 1
    assert send.key(1) == "mail:1"
    assert (await send.record(1)).value == 1
    assert await send.forget(1)
    assert await send.record(1) is None


def test_a_record_of_an_empty_key_cannot_be_asked_for(memory):
    @memory(lambda n: "")
    def job(n: int) -> int:
        return n

    for ask in (job.record, job.forget):
        with pytest.raises(ConfigurationError, match="empty key"):
            ask(1)


def test_the_annotations_of_a_method_are_read_once_for_all_calls(memory, monkeypatch):
    read = []
    codec_of = functions.codec_of
    monkeypatch.setattr(functions, "codec_of", lambda one: read.append(one) or codec_of(one))

    class Shop:
        @memory("order:{number}")
        def order(self, number: int) -> int:
            return number

    shop = Shop()
    assert [shop.order(1), shop.order(2), Shop().order(1)] == [1, 2, 1]
    assert len(read) == 1


def test_methods_are_protected_per_instance_by_their_key_alone(memory):
    class Shop:
        def __init__(self, name):
            self.name = name

        @memory("{self.name}:{n}")
        def sell(self, n: int) -> str:
            return f"{self.name} sold {n}"

        @memory("{self.name}:{n}")
        async def deliver(self, n: int) -> str:
            return f"{self.name} delivered {n}"

        @classmethod
        @memory("count:{n}")
        def count(cls, n: int) -> int:
            return n

        @staticmethod
        @memory("price:{n}")
        def price(n: int) -> int:
            return n

    first, second = Shop("a"), Shop("b")
    assert first.sell(1) == "a sold 1"
    assert second.sell(1) == "b sold 1"
    assert Shop("a").sell.outcome(1).duplicate  # `self` is no argument of the operation
    assert first.sell.key(1) == "a:1"
    assert first.sell.record(1).value == "a sold 1"
    assert Shop.sell.key(first, 2) == "a:2"
    assert Shop.count(3) == Shop.price(3) == 3
    assert asyncio.run(first.deliver(4)) == "a delivered 4"
    assert asyncio.run(Shop.deliver.outcome(first, 4)).duplicate


def test_the_fingerprint_can_be_chosen(memory):
    @memory("a:{order.id}", fingerprint=("order.total",))
    def by_paths(order: Order, hint: object) -> int:
        return 1

    @memory("b:{order.id}", fingerprint=lambda order, hint: order.total)
    def by_function(order: Order, hint: object) -> int:
        return 1

    @memory("c:{order.id}", fingerprint=None)
    def by_nothing(order: Order, hint: object) -> int:
        return 1

    for function in (by_paths, by_function):
        assert function(Order(1, 5), object()) == function(Order(1, 5), object()) == 1
        with pytest.raises(oncekey.KeyReusedError):
            function(Order(1, 6), object())
    assert by_nothing(Order(1, 5), object()) == by_nothing(Order(1, 6), object()) == 1
    assert by_nothing.record(Order(1, 5), None).fingerprint is None


def test_options_give_another_view_of_the_same_once(memory):
    week = memory.options(ttl="7d", label="report", reference="trace-1")
    week.run("report", answer_two)
    record = memory.get("report")
    assert (record.label, record.reference) == ("report", "trace-1")
    assert record.expires - record.finished == 7 * 86_400_000_000
    assert memory.run("report", answer_two) == 2
    with memory.options(label="import").attempt("x") as attempt:
        assert attempt.record.label == "import"


def test_what_is_nearer_wins(monkeypatch):
    monkeypatch.setenv("ONCEKEY_TTL", "1h")
    monkeypatch.setenv("ONCEKEY_LEASE", "1min")
    once = Once("memory://", policy=Policy(lease="2min"), observers=())

    def ttl_and_lease(view):
        with view.attempt("k") as attempt:
            lease = attempt.record.lease_end - attempt.record.started
        record = once.get("k")
        once.forget("k")
        return (record.expires - record.finished) / 1e6, lease / 1e6

    assert ttl_and_lease(once) == (3600, 120)
    assert ttl_and_lease(once.options(ttl="5s")) == (5, 120)
    assert ttl_and_lease(once.options(policy=Policy(lease="3min"))) == (3600, 180)
    assert ttl_and_lease(once.options(policy=Policy(lease="3min"), lease="4min")) == (3600, 240)


# Switching off


def test_protection_can_be_switched_off(monkeypatch):
    runs = []

    def work():
        current().note(a=1)
        assert current().notes == {"a": 1}
        runs.append(current().step("s", answer_two))
        return object()

    async def work_async():
        await current_async().note(a=1)
        runs.append(await current_async().step("s", answer_two))

    off = Once("memory://", active=False, observers=())
    off.run("k", work)
    off.run("k", work)
    asyncio.run(off.run_async("k", work_async))
    monkeypatch.setenv("ONCEKEY_DISABLED", "1")
    Once("memory://").run("k", work)
    monkeypatch.delenv("ONCEKEY_DISABLED")
    on = Once("memory://", observers=())
    with disabled():
        on.run("k", work)
        with on.attempt("k") as attempt:
            assert not attempt.protected
    assert runs == [2] * 5
    assert list(on.scan()) == []
    with pytest.raises(ValueError), disabled(), on.attempt("k"):
        raise ValueError


# Stores


def test_nothing_is_opened_before_the_first_use(tmp_path):
    path = tmp_path / "records.db"
    once = Once(f"sqlite:///{path}", observers=())
    once("k")(answer_two)
    assert not path.exists()
    once.run("k", answer_two)
    assert path.exists()
    once.close()


def test_the_store_comes_from_the_environment(monkeypatch, tmp_path, caplog):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("REDIS_URL", raising=False)
    monkeypatch.setenv("ONCEKEY_STORE", "sqlite:///named.db")
    Once(observers=()).run("k", answer_two)
    assert (tmp_path / "named.db").exists()
    monkeypatch.delenv("ONCEKEY_STORE")
    with caplog.at_level(logging.WARNING, "oncekey"):
        once = Once(observers=())
    assert str(tmp_path / "oncekey.db") in caplog.text
    once.run("k", answer_two)
    assert (tmp_path / "oncekey.db").exists()
    monkeypatch.setenv("REDIS_URL", "amqp://elsewhere")
    with pytest.raises(ConfigurationError, match="amqp"):
        Once()


def test_the_prefix_comes_from_the_argument_the_environment_or_the_seed(monkeypatch):
    assert Once("memory://").prefix == "idempotency:"
    monkeypatch.setenv("ONCEKEY_PREFIX", "mine:")
    assert Once("memory://").prefix == "mine:"
    assert Once("memory://", prefix="yours:").prefix == "yours:"


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("postgres//x", "starts with"),
        ("ftp://x", "ftp"),
        ("", "starts with"),
        ("memory://name", "no name"),
        ("redis://[", "no URL"),
        ("sqlite://host/x.db", "four slashes"),
        ("sqlite:///", "four slashes"),
        ("sqlite:///a#b.db", "as %23"),
        ("sqlite:///x.db?sync=1", "unknown options"),
        ("sqlite:///x.db?synchronous=off", "FULL or NORMAL"),
        ("sqlite:///x.db?busy_timeout=0", "more than zero"),
        ("sqlite:///:memory:", "memory://"),
    ],
)
def test_a_wrong_url_is_refused_at_once(url, words):
    with pytest.raises(ConfigurationError, match=words):
        Once(url)


def test_urls_have_options(tmp_path):
    store = open_store(f"sqlite:///{tmp_path}/a%20b.db?synchronous=normal&busy_timeout=1s")
    assert isinstance(store, SQLiteStore)
    assert store.path == tmp_path / "a b.db"
    assert isinstance(open_store("memory://"), MemoryStore)


def test_a_store_is_any_object_with_the_verbs():
    class NoStore:
        claim = renew = note = settle = answer_two

    with pytest.raises(ConfigurationError, match="NoStore has no release"):
        Once(NoStore())


async def test_an_async_store_serves_coroutines_only():
    once = Once(MemoryStore().as_async(), observers=())
    runs = []

    async def work():
        runs.append(1)

    await once.run_async("k", work)
    await once.run_async("k", work)
    assert runs == [1]
    with pytest.raises(ConfigurationError, match="async store"):
        once.run("k", answer_two)
    await once.aclose()


async def test_a_native_async_store_that_is_down_is_open_or_closed(store, runs):
    once = Once(Inline(store), observers=())

    async def work():
        runs.append(current_async().protected)

    store.refuse("claim", 2)
    await once.options(fail_mode="open").run_async("k", work)
    with pytest.raises(StoreError):
        await once.run_async("k", work)
    await once.run_async("k", work)
    assert runs == [False, True]


@pytest.mark.fast_path("what the local cache does")
@pytest.mark.parametrize("cache", [True, "1MiB", 100_000])
def test_a_cache_answers_duplicates_without_the_store(store, cache):
    once = Once(store, cache=cache, observers=())
    runs = []

    def work(n: int) -> int:
        runs.append(n)
        return n

    assert once.run("k", work, 1) == 1
    assert once.run("k", work, 1) == 1  # its first duplicate asks the store
    asked = store.calls.total()
    assert once.run("k", work, 1) == 1
    assert asyncio.run(once.run_async("k", lambda n: pytest.fail("it ran"), 1)) == 1
    with pytest.raises(oncekey.KeyReusedError):
        once.run("k", work, 2)
    assert store.calls.total() == asked
    assert once.forget("k")
    assert once.run("k", work, 2) == 2
    assert runs == [1, 2]


@pytest.mark.fast_path("what the local cache does")
async def test_coroutines_fill_the_cache_too(store):
    once = Once(store, cache=True, observers=())
    assert await once.run_async("k", asyncio.sleep, 0, 5) == 5
    assert await once.run_async("k", asyncio.sleep, 0, 5) == 5  # as above
    asked = store.calls.total()
    assert await once.run_async("k", asyncio.sleep, 0, 5) == 5
    assert store.calls.total() == asked


@pytest.mark.fast_path("what the local cache does")
def test_a_duplicate_is_remembered_where_another_process_has_run_it(store):
    here, there = Once(store, cache=True, observers=()), Once(store, cache=True, observers=())
    assert there.run("k", answer_two) == 2
    assert here.run("k", answer_two) == 2
    asked = store.calls.total()
    assert here.run("k", answer_two) == 2
    assert store.calls.total() == asked


@pytest.mark.fast_path("what the local cache does")
def test_what_was_run_once_is_not_remembered(store):
    """Most calls have no duplicate: they would only fill the memory."""
    once = Once(store, cache=True, observers=())
    for number in range(10):
        once.run(f"k{number}", answer_two)
    asked = store.calls.total()
    assert once.run("k5", answer_two) == 2
    assert store.calls.total() == asked + 1


@pytest.mark.fast_path("what the local cache does")
def test_a_record_that_is_forgotten_while_a_duplicate_asks_is_not_remembered(store):
    """The store has answered the duplicate; before that is heard the record is forgotten here."""
    once = Once(store, cache=True, observers=())
    runs = []

    def work() -> int:
        runs.append(1)
        return len(runs)

    def forget_before_it_is_heard(claim):
        answer = claim()
        assert once.forget("k")
        return answer

    assert once.run("k", work) == 1
    store.instead("claim", forget_before_it_is_heard)
    assert once.run("k", work) == 1
    assert once.run("k", work) == 2


# What it refuses


@pytest.mark.row("J8")
@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("charge:{nobody}", "nobody"),
        ("charge:{}", "placeholder"),
        ("charge:{order!r}", "formats"),
        ("charge:{order:>5}", "formats"),
        ("charge:{order", "cannot be read"),
        ("charge\n{order}", "printable"),
        ("", "empty"),
        (None, "template"),
        (5, "template"),
        (int, "template"),
    ],
)
def test_a_wrong_key_is_refused_at_decoration(memory, key, words):
    with pytest.raises(ConfigurationError, match=words):

        @memory(key)
        def charge(order: Order) -> None: ...


@pytest.mark.row("J8")
@pytest.mark.parametrize("bad", [None, 5, Order, "name"])
def test_a_target_that_is_no_function_is_refused(memory, bad):
    with pytest.raises(ConfigurationError, match=r"class|function"):
        memory("k")(bad)
    with pytest.raises(ConfigurationError, match=r"class|function"):
        memory.run("k", bad)
    with pytest.raises(ConfigurationError, match=r"class|function"):
        asyncio.run(memory.run_async("k", bad))


def test_a_generator_is_refused(memory):
    def numbers() -> Iterator[int]:
        yield 1

    async def numbers_async() -> AsyncIterator[int]:
        yield 1

    for function in (numbers, numbers_async):
        with pytest.raises(ConfigurationError, match="generator"):
            memory("k")(function)
        with pytest.raises(ConfigurationError, match="generator"):
            memory.run("k", function)


def test_a_method_that_is_in_no_class_is_not_run(memory):
    for wrapped in (staticmethod(answer_two), classmethod(answer_two)):
        with pytest.raises(ConfigurationError, match="above"):
            memory.run("k", wrapped)


def test_a_lambda_needs_a_scope(memory):
    with pytest.raises(ConfigurationError, match="scope"):
        memory("k")(lambda: 1)
    assert memory("k", scope="s")(lambda: 1)() == 1


def test_a_coroutine_function_goes_through_run_async(memory):
    async def work() -> int:
        return 1

    for function in (work, functools.partial(work)):
        with pytest.raises(ConfigurationError, match="run_async"):
            memory.run("k", function)
    with pytest.raises(ConfigurationError, match="async form"):
        memory.run("k", lambda: work())  # noqa: PLW0108 - hides the coroutine function
    assert memory.get("k").status == "released"
    future = asyncio.new_event_loop().create_future()
    with pytest.raises(ConfigurationError, match="async form"):
        memory.run("k", lambda: future)
    future.get_loop().close()
    assert asyncio.run(memory.run_async("k", lambda: work())) == 1  # noqa: PLW0108 - see above


def test_a_blocking_function_does_not_go_through_run_async(memory):
    async def work() -> int:
        return 1

    @functools.wraps(work)
    def wrapper():
        return work()

    def promising() -> Awaitable[int]:
        return work()

    class Shop:
        def sell(self):
            pytest.fail("it ran")

    for function in (answer_two, functools.partial(answer_two), Shop().sell):
        with pytest.raises(ConfigurationError, match=r"would block the event loop; use `once\.run"):
            asyncio.run(memory.run_async("blocking", function))
    assert memory.get("blocking") is None
    for function in (wrapper, promising, functools.partial(work)):
        assert asyncio.run(memory.run_async("coroutine", function)) == 1


@pytest.mark.parametrize("value", [None, "", b""])
def test_a_placeholder_without_a_value_is_refused(memory, store, value):
    once = Once(store, observers=())

    @once("mail:{to}")
    def mail(to: object) -> None:
        pytest.fail("it must not run")

    with pytest.raises(InvalidKeyError, match="to"):
        mail(value)
    assert not store.calls


@pytest.mark.parametrize("key", ["", "x" * 256, "tab\t", "café", None, 5])
def test_a_wrong_plain_key_is_refused(once, store, key):
    for use in (once.run, lambda k, f: once.attempt(k), lambda k, f: once.get(k)):
        with pytest.raises(InvalidKeyError):
            use(key, answer_two)
    assert not store.calls


def test_a_key_function_that_fails_or_lies_claims_nothing(once, store):
    @once(lambda n: 5)
    def lies(n: int) -> None: ...

    @once(lambda n: 1 / n)
    def fails(n: int) -> None: ...

    with pytest.raises(InvalidKeyError, match="must return a string"):
        lies(0)
    with pytest.raises(ZeroDivisionError):
        fails(0)
    assert not store.calls


def test_an_argument_that_cannot_be_fingerprinted_is_named(once, store):
    @once("k:{n}")
    def work(n: int, connection: object) -> None: ...

    with pytest.raises(ConfigurationError, match="'connection' cannot be fingerprinted"):
        work(1, object())
    assert not store.calls


def test_arguments_that_the_function_does_not_take_claim_nothing(once, store):
    @once("k:{n}")
    def work(n: int) -> None: ...

    for wrong in (work, lambda: work(1, 2), lambda: work(m=1), lambda: work(1, n=1)):
        with pytest.raises(TypeError):
            wrong()
    assert not store.calls


@pytest.mark.parametrize(
    "options",
    [
        {"ttl": 0},
        {"ttl": -1},
        {"ttl": "soon"},
        {"lease": "0s"},
        {"wait": -1},
        {"retry_after": 0},
        {"heartbeat": 1},
        {"on_error": "forget"},
        {"on_crash": "panic"},
        {"fail_mode": "ajar"},
        {"keep": "ValueError"},
        {"uncertain": (5,)},
        {"max_attempts": 0},
        {"max_result": 0},
        {"scope": ""},
        {"scope": "café"},
        {"reconcile": 5},
        {"label": 5},
        {"fingerprint": "order"},
        {"policy": "24h"},
    ],
)
def test_a_wrong_option_is_refused_at_once(memory, options):
    with pytest.raises(ConfigurationError):
        memory("k", **options)(answer_two)


@pytest.mark.parametrize(
    "settings",
    [{"scope": ""}, {"observers": [5]}, {"cache": "lots"}, {"cache": -1}, {"policy": 5}],
)
def test_a_wrong_setting_of_the_once_is_refused_at_once(settings):
    with pytest.raises(ConfigurationError):
        Once("memory://", **settings)


def test_current_is_of_one_colour(memory):
    def work():
        with pytest.raises(ConfigurationError, match=r"use current\(\)"):
            current_async()

    async def work_async():
        with pytest.raises(ConfigurationError, match=r"use current_async\(\)"):
            current()

    memory.run("k", work)
    asyncio.run(memory.run_async("k2", work_async))


def test_a_builtin_without_a_signature_is_refused(memory):
    class Odd:
        __signature__ = "odd"

        def __call__(self):
            return 1

    with pytest.raises(ConfigurationError, match="signature"):
        memory("k", scope="s")(Odd())


def test_a_callable_object_is_protected_by_its_class_name(memory):
    @dataclass(frozen=True)
    class Sender:
        name: str

        def __call__(self, n: int) -> int:
            return n

    class Unhashable(Sender):
        __hash__ = None

    assert memory("k:{n}")(Sender("a"))(1) == 1
    assert memory.run("odd", Unhashable("a"), 3) == 3


def test_the_public_names_are_what_they_say():
    for name in oncekey.__all__:
        assert getattr(oncekey, name) is not None
    assert sorted(oncekey.__all__, key=str.lower)
    assert oncekey.__version__
