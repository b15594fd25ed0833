"""What can be wrong with a request before anything is claimed for it."""

from __future__ import annotations

from oncekey.errors import InvalidKeyError, OncekeyError
from oncekey.http.response import Reply


class MissingKeyError(InvalidKeyError):
    """The request has no key, and needs one."""

    def __init__(self, where: str) -> None:
        """`where` is the header or the JSON pointer at which it was looked for."""
        self.field = where.lstrip("/")
        kind = "the body's member" if where.startswith("/") else "the header"
        super().__init__(f"{kind} {self.field} is missing; send a key of 1 to 255 characters")


class MissingMemberError(InvalidKeyError):
    """A member of the body that says whose request it is, or which, is not usable."""

    def __init__(self, pointer: str, why: str) -> None:
        """`why` is the end of a sentence about the member."""
        self.field = pointer.lstrip("/")
        super().__init__(f"{self.field} {why}")


class TooLargeError(OncekeyError):
    """The body has more bytes than are taken."""

    status_hint = 413


class AnsweredError(Exception):
    """Not an error: it carries the answer of the first request out of a handler that claims."""

    def __init__(self, reply: Reply) -> None:
        """The middleware sends the reply."""
        super().__init__("this request was answered before; the middleware must be installed")
        self.reply = reply
