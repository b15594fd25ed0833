"""Run Django's `runtests.py` with our middleware last in every `MIDDLEWARE`.

    python -m oncekey_outside.django_suite LABEL ...

It starts in the folder of Django's tests. The outcome of every test is written down.
"""

import json
import os
import runpy
import sys
import unittest
from pathlib import Path
from typing import Any

from django.core.handlers import base  # type: ignore[import-untyped]  # Django brings no types
from django.test.runner import DiscoverRunner  # type: ignore[import-untyped]  # as above

from .mode import BARE, KEYED, MODE, VARIABLE, WRITES, fresh_key, note

MIDDLEWARE = "oncekey.http.django.IdempotencyMiddleware"

found: dict[str, str] = {}


class Result(unittest.TextTestResult):
    """The result that unittest prints; it also notes the outcome of every test."""

    def addSuccess(self, test: unittest.TestCase) -> None:  # noqa: N802 - unittest calls it so
        super().addSuccess(test)
        found.setdefault(test.id(), "passed")

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:  # noqa: N802 - unittest calls it so
        super().addFailure(test, err)
        found[test.id()] = "failed"

    def addError(self, test: unittest.TestCase, err: Any) -> None:  # noqa: N802 - unittest calls it so
        super().addError(test, err)
        found[test.id()] = "failed" if isinstance(test, unittest.TestCase) else "error"

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: Any) -> None:  # noqa: N802 - unittest calls it so
        super().addSubTest(test, subtest, err)
        if err is not None:
            found[test.id()] = "failed"

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:  # noqa: N802 - unittest calls it so
        super().addSkip(test, reason)
        found[test.id()] = "skipped"

    def addExpectedFailure(self, test: unittest.TestCase, err: Any) -> None:  # noqa: N802 - unittest calls it so
        super().addExpectedFailure(test, err)
        found[test.id()] = "xfailed"

    def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:  # noqa: N802 - unittest calls it so
        super().addUnexpectedSuccess(test)
        found[test.id()] = "xpassed"


class Settings:
    """The settings as a handler sees them: with our middleware."""

    def __init__(self, settings: Any) -> None:
        self._settings = settings

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._settings, name)
        if name != "MIDDLEWARE":
            return value
        note("wrapped")
        return [*value, MIDDLEWARE]


def install() -> None:
    """Add our middleware where handlers load theirs, and give each write a key if asked to."""
    handler = base.BaseHandler
    base.settings = Settings(base.settings)
    answer, answer_async = handler.get_response, handler.get_response_async

    def get_response(self: Any, request: Any) -> Any:
        add_key(request)
        return answer(self, request)

    async def get_response_async(self: Any, request: Any) -> Any:
        add_key(request)
        return await answer_async(self, request)

    if MODE == KEYED:
        handler.get_response = get_response
        handler.get_response_async = get_response_async


def add_key(request: Any) -> None:
    """Give a write a key, as its client would have done."""
    if request.method in WRITES:
        request.META.setdefault(VARIABLE, fresh_key())


def main(labels: list[str]) -> None:
    if MODE != BARE:
        install()
    # Only Django's own runner: some tests run tests, which are meant to fail.
    DiscoverRunner.get_resultclass = lambda _: Result
    sys.argv = [
        *("runtests.py", "--settings=oncekey_outside.django_settings"),
        *("--parallel=1", "--verbosity=1", "--noinput", *labels),
    ]
    try:
        runpy.run_path("runtests.py", run_name="__main__")
    finally:
        Path(os.environ["ONCEKEY_OUTSIDE_OUTCOMES"]).write_text(json.dumps(found), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
