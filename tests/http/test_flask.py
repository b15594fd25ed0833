"""What Flask does with responses and exceptions goes on as before behind the middleware."""

import io
import subprocess
import sys
from functools import wraps

import flask
import pytest

from oncekey import ConfigurationError, Once, current
from oncekey.core.requests import Scan
from oncekey.http.flask import claimed, install
from oncekey.http.wsgi import IdempotencyMiddleware
from oncekey.stores import MemoryStore
from oncekey.testing import FakeClock


class Shop:
    """An application with one view, behind the middleware."""

    def __init__(self, view, **settings):
        self.runs = 0
        self.view = view
        self.store = MemoryStore(clock=FakeClock())
        self.app = flask.Flask("shop")
        settings.setdefault("scope", None)
        install(self.app, Once(self.store), **settings)
        self.app.add_url_rule("/orders", "orders", self._run, methods=["GET", "POST"])
        self.client = self.app.test_client()

    def _run(self):
        self.runs += 1
        return self.view()

    def post(self, key="k", **more):
        headers = {**({} if key is None else {"Idempotency-Key": key}), **more.pop("headers", {})}
        more.setdefault("json", {})
        return self.client.post("/orders", headers=headers, buffered=True, **more)

    def twice(self, **more):
        """The first answer and its replay, which must be the same."""
        first, again = self.post(**more), self.post(**more)
        assert again.headers["idempotent-replayed"] == "true"
        assert (first.status_code, first.data) == (again.status_code, again.data)
        assert self.runs == 1
        return first, again

    def record(self):
        (record,) = self.store.scan(Scan()).records
        return record


def by_header(view):
    """Authentication as applications write it: the user is in `g` below it."""

    @wraps(view)
    def authenticating(*args, **kwargs):
        flask.g.user = flask.request.headers.get("X-User")
        return ("who are you?", 401) if flask.g.user == "nobody" else view(*args, **kwargs)

    return authenticating


class TestResponses:
    def test_a_generator_runs_in_its_context_and_is_kept(self):
        def view():
            @flask.stream_with_context
            def parts():
                yield flask.request.headers["Idempotency-Key"]
                yield " was here"

            return flask.Response(parts(), mimetype="text/plain")

        first, _ = Shop(view).twice()
        assert first.text == "k was here"

    def test_a_file_is_kept(self, tmp_path):
        path = tmp_path / "receipt.txt"
        path.write_text("paid")
        first, again = Shop(lambda: flask.send_file(path, as_attachment=True)).twice()
        assert first.text == "paid"
        assert again.headers["Content-Disposition"] == first.headers["Content-Disposition"]
        assert again.headers["ETag"] == first.headers["ETag"]

    def test_a_file_that_is_too_large_is_sent_but_not_kept(self):
        shop = Shop(
            lambda: flask.send_file(io.BytesIO(b"x" * 100_000), "text/plain"), max_result=10
        )
        assert shop.post().data == b"x" * 100_000
        assert shop.post().status_code == 409
        assert shop.runs == 1

    def test_hooks_of_the_first_request_are_kept_with_its_answer(self):
        def view():
            @flask.after_this_request
            def add(response):
                response.headers["X-Order"] = "7"
                response.set_cookie("session", "1")
                return response

            return {"order": 7}

        first, again = Shop(view).twice()
        assert first.headers["X-Order"] == again.headers["X-Order"] == "7"
        assert "Set-Cookie" in first.headers
        assert "Set-Cookie" not in again.headers

    @pytest.mark.parametrize("claim", ["first", "handler"])
    def test_an_answer_without_a_body_and_its_type_stays_without(self, claim):
        def view():
            response = flask.Response(status=204)
            del response.headers["Content-Type"]
            return response

        shop = Shop(claimed(scope="all")(view) if claim == "handler" else view, claim=claim)
        first, again = shop.post(), shop.post()
        assert (again.status_code, again.data) == (204, b"")
        assert again.headers["idempotent-replayed"] == "true"
        assert "Content-Type" not in first.headers
        assert "Content-Type" not in again.headers


class TestErrors:
    def test_an_abort_is_a_response_like_others(self):
        Shop(lambda: flask.abort(409)).twice()
        shop = Shop(lambda: flask.abort(422))
        assert [shop.post().status_code for _ in range(2)] == [422, 422]
        assert shop.runs == 2

    def test_an_error_that_the_application_answers_is_kept_as_answered(self):
        def view():
            raise LookupError

        shop = Shop(view, profile="stripe")
        shop.app.register_error_handler(LookupError, lambda _error: ("declined", 402))
        first, _ = shop.twice()
        assert first.text == "declined"

    def test_one_that_nobody_answers_is_known_to_the_record(self):
        def view():
            raise TimeoutError

        shop = Shop(view, on_crash="hold")
        assert shop.post().status_code == 500
        assert shop.record().status == "held"
        assert shop.post().status_code == 409
        assert shop.runs == 1

    def test_a_page_for_errors_is_sent_and_the_key_is_free(self):
        shop = Shop(lambda: 1 / 0)
        shop.app.register_error_handler(500, lambda _error: ("sorry", 500))
        assert [shop.post().text for _ in range(2)] == ["sorry", "sorry"]
        assert shop.record().status == "released"

    def test_in_tests_of_an_application_its_exceptions_come_through(self):
        shop = Shop(lambda: 1 / 0)
        shop.app.testing = True
        with pytest.raises(ZeroDivisionError):
            shop.post()
        assert shop.record().status == "released"

    def test_whoever_tidies_up_is_told_of_the_error(self):
        told = []
        shop = Shop(lambda: 1 / 0)
        shop.app.teardown_request(told.append)
        shop.post()
        assert isinstance(told[0], ZeroDivisionError)

    def test_an_error_while_tidying_up_cannot_undo_what_is_recorded(self):
        def tidy():
            raise ConnectionError

        def view():
            response = flask.Response("done")
            response.call_on_close(tidy)
            return response

        shop = Shop(view)
        with pytest.raises(ConnectionError):
            shop.post()
        assert shop.record().status == "completed"
        assert shop.post().text == "done"
        assert shop.runs == 1

    def test_an_error_without_a_key_is_nobodys_business(self):
        assert Shop(lambda: 1 / 0).post(key=None).status_code == 500


class TestClaimed:
    @staticmethod
    def shop(view=lambda: {"for": flask.g.user}, scope=lambda: flask.g.user, **settings):
        return Shop(by_header(claimed(scope=scope)(view)), claim="handler", **settings)

    def test_the_answer_belongs_to_the_user_that_the_view_knows(self):
        shop = self.shop()
        answers = [shop.post(headers={"X-User": user}).json for user in ("ann", "bob", "ann")]
        assert answers == [{"for": "ann"}, {"for": "bob"}, {"for": "ann"}]
        assert len(shop.store.scan(Scan()).records) == 2

    def test_a_stranger_is_turned_away_and_nothing_is_claimed(self):
        shop = self.shop(scope=None)
        shop.post(headers={"X-User": "ann"})
        assert shop.post(headers={"X-User": "nobody"}).status_code == 401
        assert shop.post(headers={"X-User": "ann"}).headers["idempotent-replayed"] == "true"

    def test_for_nobody_in_particular_nothing_is_kept(self):
        shop = self.shop()
        for _ in range(2):
            assert shop.post().json == {"for": None}
        assert not shop.store.scan(Scan()).records

    def test_a_refusal_is_a_response_of_the_application(self):
        shop = self.shop(scope="all")
        shop.app.after_request(with_cors)
        shop.post()
        refused = shop.post(json={"other": 1})
        assert refused.status_code == 422
        assert refused.mimetype == "application/problem+json"
        assert refused.headers["Access-Control-Allow-Origin"] == "*"
        assert shop.post().headers["Access-Control-Allow-Origin"] == "*"

    def test_the_view_has_its_attempt_and_all_of_its_body(self):
        def view():
            current().note(charge="ch_1")
            return flask.request.stream.read()

        body = b"x" * 200_000
        shop = self.shop(view, scope="all")
        first = shop.post(json=None, data=body, content_type="text/plain")
        assert first.data == body
        assert current_is_gone()

    def test_a_coroutine_is_a_view_too(self):
        async def view():
            return {"key": current().key}

        shop = self.shop(view, scope="all")
        assert shop.post().json == shop.post().json == {"key": "k"}
        assert shop.post().headers["idempotent-replayed"] == "true"

    def test_requests_without_a_key_and_other_methods_run(self):
        shop = self.shop(lambda: "ran", scope="all")
        assert shop.post(key=None).text == "ran"
        assert shop.client.get("/orders", headers={"Idempotency-Key": "k"}).text == "ran"
        assert not shop.store.scan(Scan()).records

    def test_a_view_that_waits_for_its_scope_says_so(self):
        shop = Shop(claimed()(lambda: "ran"), claim="handler")
        assert shop.post().headers.get("idempotent-replayed") is None  # the middleware says None
        assert shop.post().headers["idempotent-replayed"] == "true"

    def test_without_the_middleware_it_says_so(self):
        app = flask.Flask("shop")
        app.add_url_rule("/orders", "orders", claimed(scope=None)(lambda: "ran"), methods=["POST"])
        app.testing = True
        with pytest.raises(ConfigurationError, match="IdempotencyMiddleware is missing"):
            app.test_client().post("/orders")

    def test_a_scope_that_cannot_be_one_is_refused_where_it_is_written(self):
        with pytest.raises(ConfigurationError, match=r"lambda: g\.user\.id"):
            claimed(scope=["ann"])

    def test_the_plain_middleware_will_do(self):
        app = flask.Flask("shop")
        app.wsgi_app = IdempotencyMiddleware(app.wsgi_app, Once("memory://"), claim="handler")
        app.add_url_rule("/orders", "orders", claimed(scope="all")(lambda: "ran"), methods=["POST"])
        for replayed in (None, "true"):
            again = app.test_client().post("/orders", headers={"Idempotency-Key": "k"})
            assert again.headers.get("idempotent-replayed") == replayed


def with_cors(response):
    response.headers["Access-Control-Allow-Origin"] = "*"
    return response


def current_is_gone():
    with pytest.raises(ConfigurationError):
        current()
    return True


def test_without_flask_one_sentence_says_what_is_missing():
    code = "import sys; sys.modules['flask'] = None; import oncekey.http.flask"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.stderr.splitlines()[-1] == (
        "oncekey.errors.ConfigurationError: oncekey.http.flask needs the package 'flask'; "
        "pip install 'oncekey[flask]'"
    )
