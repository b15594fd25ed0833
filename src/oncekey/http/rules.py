"""The rules of a middleware for requests, responses and errors, independent of any framework.

    read      what counts of its headers?
    find      is the request covered, and which key did it send?
    call      what are its scope and its fingerprint?
    keeps     is the response kept, or is the key free again?
    replay    what does a duplicate get?
    answers   what does the client get instead of a response?

The adapter of a framework reads the request, calls these in turn, and does the input and output.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final, Literal

from msgspec import Struct, msgpack

from oncekey.core.call import Call, Identity
from oncekey.core.codec import UnreadableBytesError
from oncekey.core.key import readable
from oncekey.core.record import Record
from oncekey.errors import ConfigurationError, InvalidKeyError
from oncekey.functions import UNSET, is_async
from oncekey.http import keys
from oncekey.http.body import Body
from oncekey.http.errors import MissingKeyError, MissingMemberError, UnprotectedError
from oncekey.http.keys import checked_pointer
from oncekey.http.problems import Problems, instance_of
from oncekey.http.profiles import GIVEN, Profile, profile_of
from oncekey.http.request import (
    NOBODY,
    Headers,
    Request,
    Scoping,
    by_user,
    joined,
    named,
    of_request,
    of_route,
    owner_of,
)
from oncekey.http.response import (
    NEVER_REPLAYED,
    ORDINARY,
    REPLAYED,
    REPLIES,
    UNPROTECTED,
    Reply,
    Unkept,
    endless,
    is_endless,
    kept_headers,
    packed,
    unpacked,
)
from oncekey.http.routers import TEXT, Path, meet, pattern_of, shape_of
from oncekey.http.status import Pointing, Status, with_url
from oncekey.observe import Event
from oncekey.once import Once
from oncekey.policy import FUNCTION, Policy, PolicyFields, Terms, size, switched_off, terms

_log = logging.getLogger("oncekey")

# The requests that are covered, by method and path.


_METHOD: Final = re.compile(r"[A-Z]+")
_PIECE: Final = re.compile(r"\{[^/{}]*\}|\*")
_FOREIGN: Final = re.compile(r"<[^/<>]*>|/:[A-Za-z_]")
"""A parameter as Flask and Django write it, or as Express does: as a text no request has it."""


Router = Callable[[], list[Path] | None]


class Routes:
    """Methods and paths. A path may hold `{name}` for one segment, and `*` for any text.

    A path is matched as the client sees it, and as the application sees it: without the prefix
    below which it is served.
    """

    def __init__(self, routes: Iterable[str] | None, methods: Iterable[str]) -> None:
        """Cover these routes, or every path if `routes` is None."""
        if isinstance(methods, str) or isinstance(routes, str):
            msg = "routes and methods are lists, as in routes=['/orders'] and methods=['POST']"
            raise ConfigurationError(msg)
        self._methods = frozenset(methods)
        for method in self._methods:
            if not isinstance(method, str) or not _METHOD.fullmatch(method):
                msg = f"methods must be names such as 'POST', but one is {method!r}"
                raise ConfigurationError(msg)
        self._patterns = [(route, _compiled(route)) for route in routes or ()]
        if not self._methods or not (routes is None or self._patterns):
            empty = "routes" if self._methods else "methods"
            msg = (
                f"{empty}= is empty, so that it would protect nothing; leave it out for the default"
            )
            raise ConfigurationError(msg)
        self._anywhere = routes is None
        self._router: Router | None = None
        self._known: Router | None = None
        self.find: Final[Callable[[str, str, str], str | None]] = lru_cache(1024)(self._find)

    def _find(self, method: str, path: str, root: str) -> str | None:
        """Return what `match` does, after the first request has shown the prefix."""
        if self._router is not None:
            self.compare(root)
        return self.match(method, path, root)

    def match(self, method: str, path: str, root: str) -> str | None:
        """Return the label of the request, or None if it is not covered.

        `path` is as the client sees it, and begins with the prefix `root`.
        """
        if method not in self._methods:
            return None
        inside = path[len(root) :] or "/"
        if self._anywhere:
            return f"{method} {self._template(inside)}"
        for route, pattern in self._patterns:
            if pattern.fullmatch(inside) or pattern.fullmatch(path):
                return f"{method} {route}"
        return None

    def _template(self, path: str) -> str:
        """Return the route of the application that answers the path, as its router has it.

        There are as many labels as routes: where none is known the path itself is not told.
        """
        for known in (self._known() if self._known is not None else None) or ():
            if known.text != "*" and re.fullmatch(pattern_of(known.shape), path):
                return known.text if known.text.startswith("/") else f"/{known.text}"
        return "(unknown route)"

    def answered_by(self, router: Router | None) -> None:
        """Compare the patterns with this router when it is complete: at the first request."""
        self._router = router if self._patterns else None
        self._known = router or self._known

    def compare(self, root: str | None = None) -> None:
        """Raise ConfigurationError if a pattern can match no route of the application.

        As long as the prefix is not known (None), a pattern may begin with any. Once it is, a
        pattern that can match only below another one is warned of: another request may have that.
        """
        known = None if self._router is None else self._router()
        if known is not None:
            for route, _ in self._patterns:
                self._compare(route, known, root)
        if root is not None:
            self._router = None

    @staticmethod
    def _compare(route: str, known: list[Path], root: str | None) -> None:
        shape = shape_of(route, _PIECE, lambda piece: piece[0] == "*")
        if not any(meet(shape, (TEXT, *path.shape)) for path in known):
            near = get_close_matches(route, [path.text for path in known], 1, 0)
            msg = (
                f"routes= has {route!r}, which no route of the application can match, so that it "
                f"would protect nothing; the nearest route is {near[0] if near else 'none'!r}"
            )
            raise ConfigurationError(msg)
        if root is None:
            return
        if not any(meet(shape, path.shape) or meet(shape, (*root, *path.shape)) for path in known):
            _log.warning(
                "routes= has %r, which matches no route of the application below the prefix %r; "
                "if a proxy removes a prefix, tell the server (--root-path, SCRIPT_NAME)",
                route,
                root,
            )


def _compiled(route: object) -> re.Pattern[str]:
    if not isinstance(route, str) or not route.startswith(("/", "*")):
        msg = f"a route is a path such as '/orders/{{id}}/refund' or '/api/*', but it is {route!r}"
        raise ConfigurationError(msg)
    if _FOREIGN.search(route):
        msg = f"a route has its parameters in braces, as in '/orders/{{id}}', but it is {route!r}"
        raise ConfigurationError(msg)
    pattern, end = "", 0
    for piece in _PIECE.finditer(route):
        pattern += re.escape(route[end : piece.start()])
        pattern += ".*" if piece[0] == "*" else "[^/]+"
        end = piece.end()
    return re.compile(pattern + re.escape(route[end:]))


# The settings of a middleware.


When = Callable[[Request], bool]


class Settings(PolicyFields, total=False):
    """The settings of every middleware, including the fields of `Policy`."""

    profile: str | Profile
    scope: str | Scoping | None
    routes: Iterable[str] | None
    methods: Iterable[str] | None
    when: When | None
    required: bool | None
    claim: Literal["first", "handler"]
    fingerprint_headers: Iterable[str]
    never_replay: Iterable[str]
    docs_url: str | None
    max_body: str | int
    status_path: str | None
    reconcile: Callable[[Record], Any] | None
    policy: Policy | None


def once_of(once: object) -> Once:
    """Return the given `Once`, or one that is configured by the environment."""
    if once is None:
        return Once()
    if isinstance(once, Once):
        return once
    msg = f"once must be a Once, as in once=Once('redis://...'), but it is {once!r}"
    raise ConfigurationError(msg)


def terms_of(once: Once, profile: Profile, policy: Policy | None, fields: dict[str, Any]) -> Terms:
    """Return the terms: the settings given here, over those of the `Once`, over the profile's.

    Raise ConfigurationError for unknown settings.
    """
    unknown = fields.keys() - PolicyFields.__annotations__.keys()
    if unknown:
        msg = f"there is no setting {', '.join(sorted(unknown))}; see oncekey.http.Settings"
        raise ConfigurationError(msg)
    said = Policy(**fields).over(policy or Policy()).over(once.policy)
    # An exception of the application is never kept: what is kept is the response made of it.
    never = Policy(keep=(), on_error="release")
    return terms(never.over(said).over(profile.policy).over(FUNCTION))


def by_handler(claim: str) -> bool:
    """Return whether the handler claims, instead of the middleware."""
    if claim not in ("first", "handler"):
        msg = f"claim must be 'first' or 'handler', but it is {claim!r}"
        raise ConfigurationError(msg)
    return claim == "handler"


def scoping(profile: Profile, given: object, *, by_handler: bool) -> str | Scoping | None:
    """Return the scope setting: a function, a JSON pointer, None, or GIVEN if the handler says it.

    Raise ConfigurationError if the profile needs a scope and none is given.
    """
    scope: Any = profile.scope if given is UNSET else given
    if is_async(scope):
        raise ConfigurationError("scope must be a plain function, not a coroutine function")
    if scope is None or callable(scope):
        return scope  # type: ignore[no-any-return]  # a callable of the user's
    if scope == GIVEN:
        if by_handler:
            return GIVEN  # the handler gives it in `claim`
        msg = (
            f"the profile {profile.name!r} needs scope=: by_user, by_authorization, a function of "
            f"the request, or None if all clients may see each other's answers"
        )
        raise ConfigurationError(msg)
    if isinstance(scope, str) and scope.startswith("/"):
        return checked_pointer(scope)
    msg = (
        f"scope must be a function of the request, a JSON pointer such as '/userId', or None, "
        f"but it is {scope!r}"
    )
    raise ConfigurationError(msg)


Told = tuple[str, str, bytes, str, int, bytes, bytes]
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")
_COMMA: Final = re.compile(rb"[ \t]*,[ \t]*")
_REMEMBERED: Final = 256
_BRIEF: Final = 4096
"""The size up to which the body of a request, and a response that is replayed, are remembered."""
_BROKEN: Final = 500


class Sent(Struct):
    """What counts of the headers of a request."""

    keys: Headers
    """Those that may hold the key."""
    kind: bytes = b""
    """The value of Content-Type."""
    encoding: bytes = b""
    """The value of Content-Encoding."""
    chooses: bool = True
    """Whether it may have an Accept-Encoding."""


class Asked(Struct):
    """A covered request with its label, and the key in its headers if there is one."""

    request: Request
    body: Body
    """Its body, of which nothing is read yet."""
    label: str
    key: str | None
    echo: Headers
    again: bool = False
    """Whether exactly the same request was answered before."""
    claimed: bool = False
    """Whether the middleware or the handler has tried to claim it."""
    notice: Iterable[tuple[bytes, bytes]] = ()
    """The headers that tell the client that its key does not protect it."""


class Rules:
    """The rules of one middleware."""

    endless = staticmethod(endless)

    def __init__(
        self,
        once: Once | None,
        *,
        profile: str | Profile = "ietf",
        scope: str | Scoping | None = UNSET,
        routes: Iterable[str] | None = None,
        methods: Iterable[str] | None = None,
        when: When | None = None,
        required: bool | None = None,
        claim: Literal["first", "handler"] = "first",
        fingerprint_headers: Iterable[str] = (),
        never_replay: Iterable[str] = (),
        docs_url: str | None = None,
        max_body: str | int = "100MiB",
        status_path: str | None = None,
        reconcile: Callable[[Record], Any] | None = None,
        policy: Policy | None = None,
        **fields: Any,  # the fields of Policy, which checks them
    ) -> None:
        """Check every setting. Raise ConfigurationError if one is not valid.

        `fingerprint_headers` are headers that a repeated request must have in common with the
        first, and `never_replay` are headers that are not kept of a response. `reconcile` is called
        with a record that ended without a known outcome, and returns `Done(Reply(...))`,
        `NotDone()` or `Unknown()`.
        """
        self.once: Final = once_of(once)
        self.profile: Final = profile_of(profile)
        self.terms: Final = terms_of(self.once, self.profile, policy, fields)
        self.answers: Final = Problems(self.profile, docs_url, self.terms.retry_after)
        self.keeps: Final[Callable[[int], bool]] = lru_cache(256)(self.profile.keeps)
        """Return whether a response of this status is kept."""
        self._final = [(name.encode(), value.encode()) for name, value in self.profile.final]
        self.required: Final = self.profile.required if required is None else required
        self.by_handler: Final = by_handler(claim)
        self.max_body: Final = size(max_body, "max_body")
        chosen = self.profile.methods if methods is None else methods
        self.routes: Final = Routes(routes, chosen)
        for name, function in (("when", when), ("reconcile", reconcile)):
            if function is not None and not callable(function):
                msg = f"{name} must be a function, but it is {function!r}"
                raise ConfigurationError(msg)
        if is_async(when):
            raise ConfigurationError(
                "when must be a plain function, but it is a coroutine function"
            )
        self._headers = {
            name.lower().encode("latin-1"): name
            for name in self.profile.keys
            if not name.startswith("/")
        }
        self._counts = _header_names("fingerprint_headers", fingerprint_headers)
        if self._counts and self.profile.fingerprint is None:
            msg = f"the profile {self.profile.name!r} has no fingerprint for fingerprint_headers"
            raise ConfigurationError(msg)
        self._never = NEVER_REPLAYED.union(_header_names("never_replay", never_replay))
        self._ordinary = ORDINARY.difference(self._never, self._headers)
        self._when = when
        self._reconcile = reconcile
        self._scope = scoping(self.profile, scope, by_handler=self.by_handler)
        self.may_be_unowned: Final = self.by_handler or callable(scope)
        """Whether it can happen that nobody knows whose a request is, or that none claims it."""
        self.status: Final = self._status(status_path)
        self._pointers = [name for name in self.profile.keys if name.startswith("/")]
        covers_without = self.required or self._pointers or self.status
        self._needed = frozenset(() if covers_without else self._headers)
        """The headers of which a covered request has one, or none if it may do without."""
        self._replies = lru_cache(_REMEMBERED)(self._reply_of)
        self._answered: dict[Identity, tuple[Told, Call]] = {}
        others = (b"content-type", b"content-encoding", b"accept-encoding")
        self._read = frozenset((*self._headers, *others))

    def _status(self, path: str | None) -> Status | None:
        if path is None:
            return None
        if self.by_handler:
            msg = "status_path needs claim='first': only a handler would know who asks"
            raise ConfigurationError(msg)
        return Status(path, checks=self._scope is None or callable(self._scope))

    # The request

    def read(self, headers: Headers) -> Sent | None:
        """Return what counts of these headers, or None if the request is certainly not covered."""
        names = self._needed
        for pair in headers:
            if pair[0] in names:
                break
        else:
            if names:  # most requests have no key
                return None
        sent, kind, encoding, chooses, counts = [], b"", b"", False, self._read
        for pair in headers:
            if pair[0] in counts:
                if pair[0] == b"content-type":
                    kind = kind or pair[1]
                elif pair[0] == b"content-encoding":
                    encoding = pair[1]
                elif pair[0] == b"accept-encoding":
                    chooses = True
                else:
                    sent.append(pair)
        return Sent(sent, kind, encoding, chooses)

    def covers(self, method: str, path: str) -> bool:
        """Return whether requests for this path, or template of paths, are covered."""
        return self.routes.match(method, path, "") is not None

    def find(
        self, method: str, path: str, root: str, sent: Sent, request: Callable[[], Request]
    ) -> Asked | None:
        """Return the request if it is covered, else None.

        `path` is as the client sees it, and begins with the prefix `root`, which the application
        does not see. The function `request` is called only for a request that may be covered.
        Raise InvalidKeyError if its header is no valid key, and MissingKeyError if it needs one.
        """
        label = self.routes.find(method, path, root)
        if label is None:
            return None
        pairs = sent.keys
        if not pairs and not self._pointers and not self.required:
            return None
        asked = request()
        if self._when is not None and not self._when(asked):
            return None
        kind, encoding = sent.kind.decode("latin-1"), sent.encoding.decode("latin-1")
        body = Body(self.max_body, kind, encoding)
        if pairs:
            named = self._headers
            if len(pairs) > 1:  # of several headers the one that the profile names first counts
                first = min((name for name, _ in pairs), key=list(named).index)
                pairs = [pair for pair in pairs if pair[0] == first]
            lower, value = pairs[0]
            values = [value] if len(pairs) == 1 else [one for _, one in pairs]
            key = keys.of_header(named[lower], values)
            if not self.profile.echo:
                pairs = []
            elif len(value) != len(key):
                pairs = [(lower, keys.echoed(value, key))]
            return Asked(asked, body, label, key, pairs)
        if not self._pointers:
            raise MissingKeyError(self.profile.keys[0])
        return Asked(asked, body, label, None, [])

    def verify(self, asked: Asked, body: Body, url: str) -> None:
        """Check the signature, if the profile has one. Raise SignatureError if it is wrong."""
        signature = self.profile.signature
        if signature is not None:
            headers = {
                name.decode("latin-1"): value.decode("latin-1")
                for name, value in asked.request.headers
            }
            signature.verify(headers, body.whole(), url, time.time())

    def call(self, asked: Asked, body: Body, principal: str | None = UNSET) -> Call | None:
        """Return the call that the request stands for, or None if it runs unprotected.

        `principal` is the owner of the request, given by a handler that claims.
        """
        request = asked.request
        asked.claimed = True
        scope = self._principal(asked, body) if principal is UNSET else named(principal)
        key = asked.key if asked.key is not None else self._member(body)
        if key is None:
            return None
        if scope is NOBODY:
            self._unowned(asked, key)
            return None
        owner = joined(scope, self._route(request))
        known = self._answered.get((owner, key))
        if known is not None and known[0] == self._told(request, body):
            asked.again = True
            return known[1]
        return Call(
            scope=owner,
            key=key,
            terms=self.terms,
            fingerprint=self._fingerprint(request, body),
            label=asked.label,
            reference=readable(request.path),
            surface="http",
            codec=REPLIES,
            reconcile=self._reconcile,
        )

    def _unowned(self, asked: Asked, key: str) -> None:
        """Let a request run unprotected of which nobody knows whose it is, and say so.

        Raise UnprotectedError if a key is required.
        """
        if self.required:
            msg = "it is not known whose request this is, so it was not processed; authenticate"
            raise UnprotectedError(msg)
        detail = "scope= found no owner of the request"
        if self._scope is by_user:
            detail += "; authenticate it before this middleware, or claim it in the handler"
        self._say_unprotected(asked, key, "no-owner", detail)

    def unclaimed(self, asked: Asked, body: Body, status: int) -> Reply | None:
        """Say that a handler has answered without a claim, although the request has a key.

        Refusals need no claim. Return the reply to send instead if a key is required.
        """
        if not self.by_handler or asked.claimed or not 200 <= status < 300:  # noqa: PLR2004 - as known
            return None
        try:
            key = asked.key if asked.key is not None else self._member(body)
        except InvalidKeyError:
            return None
        if key is None:
            return None
        self._say_unprotected(asked, key, "not-claimed", "its handler has not claimed it")
        detail = "the request was processed without the protection that it needs"
        return self.answers.say("unprotected", detail=detail) if self.required else None

    def _say_unprotected(self, asked: Asked, key: str, reason: str, detail: str) -> None:
        if not self.once.active or switched_off():
            return
        asked.notice = [(UNPROTECTED, reason.encode())]
        self.once.core.observers.hand(
            Event(
                name="unprotected",
                key=key,
                label=asked.label,
                surface="http",
                detail=detail,
                reference=readable(asked.request.path),
                reason=reason,
            )
        )

    def answered(self, asked: Asked, body: Body, call: Call) -> None:
        """Remember the call, so that it need not be made again for exactly the same request."""
        if asked.again:
            return
        if len(self._answered) >= _REMEMBERED:
            self._answered.clear()  # atomic: needs no lock
        self._answered[call.identity] = self._told(asked.request, body), call

    def _told(self, request: Request, body: Body) -> Told:
        """Return all that a call is made of besides its scope and key."""
        counted = self._counted(request) if self._counts else b""
        what = f"{body.encoding};{body.content_type}" if body.encoding else body.content_type
        size = body.size
        sent = body.whole() if size <= _BRIEF else body.digest()
        return request.method, request.path, request.query, what, size, sent, counted

    def _counted(self, request: Request) -> bytes:
        """Return the headers that count. Servers join the values of repeated ones with commas."""
        joined = ((name, b",".join(request.values(name.decode()))) for name in self._counts)
        return msgpack.encode([(name, _COMMA.sub(b",", value)) for name, value in joined])

    def _route(self, request: Request) -> str | None:
        if not self.profile.by_route:
            return None
        return of_route(request.method, request.path)

    def _principal(self, asked: Asked, body: Body) -> str | None:
        """Return the owner of the request, or NOBODY if the user's function returns None."""
        scope = self._scope
        if scope is None:
            return None
        if callable(scope):
            owner: str | None = owner_of(scope(asked.request))
            return owner
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
                value = keys.pointed(body.value, pointer)
                if self.profile.any_text is not None:
                    return keys.of_any_text(pointer, value, self.profile.any_text)
                return keys.of_member(pointer, value)
            except (KeyError, ValueError):  # no such member, or the body is no JSON
                continue
        if self.required:
            body.members()
            raise MissingKeyError(self._pointers[0])
        return None

    def _fingerprint(self, request: Request, body: Body) -> str | None:
        chosen = self.profile.fingerprint
        if chosen is None:
            return None
        told = body.fingerprint if chosen == "request" else body.chosen(chosen)
        if self._counts:
            told = f"{told}:{sha256(self._counted(request)).hexdigest()}"
        return of_request(request.method, request.path, request.query, told)

    # The status of a request

    def accepted(self, reply: Reply, asked: Asked, call: Call, record: Record | None) -> Reply:
        """Return the answer "in progress", with the status URL if there is one."""
        if self.status is None or record is None or record.status != "running":
            return reply
        return with_url(
            reply, self.status.url(call, record, self._route(asked.request), asked.request.root)
        )

    def looked_for(self, request: Request) -> Pointing | None:
        """Return the reference in a request for a status, with its scope, or None."""
        assert self.status is not None  # noqa: S101 - the shells have looked
        pointing = self.status.read(request.path, request.root)
        if pointing is None:
            return None
        owner = owner_of(self._scope(request)) if callable(self._scope) else None
        principal = None if owner is NOBODY else owner
        pointing.scope = self.status.scope_of(pointing, principal)
        return pointing

    def told(self, pointing: Pointing | None, record: Record | None) -> Reply:
        """Return the reply to a request for a status."""
        if pointing is None or record is None or not Status.proves(pointing, record):
            return self.answers.say("unknown-request")
        if record.status == "running":
            return self.answers.say("in-progress", retry_after=self.terms.retry_after)
        if record.status == "held":
            return self.answers.say("outcome-unknown")
        if record.status == "released":
            return self.answers.say("unknown-request")
        return self.replay(record, [])

    def ordinary(self, headers: Headers) -> bool:
        """Return whether all headers of a response are kept as they are, and it is no stream.

        That is so for most responses. No other look at their headers is needed then.
        """
        known = self._ordinary
        for name, value in headers:
            if type(name) is not bytes or type(value) is not bytes:
                return False
            if name not in known and (name != b"content-type" or is_endless(value)):
                return False
        return True

    def kept(
        self, status: int, headers: Headers, body: bytes, *, ordinary: bool = False
    ) -> bytes | Unkept:
        """Return the bytes to keep of a response, or why it is not kept.

        `ordinary` is what the method of this name has said of its headers.
        """
        if self.profile.replay == "status":
            return packed(status, [], b"")
        data = packed(status, headers, body, None if ordinary else self._never)
        if len(data) > self.terms.max_result:
            return Unkept(f"a response of {len(data)} bytes is larger than max_result")
        return data

    def replay(self, record: Record, echo: Headers) -> Reply:
        """Return the reply to a duplicate of this record."""
        result = record.result
        if self.profile.replay == "status":
            reply = self._finished(self.answers.say("already-processed"))
        elif result is None:
            return self._not_replayable(record, echo)
        else:
            read = self._replies if len(result) <= _BRIEF else self._reply_of
            try:
                reply = read(result)
            except UnreadableBytesError:  # resolved by hand, with a value that is no response
                return self._not_replayable(record, echo)
        return Reply(reply.status, reply.headers + echo, reply.body)

    def _reply_of(self, result: bytes) -> Reply:
        """Return the response that was kept as these bytes, as duplicates get it."""
        reply = unpacked(result)
        reply.headers = kept_headers(reply.headers, self._never)
        return self._finished(reply)

    def _finished(self, reply: Reply) -> Reply:
        """Add the headers that tell a replay from the first answer."""
        if reply.status >= _BROKEN:
            said = {name for name, _ in reply.headers}
            reply.headers += [pair for pair in self._final if pair[0] not in said]
        reply.headers.append(REPLAYED)
        return reply

    def _not_replayable(self, record: Record, echo: Headers) -> Reply:
        instance = instance_of(record.scope, record.key)
        reply = self.answers.say("response-not-replayable", instance=instance)
        reply.headers += echo
        return reply

    def failure(self) -> Reply | None:
        """Return the reply to keep and send after an exception, or None if that frees the key."""
        return self.answers.say("server-error") if "5xx" in self.profile.kept else None


def _header_names(setting: str, names: Iterable[str]) -> tuple[bytes, ...]:
    """Return the names in lower case. Raise ConfigurationError if they are none."""
    given = [names] if isinstance(names, str) else list(names)
    if isinstance(names, str) or not all(
        isinstance(one, str) and _NAME.match(one) for one in given
    ):
        msg = f"{setting} is a list of headers such as ['If-Match'], but it is {names!r}"
        raise ConfigurationError(msg)
    return tuple(sorted({name.lower().encode() for name in given}))
