"""What the handlers of every framework do. A shell only routes to these and translates."""

import json
from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Any, NamedTuple

from oncekey import current
from tests.http.suite.site import Run, Site


class Asked(NamedTuple):
    """A request, as the framework handed it to its handler."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    user: str | None
    parameter: str = ""


class Answer(NamedTuple):
    """What the handler answers. A body that is an iterator is a streamed response."""

    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | Iterator[bytes] = b""


Handler = Callable[[Site, Asked], Answer]
ANY = ("GET", "POST", "PUT", "PATCH", "DELETE")
JSON = ("content-type", "application/json")
LARGE = 64 * 1024
"""The size of the large response; sites that care set max_result below."""


def orders(site: Site, asked: Asked) -> Answer:
    """A new order, with a number that no other has."""
    number = len(site.runs)
    content = {"order": number, "for": asked.user}
    return Answer(201, (JSON, ("location", f"/orders/{number}")), json.dumps(content).encode())


def slow(site: Site, asked: Asked) -> Answer:
    site.gate.enter()
    return orders(site, asked)


def boom(site: Site, asked: Asked) -> Answer:
    raise ValueError("the handler failed")


def timeout(site: Site, asked: Asked) -> Answer:
    raise TimeoutError("the gateway did not answer")


def status(site: Site, asked: Asked) -> Answer:
    """The status that the path asks for, with a body that tells runs apart."""
    return Answer(int(asked.parameter), (JSON,), json.dumps({"run": len(site.runs)}).encode())


def later(site: Site, asked: Asked) -> Answer:
    """The status that the path asks for, from a handler that asks the client to come again."""
    answer = status(site, asked)
    return answer._replace(headers=(*answer.headers, ("retry-after", "1")))


def empty(site: Site, asked: Asked) -> Answer:
    return Answer(204)


def redirect(site: Site, asked: Asked) -> Answer:
    return Answer(303, (("location", f"/orders/{len(site.runs)}"),))


def cookies(site: Site, asked: Asked) -> Answer:
    """Headers of every kind, some of them twice."""
    return Answer(
        200,
        (
            ("content-type", "text/plain; charset=utf-8"),
            ("set-cookie", "session=1"),
            ("set-cookie", "theme=dark"),
            ("link", "</a>; rel=next"),
            ("link", "</b>; rel=prev"),
            ("etag", '"v1"'),
            ("x-request", str(len(site.runs))),
            ("access-control-allow-origin", "https://shop.example"),
            ("www-authenticate", "Basic"),
        ),
        "grüße".encode(),
    )


def stream(site: Site, asked: Asked) -> Answer:
    """Several parts, one after the other, and then the end."""
    parts = [b"one,", b"two,", b"three %d" % len(site.runs)]
    return Answer(200, (("content-type", "text/plain"),), iter(parts))


def buffer(site: Site, asked: Asked) -> Answer:
    """Several parts, all of them in the same buffer."""

    def parts() -> Iterator[Any]:
        space = bytearray(4)
        for part in (b"one,", b"two,", b"six."):
            space[:] = part
            yield memoryview(space)

    return Answer(200, (("content-type", "text/plain"),), parts())


def trickle(site: Site, asked: Asked) -> Answer:
    """A drop every moment until the gate is opened."""

    def drops() -> Iterator[bytes]:
        site.gate.inside.set()
        while not site.gate.go_on.wait(0.05):
            yield b"."
        yield b"end"

    return Answer(200, (("content-type", "text/plain"),), drops())


def endless(site: Site, asked: Asked) -> Answer:
    return _endless(site, "text/event-stream; charset=utf-8", b"data: 1\n\n")


def ndjson(site: Site, asked: Asked) -> Answer:
    return _endless(site, "application/x-ndjson", b'{"n": 1}\n')


def _endless(site: Site, kind: str, part: bytes) -> Answer:
    """A part, and then nothing until the gate is opened."""

    def parts() -> Iterator[bytes]:
        yield part
        site.gate.enter()
        yield part

    return Answer(200, (("content-type", kind),), parts())


def large(site: Site, asked: Asked) -> Answer:
    return Answer(200, (("content-type", "text/plain"),), b"x" * LARGE)


def large_stream(site: Site, asked: Asked) -> Answer:
    """More than is kept, and then nothing until the gate is opened."""

    def parts() -> Iterator[bytes]:
        for _ in range(16):
            yield b"x" * (LARGE // 16)
        site.gate.enter()
        yield b"end"

    return Answer(200, (("content-type", "text/plain"),), parts())


def half(site: Site, asked: Asked) -> Answer:
    return _failing("text/plain")


def broken(site: Site, asked: Asked) -> Answer:
    return _failing("text/event-stream")


def _failing(kind: str) -> Answer:
    """A part, and then an error."""

    def parts() -> Iterator[bytes]:
        yield b"data: 1\n\n"
        raise ValueError("the stream failed")

    return Answer(200, (("content-type", kind),), parts())


def note(site: Site, asked: Asked) -> Answer:
    """What the attempt knows; the first one fails after its note."""
    attempt = current()
    before = attempt.notes
    attempt.note(charge="ch_1")
    return noted(site, attempt, before)


def noted(site: Site, attempt: Any, before: dict[str, Any]) -> Answer:
    """What a handler has found out about its attempt; the first one then fails."""
    site.facts.setdefault("downstream", []).append(attempt.downstream_key("charge"))
    facts = {"number": attempt.number, "before": before, "notes": attempt.notes}
    return Answer(500 if attempt.number == 1 else 200, (JSON,), json.dumps(facts).encode())


def keep(site: Site, asked: Asked) -> Answer:
    """A status that is not kept, from a handler that wants it kept."""
    current().keep()
    return Answer(422, (JSON,), json.dumps({"run": len(site.runs)}).encode())


def whoami(site: Site, asked: Asked) -> Answer:
    if asked.user is None:
        return Answer(401, (JSON, ("www-authenticate", "Bearer")), b'{"error": "who are you?"}')
    return orders(site, asked)


def mirror(site: Site, asked: Asked) -> Answer:
    """The request as the handler saw it."""
    facts = {"body": asked.body.decode("latin-1"), "headers": asked.headers}
    return Answer(200, (JSON,), json.dumps(facts).encode())


def upload(site: Site, asked: Asked) -> Answer:
    """What arrived, in short."""
    facts = {"run": len(site.runs), "sha256": sha256(asked.body).hexdigest()}
    return Answer(200, (JSON,), json.dumps(facts).encode())


ROUTES: dict[str, Handler] = {
    "/orders": orders,
    "/orders/{parameter}": orders,
    "/slow": slow,
    "/boom": boom,
    "/timeout": timeout,
    "/status/{parameter}": status,
    "/later/{parameter}": later,
    "/empty": empty,
    "/redirect": redirect,
    "/cookies": cookies,
    "/stream": stream,
    "/buffer": buffer,
    "/trickle": trickle,
    "/endless": endless,
    "/ndjson": ndjson,
    "/large": large,
    "/large-stream": large_stream,
    "/half": half,
    "/broken": broken,
    "/note": note,
    "/keep": keep,
    "/whoami": whoami,
    "/upload": upload,
    "/mirror": mirror,
}
"""Every path, for every method in ANY; `{parameter}` is one segment."""


def handle(site: Site, route: str, asked: Asked) -> Answer:
    """The handler has run, and the site knows of it."""
    site.runs.append(Run(route, asked.body))
    return ROUTES[route](site, asked)
