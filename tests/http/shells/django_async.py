"""Django under ASGI: views are coroutines, and the middleware is one of MIDDLEWARE."""

from typing import Any

from django.core.handlers.asgi import ASGIHandler  # type: ignore[import-untyped]  # Django brings no types

from tests.http import django_project
from tests.http.suite.site import Site

SERVER = "asgi"
HELD_FOR = django_project.HELD_FOR

urlpatterns = django_project.patterns(django_project.coroutine)


def make(site: Site, **settings: Any) -> ASGIHandler:
    return django_project.make(ASGIHandler, __name__, site, **settings)
