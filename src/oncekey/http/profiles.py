"""Profiles: the rules of one kind of API for keys, as data. `profile.replace(...)` changes them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from oncekey.errors import ConfigurationError
from oncekey.http.keys import checked_pointer
from oncekey.http.request import Scoping
from oncekey.http.response import Words
from oncekey.http.signatures import Signature
from oncekey.policy import Policy

Situation = Literal[
    "missing-key",
    "invalid-key",
    "invalid-signature",
    "too-large",
    "unprotected",  # it is not known whose request it is, or its handler does not claim
    "in-progress",
    "key-reused",
    "response-not-replayable",
    "outcome-unknown",
    "store-unavailable",
    "already-processed",  # the reply to a duplicate if the response itself is not replayed
    "unknown-request",  # the reply at a status URL that fits no record
    "server-error",  # the reply to an exception of the application if 5xx are kept
]

GIVEN: Final = "given"
"""The scope of a profile without a safe default: the user has to give one."""


@dataclass(frozen=True, kw_only=True)
class Profile:
    """How keys are found, which requests are the same, and which responses are kept and sent."""

    name: str
    key: str | tuple[str, ...] = "Idempotency-Key"
    """The header or JSON pointer of the key, or several: the first that was sent counts."""
    any_text: int | None = None
    """The length from which on a key in the body may be any text. None: 1 to 255 printable ASCII
    characters."""
    required: bool = False
    """Whether a request without a key is refused."""
    methods: tuple[str, ...] = ("POST", "PATCH")
    """The methods of requests that are covered, unless the middleware says otherwise."""
    scope: str | Scoping | None = GIVEN
    """The owner of a request: a function of it, a JSON pointer, None for no owner, or GIVEN."""
    by_route: bool = True
    """Whether method and path are part of the scope. Otherwise only the fingerprint has them."""
    fingerprint: Literal["request"] | tuple[str, ...] | None = "request"
    """What identifies the same request: all of it, JSON pointers into the body, or nothing."""
    kept: tuple[str, ...] = ("2xx", "3xx", "4xx")
    """The kinds of responses that are kept."""
    not_kept: frozenset[int] = frozenset()
    """The statuses that are not kept although their kind is: the request had no effect."""
    uncertain: frozenset[int] = frozenset({502, 504})
    """The statuses after which the effect may have happened. The policy then decides."""
    replay: Literal["exact", "status"] = "exact"
    """Whether the exact response is kept and replayed, or only the fact that there was one."""
    final: tuple[tuple[str, str], ...] = ()
    """The headers of a replayed 5xx that tell the client not to try again."""
    echo: bool = False
    """Whether the key is sent back with responses of the application and with replays."""
    signature: Signature | None = None
    """The signature that is checked before the store is asked."""
    policy: Policy = dataclasses.field(default_factory=Policy)
    """The defaults for what neither the middleware nor its `Once` sets."""
    words: Mapping[Situation, Words] = dataclasses.field(default_factory=dict)
    """The replies by situation, instead of problems of RFC 9457."""

    def __post_init__(self) -> None:
        """Check the fields. Raise ConfigurationError where the mistake was written."""
        keys = (self.key,) if isinstance(self.key, str) else self.key
        if not keys or not all(isinstance(key, str) and key for key in keys):
            msg = f"key must name a header or a JSON pointer, but it is {self.key!r}"
            raise ConfigurationError(msg)
        for pointer in (*keys, *(self.fingerprint if type(self.fingerprint) is tuple else ())):
            if pointer.startswith("/"):
                checked_pointer(pointer)
        if not set(self.kept) <= {"2xx", "3xx", "4xx", "5xx"}:
            msg = f"kept names kinds of responses such as '2xx', but it is {self.kept!r}"
            raise ConfigurationError(msg)
        if self.replay not in ("exact", "status"):
            msg = f"replay must be 'exact' or 'status', but it is {self.replay!r}"
            raise ConfigurationError(msg)

    def replace(self, **changes: Any) -> Profile:
        """Return a copy with these fields changed. Raise ConfigurationError for unknown fields."""
        try:
            return dataclasses.replace(self, **changes)
        except TypeError as error:
            msg = f"a profile has no such field: {error}"
            raise ConfigurationError(msg) from None

    @property
    def keys(self) -> tuple[str, ...]:
        """The headers and JSON pointers that may hold the key, in order."""
        return (self.key,) if isinstance(self.key, str) else self.key

    def keeps(self, status: int) -> bool:
        """Return whether a response of this status is kept."""
        return f"{status // 100}xx" in self.kept and status not in self.not_kept

    def says(self, situation: Situation) -> Words:
        """Return the words for a situation, by default those of an RFC 9457 problem."""
        return self.words.get(situation) or _PROBLEMS[situation]


_PROBLEMS: Final[dict[Situation, Words]] = {
    "missing-key": Words(status=400, title="Idempotency key is missing"),
    "invalid-key": Words(status=400, title="Idempotency key is not usable"),
    "invalid-signature": Words(status=401, title="Signature is not valid"),
    "too-large": Words(status=413, title="Body is too large"),
    "unprotected": Words(status=403, title="Request cannot be protected"),
    "in-progress": Words(status=409, title="Request is in progress"),
    "key-reused": Words(status=422, title="Idempotency key was used for another request"),
    "response-not-replayable": Words(status=409, title="Response cannot be replayed"),
    "outcome-unknown": Words(status=409, title="Outcome of the request is unknown"),
    "store-unavailable": Words(status=503, title="Request cannot be protected now"),
    "already-processed": Words(
        status=200, body={"cached": True, "message": "Request already processed"}
    ),
    "unknown-request": Words(status=404, title="No such request"),
    "server-error": Words(status=500, title="Request failed"),
}

# Statuses that mean the request had no effect: the client corrects it or tries again.
# Several depend on headers, which are not part of the fingerprint.
_NO_EFFECT: Final = frozenset(
    {
        *(307, 308),  # the same request is to be sent elsewhere
        *(400, 401, 403, 404, 405, 406, 408, 411, 412, 413, 415, 417, 421, 422, 423, 425, 426),
        *(428, 429, 431),
    }
)


def _stripe(status: int, kind: str, *, retry: bool | None = None, code: str = "") -> Words:
    said = {"type": kind, "message": "{detail}", **({"code": code} if code else {})}
    hint = () if retry is None else (("stripe-should-retry", "true" if retry else "false"),)
    return Words(status=status, body={"error": said}, headers=hint)


IETF: Final = Profile(
    name="ietf",
    not_kept=_NO_EFFECT,
    echo=True,
    policy=Policy(wait=0, max_run="15min"),
)
"""The profile of draft-ietf-httpapi-idempotency-key-header-07."""

STRIPE: Final = Profile(
    name="stripe",
    by_route=False,
    kept=("2xx", "3xx", "4xx", "5xx"),
    not_kept=_NO_EFFECT,
    final=(("stripe-should-retry", "false"),),
    echo=True,
    policy=Policy(wait=0, max_run="15min"),
    words={
        "missing-key": _stripe(400, "invalid_request_error"),
        "invalid-key": _stripe(400, "invalid_request_error"),
        "invalid-signature": _stripe(401, "invalid_request_error"),
        "too-large": _stripe(413, "invalid_request_error"),
        "unprotected": _stripe(403, "invalid_request_error"),
        "in-progress": _stripe(
            409, "invalid_request_error", retry=True, code="idempotency_key_in_use"
        ),
        "key-reused": _stripe(400, "idempotency_error", retry=False),
        "response-not-replayable": _stripe(409, "idempotency_error", retry=False),
        "outcome-unknown": _stripe(409, "idempotency_error", retry=False),
        "store-unavailable": _stripe(503, "api_error", retry=True),
        "server-error": _stripe(500, "api_error", retry=False),
    },
)
"""The profile that clients of Stripe expect."""

WEBHOOK: Final = Profile(
    name="webhook",
    key="X-Idempotency-Key",
    required=True,
    scope=None,
    by_route=False,
    fingerprint=None,
    kept=("2xx",),
    replay="status",
    policy=Policy(wait=0, max_run="5min", retry_after="5s", fail_mode="open"),
    words={
        "in-progress": Words(
            status=429,
            body={
                "error": "Request is currently being processed",
                "retry_after": "{retry_after}",
            },
        ),
        "response-not-replayable": Words(
            status=200, body={"cached": True, "message": "Request already processed"}
        ),
    },
)
"""The profile for events that a provider sends again until they are accepted."""

PAYMENTS: Final = Profile(
    name="payments",
    key="/idempotencyKey",
    any_text=8,
    required=True,
    scope="/userId",
    by_route=False,
    fingerprint="request",
    not_kept=_NO_EFFECT,
    policy=Policy(wait="30s", max_run="15min"),
    words={
        "missing-key": Words(
            status=400, body={"error": "validation", "field": "{field}", "message": "{detail}"}
        ),
        "invalid-key": Words(
            status=400, body={"error": "validation", "field": "{field}", "message": "{detail}"}
        ),
        "key-reused": Words(status=409, body={"error": "conflict", "message": "{detail}"}),
        "in-progress": Words(
            status=202, body={"status": "in_progress", "retry_after": "{retry_after}"}
        ),
    },
)
"""The profile for payments: key and user are in the body, and duplicates wait for the first."""


def _acp(status: int, code: str, kind: str = "invalid_request") -> Words:
    return Words(status=status, body={"type": kind, "code": code, "message": "{detail}"})


ACP: Final = Profile(
    name="acp",
    required=True,
    methods=("POST",),
    not_kept=_NO_EFFECT,
    echo=True,
    policy=Policy(wait=0, max_run="15min"),
    words={
        "missing-key": _acp(400, "idempotency_key_required"),
        "invalid-key": _acp(400, "invalid"),
        "too-large": _acp(413, "invalid"),
        "in-progress": _acp(409, "idempotency_in_flight"),
        "key-reused": _acp(422, "idempotency_conflict"),
        "response-not-replayable": _acp(409, "response_not_replayable", "processing_error"),
        "outcome-unknown": _acp(409, "outcome_unknown", "processing_error"),
        "store-unavailable": _acp(503, "store_unavailable", "service_unavailable"),
    },
)
"""The profile of the Agentic Commerce Protocol, for checkout sessions that agents drive."""

UCP: Final = Profile(
    name="ucp",
    methods=("POST", "PUT"),
    not_kept=_NO_EFFECT,
    echo=True,
    policy=Policy(wait=0, max_run="15min"),
    words={
        "key-reused": Words(status=409, title="Idempotency key was used for another request"),
    },
)
"""The profile of the Universal Commerce Protocol, whose sessions are updated by PUT."""

PROFILES: Final = {one.name: one for one in (IETF, STRIPE, WEBHOOK, PAYMENTS, ACP, UCP)}


def profile_of(profile: object) -> Profile:
    """Return the profile, or the one of this name. Raise ConfigurationError if there is none."""
    if isinstance(profile, Profile):
        return profile
    if isinstance(profile, str) and profile in PROFILES:
        return PROFILES[profile]
    names = ", ".join(PROFILES)
    msg = f"profile must be a Profile or one of {names}, but it is {profile!r}"
    raise ConfigurationError(msg)
