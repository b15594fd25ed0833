"""Clients and servers that leave, and what goes on after the response."""

import asyncio

import pytest
from starlette.background import BackgroundTask
from starlette.responses import PlainTextResponse, StreamingResponse

from oncekey import Once, current_async
from oncekey.core.requests import Scan
from oncekey.http.asgi import IdempotencyMiddleware
from oncekey.stores import MemoryStore
from tests.http.suite.wire import Wire, answering, ask, record, scope_of
from tests.patience import PATIENCE, until_async


@pytest.fixture
def store():
    return MemoryStore()


@pytest.fixture
def once(store):
    return Once(store, observers=[])


class TestBackground:
    async def test_a_task_that_fails_cannot_undo_what_was_recorded(self, once, store):
        async def fail():
            assert record(store).status == "completed"
            assert wire.body == b"done"
            raise ValueError("too late")

        app = PlainTextResponse("done", background=BackgroundTask(fail))
        middleware = IdempotencyMiddleware(app, once, scope=None)
        wire = Wire()
        with pytest.raises(ValueError, match="too late"):
            await middleware(scope_of(), wire.receive, wire.send)
        again = await ask(middleware)
        assert (again.status, again.body) == (200, b"done")

    async def test_the_attempt_is_over_for_it(self, once):
        said = []

        async def late():
            try:
                await current_async().note(late=True)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is looked at
                said.append(str(error))

        app = PlainTextResponse("done", background=BackgroundTask(late))
        await ask(IdempotencyMiddleware(app, once, scope=None))
        assert said == ["no attempt is running here; call this inside a protected function"]


class TestLeaving:
    async def test_a_server_that_cancels_does_not_stop_the_work(self, once, store):
        inside, go_on = asyncio.Event(), asyncio.Event()

        async def app(scope, receive, send):
            inside.set()
            await go_on.wait()
            await answering()(scope, receive, send)

        wire = Wire()
        middleware = IdempotencyMiddleware(app, once, scope=None)
        request = asyncio.create_task(middleware(scope_of(), wire.receive, wire.send))
        await inside.wait()
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        assert record(store).status == "running"
        go_on.set()
        await until_async(lambda: record(store).status != "running")
        assert wire.got == []
        again = await ask(middleware)
        assert (again.status, again.body) == (200, b"done")

    async def test_a_request_ends_whose_task_is_cancelled_before_it_begins(self, once):
        def cancelled(loop, coroutine, **settings):
            task = asyncio.Task(coroutine, loop=loop, **settings)
            task.cancel()
            return task

        middleware, wire = IdempotencyMiddleware(answering(), once, scope=None), Wire()
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(PATIENCE) as patience:
            loop.set_task_factory(cancelled)
            try:
                with pytest.raises(asyncio.CancelledError):
                    await middleware(scope_of(), wire.receive, wire.send)
            finally:
                loop.set_task_factory(None)
        assert not patience.expired()

    async def test_a_failure_that_nobody_waits_for_is_logged(self, once, store, caplog):
        inside, go_on = asyncio.Event(), asyncio.Event()

        async def app(scope, receive, send):
            inside.set()
            await go_on.wait()
            raise ValueError("nobody heard")

        wire = Wire()
        middleware = IdempotencyMiddleware(app, once, scope=None)
        request = asyncio.create_task(middleware(scope_of(), wire.receive, wire.send))
        await inside.wait()
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        go_on.set()
        await until_async(lambda: "nobody heard" in caplog.text)
        assert record(store).status == "released"

    async def test_a_client_that_goes_ends_a_stream_that_was_let_through(self, once):
        async def endless():
            while True:
                yield b"data: 1\n\n"
                await asyncio.sleep(0)

        app = StreamingResponse(endless(), media_type="text/event-stream")
        wire = Wire()
        middleware = IdempotencyMiddleware(app, once, scope=None)
        request = asyncio.create_task(middleware(scope_of(), wire.receive, wire.send))
        await until_async(lambda: len(wire.got) >= 3)
        wire.gone.set()
        await asyncio.wait_for(request, PATIENCE)

    async def test_a_client_that_goes_does_not_end_what_is_not_recorded(self, once, store):
        """Starlette asks who is still there while it streams, and would stop."""
        go_on = asyncio.Event()

        async def parts():
            yield b"one,"
            await go_on.wait()
            yield b"two"

        wire = Wire()
        middleware = IdempotencyMiddleware(StreamingResponse(parts()), once, scope=None)
        request = asyncio.create_task(middleware(scope_of(), wire.receive, wire.send))
        wire.gone.set()
        for _ in range(50):
            await asyncio.sleep(0)
        go_on.set()
        await request
        assert record(store).status == "completed"
        assert (await ask(middleware)).body == b"one,two"

    async def test_a_client_that_goes_before_its_body_came_leaves_nothing(self, once, store):
        app = answering()
        part = {"type": "http.request", "body": b"{", "more_body": True}
        wire = await ask(
            IdempotencyMiddleware(app, once, scope=None), part, {"type": "http.disconnect"}
        )
        assert not wire.got
        assert not app.runs
        assert not store.scan(Scan()).records

    async def test_what_could_not_be_recorded_is_not_taken_for_undone(self, once, store):
        """The store fails in a way that no store should; the keeper tells it again."""

        def broken(ask):
            store.settle = real
            raise MemoryError

        real, store.settle = store.settle, broken
        app = answering()
        middleware = IdempotencyMiddleware(app, once, scope=None)
        with pytest.raises(MemoryError):
            await ask(middleware)
        await until_async(lambda: record(store).status != "running")
        assert record(store).status == "completed"
        assert (await ask(middleware)).body == b"done"
        assert app.runs == 1
