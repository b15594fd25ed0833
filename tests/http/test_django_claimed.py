"""Views that claim by themselves, and whose request it is."""

import asyncio
from uuid import UUID

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User  # type: ignore[import-untyped]  # Django brings no types
from django.db import connection, connections  # type: ignore[import-untyped]  # Django brings no types
from django.http import HttpResponse, JsonResponse  # type: ignore[import-untyped]  # Django brings no types
from django.test import AsyncClient, Client, RequestFactory  # type: ignore[import-untyped]  # Django brings no types
from django.utils.decorators import method_decorator  # type: ignore[import-untyped]  # Django brings no types
from django.views import View  # type: ignore[import-untyped]  # Django brings no types

from oncekey import ConfigurationError, current, current_async
from oncekey.http import by_authorization, by_user
from oncekey.http.django import claimed
from oncekey.testing import disabled
from tests.http.django_shop import KEYED, Shop, number

SESSIONS = "django.contrib.sessions.middleware.SessionMiddleware"
AUTHENTICATION = "django.contrib.auth.middleware.AuthenticationMiddleware"
KINDS = pytest.mark.parametrize("kind", ["wsgi", "asgi"])
COLOURS = pytest.mark.parametrize("colour", ["blocks", "awaits"])


def anybody(_request):
    return "everybody"


class TestClaimed:
    @KINDS
    @COLOURS
    def test_a_view_of_each_colour_under_each_handler(self, kind, colour):
        shop = Shop(kind)

        @claimed(scope=lambda request: request.headers["x-user"])
        def blocks(_request):
            return JsonResponse({"run": len(shop.runs), "key": current().key})

        @claimed(scope=lambda request: request.headers["x-user"])
        async def awaits(_request):
            # The colour of an attempt is that of the handler.
            key = current_async().key if kind == "asgi" else current().key
            return JsonResponse({"run": len(shop.runs), "key": key})

        view = {"blocks": blocks, "awaits": awaits}[colour]
        with shop.open(view, claim="handler"):
            first = shop.post(headers={"x-user": "ann"})
            assert first.json() == {"run": 1, "key": "k"}
            again = shop.post(headers={"x-user": "ann"})
            assert again.content == first.content
            assert again["Idempotent-Replayed"] == "true"
            assert shop.post(headers={"x-user": "bob"}).json()["run"] == 3  # the second was counted
            other = shop.post(b"other", content_type="text/plain", headers={"x-user": "ann"})
            assert other.status_code == 422
        with pytest.raises(ConfigurationError):
            current()

    @KINDS
    def test_methods_of_classes(self, kind):
        shop = Shop(kind)

        class Blocks(View):
            @method_decorator(claimed(scope=anybody))
            def post(self, _request):
                return number(shop)(_request)

        class Awaits(View):
            @claimed(scope=anybody)
            async def post(self, _request):
                return number(shop)(_request)

        for view in (Blocks, Awaits):
            shop = Shop(kind)
            with shop.open(view.as_view(), claim="handler"):
                assert shop.post().content == shop.post().content == b'{"run": 1}'

    @KINDS
    def test_a_scope_may_be_a_coroutine_of_a_view_that_awaits(self, kind):
        shop = Shop(kind)

        async def whose(request):
            return await sync_to_async(anybody)(request)

        @claimed(scope=whose)
        async def view(request):
            return number(shop)(request)

        with shop.open(view, claim="handler"):
            assert shop.post().content == shop.post().content

    def test_but_not_of_one_that_blocks(self, caplog):
        shop = Shop("wsgi")

        async def whose(_request):
            raise AssertionError

        with shop.open(claimed(scope=whose)(number(shop)), claim="handler"):
            assert shop.post().status_code == 500
        assert "something to await" in caplog.text

    @KINDS
    def test_where_nobody_can_be_told_apart_it_runs_unprotected(self, kind):
        shop = Shop(kind)
        with shop.open(claimed(scope=lambda _request: None)(number(shop)), claim="handler"):
            assert shop.post().content != shop.post().content
        assert not shop.store.calls

    def test_scope_none_is_everybodys(self):
        shop = Shop("wsgi")
        with shop.open(claimed(scope=None)(number(shop)), claim="handler"):
            assert shop.post().content == shop.post().content

    def test_a_user_may_be_a_uuid(self):
        shop, user = Shop("wsgi"), UUID(int=7)
        with shop.open(claimed(scope=lambda _request: user)(number(shop)), claim="handler"):
            assert shop.post().content == shop.post().content
        assert str(user) in shop.record().scope

    def test_the_setting_says_whose_it_is_where_the_view_does_not(self):
        shop = Shop("wsgi")
        view = claimed()(number(shop))
        with shop.open(view, claim="handler", scope=by_authorization):
            shop.post(headers={"authorization": "Basic a"})
            assert shop.post(headers={"authorization": "Basic b"}).json() == {"run": 2}
            assert shop.post(headers={"authorization": "Basic a"}).json() == {"run": 1}

    @KINDS
    def test_where_the_middleware_has_claimed_the_view_runs(self, kind):
        shop = Shop(kind)
        with shop.open(claimed(scope=anybody)(number(shop))):
            assert shop.post().content == shop.post().content == b'{"run": 1}'

    @KINDS
    def test_requests_without_a_key_simply_run(self, kind):
        shop = Shop(kind)
        with shop.open(claimed(scope=anybody)(number(shop)), claim="handler"):
            client = Client()
            assert client.post("/").json() == {"run": 1}
            assert client.get("/", headers=KEYED).json() == {"run": 2}

    @KINDS
    def test_the_body_may_have_been_read_before(self, kind):
        shop, data = Shop(kind), b"x" * 2_000_000

        @claimed(scope=anybody)
        def late(request):
            return HttpResponse(str(len(request.body)))

        def view(request):
            assert request.body.startswith(data)
            return late(request)

        with shop.open(view, claim="handler"):
            assert shop.post(data, content_type="text/plain").content == b"2000000"
            assert shop.post(data + b"y", content_type="text/plain").status_code == 422
            assert shop.post(data, content_type="text/plain")["Idempotent-Replayed"]

    def test_without_the_middleware_it_says_so(self, monkeypatch):
        monkeypatch.setattr("oncekey.http.django._seen", [])
        view = claimed(scope=anybody)(lambda _request: HttpResponse("ran"))
        with pytest.raises(ConfigurationError, match="in MIDDLEWARE"):
            view(RequestFactory().post("/"))
        with disabled():
            assert view(RequestFactory().post("/")).content == b"ran"

    def test_a_request_may_be_wrapped_as_those_of_rest_framework_are(self):
        shop = Shop("wsgi")

        class Wrapped:
            def __init__(self, request):
                self._request = request

            def __getattr__(self, name):
                return getattr(self._request, name)

        view = claimed(scope=anybody)(number(shop))
        with shop.open(lambda request: view(Wrapped(request)), claim="handler"):
            assert shop.post()["Idempotency-Key"] == "k"
            assert shop.post()["Idempotent-Replayed"] == "true"

    def test_what_is_no_view_is_named(self):
        with pytest.raises(ConfigurationError, match="claimed is for views"):
            claimed(scope=anybody)(lambda: None)()

    @pytest.mark.parametrize("scope", ["user", 7])
    def test_a_scope_that_is_no_function_is_refused_at_once(self, scope):
        with pytest.raises(ConfigurationError, match="scope must be a function"):
            claimed(scope=scope)


@pytest.fixture(scope="module")
def users():
    """Two users in a real database, which coroutines must not touch."""
    with connection.schema_editor() as editor:
        editor.create_model(User)
    yield [User.objects.create(username=name) for name in ("ann", "bob")]
    with connection.schema_editor() as editor:
        editor.delete_model(User)
    connections.close_all()


class TestUsers:
    @pytest.fixture
    def client(self):
        return Client()

    @COLOURS
    def test_by_user_under_wsgi(self, users, colour):
        shop = Shop("wsgi")
        with self.open(shop, colour):
            for user in users:
                client = Client()
                client.force_login(user)
                first = client.post("/", headers=KEYED)
                client.cookies.clear()
                client.force_login(user)  # another session of the same user
                assert client.post("/", headers=KEYED).content == first.content
        assert len(shop.runs) == 2

    @COLOURS
    async def test_by_user_under_asgi(self, users, colour):
        shop = Shop("asgi")
        with self.open(shop, colour):
            for user in users:
                client = AsyncClient()
                await sync_to_async(client.force_login)(user)
                first = await client.post("/", headers=KEYED)
                assert first.status_code == 200
                assert (await client.post("/", headers=KEYED)).content == first.content
        assert len(shop.runs) == 2

    @KINDS
    def test_nobody_in_particular_is_not_protected(self, users, kind):
        shop = Shop(kind)
        with self.open(shop, "blocks"):
            assert shop.post().content != shop.post().content

    @KINDS
    def test_without_authentication_by_user_says_so(self, kind, caplog):
        shop = Shop(kind)
        with shop.open(number(shop), scope=by_user):
            assert shop.post().status_code == 500
        assert "install the authentication middleware outside" in caplog.text
        assert not shop.runs

    async def test_a_view_that_awaits_may_claim_for_its_user(self, users):
        shop = Shop("asgi")

        @claimed(scope=lambda request: request.user.pk)  # a query, unless it is asked on a thread
        async def view(request):
            return number(shop)(request)

        with shop.open(view, around=[SESSIONS, AUTHENTICATION], claim="handler"):
            client = AsyncClient()
            await sync_to_async(client.force_login)(users[0])
            assert (await client.post("/", headers=KEYED)).json() == {"run": 1}
            assert (await client.post("/", headers=KEYED)).json() == {"run": 1}

    def test_the_transaction_of_a_view_is_committed_before_it_is_recorded(self, users, monkeypatch):
        monkeypatch.setitem(connections.settings["default"], "ATOMIC_REQUESTS", True)
        shop, seen = Shop("wsgi"), []

        def view(_request):
            User.objects.create(username="carol")
            assert connection.in_atomic_block
            return HttpResponse("created")

        def settle(do):
            seen.append(
                (connection.in_atomic_block, User.objects.filter(username="carol").exists())
            )
            return do()

        shop.store.instead("settle", settle)
        with shop.open(view):
            assert shop.post().status_code == 200
        assert seen == [(False, True)]

    @staticmethod
    def open(shop, colour):
        async def awaits(request):
            await asyncio.sleep(0)
            return number(shop)(request)

        view = number(shop) if colour == "blocks" else awaits
        return shop.open(view, around=[SESSIONS, AUTHENTICATION], scope=by_user)
