"""Errors of a request before its key is claimed: no key, a bad member, a body that is too large."""

from __future__ import annotations

from oncekey.errors import InvalidKeyError, OncekeyError
from oncekey.http.response import Reply


class MissingKeyError(InvalidKeyError):
    """The request has no key, but a key is required."""

    def __init__(self, where: str) -> None:
        """Name the header or the JSON pointer `where` the key should have been."""
        self.field = where.lstrip("/")
        kind = "the body's member" if where.startswith("/") else "the header"
        super().__init__(f"{kind} {self.field} is missing; send a key of 1 to 255 characters")


class MissingMemberError(InvalidKeyError):
    """The member of the body that holds the key or the scope is missing or not usable."""

    def __init__(self, pointer: str, why: str) -> None:
        """Say what is wrong. `why` completes a sentence that begins with the member's name."""
        self.field = pointer.lstrip("/")
        super().__init__(f"{self.field} {why}")


class UnprotectedError(OncekeyError):
    """The request cannot be protected, but it has to be. Its message is meant for the client."""

    status_hint = 403


class TooLargeError(OncekeyError):
    """The body of the request is larger than the limit."""

    status_hint = 413


class AnsweredError(Exception):
    """Not an error: it carries the answer to a duplicate out of a handler that claims."""

    def __init__(self, reply: Reply) -> None:
        """Carry the reply, which the middleware sends."""
        super().__init__("this request was answered before; the middleware must be installed")
        self.reply = reply
