"""Chaos finds what is wrong with a handler, and nothing where nothing is."""

import asyncio
import threading

import pytest

from oncekey import ConfigurationError, Done, InProgressError, NotDone, Once, current, current_async
from oncekey.core.requests import Claim, Settle, Verdict
from oncekey.functions import scope_of
from oncekey.http.asgi import IdempotencyMiddleware
from oncekey.jobs import handler
from oncekey.testing import Chaos, ChaosError
from oncekey.testing.chaos import Caller
from oncekey.testing.chaos_store import ChaosStore
from oncekey.testing.processes import NOBODY, Crashed, GoneError, Plan, Process, here
from tests.patience import PATIENCE, until


def wrong(chaos, call, **options):
    """The schedules that went wrong, by name, and what was wrong with each."""
    with pytest.raises(ChaosError) as caught:
        chaos.run(call, **options)
    return str(caught.value)


def downstream():
    return current().downstream_key("charge")


# Handlers that are wrong


def test_a_handler_without_protection_is_red(once_chaos):
    charge = once_chaos.effect("charge")
    found = wrong(once_chaos, charge)
    assert "7 of 8 schedules went wrong" in found
    assert "the same call again " in found
    assert "protect the function" in found


def test_looking_first_is_not_enough(once_chaos):
    charge, done = once_chaos.effect("charge"), {}

    def pay():
        if "order" not in done:
            done["order"] = charge()
        return done["order"]

    found = wrong(once_chaos, pay, reset=done.clear)
    assert "the same call again" not in found
    assert "another process before charge" in found
    assert "crash after charge, then again" in found


def test_a_bare_effect_is_red_where_a_crash_can_hit_it_and_nowhere_else(once_chaos):
    charge = once_chaos.effect("charge")

    @once_chaos.once("pay:{order}")
    def pay(order):
        return charge()

    found = wrong(once_chaos, lambda: pay("A-17"))
    assert "2 of 22 schedules went wrong" in found
    assert "crash after charge, then again        2  charge happened 2 times" in found
    assert "crash before settle, then again       2  charge happened 2 times" in found
    assert "downstream_key" in found


def test_an_effect_that_gets_lost_is_red(once_chaos):
    """The handler notes first and does afterwards: after a crash between them nobody does it."""
    charge, done = once_chaos.effect("charge"), set()

    def pay():
        if "order" not in done:
            done.add("order")
            charge()

    found = wrong(once_chaos, pay, reset=done.clear)
    assert "crash before charge, then again       0  charge did not happen" in found


def test_two_answers_are_red(once_chaos):
    charge, answers = once_chaos.effect("charge"), iter(range(1000))

    def pay():
        charge(idempotency_key="A-17")
        return next(answers)

    assert "two answers: 1 and 2" in wrong(once_chaos, pay)


def test_a_key_that_is_another_one_in_each_attempt_is_red(once_chaos):
    charge, keys = once_chaos.effect("charge"), iter(range(1000))

    @once_chaos.once("pay:{order}")
    def pay(order):
        return charge(idempotency_key=next(keys))

    assert "crash after charge" in wrong(once_chaos, lambda: pay("A-17"))


def test_a_handler_that_raises_at_the_second_call_is_red(once_chaos):
    charge, calls = once_chaos.effect("charge"), []

    def pay():
        calls.append(1)
        if len(calls) > 1:
            raise ValueError("no more")
        charge()

    assert "ValueError: no more" in wrong(once_chaos, pay, reset=calls.clear)


def test_state_that_nobody_puts_back_is_explained(once_chaos):
    charge, done = once_chaos.effect("charge"), {}
    assert "Pass reset=" in wrong(once_chaos, lambda: done.setdefault(1, done or charge()))


def test_a_handler_that_hangs_is_red(once_chaos, monkeypatch):
    """It is not waited for any longer as soon as it hangs."""
    charge, calls, never, hanging = once_chaos.effect("charge"), [], threading.Event(), set()

    def wait(caller, seconds=None):
        thread = caller._thread
        if seconds is None:
            until(lambda: not thread.is_alive() or thread.ident in hanging)
        thread.join(seconds or 0)
        return not thread.is_alive()

    def hang():
        hanging.add(threading.get_ident())
        assert never.wait(PATIENCE)

    def pay():
        calls.append(1)
        charge()
        if len(calls) > 1:
            hang()

    monkeypatch.setattr(Caller, "wait", wait)
    found = wrong(once_chaos, pay, reset=calls.clear)
    assert "it hangs" in found
    with pytest.raises(ChaosError, match="without any disturbance"):
        once_chaos.run(hang)
    never.set()


def test_a_handler_that_is_never_free_is_red(once_chaos):
    charge, calls = once_chaos.effect("charge"), []

    def pay():
        charge(idempotency_key="one")
        calls.append(1)
        if len(calls) > 1:
            raise InProgressError("come again")

    assert "no answer" in wrong(once_chaos, pay, reset=calls.clear)


# Handlers that are right


def test_a_keyed_effect_is_green(once_chaos):
    charge = once_chaos.effect("charge")

    @once_chaos.once("pay:{order}")
    def pay(order):
        return charge(40, idempotency_key=downstream())

    report = once_chaos.run(lambda: pay("A-17"))
    assert report.expected == {"charge": 1}
    assert {row.counts["charge"] for row in report.rows} == {1}
    assert "0 of 22 schedules went wrong" in str(report)


def test_coroutines_are_tried_in_the_same_way(once_chaos):
    charge = once_chaos.effect_async("charge", asyncio.sleep, key="result")

    @once_chaos.once("pay:{order}")
    async def pay(order: str) -> str:
        return str(await charge(0, result=current_async().downstream_key("charge")))

    assert len(once_chaos.run(lambda: pay("A-17")).rows) == 22


async def test_a_coroutine_may_run_chaos(once_chaos):
    """Each call has a loop of its own, on a thread of its own."""
    charge = once_chaos.effect_async("charge")

    @once_chaos.once("pay:{order}", on_crash="hold")
    async def pay(order: str) -> str:
        return str(await charge())

    once_chaos.run(lambda: pay("A-17"))


def test_what_is_held_may_not_have_happened_and_says_so(once_chaos):
    charge = once_chaos.effect("charge")

    @once_chaos.once("pay:{order}", on_crash="hold")
    def pay(order):
        return charge()

    report = once_chaos.run(lambda: pay("A-17"))
    held = {row.schedule: row.counts["charge"] for row in report.rows if row.held}
    assert held == {
        "crash after claim, then again": 0,
        "crash before charge, then again": 0,
        "crash after charge, then again": 1,
        "crash before settle, then again": 1,
    }


def test_reconcile_is_asked_after_a_crash(once_chaos):
    charges = []
    charge = once_chaos.effect("charge", lambda: charges.append("r-1") or "r-1")

    @once_chaos.once(
        "pay:{order}", reconcile=lambda record: Done(charges[0]) if charges else NotDone()
    )
    def pay(order: str) -> str:
        return str(charge())

    once_chaos.run(lambda: pay("A-17"), reset=charges.clear)


def test_steps_and_notes_are_points_with_their_names(once_chaos):
    reserve, mail = once_chaos.effect("reserve"), once_chaos.effect("mail")

    def key(name):
        return current().downstream_key(name)

    @once_chaos.once("order:{number}")
    def order(number):
        current().note(seen=True)
        seat = current().step("seat", lambda: reserve(idempotency_key=key("reserve")))
        mail(seat, idempotency_key=key("mail"))
        return seat

    names = [row.schedule for row in once_chaos.run(lambda: order(7)).rows]
    assert "crash after note of step 'seat', then again" in names
    assert "crash before note of fact 'seen', then again" in names
    assert "reply of note of step 'seat' lost, then again" in names
    assert "another process after mail" in names


def test_a_job_that_is_busy_elsewhere_is_asked_for_again(once_chaos):
    charge = once_chaos.effect("charge")

    @handler(once_chaos.once, lambda job: job["id"], fail_mode="closed")
    def work(job):
        return charge(idempotency_key=downstream())

    once_chaos.run(lambda: work({"id": "j-1"}))


def test_an_http_service_is_tried_through_its_client(once_chaos):
    import httpx
    from starlette.applications import Starlette
    from starlette.responses import PlainTextResponse
    from starlette.routing import Route

    charge = once_chaos.effect_async("charge")

    async def pay(request):
        key = current_async().downstream_key("charge")
        return PlainTextResponse(await charge(idempotency_key=key))

    app = IdempotencyMiddleware(
        Starlette(routes=[Route("/pay", pay, methods=["POST"])]), once_chaos.once, scope=None
    )

    async def call():
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
            answer = await client.post("/pay", headers={"Idempotency-Key": "A-17"})
            return answer.status_code, answer.text

    once_chaos.run(call, busy=lambda answer: answer[0] in (409, 503))


def test_an_effect_may_be_a_block_and_may_happen_more_than_once(once_chaos):
    mail = once_chaos.effect("mail")

    @once_chaos.once("news:{day}", on_crash="hold")
    def news(day):
        for _ in range(2):
            with mail:
                pass

    assert once_chaos.run(lambda: news(1)).expected == {"mail": 2}


def test_a_provider_answers_a_second_time_when_the_first_is_done(once_chaos):
    """Both ask at once under one key: one effect, and one answer."""
    inside, go_on = threading.Event(), threading.Event()

    def slow(idempotency_key):
        inside.set()
        assert go_on.wait(PATIENCE)
        return "receipt"

    async def slow_async(idempotency_key):
        return await asyncio.to_thread(slow, idempotency_key)

    for charge in (
        once_chaos.effect("charge", slow),
        once_chaos.effect_async("charge later", slow_async),
    ):
        inside.clear()
        go_on.clear()
        first = Caller(lambda one=charge: one(idempotency_key="k"), Process(1))
        assert inside.wait(PATIENCE)
        second = Caller(lambda one=charge: one(idempotency_key="k"), Process(2))
        assert not second.wait(0.02)
        go_on.set()
        assert first.wait()
        assert second.wait()
        assert (first.answer, second.answer, charge.count) == ("receipt", "receipt", 1)


def test_an_effect_that_fails_has_not_happened(once_chaos):
    mail = once_chaos.effect("mail")
    with pytest.raises(ValueError), mail:
        raise ValueError
    assert repr(mail) == "<effect 'mail', happened 0 times>"


# A crash is as good as a kill


class Watched(ChaosStore):
    """Tells when the library's own thread has asked for something."""

    def __init__(self, clock):
        super().__init__(clock)
        self.asked = threading.Event()

    def _behind(self, process, verb, real, arguments):
        try:
            return super()._behind(process, verb, real, arguments)
        finally:
            self.asked.set()


@pytest.mark.parametrize("place", range(7))
def test_a_crash_gives_nothing_back(place):
    """Whatever runs on the way out: the record stays as the process left it."""
    chaos = Chaos()
    chaos._store = store = Watched(chaos.clock)
    charge, cleaned = chaos.effect("charge"), []

    @chaos.once("pay:{order}")
    def pay(order):
        try:
            return charge()
        except BaseException:
            cleaned.append(1)
            raise
        finally:
            charge()  # a dead process has no effects any more

    caller = Caller(lambda: pay("A-17"), Process(1, Plan("crash", place)))
    assert caller.wait()
    assert isinstance(caller.error, Crashed)
    if place:
        assert store.asked.wait(PATIENCE)
    found = store.records.get(scope_of(pay), "pay:A-17")
    status = None if found is None else found.status
    assert status == (None if place == 0 else "running")
    assert charge.count == [0, 0, 0, 1, 1, 2, 2][place]
    chaos.close()


def test_what_a_crash_left_undone_is_let_go_when_python_ends():
    """The keeper asks for it once more then, in the main thread."""
    chaos = Chaos()
    dead = Process(1)
    ask = Claim(None, "k", nonce="n", fingerprint=None, lease=10**8, ttl=10**8)
    here.set(dead)
    granted = chaos._store.claim(ask)
    dead.alive = False
    here.set(NOBODY)
    owner = {"nonce": "n", "token": granted.record.token}
    settle = Settle(None, "k", **owner, status="completed", result=None, error=None, ttl=10**8)
    assert chaos._store.settle(settle) is Verdict.LOST
    with pytest.raises(GoneError):
        chaos._store.claim(ask)
    chaos.close()


def test_code_that_swallows_everything_is_dead_all_the_same(once_chaos):
    charge = once_chaos.effect("charge")

    def pay():
        try:
            charge()
        except BaseException:  # noqa: BLE001 - as some code does
            return "never mind"
        return "done"

    caller = Caller(pay, Process(1, Plan("crash", 0)))
    assert caller.wait()
    assert caller.error is None
    assert caller.answer != "never mind"


# The world around it


def test_a_once_of_the_users_own_is_moved_in_and_back(tmp_path):
    once = Once(f"sqlite:///{tmp_path}/shop.db")
    chaos = Chaos()
    before = dict(vars(once.core))

    @once("pay:{order}")
    def pay(order):
        return charge(idempotency_key=downstream())

    charge = chaos.effect("charge")
    chaos.use(once)
    chaos.run(lambda: pay("A-17"))
    chaos.close()
    assert vars(once.core) == before
    assert pay.record("A-17") is None
    once.close()


@pytest.mark.parametrize(
    ("mistake", "words"),
    [
        (lambda chaos: chaos.run(lambda: None), "declare what must happen once"),
        (lambda chaos: chaos.run("pay"), "a function that calls your handler"),
        (lambda chaos: chaos.effect(""), "needs a name"),
        (lambda chaos: [chaos.effect("charge"), chaos.effect("charge")], "already"),
        (lambda chaos: chaos.use("redis://"), "takes the Once"),
    ],
)
def test_a_mistake_is_told_at_once(once_chaos, mistake, words):
    with pytest.raises(ConfigurationError, match=words):
        mistake(once_chaos)


def test_a_handler_that_does_not_work_at_all_raises_what_it_raises(once_chaos):
    once_chaos.effect("charge")
    with pytest.raises(ZeroDivisionError):
        once_chaos.run(lambda: 1 / 0)
    with pytest.raises(ChaosError, match="in place of the real thing"):
        once_chaos.run(lambda: None)


def test_a_long_table_is_cut(once_chaos):
    effects = [once_chaos.effect(f"effect {number}") for number in range(6)]
    assert "... and 12 more" in wrong(once_chaos, lambda: [effect() for effect in effects])
