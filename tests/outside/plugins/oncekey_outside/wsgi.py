"""Plugin of pytest: our middleware is around every application of Flask."""

from collections.abc import Iterable
from typing import Any

from flask import Flask

from oncekey.http.flask import install as protect

from .mode import BARE, KEYED, MODE, VARIABLE, WRITES, fresh_key, note, store


def install() -> None:
    """Wrap each application when it is made, and give each write a key if asked to."""
    once = store()
    make, call = Flask.__init__, Flask.__call__

    def init(self: Flask, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        note("wrapped")
        protect(self, once, scope=None, methods=WRITES)

    def call_with_key(self: Flask, environ: Any, start_response: Any) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] in WRITES:
            environ.setdefault(VARIABLE, fresh_key())
        return call(self, environ, start_response)

    Flask.__init__ = init  # type: ignore[method-assign]  # the one place all pass
    if MODE == KEYED:
        Flask.__call__ = call_with_key  # type: ignore[method-assign]  # as above


if MODE != BARE:
    install()
