"""What PEP 3333 asks of a middleware, and what only WSGI has. The rest is in the shared suite.

Server and application are checked by the validator of the standard library on both sides.
"""

import io
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from time import sleep
from types import SimpleNamespace
from urllib.parse import quote
from wsgiref.util import setup_testing_defaults
from wsgiref.validate import validator

import pytest

from oncekey import ConfigurationError, Once, current
from oncekey.core.requests import Scan
from oncekey.http import EVERYBODY, IETF, by_user
from oncekey.http.wsgi import AnsweredError, IdempotencyMiddleware, claim
from oncekey.stores import MemoryStore
from oncekey.testing import FakeClock
from tests.faulty import FaultyStore
from tests.patience import until

PLAIN = [("Content-Type", "text/plain")]


class Answer:
    """A response as the server got it: what came before each part, and what was raised."""

    def __init__(self, app, environ):
        self.status, self.headers, self.parts, self.error = 0, [], [], None
        try:
            made = app(environ, self._start)
            try:
                for part in made:
                    self.parts.append(part)
            finally:
                if hasattr(made, "close"):
                    made.close()
        except AssertionError:  # of the validator
            raise
        except Exception as error:  # noqa: BLE001 - as a server does
            self.error = error

    def _start(self, status, headers, exc_info=None):
        self.status, self.headers = int(status[:3]), headers
        return self.parts.append

    @property
    def body(self):
        return b"".join(self.parts)

    @property
    def replayed(self):
        return ("idempotent-replayed", "true") in self.headers


class Client:
    """Sends requests to an application behind the middleware, without a network between."""

    def __init__(self, app, checked=True, store=None, **settings):
        self.clock = FakeClock()
        self.store = store or MemoryStore(clock=self.clock)
        self.once = Once(self.store)
        settings.setdefault("scope", None)
        self.middleware = IdempotencyMiddleware(
            validator(app) if checked else app, self.once, **settings
        )
        self.app = validator(self.middleware) if checked else self.middleware

    def post(self, key="k", body=b"{}", **environ):
        return Answer(self.app, environ_of(key, body, **environ))

    def record(self):
        (record,) = self.store.scan(Scan()).records
        return record


def environ_of(key="k", body=b"{}", **more):
    environ = {
        "REQUEST_METHOD": "POST",
        "SCRIPT_NAME": "",
        "PATH_INFO": "/orders",
        "QUERY_STRING": "",
        "CONTENT_LENGTH": str(len(body)),
        "CONTENT_TYPE": "application/json",
        "wsgi.input": io.BytesIO(body),
        **({} if key is None else {"HTTP_IDEMPOTENCY_KEY": key}),
        **more,
    }
    environ = {name: value for name, value in environ.items() if value is not None}
    setup_testing_defaults(environ)
    return environ


class Parts:
    """An iterable that knows whether it was closed, and how far it got."""

    def __init__(self, *parts):
        self.left = list(parts)
        self.closed = 0

    def __iter__(self):
        return self

    def __next__(self):
        if not self.left:
            raise StopIteration
        part = self.left.pop(0)
        if isinstance(part, Exception):
            raise part
        return part

    def close(self):
        self.closed += 1


def answering(*parts, status="201 Created", headers=PLAIN):
    """An application that answers with these parts, and all of its responses."""
    made = []

    def app(environ, start_response):
        start_response(status, list(headers))
        made.append(Parts(*parts))
        return made[-1]

    return app, made


class TestUncovered:
    def test_nothing_is_touched(self):
        seen = []
        once = Once("memory://")
        response = [b"as it is"]

        def app(environ, start_response):
            seen.append((environ, start_response))
            return response

        environ = environ_of(key=None, **{"wsgi.input": None, "HTTP_ACCEPT_ENCODING": "br"})
        before, start = dict(environ), Answer._start
        assert IdempotencyMiddleware(app, once, scope=None)(environ, start) is response
        assert seen[0][0] is environ
        assert seen[0][1] is start
        assert {name: environ[name] for name in before} == before


class TestBody:
    @staticmethod
    def echo(environ, start_response):
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [body]

    @pytest.mark.parametrize("size", [0, 5, 70_000, 3_000_000])
    @pytest.mark.parametrize("length", [True, False])
    def test_it_reaches_the_application_whole(self, size, length):
        body = b"x" * size
        sent = {} if length else {"CONTENT_LENGTH": None, "wsgi.input_terminated": True}
        sent = sent if length else {**sent, "HTTP_TRANSFER_ENCODING": "chunked"}
        client = Client(self.echo, max_result="4MiB")
        first = client.post(body=body, **sent)
        assert first.body == body
        assert client.post(body=body).replayed

    def test_one_in_chunks_has_a_length_inside(self):
        seen = {}

        def app(environ, start_response):
            seen.update(environ)
            return self.echo(environ, start_response)

        chunked = {"CONTENT_LENGTH": None, "wsgi.input_terminated": True}
        Client(app).post(body=b"12345", HTTP_TRANSFER_ENCODING="chunked", **chunked)
        assert seen["CONTENT_LENGTH"] == "5"
        assert "HTTP_TRANSFER_ENCODING" not in seen

    def test_one_in_chunks_whose_end_the_server_does_not_tell_is_refused(self):
        client = Client(self.echo)
        chunked = {"CONTENT_LENGTH": None, "HTTP_TRANSFER_ENCODING": "chunked"}
        assert client.post(**chunked).status == 411
        assert client.post(key=None, **chunked).status == 200

    def test_one_that_ends_too_early_runs_nothing(self):
        client = Client(self.echo)
        assert client.post(body=b"12345", CONTENT_LENGTH="10").status == 400
        assert not client.store.scan(Scan()).records

    def test_a_length_that_is_no_number_is_refused(self):
        assert Client(self.echo, checked=False).post(CONTENT_LENGTH="five").status == 400

    def test_a_server_that_gives_what_has_come_is_asked_for_more(self):
        class Slow(io.BytesIO):
            def read(self, size=-1):
                return super().read(min(size, 3))

        slow = {"wsgi.input": Slow(b"{}   1"), "CONTENT_LENGTH": "6"}
        assert Client(self.echo).post(**slow).body == b"{}   1"

    @pytest.mark.parametrize("before", [0, 10, 100_000])
    def test_a_handler_may_claim_before_or_after_it_reads(self, before):
        def app(environ, start_response):
            stream = environ["wsgi.input"]
            first = stream.read(before)
            claim(environ, scope="ann")
            start_response("200 OK", PLAIN)
            return [first + stream.read(100_000)]

        body = bytes(range(250)) * 400
        client = Client(app, claim="handler")
        assert client.post(body=body).body == body
        assert client.post(body=body).replayed


class TestRequest:
    def test_the_path_counts_from_the_root_of_the_server(self):
        app, made = answering(b"x")
        client = Client(app, routes=["/shop/bestellungen/größe"])
        path = "/bestellungen/größe".encode().decode("latin-1")
        assert not client.post(PATH_INFO=path, SCRIPT_NAME="/shop").replayed
        assert client.post(PATH_INFO=path, SCRIPT_NAME="/shop").replayed
        assert client.record().reference == "/shop/bestellungen/größe"
        assert len(made) == 1

    def test_paths_that_are_no_text_stay_apart(self):
        app, made = answering(b"x")
        client = Client(app)
        for byte in ("\xff", "\xfe", "\xff"):
            client.post(PATH_INFO=f"/{byte}")
        assert len(made) == 2

    def test_the_user_is_the_servers(self):
        app, made = answering(b"x")
        client = Client(app, scope=by_user)
        for user in ("ann", "bob", "ann"):
            client.post(REMOTE_USER=user)
        assert len(made) == 2
        assert isinstance(client.post().error, ConfigurationError)

    def test_the_application_cannot_send_files_past_the_middleware(self):
        seen = {}

        def app(environ, start_response):
            seen.update(environ)
            start_response("200 OK", PLAIN)
            return [b""]

        Client(app).post(**{"wsgi.file_wrapper": io.BytesIO})
        assert "wsgi.file_wrapper" not in seen
        assert seen["HTTP_ACCEPT_ENCODING"] == "identity"

    @pytest.mark.parametrize(
        ("sent", "url"),
        [
            ({}, "https://shop.example/a%20b?c=%20d"),
            ({"RAW_URI": "/a%20b?c=%20d"}, "https://shop.example/a%20b?c=%20d"),
            ({"REQUEST_URI": "/a%20%62?c=+d"}, "https://shop.example/a%20%62?c=+d"),
            ({"RAW_URI": "http://inner/a"}, "https://shop.example/a%20b?c=%20d"),
        ],
    )
    def test_a_signature_is_checked_against_the_url_as_it_was_called(self, sent, url):
        checked = []
        signature = SimpleNamespace(verify=lambda *facts: checked.append(facts))
        app, _ = answering(b"x")
        client = Client(app, profile=IETF.replace(signature=signature))
        client.post(
            PATH_INFO="/a b",
            QUERY_STRING="c=%20d",
            HTTP_HOST="shop.example",
            **{"wsgi.url_scheme": "https"},
            **sent,
        )
        ((headers, body, called, _),) = checked
        assert called == url
        assert body == b"{}"
        assert headers["content-type"] == "application/json"


class TestStartResponse:
    def test_write_is_held_back_and_kept(self):
        def app(environ, start_response):
            write = start_response("200 OK", PLAIN)
            write(b"old ")
            write(b"ways")
            return [b"!"]

        client = Client(app)
        assert client.post().parts == [b"old ways!"]
        assert client.post().body == b"old ways!"

    def test_more_than_is_kept_is_written_to_the_client(self):
        seen = []

        def app(environ, start_response):
            write = start_response("200 OK", PLAIN)
            for part in (b"123", b"456", b"789"):
                write(part)
                seen.append(client.record().status)
            return Parts(b"end")

        client = Client(app, max_result=5)
        assert client.post().parts == [b"123", b"456", b"789", b"end"]
        assert seen == ["running", "completed", "completed"]
        assert client.post().status == 409

    def test_only_written_and_more_than_is_kept(self):
        def app(environ, start_response):
            start_response("200 OK", PLAIN)(b"123456")
            return []

        client = Client(app, max_result=5)
        assert client.post().parts == [b"123456"]
        assert client.post().status == 409

    def test_an_error_page_takes_the_place_of_what_was_not_sent(self):
        def late():
            raise TimeoutError

        def app(environ, start_response):
            write = start_response("200 OK", PLAIN)
            write(b"half")
            try:
                late()
            except TimeoutError:
                start_response("500 Oh", PLAIN, sys.exc_info())
            return [b"an error"]

        client = Client(app, on_crash="hold")
        first = client.post()
        assert (first.status, first.body) == (500, b"an error")
        assert client.record().status == "held"  # it is known that a time-out was behind it

    def test_an_error_page_that_is_too_large_to_keep_goes_by_its_error_too(self):
        def app(environ, start_response):
            error = TimeoutError("late")
            start_response("500 Oh", PLAIN, (TimeoutError, error, None))
            return [b"a long page"]

        client = Client(app, on_crash="hold", max_result=5, checked=False)
        assert client.post().body == b"a long page"
        assert client.record().status == "held"

    def test_an_error_after_the_headers_is_raised(self):
        failure = ValueError("too late")

        def app(environ, start_response):
            write = start_response("200 OK", [("Content-Type", "text/event-stream")])
            write(b"data: 1\n\n")
            start_response("500 Oh", PLAIN, (ValueError, failure, None))
            return []

        first = Client(app).post()
        assert first.error is failure
        assert first.body == b"data: 1\n\n"

    def test_twice_is_a_mistake_of_the_application(self):
        def app(environ, start_response):
            start_response("200 OK", PLAIN)
            start_response("200 OK", PLAIN)
            return []

        client = Client(app)
        assert "called again" in str(client.post().error)
        assert client.record().status == "released"

    def test_never_is_one_too(self):
        client = Client(lambda environ, start_response: [b"x"], checked=False)
        assert "did not call start_response" in str(client.post().error)
        assert client.record().status == "released"

    def test_a_generator_may_begin_late(self):
        def app(environ, start_response):
            yield b""
            start_response("200 OK", PLAIN)
            yield b"late"

        client = Client(app, checked=False)
        assert client.post().body == b"late"
        assert client.post().replayed


class TestEnd:
    def test_the_application_is_closed_after_it_was_recorded(self):
        seen = []

        class Watching(Parts):
            def close(self):
                seen.append(client.record().status)

        def app(environ, start_response):
            start_response("200 OK", PLAIN)
            return Watching(b"x")

        client = Client(app)
        client.post()
        client.post()
        assert seen == ["completed"]

    @pytest.mark.parametrize("profile", ["ietf", "stripe"])
    def test_it_is_closed_once_when_it_fails(self, profile):
        failure = ValueError("half-way")
        app, made = answering(b"half", failure)
        client = Client(app, profile=profile)
        first = client.post()
        assert first.error is failure
        assert made[0].closed == 1
        again = client.post()
        if profile == "ietf":
            assert (first.status, len(made)) == (0, 2)
        else:  # the failure is kept, sent, and the server hears of it all the same
            assert json.loads(first.body)["error"]["type"] == "api_error"
            assert (again.status, again.body, again.error) == (500, first.body, None)
            assert len(made) == 1

    def test_a_process_that_is_told_to_stop_leaves_an_open_outcome(self):
        def app(environ, start_response):
            raise SystemExit

        client = Client(app, profile="stripe", on_crash="hold")
        with pytest.raises(SystemExit):
            client.post()
        assert client.record().status == "held"

    def test_one_that_is_stopped_while_it_is_recorded_is_recorded_all_the_same(self):
        def stop(do):
            raise KeyboardInterrupt

        app, made = answering(b"done")
        store = FaultyStore(MemoryStore(clock=FakeClock()))
        store.instead("settle", stop)
        client = Client(app, store=store)
        with pytest.raises(KeyboardInterrupt):
            client.post()
        until(lambda: client.record().status != "running")
        assert client.post().body == b"done"
        assert len(made) == 1

    @pytest.mark.parametrize("status", ["200 OK", "500 Oh"])
    def test_a_stream_whose_client_left_goes_on_to_its_end(self, status):
        app, made = answering(b"123456", b"more", b"end", status=status)
        client = Client(app, max_result=5)
        response = client.app(environ_of(), lambda *_: None)
        parts = iter(response)
        assert next(parts) == b"123456"
        assert client.record().status == ("completed" if status == "200 OK" else "running")
        response.close()
        assert made[0].left == []
        assert made[0].closed == 1
        assert client.record().status == ("completed" if status == "200 OK" else "released")

    def test_one_that_has_no_end_does_not(self):
        headers = [("Content-Type", "text/event-stream")]
        app, made = answering(b"1", b"2", b"3", headers=headers)
        response = Client(app).app(environ_of(), lambda *_: None)
        assert next(iter(response)) == b"1"
        response.close()
        assert made[0].left == [b"2", b"3"]
        assert made[0].closed == 1

    def test_one_without_an_end_that_does_not_say_so_keeps_no_thread_past_max_run(self):
        went_on = []

        def app(environ, start_response):
            start_response("200 OK", list(PLAIN))
            yield b"123456"
            while len(went_on) < 1000:
                sleep(0.01)
                went_on.append(b"more")
                yield b"more"

        response = Client(app, max_result=5, max_run="1s").app(environ_of(), lambda *_: None)
        assert next(iter(response)) == b"123456"
        response.close()
        assert len(went_on) < 1000

    def test_a_stream_that_fails_after_it_was_sent_stays_as_it_was_recorded(self):
        failure = ValueError("half-way")
        app, made = answering(b"123456", failure)
        client = Client(app, max_result=5)
        first = client.post()
        assert (first.status, first.body, first.error) == (201, b"123456", failure)
        assert client.post().status == 409
        assert len(made) == 1

    @pytest.mark.parametrize(("profile", "status"), [("ietf", "503 Oh"), ("stripe", "429 Oh")])
    def test_one_of_a_status_that_is_not_kept_goes_by_its_error(self, profile, status):
        app, _ = answering(b"123456", TimeoutError("late"), status=status)
        client = Client(app, max_result=5, on_crash="hold", profile=profile)
        assert isinstance(client.post().error, TimeoutError)
        assert client.record().status == "held"

    @pytest.mark.parametrize("written", [True, False])
    def test_where_a_stream_was_taken_over_the_winners_answer_is_sent_and_the_work_goes_on(
        self, written
    ):
        winner = []

        def app(environ, start_response):
            write = start_response("200 OK", PLAIN)
            if winner:
                return [b"winner"]
            winner.append(other)
            client.clock.advance(10_000)
            other.post()
            if written:
                write(b"123456")
                write(b"more")
            return left

        left = Parts(b"123456", b"7")
        client = Client(app, max_result=5)
        other = Client(app, store=client.store)
        first = client.post()
        assert first.body == b"winner"
        assert left.left == []
        assert left.closed == 1

    @pytest.mark.parametrize("status", [502, 504])
    def test_what_a_gateway_leaves_open_is_held_where_so_configured(self, status):
        app, _ = answering(b"late", status=f"{status} Oh")
        client = Client(app, on_crash="hold")
        assert client.post().status == status
        assert client.record().status == "held"

    def test_the_handler_may_say_itself_how_it_ended(self):
        runs = []

        def app(environ, start_response):
            runs.append(1)
            current().release("not today")
            start_response("200 OK", PLAIN)
            return [b"x"]

        client = Client(app)
        assert [client.post().status for _ in range(2)] == [200, 200]
        assert len(runs) == 2


class TestContext:
    def test_the_attempt_is_there_while_the_application_writes_and_not_after(self):
        seen = []

        def app(environ, start_response):
            start_response("503 Later", PLAIN)
            for part in (b"123456", b"more"):
                seen.append(current().number)
                yield part

        client = Client(app, max_result=5)
        client.post()
        assert seen == [1, 1]
        with pytest.raises(ConfigurationError):
            current()

    def test_nothing_of_it_stays_behind_after_a_failure(self):
        def app(environ, start_response):
            assert current().key == "k"
            raise ValueError

        client = Client(app)
        client.post()
        assert client.post().error
        with pytest.raises(ConfigurationError):
            current()


class TestClaim:
    def claiming(self, environ, start_response):
        attempt = claim(environ, scope="ann")
        assert claim(environ, scope="ann") is attempt
        start_response("200 OK", PLAIN)
        return [b"none" if attempt is None else attempt.key.encode()]

    def test_a_duplicate_does_not_come_back(self):
        client = Client(self.claiming, claim="handler")
        assert client.post().body == b"k"
        assert client.post().replayed
        assert client.post(key=None).body == b"none"
        assert client.post(body=b"[]").status == 422

    def test_a_framework_that_answers_exceptions_cannot_hide_the_first_answer(self):
        def app(environ, start_response):
            try:
                return self.claiming(environ, start_response)
            except Exception:  # noqa: BLE001 - as many do
                start_response("500 Oh", PLAIN)
                return [b"an error page"]

        client = Client(app, claim="handler")
        first = client.post()
        again = client.post()
        assert (again.status, again.body, again.replayed) == (200, first.body, True)

    def test_one_that_does_not_claim_is_not_recorded(self):
        app, made = answering(b"1", b"2")
        client = Client(app, claim="handler")
        for _ in range(2):
            assert client.post().parts == [b"1", b"2"]
        assert not client.store.scan(Scan()).records
        assert [one.closed for one in made] == [1, 1]

    def test_one_that_does_not_claim_stops_when_its_client_leaves_as_ever(self):
        app, made = answering(b"1", b"2", b"3")
        response = Client(app, claim="handler").app(environ_of(), lambda *_: None)
        assert next(iter(response)) == b"1"
        response.close()
        assert made[0].left == [b"2", b"3"]
        assert made[0].closed == 1

    def test_a_generator_may_claim(self):
        def app(environ, start_response):
            claim(environ, scope="ann")
            start_response("200 OK", PLAIN)
            yield b"x"

        client = Client(app, claim="handler", checked=False)
        client.post()
        assert client.post().replayed

    def test_after_the_response_has_begun_it_is_too_late(self):
        def app(environ, start_response):
            start_response("200 OK", PLAIN)
            yield b"x"
            claim(environ, scope="ann")

        first = Client(app, claim="handler").post()
        assert isinstance(first.error, ConfigurationError)

    @pytest.mark.parametrize(
        ("environ", "says"),
        [
            (environ_of(), "IdempotencyMiddleware is missing"),
            (None, "takes the environ of the request, not NoneType"),
            ([], "takes the environ of the request, not list"),
        ],
    )
    def test_without_the_middleware_it_says_so(self, environ, says):
        with pytest.raises(ConfigurationError, match=says):
            claim(environ, scope=EVERYBODY)

    def test_a_scope_that_comes_too_late_is_refused(self):
        first = Client(self.claiming, scope=None).post()
        assert "claim='handler'" in str(first.error)

    def test_two_middlewares_can_stand_in_each_other(self):
        once = Once("memory://")
        inner = IdempotencyMiddleware(self.claiming, once, claim="handler", routes=["/orders"])
        outer = IdempotencyMiddleware(inner, once, claim="handler", routes=["/other"])
        for path in ("/orders", "/other"):
            for replayed in (False, True):
                first = Answer(validator(outer), environ_of(PATH_INFO=path))
                assert (first.body, first.replayed) == (b"k", replayed)

    def test_the_answer_is_not_for_those_without_the_middleware(self):
        assert "the middleware must be installed" in str(AnsweredError(None))


class TestStatus:
    def test_a_client_can_ask_how_its_request_is_doing(self):
        seen = []

        def app(environ, start_response):
            with ThreadPoolExecutor() as elsewhere:
                busy = elsewhere.submit(client.post).result()
            seen.append((busy.status, dict(busy.headers)["location"]))
            seen.append(ask(seen[0][1]).status)
            start_response("201 Created", PLAIN)
            return [b"done"]

        def ask(url):
            more = {"REQUEST_METHOD": "GET", "CONTENT_LENGTH": None}
            return Answer(client.app, environ_of(None, b"", PATH_INFO=url, **more))

        client = Client(app, status_path="/requests")
        client.post()
        (status, url), running = seen
        assert (status, running) == (409, 409)
        assert ask(url).body == b"done"
        assert ask(quote("/requests/nothing")).status == 404
