"""What is kept of a response, and what a duplicate gets: rules, and no framework."""

from __future__ import annotations

from functools import lru_cache
from http import HTTPStatus
from typing import Final

from oncekey.core.codec import UnreadableBytesError
from oncekey.core.record import Record
from oncekey.http.answers import Answers
from oncekey.http.profiles import Profile
from oncekey.http.reply import REPLAYED, Reply, Unkept, endless, packed, unpacked
from oncekey.http.request import Headers
from oncekey.policy import Terms


class Keeping:
    """The rules of one middleware about responses."""

    def __init__(self, profile: Profile, terms: Terms, answers: Answers) -> None:
        """`answers` are its own words."""
        self.profile: Final = profile
        self.terms: Final = terms
        self.answers: Final = answers
        self._keeps = lru_cache(256)(profile.keeps)
        self._final = [(name.encode(), value.encode()) for name, value in profile.final]

    endless = staticmethod(endless)

    def keeps(self, status: int, *, asked_to: bool) -> bool:
        """Whether a response of this status is kept."""
        return asked_to or self._keeps(status)

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

    def failure(self) -> Reply | None:
        """What is kept and sent when the application raised; None where that frees the key."""
        return self.answers.say("server-error") if "5xx" in self.profile.kept else None
