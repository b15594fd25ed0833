"""Django REST framework, which authenticates in its views, behind a real server."""

from string import Template

import httpx
import pytest

from tests.patience import PATIENCE
from tests.system.http import environment
from tests.system.http.serving import served

pytestmark = pytest.mark.xdist_group("http")  # one process makes the environment

SHOP = Template("""
from itertools import count

import django
from django.conf import settings

settings.configure(
    SECRET_KEY="no secret",
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF="shop",
    INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", "rest_framework"],
    SESSION_ENGINE="django.contrib.sessions.backends.signed_cookies",
    MIDDLEWARE=[
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
        "oncekey.http.django.IdempotencyMiddleware",
    ],
    ONCEKEY={"store": "memory://", $settings},
)
django.setup()

from django.core.asgi import get_asgi_application
from django.urls import path
from django.utils.decorators import method_decorator
from rest_framework.authentication import BaseAuthentication
from rest_framework.permissions import IsAuthenticated
from rest_framework.response import Response
from rest_framework.views import APIView

from oncekey.http.django import claimed


class User:
    is_authenticated = True

    def __init__(self, name):
        self.pk = name


class ByHeader(BaseAuthentication):
    def authenticate(self, request):
        name = request.headers.get("X-User")
        return (User(name), None) if name else None


numbers = count(1)


class Plain(APIView):
    authentication_classes = [ByHeader]
    permission_classes = [IsAuthenticated]

    def post(self, request):
        return Response({"order": next(numbers), "item": request.data["item"]}, 201)


class Claimed(Plain):
    @method_decorator(claimed(scope=lambda request: request.user.pk))
    def post(self, request):
        return super().post(request)


urlpatterns = [path("plain", Plain.as_view()), path("claimed", Claimed.as_view())]
app = get_asgi_application()
""")
BY_USER = '"scope": "oncekey.http.by_user"'


@pytest.fixture
def shop_of(tmp_path):
    """Return a function that serves the shop with some settings."""

    def serve(settings):
        (tmp_path / "shop.py").write_text(SHOP.substitute(settings=settings), "utf-8")
        python = environment.prepare()
        return served("shop:app", tmp_path, "--app-dir", str(tmp_path), python=python)

    return serve


def post(address, route, key, user="ann"):
    headers = {"X-User": user, "Idempotency-Key": key}
    body = {"item": "tea"}
    return httpx.post(
        f"{address}/{route}", json=body, headers=headers, timeout=PATIENCE, trust_env=False
    )


def test_for_the_middleware_its_users_are_anonymous_and_each_answer_says_so(shop_of):
    with shop_of(BY_USER) as address:
        first, again = (post(address, "plain", "k") for _ in range(2))
    assert [answer.status_code for answer in (first, again)] == [201, 201]
    assert first.json() != again.json()
    assert first.headers["idempotent-unprotected"] == "no-owner"


def test_where_a_key_is_required_they_are_refused(shop_of):
    with shop_of(f'{BY_USER}, "required": True') as address:
        refused = post(address, "plain", "k")
    assert (refused.status_code, refused.json()["type"]) == (403, "urn:oncekey:unprotected")


def test_a_claim_in_the_view_is_that_of_the_user_whom_it_knows(shop_of):
    with shop_of('"claim": "handler"') as address:
        first, again = (post(address, "claimed", "k") for _ in range(2))
        other = post(address, "claimed", "k", user="bob")
        stranger = post(address, "claimed", "k", user="")
    assert first.status_code == 201, first.text
    assert again.json() == first.json()
    assert again.headers["idempotent-replayed"] == "true"
    assert other.json() != first.json()
    assert stranger.status_code == 403  # nobody hears another's answer before permissions are asked


def test_a_view_that_forgets_to_claim_says_so(shop_of):
    with shop_of('"claim": "handler"') as address:
        answer = post(address, "plain", "k")
    assert answer.headers["idempotent-unprotected"] == "not-claimed"
