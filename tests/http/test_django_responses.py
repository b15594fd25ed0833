"""What becomes of responses, and of views whose client is gone."""

import asyncio
import gzip

import pytest
from django.core.handlers.asgi import (  # type: ignore[import-untyped]  # Django brings no types
    ASGIHandler,
)
from django.http import (  # type: ignore[import-untyped]  # Django brings no types
    FileResponse,
    HttpResponse,
    JsonResponse,
    StreamingHttpResponse,
)
from django.template.response import (  # type: ignore[import-untyped]  # Django brings no types
    SimpleTemplateResponse,
)
from django.test import (  # type: ignore[import-untyped]  # Django brings no types
    AsyncClient,
    override_settings,
)

from oncekey import current, current_async
from oncekey.http.response import unpacked
from tests.http.django_shop import KEYED, Shop
from tests.http.suite.site import Gate, Site
from tests.patience import until

GZIP = "django.middleware.gzip.GZipMiddleware"


@pytest.fixture(params=["wsgi", "asgi"])
def shop(request):
    """Views block in both; under ASGI they do so on a thread."""
    return Shop(request.param)


class TestResponses:
    def test_cookies_reach_the_first_client_and_never_the_record(self, shop):
        def view(_request):
            response = HttpResponse("ok")
            response.set_cookie("session", "secret")
            return response

        with shop.open(view):
            first, again = shop.post(), shop.post()
        assert first.cookies["session"].value == "secret"
        assert again.content == b"ok"
        assert not again.cookies
        assert b"secret" not in shop.record().result

    def test_a_template_is_rendered_before_it_is_kept(self, shop):
        class Greeting(SimpleTemplateResponse):
            @property
            def rendered_content(self):
                return f"hello {len(shop.runs)} for {current().key}"

        with shop.open(lambda _request: Greeting("greeting.html")):
            assert shop.post().content == b"hello 1 for k"
            assert shop.post().content == b"hello 1 for k"

    def test_compression_outside_is_none_of_our_business(self, shop):
        text = b"tea " * 1000
        with shop.open(lambda _request: HttpResponse(text), around=[GZIP], within=[GZIP]):
            for _ in range(2):
                answer = shop.post(headers={"Accept-Encoding": "gzip"})
                assert gzip.decompress(answer.content) == text
        kept = unpacked(shop.record().result)
        assert kept.body == text
        assert b"content-encoding" not in dict(kept.headers)
        assert len(shop.runs) == 1

    def test_a_view_that_ends_the_attempt_itself_has_the_last_word(self, shop):
        def view(_request):
            current().release("not now")
            return HttpResponse("later", status=200)

        with shop.open(view):
            assert shop.post().content == b"later"
            assert shop.record().status == "released"

    @pytest.mark.parametrize("cut", [KeyboardInterrupt, SystemExit])
    def test_what_is_cut_off_while_it_is_recorded_is_recorded_all_the_same(self, cut):
        shop = Shop("wsgi")

        def settle(_do):
            raise cut

        shop.store.instead("settle", settle)
        with shop.open(lambda _request: HttpResponse("ok")):
            with pytest.raises(cut):
                shop.post()
            assert shop.record().status != "released"
            until(lambda: shop.record().status == "completed")
            assert shop.post().content == b"ok"
        assert len(shop.runs) == 1

    def test_a_file_that_is_small_is_replayed_and_closed(self, tmp_path):
        shop = Shop("wsgi")
        file = tmp_path / "invoice.txt"
        file.write_bytes(b"tea: 3")
        with shop.open(lambda _request: FileResponse(file.open("rb"))):
            first, again = shop.post(), shop.post()
        assert b"".join(first.streaming_content) == b"tea: 3"
        assert again.content == b"tea: 3"
        first.close()
        assert again["Content-Disposition"] == first["Content-Disposition"]

    def test_a_stream_may_read_the_request_and_ask_for_its_attempt(self):
        shop = Shop("wsgi")
        data = b"x" * 2_000_000

        def view(request):
            def parts():
                yield current().key.encode()
                yield from iter(lambda: request.read(1 << 16), b"")

            return StreamingHttpResponse(parts())

        with shop.open(view, max_result="1KiB"):
            first = shop.post(data, content_type="text/plain")
            assert b"".join(first.streaming_content) == b"k" + data
            first.close()
            assert shop.post(data, content_type="text/plain").status_code == 409

    def test_a_stream_that_is_not_kept_frees_the_key_and_is_sent(self, shop):
        async def parts_async():
            yield b"later"

        def view(_request):
            parts = [b"later"] if shop.kind == "wsgi" else parts_async()
            return StreamingHttpResponse(parts, status=503)

        with shop.open(view):
            assert shop.post().status_code == 503
        assert shop.record().status == "released"

    @pytest.mark.parametrize("kind", ["wsgi", "asgi"])
    def test_a_stream_that_fails_at_once_has_failed(self, kind):
        shop = Shop(kind)

        def parts():
            yield b"one"
            raise TimeoutError

        async def parts_async():
            yield b"one"
            raise TimeoutError

        make = parts if kind == "wsgi" else parts_async
        with shop.open(lambda _request: StreamingHttpResponse(make()), on_crash="hold"):
            assert shop.post().status_code == 500
        assert shop.record().status == "held"


class TestAsync:
    async def test_a_coroutine_has_its_attempt(self):
        shop = Shop("asgi")

        async def view(_request):
            await current_async().note(charge="ch_1")
            return JsonResponse(current_async().notes)

        with shop.open(view):
            answer = await AsyncClient().post("/", headers=KEYED)
        assert answer.json() == {"charge": "ch_1"}

    async def test_a_client_that_goes_does_not_stop_the_view(self):
        shop, inside, go_on = Shop("asgi"), asyncio.Event(), asyncio.Event()

        async def view(_request):
            inside.set()
            await go_on.wait()
            return HttpResponse("done")

        with shop.open(view):
            request = asyncio.ensure_future(AsyncClient().post("/", headers=KEYED))
            await inside.wait()
            request.cancel()
            go_on.set()
            with pytest.raises(asyncio.CancelledError):
                await request
        assert shop.record().status == "completed"  # Django was kept waiting until then

    async def test_its_failure_is_heard_of_all_the_same(self, caplog):
        shop, inside, go_on = Shop("asgi"), asyncio.Event(), asyncio.Event()

        async def view(_request):
            inside.set()
            await go_on.wait()
            raise ValueError("too late")

        with shop.open(view), override_settings(DEBUG_PROPAGATE_EXCEPTIONS=True):
            request = asyncio.ensure_future(AsyncClient().post("/", headers=KEYED))
            await inside.wait()
            request.cancel()
            go_on.set()
            with pytest.raises(asyncio.CancelledError):
                await request
        assert "a request failed after its client had gone" in caplog.text

    async def test_who_is_cancelled_again_does_not_wait_and_a_view_cut_off_is_uncertain(self):
        shop, views = Shop("asgi"), asyncio.Queue()

        async def view(_request):
            views.put_nowait(asyncio.current_task())
            await asyncio.Event().wait()

        with shop.open(view, on_crash="hold"):
            request = asyncio.ensure_future(AsyncClient().post("/", headers=KEYED))
            work = await views.get()
            request.cancel()
            for _ in range(5):
                await asyncio.sleep(0)
            request.cancel()
            with pytest.raises(asyncio.CancelledError):
                await request
            assert not work.done()
            work.cancel()  # as the end of the loop does
            await asyncio.wait([work])
        assert shop.record().status == "held"

    def test_a_view_on_a_thread_goes_on_when_its_client_is_gone(self, servers):
        """Its thread asks the event loop to note something after Django was told to give up."""
        apps, address = servers("asgi")
        site, gate = Site("django-gone", address, {}), Gate()
        shop = Shop("asgi")

        def view(_request):
            gate.enter()
            current().note(charge="ch_1")
            return HttpResponse("done")

        with shop.open(view):
            apps[site.number] = ASGIHandler()
            head = "POST / HTTP/1.1\nIdempotency-Key: k"
            connection = site.connect(head, b"{}")
            gate.until_inside()
            connection.close()
            gate.go_on.set()
            site.until(lambda: shop.record().status == "completed")
        site.close()
        assert unpacked(shop.record().result).body == b"done"
