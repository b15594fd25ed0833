"""What is Django's own: how it reads bodies, makes responses of exceptions, and commits."""

import asyncio
import io

import pytest
from django.core.exceptions import (  # type: ignore[import-untyped]  # Django brings no types
    BadRequest,
    PermissionDenied,
)
from django.core.files.uploadedfile import (  # type: ignore[import-untyped]  # Django brings no types
    SimpleUploadedFile,
)
from django.core.handlers.asgi import (  # type: ignore[import-untyped]  # Django brings no types
    ASGIHandler,
)
from django.core.handlers.wsgi import (  # type: ignore[import-untyped]  # Django brings no types
    WSGIHandler,
)
from django.http import (  # type: ignore[import-untyped]  # Django brings no types
    Http404,
    HttpResponse,
    JsonResponse,
)
from django.test import (  # type: ignore[import-untyped]  # Django brings no types
    override_settings,
)
from django.urls import path  # type: ignore[import-untyped]  # Django brings no types
from django.utils.decorators import (  # type: ignore[import-untyped]  # Django brings no types
    sync_and_async_middleware,
)

from oncekey import current
from tests.http.django_shop import Shop, number


@pytest.fixture(params=["wsgi", "asgi"])
def shop(request):
    """Views block in both; under ASGI they do so on a thread."""
    return Shop(request.param)


class TestBodies:
    def test_a_form_with_a_large_file_arrives_whole(self, shop):
        content = bytes(range(256)) * 16 * 1024  # 4 MiB, more than `body` may be

        def upload(request):
            (sent,) = request.FILES.values()
            return JsonResponse({"size": sent.size, "same": sent.read() == content, **request.POST})

        def form():
            return {"name": "tea", "photo": SimpleUploadedFile("a.png", content)}

        with shop.open(upload), override_settings(DATA_UPLOAD_MAX_MEMORY_SIZE=1_000_000):
            first = shop.post(form())
            assert first.json() == {"size": len(content), "same": True, "name": ["tea"]}
            assert shop.post(form()).content == first.content
            other = {"name": "tea", "photo": SimpleUploadedFile("a.png", b"other")}
            assert shop.post(other).status_code == 422
        assert len(shop.runs) == 1

    @pytest.mark.parametrize(
        "read",
        [
            lambda request: request.body,
            lambda request: request.read(),
            lambda request: request.read(3) + request.read(),
            b"".join,
            lambda request: request.readline() + request.read(),
        ],
        ids=["body", "read", "in pieces", "lines", "a line"],
    )
    @pytest.mark.parametrize("size", [10, 2_000_000])
    def test_it_is_read_in_every_way_there_is(self, shop, read, size):
        data = b"one\n" + b"x" * size
        with shop.open(lambda request: HttpResponse(str(read(request) == data))):
            assert shop.post(data, content_type="text/plain").content == b"True"

    def test_what_django_finds_too_large_is_refused_as_ever_and_the_key_is_free(self, shop):
        with (
            override_settings(DATA_UPLOAD_MAX_MEMORY_SIZE=1000),
            shop.open(lambda request: HttpResponse(request.body)),
        ):
            refused = shop.post(b"x" * 2000, content_type="text/plain")
        assert refused.status_code in (400, 413)
        assert shop.record().status == "released"

    def test_a_middleware_outside_may_have_read_it_whole(self, shop):
        with shop.open(
            lambda request: HttpResponse(request.body), around=[f"{__name__}.reads_body"]
        ):
            assert shop.post(b"abc", content_type="text/plain").content == b"abc"
            assert shop.post(b"abd", content_type="text/plain").status_code == 422

    def test_one_that_has_read_a_part_of_it_is_named(self, shop, caplog):
        with shop.open(number(shop), around=[f"{__name__}.reads_form"]):
            refused = shop.post({"photo": SimpleUploadedFile("a.png", b"abc")})
        assert refused.status_code == 500
        assert "put IdempotencyMiddleware before it in MIDDLEWARE" in caplog.text
        assert not shop.runs

    def test_half_a_body_claims_nothing(self):
        shop = Shop("wsgi")
        with shop.open(number(shop)):
            stream = {"CONTENT_LENGTH": "100", "wsgi.input": io.BytesIO(b"abc")}
            refused = shop.post(b"abc", content_type="text/plain", **stream)
        assert refused.status_code == 400
        assert not shop.runs
        assert not shop.store.calls

    def test_a_client_that_goes_while_it_sends_claims_nothing(self):
        shop = Shop("wsgi")

        class Broken(io.BytesIO):
            def read(self, size=-1, /):
                raise ConnectionResetError

        with shop.open(number(shop)):
            refused = shop.post(b"abc", content_type="text/plain", **{"wsgi.input": Broken()})
        assert refused.status_code == 400
        assert not shop.store.calls

    def test_a_key_that_no_client_could_send_is_refused(self):
        shop = Shop("wsgi")
        with shop.open(number(shop)):
            assert shop.post(key="ключ").status_code == 400


def _around(know):
    @sync_and_async_middleware
    def middleware(get_response):
        if asyncio.iscoroutinefunction(get_response):

            async def answer_async(request):
                know(request)
                return await get_response(request)

            return answer_async

        def answer(request):
            know(request)
            return get_response(request)

        return answer

    return middleware


reads_body = _around(lambda request: request.body)
reads_form = _around(lambda request: request.POST)


class TestExceptions:
    @pytest.mark.parametrize("through", [False, True], ids=["a response", "raised"])
    @pytest.mark.parametrize("raises", [False, True], ids=["told", "raised again"])
    def test_a_time_out_leaves_the_outcome_open(self, shop, raises, through):
        def time_out(_request):
            raise TimeoutError("the gateway did not answer")

        with (
            shop.open(time_out, on_crash="hold"),
            override_settings(DEBUG_PROPAGATE_EXCEPTIONS=through),
        ):
            if raises or through:
                with pytest.raises(TimeoutError):
                    shop.post(raises=raises)
            else:
                assert shop.post().status_code == 500
            assert shop.record().status == "held"
            assert shop.post().status_code == 409
        assert len(shop.runs) == 1

    def test_what_nobody_claimed_fails_as_ever(self, shop):
        with (
            shop.open(lambda _request: 1 // 0, claim="handler"),
            override_settings(DEBUG_PROPAGATE_EXCEPTIONS=True),
            pytest.raises(ZeroDivisionError),
        ):
            shop.post()
        assert not shop.store.calls

    def test_another_error_frees_the_key(self, shop):
        with shop.open(lambda _request: 1 // 0, on_crash="hold"):
            assert shop.post().status_code == 500
            assert (shop.record().status, shop.record().uncertain) == ("released", False)
            assert b"ZeroDivisionError" in shop.record().error

    def test_so_does_a_view_without_a_response(self, shop):
        with shop.open(lambda _request: None):
            assert shop.post().status_code == 500
            assert b"ValueError" in shop.record().error

    @pytest.mark.parametrize(
        ("error", "status"), [(Http404, 404), (PermissionDenied, 403), (BadRequest, 400)]
    )
    def test_what_django_answers_by_itself_is_judged_as_an_answer(self, shop, error, status):
        def refuse(_request):
            current().keep()
            raise error

        class Urls:
            handler400 = handler403 = handler404 = staticmethod(
                lambda _request, exception: HttpResponse("no", status=status)
            )
            urlpatterns = (path("", refuse),)

        with shop.open(refuse), override_settings(ROOT_URLCONF=Urls):
            first = shop.post()
            assert (first.status_code, first.content) == (status, b"no")
            assert shop.post().headers["Idempotent-Replayed"] == "true"

    @pytest.mark.parametrize("place", ["around", "within"])
    def test_a_response_that_a_middleware_makes_of_one(self, shop, place):
        def time_out(_request):
            raise TimeoutError

        with shop.open(time_out, **{place: [f"{__name__}.Apologises"]}):
            assert shop.post().status_code == 503
        # Inside, nobody heard of more than the response, as in every other framework.
        assert shop.record().uncertain is (place == "around")

    def test_a_middleware_inside_that_fails_after_the_view(self, shop):
        with shop.open(number(shop), within=[f"{__name__}.fails_late"], on_crash="hold"):
            assert shop.post().status_code == 500
        assert shop.record().status == "held"
        assert len(shop.runs) == 1

    @pytest.mark.parametrize("debug", [False, True])
    def test_a_kept_failure_is_our_own_and_no_page_of_djangos(self, shop, debug):
        def fail(_request):
            secret = "the password"  # noqa: F841, S105 - the page for developers would show it
            raise ValueError

        with shop.open(fail, profile="stripe"), override_settings(DEBUG=debug):
            first, again = shop.post(), shop.post()
        assert (first.status_code, again.status_code) == (500, 500)
        assert first.json()["error"]["type"] == "api_error"
        assert again.content == first.content
        assert b"password" not in shop.record().result
        assert len(shop.runs) == 1

    @pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
    def test_a_process_that_is_ended_leaves_the_outcome_open(self, error):
        shop = Shop("wsgi")

        def end(_request):
            raise error

        with shop.open(end, on_crash="hold"):
            with pytest.raises(error):
                shop.post()
            assert shop.record().status == "held"


class Apologises:
    """Makes a response of every exception."""

    def __init__(self, get_response):
        self.get_response = get_response

    def __call__(self, request):
        return self.get_response(request)

    def process_exception(self, request, exception):
        return HttpResponse("later", status=503)


@sync_and_async_middleware
def fails_late(get_response):
    if asyncio.iscoroutinefunction(get_response):

        async def answer_async(request):
            await get_response(request)
            raise TimeoutError

        return answer_async

    def answer(request):
        get_response(request)
        raise TimeoutError

    return answer


def test_handlers_of_both_kinds_take_it():
    shop = Shop("wsgi")
    with shop.open(number(shop)):
        assert WSGIHandler()
        assert ASGIHandler()
