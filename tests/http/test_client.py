"""The transports of both colours against a server that fails in every way it is told to."""

import ast
import asyncio
import gzip
import inspect
import json
import ssl
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType
from typing import Any, NamedTuple

import httpx
import pytest

from oncekey import ConfigurationError, InvalidKeyError, Once
from oncekey.http import client
from oncekey.http.client import AsyncOnceTransport, OnceTransport
from tests.patience import PATIENCE, until
from tests.sync_and_async import test_pairs as twins

DROP, HANG, HALF = "drop", "hang", "half"  # what a server does instead of answering
TLS = ssl.create_default_context()  # is slow to make, and never used
PROBLEM = {"Content-Type": "application/problem+json"}


class Answer(NamedTuple):
    status: int = 200
    headers: Mapping[str, str] = MappingProxyType({})
    body: bytes = b"done"


class Seen(NamedTuple):
    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def key(self) -> str | None:
        return self.headers.get("idempotency-key")


class Server(ThreadingHTTPServer):
    """Answers as its script says, one line for each request, and the last line for ever."""

    daemon_threads = False  # so that closing it waits for them

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.script: list[str | Answer | Callable[[Seen], Answer | str]] = [Answer()]
        self.seen: list[Seen] = []
        self.troubles: list[BaseException | None] = []
        self.over = threading.Event()
        self.url = f"http://127.0.0.1:{self.server_port}"

    def keys(self) -> list[str | None]:
        return [one.key for one in self.seen]

    def handle_error(self, request, client_address) -> None:
        """A client that went away is what many of these tests are about; nothing else is."""
        if not isinstance(sys.exception(), ConnectionError):
            self.troubles.append(sys.exception())


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def __getattr__(self, name: str) -> Any:
        if name.startswith("do_"):
            return self.answer
        raise AttributeError(name)

    def answer(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        if headers.get("transfer-encoding") == "chunked":
            body = b"".join(iter(self.read_chunk, b""))
        else:
            body = self.rfile.read(int(headers.get("content-length", 0)))
        seen = Seen(self.command, self.path, headers, body)
        self.server.seen.append(seen)
        script = self.server.script
        line = script.pop(0) if len(script) > 1 else script[0]
        if callable(line):
            line = line(seen)
        if isinstance(line, Answer):
            self.send(line)
            return
        self.close_connection = True
        if line == HANG:
            self.server.over.wait()
        elif line == HALF:
            self.send(Answer(headers={"Content-Length": "100"}))

    def read_chunk(self) -> bytes:
        size = int(self.rfile.readline(), 16)
        chunk = self.rfile.read(size)
        self.rfile.readline()
        return chunk

    def send(self, answer: Answer) -> None:
        usual = {"Content-Length": str(len(answer.body)), "Date": self.date_time_string()}
        self.send_response_only(answer.status)
        for name, value in {**usual, **answer.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def log_message(self, *args: object) -> None:
        """The standard error is not for tests."""


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as made:
        thread = threading.Thread(target=made.serve_forever, args=(0.01,))
        thread.start()
        yield made
        made.over.set()
        made.shutdown()
        thread.join()
    assert not made.troubles


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long the client would have waited. It does not wait at all."""
    made: list[float] = []

    async def pause_async(seconds: float) -> None:
        made.append(seconds)

    monkeypatch.setattr(client, "pause", made.append)
    monkeypatch.setattr(client, "pause_async", pause_async)
    return made


Ask = Callable[..., httpx.Response]


def ask_sync(
    method: str, url: str, *, inner=None, timeout: float | None = PATIENCE, settings=None, **kwargs
) -> httpx.Response:
    transport = OnceTransport(inner or httpx.HTTPTransport(verify=TLS), **settings or {})
    with httpx.Client(transport=transport, timeout=timeout, follow_redirects=True) as made:
        return made.request(method, url, **kwargs)


def ask_async(
    method: str, url: str, *, inner=None, timeout: float | None = PATIENCE, settings=None, **kwargs
) -> httpx.Response:
    async def main() -> httpx.Response:
        transport = AsyncOnceTransport(
            inner or httpx.AsyncHTTPTransport(verify=TLS), **settings or {}
        )
        async with httpx.AsyncClient(
            transport=transport, timeout=timeout, follow_redirects=True
        ) as made:
            return await made.request(method, url, **kwargs)

    return asyncio.run(main())


@pytest.fixture(params=[ask_sync, ask_async], ids=["sync", "async"])
def ask(request: pytest.FixtureRequest) -> Ask:
    made: Ask = request.param
    return made


class Hasty(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Waits for each answer as long as it is told here, or as it is asked to where that is None.

    Whatever else takes time may take it.
    """

    def __init__(self, ask: Ask, reads: list[float | None]) -> None:
        kind = httpx.HTTPTransport if ask is ask_sync else httpx.AsyncHTTPTransport
        self._inner: Any = kind(verify=TLS)
        self._reads = reads
        self.given: list[dict[str, float]] = []

    def _patient(self, request: httpx.Request) -> httpx.Request:
        self.given.append(request.extensions["timeout"])
        read = self._reads.pop(0) or self.given[-1]["read"]
        patient = dict.fromkeys(("connect", "write", "pool"), PATIENCE)
        request.extensions = {**request.extensions, "timeout": {**patient, "read": read}}
        return request

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        answer: httpx.Response = self._inner.handle_request(self._patient(request))
        return answer

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        answer: httpx.Response = await self._inner.handle_async_request(self._patient(request))
        return answer

    def close(self) -> None:
        self._inner.close()

    async def aclose(self) -> None:
        await self._inner.aclose()


# Keys


def test_a_request_with_an_effect_gets_a_key_that_is_a_random_uuid(server, ask):
    for method in ("POST", "PATCH"):
        response = ask(method, server.url)
        key = server.seen[-1].key
        assert uuid.UUID(key).version == 4
        assert response.request.headers["Idempotency-Key"] == key
    assert len(set(server.keys())) == 2


def test_other_requests_get_none(server, ask):
    for method in ("GET", "HEAD", "OPTIONS", "PUT", "DELETE"):
        ask(method, server.url)
    assert server.keys() == [None] * 5


def test_the_callers_own_key_is_kept_on_every_try(server, ask, waits):
    server.script = [DROP, Answer(503), Answer()]
    ask("POST", server.url, headers={"idempotency-key": "order-17"})
    assert server.keys() == ["order-17"] * 3


def test_header_methods_and_key_can_be_chosen(server, ask):
    settings = {
        "header": "X-Request-Id",
        "methods": ["delete"],
        "key": lambda request: f"{request.method} {request.url.path}",
    }
    ask("DELETE", f"{server.url}/orders/17", settings=settings)
    ask("POST", server.url, settings=settings)
    assert [one.headers.get("x-request-id") for one in server.seen] == ["DELETE /orders/17", None]
    assert server.keys() == [None, None]


def test_one_request_object_never_gets_a_second_key(server):
    with httpx.Client(transport=OnceTransport()) as made:
        request = made.build_request("POST", server.url)
        made.send(request)
        made.send(request)
    assert len(set(server.keys())) == 1


def test_a_redirect_that_repeats_the_request_keeps_the_key(server, ask):
    server.script = [Answer(307, {"Location": "/there"}), Answer()]
    ask("POST", server.url, content=b"x")
    assert [(one.path, one.body) for one in server.seen] == [("/", b"x"), ("/there", b"x")]
    assert len(set(server.keys())) == 1


def test_a_key_that_cannot_be_sent_is_refused_before_anything_is_sent(server, ask):
    with pytest.raises(InvalidKeyError, match="printable"):
        ask("POST", server.url, settings={"key": lambda _: "a\nb"})
    assert not server.seen


# Trouble with the connection


@pytest.mark.parametrize("trouble", [DROP, HALF])
def test_a_lost_answer_is_asked_for_again_with_the_same_key_and_body(server, ask, waits, trouble):
    server.script = [trouble, trouble, Answer(201, body=b"receipt")]
    response = ask("POST", server.url, json={"amount": 40})
    assert (response.status_code, response.content) == (201, b"receipt")
    assert len(set(server.keys())) == 1
    assert [json.loads(one.body) for one in server.seen] == [{"amount": 40}] * 3
    assert len(waits) == 2


def test_a_read_time_out_is_asked_again(server, ask, waits):
    server.script = [HANG, Answer()]
    inner = Hasty(ask, [0.05, PATIENCE])
    assert ask("POST", server.url, inner=inner).status_code == 200
    assert len(set(server.keys())) == 1
    assert len(server.seen) == 2


def test_the_last_error_is_raised_when_the_tries_are_used_up(server, ask, waits):
    server.script = [DROP]
    with pytest.raises(httpx.RemoteProtocolError) as caught:
        ask("POST", server.url, settings={"tries": 3})
    assert len(server.seen) == 3
    assert len(waits) == 2
    assert caught.value.request.headers["Idempotency-Key"] == server.seen[0].key


def test_a_server_that_is_not_there_is_tried_as_often(server, ask, waits):
    server.server_close()
    with pytest.raises(httpx.ConnectError):
        ask("POST", server.url, settings={"tries": 4})
    assert len(waits) == 3


def test_the_pauses_are_real(server, ask):
    server.script = [DROP, DROP, Answer()]
    settings = {"first_wait": "10ms", "longest_wait": "20ms"}
    assert ask("POST", server.url, settings=settings).status_code == 200


def test_an_effect_whose_answer_was_lost_happens_once(server, ask, waits):
    charges: list[str] = []

    def charge(seen: Seen) -> Answer:
        def run() -> str:
            charges.append(seen.key or "")
            return f"receipt {len(charges)}"

        return Answer(body=once.run(seen.key or "", run).encode())

    with closing(Once("memory://")) as once:
        server.script = [lambda seen: charge(seen) and DROP, charge]
        assert ask("POST", server.url).text == "receipt 1"
    assert charges == [server.seen[0].key]
    assert len(server.seen) == 2


# What the server says


@pytest.mark.parametrize(
    "answer",
    [
        Answer(409, {"Retry-After": "1"}),
        Answer(409, {"Stripe-Should-Retry": "true"}),
        Answer(409, PROBLEM, b'{"type": "urn:oncekey:in-progress"}'),
        Answer(
            409,
            PROBLEM | {"Content-Encoding": "gzip"},
            gzip.compress(b'{"type": "urn:oncekey:in-progress"}'),
        ),
        Answer(500, {"Stripe-Should-Retry": "true"}),
        *[Answer(status) for status in (425, 429, 502, 503, 504)],
    ],
)
def test_an_answer_that_asks_for_patience_is_asked_again(server, ask, waits, answer):
    server.script = [answer, Answer()]
    assert ask("POST", server.url, content=b"x").content == b"done"
    assert len(set(server.keys())) == 1
    assert [one.body for one in server.seen] == [b"x", b"x"]


@pytest.mark.parametrize(
    "answer",
    [
        Answer(409),
        Answer(409, PROBLEM | {"Retry-After": "1"}, b'{"type": "urn:oncekey:key-reused"}'),
        Answer(409, PROBLEM, b"{"),
        Answer(503, {"Stripe-Should-Retry": "false"}),
        Answer(200, {"Stripe-Should-Retry": "true", "Retry-After": "1"}),
        *[Answer(status) for status in (202, 400, 401, 404, 408, 422, 500, 501)],
    ],
)
def test_a_final_answer_is_given_back_at_once_as_it_is(server, ask, waits, answer):
    server.script = [answer]
    response = ask("POST", server.url)
    assert (response.status_code, response.content) == (answer.status, answer.body)
    assert len(server.seen) == 1
    assert not waits


def test_the_last_answer_is_given_back_when_the_tries_are_used_up(server, ask, waits):
    server.script = [Answer(503, body=b"first"), Answer(503, body=b"last")]
    response = ask("POST", server.url, settings={"tries": 2})
    assert (response.status_code, response.content) == (503, b"last")
    assert len(server.seen) == 2


def test_the_client_waits_at_least_as_long_as_it_is_told(server, ask, waits):
    later = {
        "Date": "Sun, 06 Nov 2044 08:49:00 GMT",
        "Retry-After": "Sun, 06 Nov 2044 08:49:30 GMT",
    }
    server.script = [Answer(429, {"Retry-After": "20"}), Answer(503, later), Answer()]
    ask("POST", server.url)
    assert waits == [20, 30]


# The deadline


def test_who_is_told_to_come_back_after_the_deadline_is_answered_at_once(server, ask, waits):
    server.script = [Answer(503, {"Retry-After": "61"})]
    assert ask("POST", server.url).status_code == 503
    assert len(server.seen) == 1
    assert not waits


def test_a_try_does_not_outlast_the_deadline(server, ask):
    server.script = [HANG]
    with pytest.raises(httpx.ReadTimeout):
        inner = Hasty(ask, [None])
        ask("POST", server.url, inner=inner, timeout=None, settings={"deadline": "100ms"})
    assert 0 < inner.given[0]["read"] <= 0.1
    until(lambda: server.seen)
    assert len(server.seen) == 1


# Bodies


def test_a_body_that_comes_in_parts_is_sent_once(server, ask, waits):
    def parts():
        yield b"a"
        yield b"b"

    async def parts_async():
        for part in parts():
            yield part

    server.script = [Answer(503)]
    content = parts() if ask is ask_sync else parts_async()
    assert ask("POST", server.url, content=content).status_code == 503
    assert [one.body for one in server.seen] == [b"ab"]
    assert server.seen[0].key
    assert not waits


def test_files_are_read_first_and_sent_again_whole(server, ask, waits, tmp_path):
    path = tmp_path / "invoice.txt"
    path.write_bytes(b"forty")
    server.script = [DROP, Answer(503), Answer()]
    with path.open("rb") as file:
        assert ask("POST", server.url, files={"file": file}).status_code == 200
    assert len({one.body for one in server.seen}) == 1
    assert b"forty" in server.seen[2].body


def test_a_file_over_the_limit_is_sent_once(server, ask, waits, tmp_path):
    path = tmp_path / "invoice.txt"
    path.write_bytes(b"forty")
    server.script = [Answer(503)]
    with path.open("rb") as file:
        ask("POST", server.url, files={"file": file}, settings={"buffer": 10})
    assert len(server.seen) == 1
    assert b"forty" in server.seen[0].body
    assert server.seen[0].key


# Which requests are sent again


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "PUT", "DELETE"])
def test_idempotent_methods_are_sent_again_without_a_key(server, ask, waits, method):
    server.script = [DROP, Answer(503), Answer()]
    assert ask(method, server.url).status_code == 200
    assert server.keys() == [None] * 3


@pytest.mark.parametrize(
    ("method", "settings"),
    [("LINK", {}), ("POST", {"key": lambda _: ""}), ("POST", {"methods": []})],
)
def test_what_has_no_key_and_could_happen_twice_is_sent_once(server, ask, waits, method, settings):
    server.script = [Answer(503)]
    assert ask(method, server.url, settings=settings).status_code == 503
    server.script = [DROP]
    with pytest.raises(httpx.RemoteProtocolError):
        ask(method, server.url, settings=settings)
    assert server.keys() == [None, None]
    assert not waits


def test_any_method_with_the_callers_key_is_sent_again(server, ask, waits):
    server.script = [DROP, Answer()]
    ask("LINK", server.url, headers={"Idempotency-Key": "k"})
    assert server.keys() == ["k", "k"]


# Answers


def test_a_short_answer_can_still_be_had_raw():
    packed = gzip.compress(b"done")
    inner = httpx.MockTransport(
        lambda _: httpx.Response(
            200,
            headers={"Content-Encoding": "gzip", "Content-Length": str(len(packed))},
            stream=httpx.ByteStream(packed),
        )
    )
    with httpx.Client(transport=OnceTransport(inner)) as made:
        assert made.post("http://shop").content == b"done"
        with made.stream("POST", "http://shop") as response:
            assert b"".join(response.iter_raw()) == packed


def test_an_answer_that_is_in_memory_already_is_taken_as_it_is(ask, waits):
    problem = {"type": "urn:oncekey:in-progress"}
    answers = iter(
        [httpx.Response(409, json=problem, headers=PROBLEM), httpx.Response(200, text="x")]
    )
    assert (
        ask("POST", "http://shop", inner=httpx.MockTransport(lambda _: next(answers))).text == "x"
    )
    assert len(waits) == 1


class Stream(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A body without a length that knows whether it was read and closed."""

    def __init__(self) -> None:
        self.read = self.closed = False

    def __iter__(self):
        self.read = True
        yield b"part"

    async def __aiter__(self):
        self.read = True
        yield b"part"

    def close(self) -> None:
        self.closed = True

    async def aclose(self) -> None:
        self.closed = True


def test_answers_that_are_not_given_back_are_closed_unread(ask, waits):
    streams = [Stream(), Stream(), Stream()]
    left = iter([(503, streams[0]), (503, streams[1]), (200, streams[2])])

    def answer(_):
        status, stream = next(left)
        return httpx.Response(status, stream=stream)

    assert ask("POST", "http://shop", inner=httpx.MockTransport(answer)).content == b"part"
    assert [one.read for one in streams] == [False, False, True]
    assert all(one.closed for one in streams)


def test_a_long_answer_is_not_read_ahead():
    stream = Stream()
    inner = httpx.MockTransport(
        lambda _: httpx.Response(200, headers={"Content-Length": "4"}, stream=stream)
    )
    with httpx.Client(transport=OnceTransport(inner, buffer=3)) as made:
        with made.stream("POST", "http://shop"):
            assert not stream.read
        assert stream.closed


# Coroutines


async def test_a_client_that_is_cancelled_while_it_waits_sends_nothing_more(server, monkeypatch):
    waiting = asyncio.Event()

    async def pause_async(_: float) -> None:
        waiting.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(client, "pause_async", pause_async)
    server.script = [Answer(503)]
    async with httpx.AsyncClient(transport=AsyncOnceTransport()) as made:
        task = asyncio.create_task(made.post(server.url))
        await waiting.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert len(server.seen) == 1


# The transports themselves


class Inner(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Notes what is asked of it."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.timeouts: list[dict[str, float]] = []

    def __enter__(self):
        self.notes.append("entered")
        return self

    def __exit__(self, *_):
        self.notes.append("left")

    async def __aenter__(self):
        self.notes.append("entered")
        return self

    async def __aexit__(self, *_):
        self.notes.append("left")

    def close(self) -> None:
        self.notes.append("closed")

    async def aclose(self) -> None:
        self.notes.append("closed")

    def handle_request(self, request):
        self.timeouts.append(request.extensions["timeout"])
        return httpx.Response(200)

    async def handle_async_request(self, request):
        return self.handle_request(request)


def test_the_inner_transport_is_entered_and_left_with_the_client(ask):
    inner = Inner()
    ask("POST", "http://shop", inner=inner)
    assert inner.notes == ["entered", "left"]


async def test_the_inner_transport_is_closed_with_it():
    inner = Inner()
    OnceTransport(inner).close()
    await AsyncOnceTransport(inner).aclose()
    assert inner.notes == ["closed", "closed"]


def test_time_outs_shorter_than_the_deadline_stay(ask):
    inner = Inner()
    timeout = httpx.Timeout(connect=1, read=None, write=100, pool=2)
    ask("POST", "http://shop", inner=inner, timeout=timeout)
    (used,) = inner.timeouts
    assert (used["connect"], used["pool"]) == (1, 2)
    assert used["read"] == used["write"] == pytest.approx(60, abs=5)


@pytest.mark.parametrize("transport", [OnceTransport, AsyncOnceTransport])
@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"transport": "http://shop"}, "transport must be"),
        ({"header": "Idempotency Key"}, "header must be"),
        ({"header": None}, "header must be"),
        ({"methods": "POST"}, "methods must be"),
        ({"methods": [None]}, "methods must be"),
        ({"methods": None}, "methods must be"),
        ({"key": "order-17"}, "key must be a function"),
        ({"tries": 0}, "tries must be"),
        ({"tries": True}, "tries must be"),
        ({"tries": "3"}, "tries must be"),
        ({"deadline": 0}, "deadline must be"),
        ({"first_wait": "soon"}, "first_wait must be"),
        ({"longest_wait": -1}, "longest_wait must be"),
        ({"buffer": 0}, "buffer must be"),
    ],
)
def test_a_setting_that_cannot_work_is_refused_in_one_sentence(transport, settings, says):
    with pytest.raises(ConfigurationError, match=says) as caught:
        transport(**settings)
    assert "\n" not in str(caught.value)


def test_a_transport_of_the_other_colour_is_refused():
    with pytest.raises(ConfigurationError, match="AsyncHTTPTransport"):
        AsyncOnceTransport(httpx.HTTPTransport())
    with pytest.raises(ConfigurationError, match="HTTPTransport"):
        OnceTransport(httpx.AsyncHTTPTransport())


PAIRS = {
    "AsyncOnceTransport": "OnceTransport",
    "AsyncBaseTransport": "BaseTransport",
    "AsyncHTTPTransport": "HTTPTransport",
    "handle_async_request": "handle_request",
    "aread": "read",
    "aiter_raw": "iter_raw",
    "aclose": "close",
    "pause_async": "pause",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "transport must be such as httpx.AsyncHTTPTransport(), not ": (
        "transport must be such as httpx.HTTPTransport(), not "
    ),
}


def halves() -> tuple[str, str]:
    source = inspect.getsource(client)
    made = {
        one.name: ast.unparse(one)
        for one in ast.parse(source).body
        if isinstance(one, ast.ClassDef)
    }
    return made["OnceTransport"], made["AsyncOnceTransport"]


def bleached(source: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(twins, "PAIRS", PAIRS)
    return twins.without_colour(ast.parse(source))


def test_the_transports_are_equal_but_for_their_colour(monkeypatch):
    sync, coroutine = (bleached(half, monkeypatch) for half in halves())
    assert sync == coroutine


def test_a_drift_of_one_token_is_seen(monkeypatch):
    sync, coroutine = halves()
    drifted = coroutine.replace("if wait is None", "if wait is not None", 1)
    assert drifted != coroutine
    assert bleached(sync, monkeypatch) != bleached(drifted, monkeypatch)
