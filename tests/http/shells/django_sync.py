"""Django under WSGI: views block, and the middleware is one of MIDDLEWARE."""

from typing import Any

from django.core.handlers.wsgi import WSGIHandler  # type: ignore[import-untyped]  # Django brings no types

from tests.http import django_project
from tests.http.suite.site import Site

SERVER = "wsgi"
HELD_FOR = django_project.HELD_FOR

urlpatterns = django_project.patterns(django_project.blocking)


def make(site: Site, **settings: Any) -> WSGIHandler:
    return django_project.make(WSGIHandler, __name__, site, **settings)
