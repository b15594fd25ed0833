"""The Django project of the tests: its settings, its users, and every view of the suite.

Settings are one for a process, so what differs from site to site is said while its handler is made.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from types import SimpleNamespace
from typing import Any

import django  # type: ignore[import-untyped]  # Django brings no types
from asgiref.sync import iscoroutinefunction, sync_to_async
from django.conf import settings  # type: ignore[import-untyped]  # Django brings no types
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse  # type: ignore[import-untyped]  # Django brings no types
from django.test import override_settings  # type: ignore[import-untyped]  # Django brings no types
from django.urls import path  # type: ignore[import-untyped]  # Django brings no types
from django.utils.decorators import sync_and_async_middleware  # type: ignore[import-untyped]  # Django brings no types

from oncekey import current_async
from oncekey.http.django import claimed
from tests.http.suite import service
from tests.http.suite.service import ROUTES, Answer, Asked
from tests.http.suite.site import TOKENS, WHICH, Run, Site

COMMON = "django.middleware.common.CommonMiddleware"
OURS = "oncekey.http.django.IdempotencyMiddleware"
HELD_FOR = "oncekey.http.django._HELD_FOR"
SHARED = "file:django_tests?mode=memory&cache=shared"
"""A database that is there for all threads while one has it open."""
SITES: dict[str, tuple[Site, str]] = {}
"""Each site, and the module with its views."""

if not settings.configured:
    settings.configure(
        ALLOWED_HOSTS=["*"],
        DATA_UPLOAD_MAX_MEMORY_SIZE=None,  # the suite has large bodies that are no files
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": SHARED}},
        INSTALLED_APPS=[
            "django.contrib.auth",
            "django.contrib.contenttypes",
            "django.contrib.sessions",
        ],
        LOGGING_CONFIG=None,
        ROOT_URLCONF="",  # every site has its own
        SECRET_KEY="a secret of tests",  # noqa: S106 - and of nobody else
        SESSION_ENGINE="django.contrib.sessions.backends.signed_cookies",
        USE_TZ=True,
    )
    django.setup()


def make(handler: Callable[[], Any], urls: str, site: Site, **said: Any) -> Any:
    """A handler for the site, with views of its colour."""
    SITES[site.number] = site, urls
    with override_settings(
        MIDDLEWARE=[COMMON, f"{__name__}.authenticate", OURS],
        ONCEKEY={"once": site.once, **said},
    ):
        return handler()


@sync_and_async_middleware
def authenticate(get_response: Any) -> Any:
    """Knows the users by their tokens, and which views the site has."""

    def know(request: HttpRequest) -> None:
        name = TOKENS.get(request.headers.get("authorization", ""))
        request.urlconf = SITES[request.headers[WHICH]][1]
        request.user = SimpleNamespace(pk=name, is_authenticated=name is not None)

    async def answer_async(request: HttpRequest) -> Any:
        know(request)
        return await get_response(request)

    def answer(request: HttpRequest) -> Any:
        know(request)
        return get_response(request)

    return answer_async if iscoroutinefunction(get_response) else answer


# Views


def patterns(view: Callable[[str], Any]) -> list[Any]:
    """Every path of the suite."""
    return [path(route[1:].replace("{", "<").replace("}", ">"), view(route)) for route in ROUTES]


def blocking(route: str) -> Callable[..., HttpResponse]:
    def plain(request: HttpRequest, parameter: str = "") -> HttpResponse:
        site = site_of(request)
        return response(service.handle(site, route, asked(request, parameter)))

    known, anybody = claimed(scope=user)(plain), claimed(scope=None)(plain)

    def view(request: HttpRequest, parameter: str = "") -> HttpResponse:
        if not site_of(request).claims:
            return plain(request, parameter)
        return (anybody if user(request) is None else known)(request, parameter)

    return view


def coroutine(route: str) -> Callable[..., Any]:
    async def plain(request: HttpRequest, parameter: str = "") -> HttpResponse:
        site, said = site_of(request), asked(request, parameter)
        if route in NATIVE:
            site.runs.append(Run(route, said.body))
            return response_async(await NATIVE[route](site))
        return response_async(await sync_to_async(service.handle)(site, route, said))

    known, anybody = claimed(scope=user)(plain), claimed(scope=None)(plain)

    async def view(request: HttpRequest, parameter: str = "") -> HttpResponse:
        if not site_of(request).claims:
            return await plain(request, parameter)
        return await (anybody if user(request) is None else known)(request, parameter)

    return view


def site_of(request: HttpRequest) -> Site:
    return SITES[request.headers[WHICH]][0]


def user(request: HttpRequest) -> Any:
    return request.user.pk


def asked(request: HttpRequest, parameter: str) -> Asked:
    headers = {name.lower(): value for name, value in request.headers.items()}
    return Asked(request.method, request.path, headers, request.body, user(request), parameter)


def response(answer: Answer) -> HttpResponse:
    """The answer in Django's terms: a header has one value, and cookies are no headers."""
    kind = HttpResponse if isinstance(answer.body, bytes) else StreamingHttpResponse
    made = kind(answer.body, status=answer.status)
    del made.headers["content-type"]
    for name, value in answer.headers:
        if name == "set-cookie":
            made.cookies.load(value)
        else:
            before = made.headers.get(name)
            made.headers[name] = value if before is None else f"{before}, {value}"
    return made


def response_async(answer: Answer) -> HttpResponse:
    if isinstance(answer.body, bytes):
        return response(answer)
    return response(answer._replace(body=parts(answer.body)))  # type: ignore[arg-type]  # for coroutines


async def parts(iterator: Iterator[bytes]) -> AsyncIterator[bytes]:
    take = sync_to_async(lambda: next(iterator, b""), thread_sensitive=False)
    while part := await take():
        yield part


async def note(site: Site) -> Answer:
    attempt = current_async()
    before = attempt.notes
    await attempt.note(charge="ch_1")
    return service.noted(site, attempt, before)


async def keep(site: Site) -> Answer:
    current_async().keep()
    return Answer(422, (service.JSON,), b'{"run": %d}' % len(site.runs))


# What coroutines write differently.
NATIVE = {"/note": note, "/keep": keep}
