"""What a middleware does with a request, a response and an error: rules, and no framework.

    find      is the request covered, and which key did it send?
    call      whose key is it, and what makes it the same request?
    ending    is the response kept, or is the key free again?
    replay    what does a duplicate get?
    refusal   what is said instead?

A shell for a framework reads the request, asks these in turn, and does the input and output.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any, Final, Literal

from msgspec import Struct

from oncekey.call import Call
from oncekey.codec import UnreadableBytesError
from oncekey.duration import size
from oncekey.errors import ConfigurationError
from oncekey.http import keys, marks
from oncekey.http.answers import Answers
from oncekey.http.body import Body
from oncekey.http.errors import MissingKeyError, MissingMemberError
from oncekey.http.profiles import GIVEN, Profile, profile_of
from oncekey.http.reply import REPLAYED, REPLIES, Reply, Unkept, endless, packed, unpacked
from oncekey.http.request import Headers, Request, Scoping
from oncekey.http.routes import Routes
from oncekey.http.settings import When, by_handler, once_of, scoping, terms_of
from oncekey.http.status import Pointing, Status, with_url
from oncekey.key import readable
from oncekey.once import Once
from oncekey.options import UNSET
from oncekey.policy import Policy
from oncekey.record import Record


class Asked(Struct):
    """A request that is covered: how it is called, and the key in its headers, if there is one."""

    request: Request
    label: str
    key: str | None
    echo: Headers


class Rules:
    """The rules of one middleware."""

    def __init__(  # noqa: PLR0913 - each is a setting of its own, and all but the first have defaults
        self,
        once: Once | None,
        *,
        profile: str | Profile = "ietf",
        scope: str | Scoping | None = UNSET,
        routes: Iterable[str] | None = None,
        methods: Iterable[str] = ("POST", "PATCH"),
        when: When | None = None,
        required: bool | None = None,
        claim: Literal["first", "handler"] = "first",
        docs_url: str | None = None,
        max_body: str | int = "100MiB",
        status_path: str | None = None,
        reconcile: Callable[[Record], Any] | None = None,
        policy: Policy | None = None,
        **fields: Any,  # the fields of Policy, which checks them
    ) -> None:
        """Every setting is checked now.

        `reconcile` says of a record whose attempt ended without a known outcome whether it was
        `Done(Reply(...))`, `NotDone()` or `Unknown()`.
        """
        self.once: Final = once_of(once)
        self.profile: Final = profile_of(profile)
        self.required: Final = self.profile.required if required is None else required
        self.by_handler: Final = by_handler(claim)
        self.max_body: Final = size(max_body, "max_body")
        self._routes = Routes(routes, methods)
        for name, function in (("when", when), ("reconcile", reconcile)):
            if function is not None and not callable(function):
                msg = f"{name} must be a function, but it is {function!r}"
                raise ConfigurationError(msg)
        self._when = when
        self._reconcile = reconcile
        self._scope = scoping(self.profile, scope, by_handler=self.by_handler)
        self.terms: Final = terms_of(self.once, self.profile, policy, fields)
        self.status: Final = self._status(status_path)
        self.answers: Final = Answers(self.profile, docs_url, self.terms.retry_after)
        self._headers = [
            (name, name.lower().encode("latin-1"))
            for name in self.profile.keys
            if not name.startswith("/")
        ]
        self._names = frozenset(lower for _, lower in self._headers)
        self._final = [(name.encode(), value.encode()) for name, value in self.profile.final]
        self._pointers = [name for name in self.profile.keys if name.startswith("/")]

    def _status(self, path: str | None) -> Status | None:
        if path is None:
            return None
        if self.by_handler:
            msg = "status_path needs claim='first': only a handler would know who asks"
            raise ConfigurationError(msg)
        return Status(path, checks=self._scope is None or callable(self._scope))

    # The request

    def passes(self, headers: Headers) -> bool:
        """Whether a request with these headers asks nothing of us, as most requests do."""
        if self.required or self._pointers or self.status is not None:
            return False
        return self._names.isdisjoint([name for name, _ in headers])

    def find(
        self, method: str, path: str, headers: Headers, request: Callable[[], Request]
    ) -> Asked | None:
        """The request, if it is covered; InvalidKeyError when its header cannot be a key.

        `request` is only called for one that may be covered.
        """
        label = self._routes.find(method, path)
        if label is None:
            return None
        name, values = self._sent(headers)
        if not values and not self._pointers and not self.required:
            return None
        asked = request()
        if self._when is not None and not self._when(asked):
            return None
        if values:
            echo = [(name.lower().encode("latin-1"), values[0])] if self.profile.echo else []
            return Asked(asked, label, keys.of_header(name, values), echo)
        if not self._pointers:
            raise MissingKeyError(self.profile.keys[0])
        return Asked(asked, label, None, [])

    def _sent(self, headers: Headers) -> tuple[str, list[bytes]]:
        """The first of the headers for keys that was sent, and all its values."""
        for name, lower in self._headers:
            values = [value for header, value in headers if header == lower]
            if values:
                return name, values
        return "", []

    def body(self, asked: Asked) -> Body:
        """A place for the request's body."""
        return Body(self.max_body, asked.request.header("content-type", "") or "")

    def verify(self, asked: Asked, body: Body, url: str) -> None:
        """The request comes from whom it says, or SignatureError."""
        signature = self.profile.signature
        if signature is not None:
            headers = {
                name.decode("latin-1"): value.decode("latin-1")
                for name, value in asked.request.headers
            }
            signature.verify(headers, body.whole(), url, time.time())

    def call(self, asked: Asked, body: Body, principal: str | None = UNSET) -> Call | None:
        """The protected call that the request asks for; None when it asks for none.

        `principal` is given where a handler claims, who knows best whose request it is.
        """
        request = asked.request
        scope = self._principal(asked, body) if principal is UNSET else marks.named(principal)
        if scope is marks.NOBODY:
            return None
        key = asked.key if asked.key is not None else self._member(body)
        if key is None:
            return None
        return Call(
            scope=marks.joined(scope, self._route(request)),
            key=key,
            terms=self.terms,
            fingerprint=self._fingerprint(request, body),
            label=asked.label,
            reference=readable(request.path),
            surface="http",
            codec=REPLIES,
            reconcile=self._reconcile,
        )

    def _route(self, request: Request) -> str | None:
        if not self.profile.by_route:
            return None
        return f"{request.method}:{marks.escaped(request.path)}"

    def _principal(self, asked: Asked, body: Body) -> str | None:
        """Whose request it is; NOBODY where the user's function does not know."""
        scope = self._scope
        if scope is None:
            return None
        if callable(scope):
            found = scope(asked.request)
            return marks.NOBODY if found is None else str(found)
        if scope == GIVEN:
            msg = "claim needs scope=: whose request it is, or EVERYBODY"
            raise ConfigurationError(msg)
        try:
            value = keys.pointed(body.members(), scope)
        except KeyError:
            value = None
        if not isinstance(value, (str, int)) or isinstance(value, bool) or value == "":
            raise MissingMemberError(scope, "must be a non-empty string")
        return str(value)

    def _member(self, body: Body) -> str | None:
        for pointer in self._pointers:
            try:
                return keys.of_member(pointer, keys.pointed(body.value, pointer))
            except (KeyError, ValueError):  # it is not there, or nothing is: the body is no JSON
                continue
        if self.required:
            body.members()
            raise MissingKeyError(self._pointers[0])
        return None

    def _fingerprint(self, request: Request, body: Body) -> str | None:
        chosen = self.profile.fingerprint
        if chosen is None:
            return None
        told = body.fingerprint() if chosen == "request" else body.chosen(chosen)
        return marks.of_request(request.method, request.path, request.query, told)

    # The response

    endless = staticmethod(endless)

    def keeps(self, status: int, *, asked_to: bool) -> bool:
        """Whether a response of this status is kept."""
        return asked_to or self.profile.keeps(status)

    def kept(self, status: int, headers: Headers, body: bytes) -> bytes | Unkept:
        """What is kept of a response."""
        if self.profile.replay == "status":
            return packed(status, [], b"")
        data = packed(status, headers, body)
        if len(data) > self.terms.max_result:
            return Unkept(f"a response of {len(data)} bytes is larger than max_result")
        return data

    def replay(self, record: Record, echo: Headers) -> Reply:
        """What a duplicate gets."""
        reply = self._kept_reply(record)
        reply.headers += echo
        return reply

    def _kept_reply(self, record: Record) -> Reply:
        if self.profile.replay == "status":
            reply = self.answers.say("already-processed")
        elif record.result is None:
            return self.answers.say("response-not-replayable")
        else:
            try:
                reply = unpacked(record.result)
            except UnreadableBytesError:  # resolved by hand, with something that is no response
                return self.answers.say("response-not-replayable")
        if reply.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            said = {name for name, _ in reply.headers}
            reply.headers += [pair for pair in self._final if pair[0] not in said]
        reply.headers.append(REPLAYED)
        return reply

    # How a request is doing

    def accepted(self, reply: Reply, asked: Asked, call: Call, record: Record | None) -> Reply:
        """The answer "in progress", with the URL at which to ask for more."""
        if self.status is None or record is None or record.status != "running":
            return reply
        return with_url(reply, self.status.url(call, record, self._route(asked.request)))

    def looked_for(self, request: Request) -> Pointing | None:
        """The record that a request for a status may see, if there is one."""
        assert self.status is not None  # noqa: S101 - the shells have looked
        pointing = self.status.read(request.path)
        if pointing is None:
            return None
        principal = self._scope(request) if callable(self._scope) else None
        pointing.scope = self.status.scope_of(pointing, principal)
        return pointing

    def told(self, pointing: Pointing | None, record: Record | None) -> Reply:
        """What whoever asked for a status is told."""
        if pointing is None or record is None or not Status.proves(pointing, record):
            return self.answers.say("unknown-request")
        if record.status == "running":
            return self.answers.say("in-progress", retry_after=self.terms.retry_after)
        if record.status == "held":
            return self.answers.say("outcome-unknown")
        if record.status == "released":
            return self.answers.say("unknown-request")
        return self.replay(record, [])

    def failure(self) -> Reply | None:
        """What is kept and sent when the application raised; None where that frees the key."""
        return self.answers.say("server-error") if "5xx" in self.profile.kept else None
