"""A request and its rules, without any framework."""

from oncekey import Once
from oncekey.http.request import Request
from oncekey.http.rules import Rules

JSON = [(b"content-type", b"application/json")]


def rules_of(**settings):
    return Rules(Once("memory://", observers=()), **({"scope": None} | settings))


def request_of(path="/orders", *, method="POST", query=b"", headers=(), user=None, root=""):
    return Request(method, path, query, [*JSON, *headers], None, lambda: user, root)


def found(rules, request):
    sent = rules.read(request.headers)
    if sent is None:
        return None
    return rules.find(request.method, request.path, request.root, sent, lambda: request)


def call_of(rules, body=b"{}", request=None, key=b"k", **given):
    """The call that a request makes; without a key where that is None."""
    request = request or request_of(headers=[] if key is None else [(b"idempotency-key", key)])
    asked = found(rules, request)
    filled = asked.body
    filled.feed(body)
    return rules.call(asked, filled, **given)
