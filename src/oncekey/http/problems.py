"""Replies that clients get instead of a response of the application, worded by the profile."""

from __future__ import annotations

import re
from typing import Final

from oncekey.core.key import stored_key
from oncekey.errors import (
    ConfigurationError,
    InProgressError,
    InvalidKeyError,
    KeyReusedError,
    LeaseLostError,
    NotRecordedError,
    OncekeyError,
    OutcomeUnknownError,
    StoreAccessError,
    StoreError,
    UnreadableError,
)
from oncekey.http.errors import (
    MissingKeyError,
    MissingMemberError,
    TooLargeError,
    UnprotectedError,
)
from oncekey.http.profiles import Profile, Situation
from oncekey.http.response import Reply, say
from oncekey.http.signatures import SignatureError
from oncekey.observe.redaction import hashed

_SITUATIONS: Final[dict[type[OncekeyError], Situation]] = {
    InvalidKeyError: "invalid-key",
    SignatureError: "invalid-signature",
    TooLargeError: "too-large",
    UnprotectedError: "unprotected",
    InProgressError: "in-progress",
    KeyReusedError: "key-reused",
    OutcomeUnknownError: "outcome-unknown",
    LeaseLostError: "outcome-unknown",
    UnreadableError: "outcome-unknown",
    StoreError: "store-unavailable",
    StoreAccessError: "store-unavailable",
    NotRecordedError: "store-unavailable",
}
# The details for clients. The messages of the errors themselves name keys, addresses and settings,
# which clients must not see.
_DETAILS: Final[dict[Situation, str]] = {
    "in-progress": "A request with this idempotency key is being processed; ask again later.",
    "key-reused": "This idempotency key was used for another request; a new request needs a new "
    "key.",
    "response-not-replayable": "The request was completed, but its response was not kept.",
    "outcome-unknown": "An earlier attempt at this request ended without a known outcome; it must "
    "be looked into before it can be tried again.",
    "store-unavailable": "The request was not processed or could not be recorded; send it again "
    "with the same idempotency key.",
    "unknown-request": "There is no such request, or it may be sent again.",
    "already-processed": "Request already processed",
    "server-error": "The request failed; it is not tried again under this idempotency key.",
}


_URL: Final = re.compile(r"[!#-;=?-\[\]_a-z~]+")
"""The characters of a URL. Any other one would end the header in which it is, or the link."""


def _checked(docs_url: object) -> str | None:
    """Return the address. Raise ConfigurationError if it is none."""
    if docs_url is None or (isinstance(docs_url, str) and _URL.fullmatch(docs_url)):
        return docs_url
    msg = f"docs_url is an address such as 'https://shop.example/keys', but it is {docs_url!r}"
    raise ConfigurationError(msg)


class Problems:
    """The replies of one middleware to errors."""

    def __init__(self, profile: Profile, docs_url: str | None, retry_after: float) -> None:
        """Word the replies as the profile says. `retry_after` is for a store that is down."""
        self._profile = profile
        self.docs_url: Final = _checked(docs_url)
        self._retry_after = retry_after

    def refusal(self, error: OncekeyError) -> Reply:
        """Return the reply for an error. Raise the error if it is not meant for clients."""
        if isinstance(error, MissingKeyError):
            return self.say("missing-key", detail=str(error), field=error.field)
        if isinstance(error, MissingMemberError):
            return self.say("invalid-key", detail=str(error), field=error.field)
        situation = _SITUATIONS.get(type(error))
        if situation is None:
            raise error
        # The messages of these errors are about the client's own request. Others name internals.
        its_own = isinstance(
            error, (InvalidKeyError, SignatureError, TooLargeError, UnprotectedError)
        )
        return self.say(
            situation,
            detail=str(error) if its_own else "",
            retry_after=self._later(error, situation),
            instance=instance_of(getattr(error, "scope", None), getattr(error, "key", "")),
        )

    def _later(self, error: OncekeyError, situation: Situation) -> float | None:
        if isinstance(error, InProgressError):
            return error.retry_after
        return self._retry_after if situation == "store-unavailable" else None

    def say(
        self,
        situation: Situation,
        *,
        detail: str = "",
        field: str = "",
        retry_after: float | None = None,
        instance: str = "",
    ) -> Reply:
        """Return the reply for a situation. `instance` is the URI of the record, if any."""
        return say(
            situation,
            self._profile.says(situation),
            detail=detail or _DETAILS[situation],
            field=field,
            retry_after=retry_after,
            docs_url=self.docs_url,
            instance=instance,
        )


def instance_of(scope: str | None, key: str) -> str:
    """Return the URI of a record, with the hash that logs show for it, or "" without a key."""
    return f"urn:oncekey:{hashed(stored_key(scope, key))}" if key else ""
