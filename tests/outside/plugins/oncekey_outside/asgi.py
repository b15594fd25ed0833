"""Plugin of pytest: our middleware is around every application of Starlette's `TestClient`."""

from typing import Any

from starlette.testclient import TestClient

from oncekey.http.asgi import IdempotencyMiddleware

from .mode import BARE, HEADER, KEYED, MODE, WRITES, fresh_key, note, store


def install() -> None:
    """Wrap each application where a client takes it, and give each write a key if asked to."""
    once = store()
    take, send = TestClient.__init__, TestClient.send

    def init(self: TestClient, app: Any, *args: Any, **kwargs: Any) -> None:
        take(self, app, *args, **kwargs)  # which makes an ASGI 3 application of it
        note("wrapped")
        transport: Any = self._transport
        self.app = transport.app = IdempotencyMiddleware(self.app, once, scope=None, methods=WRITES)

    def send_with_key(self: TestClient, request: Any, **options: Any) -> Any:
        if request.method in WRITES and HEADER not in request.headers:
            request.headers[HEADER] = fresh_key()
        return send(self, request, **options)

    TestClient.__init__ = init  # type: ignore[method-assign]  # the one place all pass
    if MODE == KEYED:
        TestClient.send = send_with_key


if MODE != BARE:
    install()
