"""One covered request of WSGI: how it is claimed, and how it ends."""

from __future__ import annotations

from oncekey import attempt as attempts
from oncekey.attempt import Attempt
from oncekey.core.call import Call
from oncekey.errors import ConfigurationError, InProgressError, OncekeyError
from oncekey.functions import UNSET
from oncekey.http.body import Body
from oncekey.http.errors import AnsweredError
from oncekey.http.protocol import Asked, Rules
from oncekey.http.reply import Reply, Unkept, packed
from oncekey.http.request import Headers


class Exchange:
    """What the store hears of one request. Whoever writes its response asks here before."""

    def __init__(self, rules: Rules, asked: Asked, body: Body) -> None:
        """The body was read whole, and nothing is claimed yet."""
        self.rules = rules
        self.asked = asked
        self.attempt: Attempt | None = None
        self.answer: Reply | None = None
        """What a handler that claimed was told to answer, whatever its framework makes of it."""
        self.sent = False
        """Whether the response is on its way to the client already."""
        self.stream = body.stream()
        self._body = body
        self._error: BaseException | None = None
        self._concluded = False

    # The claim

    def claim(self, call: Call | None) -> Reply | None:
        """The answer of the first request, if there is one; None: this one runs."""
        if call is None:
            return None
        rules = self.rules
        core, active, call = rules.once.use(call, call.terms)
        try:
            attempt = attempts.enter(core.engine(), call, active=active)
        except InProgressError as error:
            reply = rules.answers.refusal(error)
            if rules.status is None:
                return reply
            record = rules.once.get(call.key, scope=call.scope)
            return rules.accepted(reply, self.asked, call, record)
        if attempt.duplicate:
            return rules.replay(attempt.record, self.asked.echo)
        attempt._keeps = False  # noqa: SLF001 - it has a response
        self.attempt = attempt
        return None

    def ask_for(self, principal: str | None) -> Reply | None:
        """What a handler that claims by itself must answer at once; None: it runs."""
        if self.attempt is not None:
            if principal is not UNSET and not self.rules.by_handler:
                msg = "the middleware has claimed already; tell it claim='handler'"
                raise ConfigurationError(msg)
            return None
        if self.sent:
            raise ConfigurationError("claim before the response begins: a part of it was sent")
        read = self.stream.tell()
        try:
            reply = self.claim(self.rules.call(self.asked, self._body, principal))
        except OncekeyError as error:
            return self.rules.answers.refusal(error)
        finally:
            self.stream.seek(read)  # the fingerprint has read the body too
        if reply is None:
            self.become_current()
        return reply

    def claim_for(self, principal: str | None) -> Attempt | None:
        """The attempt of a handler that claims by itself; None where there is no key."""
        self.answer = self.ask_for(principal)
        if self.answer is not None:
            raise AnsweredError(self.answer)
        return self.attempt

    def become_current(self) -> None:
        """From here on the application's code can ask for its attempt."""
        if self.attempt is not None:
            self.attempt._become_current()  # noqa: SLF001 - a `with` block has one end, this has many

    def stop_being_current(self) -> None:
        """The thread goes on to something else."""
        if self.attempt is not None:
            self.attempt._stop_being_current()  # noqa: SLF001 - see above

    # The end

    def raised(self, error: BaseException) -> None:
        """The application failed with this, and makes a response of it by itself."""
        self._error = error

    def answered(self, status: int, headers: Headers, body: bytes) -> Reply | None:
        """The whole response is recorded; what is to be sent instead of it, if anything is."""
        if self._error is not None:
            return self.failed(self._error)
        return self._end(status, self.rules.kept(status, headers, body))

    def not_replayable(self, status: int, why: str) -> Reply | None:
        """The response is recorded as not kept; what is to be sent instead of it."""
        return self._end(status, Unkept(why)) if self._keeps(status) else None

    def failed(self, error: BaseException) -> Reply | None:
        """The application raised this; what is sent, where that is kept and not the server's."""
        attempt = self._open()
        if attempt is None:
            return None
        reply = self.rules.failure() if isinstance(error, Exception) else None
        if reply is None or self.sent:
            attempt._fail(error)  # noqa: SLF001 - see above
            return None
        return self._end(reply.status, packed(reply.status, reply.headers, reply.body)) or reply

    def over(self) -> None:
        """The application is done; what it left open is closed."""
        try:
            attempt = self._open()
            if attempt is not None and self._error is not None:
                attempt._fail(self._error)  # noqa: SLF001 - see above
            elif attempt is not None:
                attempt.release("no whole response that is kept")
        finally:
            if self.attempt is not None:
                self.attempt._let_go()  # noqa: SLF001 - see above
            self._body.close()

    def _end(self, status: int, kept: bytes | Unkept) -> Reply | None:
        attempt = self.attempt
        assert attempt is not None  # noqa: S101 - only a claimed request is held back
        said, self._concluded = attempt._ended, True  # noqa: SLF001 - see above
        try:
            if said:
                pass  # by the handler itself
            elif self._keeps(status):
                attempt.complete(kept)
            else:
                uncertain = status in self.rules.profile.uncertain
                attempt.release(f"answered {status}", uncertain=uncertain)
        except OncekeyError as error:
            return self.rules.answers.refusal(error)
        if attempt.duplicate:  # it was taken over, and the winner's answer stands
            return self.rules.replay(attempt.record, self.asked.echo)
        return None

    def _open(self) -> Attempt | None:
        """The attempt, while nobody has said how it ended.

        Whatever goes wrong after it was said, the work is done and the key must not be freed.
        """
        attempt = self.attempt
        if attempt is None or attempt._ended or self._concluded:  # noqa: SLF001 - see above
            return None
        return attempt

    def _keeps(self, status: int) -> bool:
        asked_to = self.attempt is not None and bool(self.attempt._keeps)  # noqa: SLF001 - see above
        return self.rules.keeps(status, asked_to=asked_to)
