"""One covered request, whatever framework it came through: claimed, run, recorded, replayed."""

# Generated from exchange_async.py by "make generate": do not edit.

from __future__ import annotations

from oncekey.core.call import Call
from oncekey.engine.run import Run, admit
from oncekey.errors import InProgressError, OncekeyError
from oncekey.http.body import Body
from oncekey.http.request import Headers
from oncekey.http.response import Reply, Unkept, packed
from oncekey.http.rules import Asked, Rules


class Exchange:
    """What the store hears of one request. Whoever writes its response asks here before.

    A server has many of them at once, and each waits twice for the store: whatever lives that long
    is looked at by the collector again and again. So what holds for most requests stands in the
    class, and nothing is kept that is not needed any more.
    """

    run: Run | None = None
    answer: Reply | None = None
    """What a handler that claimed was told to answer, whatever its framework makes of it."""
    sent = False
    """Whether a part of the response may be on its way to the client already."""
    _concluded = False

    def __init__(self, rules: Rules, echo: Headers) -> None:
        """Claim nothing yet. `echo` goes back to the client with every answer."""
        self.rules = rules
        self.echo = echo

    def claim(self, asked: Asked, body: Body, call: Call | None) -> Reply | None:
        """Return the answer, if there is one already; None: the request runs."""
        if call is None:
            return None
        rules = self.rules
        core, active, call = rules.once.use(call, call.terms)
        engine = core.engine()
        try:
            ticket = admit(engine, call, active=active)
        except InProgressError as error:
            reply = rules.answers.refusal(error)
            if rules.status is None:
                return reply
            record = rules.once.get(call.key, scope=call.scope)
            return rules.accepted(reply, asked, call, record)
        if ticket.duplicate:
            rules.answered(asked, body, call)
            return rules.replay(ticket.record, self.echo)
        self.run = run = Run(engine, ticket)
        run.keeps = False
        engine.begin(ticket, None)
        return None

    def keeps(self, status: int) -> bool:
        """Return whether a response with this status is kept."""
        asked_to = self.run is not None and bool(self.run.keeps)
        return self.rules.keeps(status, asked_to=asked_to)

    def open(self) -> Run | None:
        """Return the run, while nobody has said how it ended.

        Whatever goes wrong after that was said, the work is done and the key must not be freed.
        """
        run = self.run
        return None if run is None or run.ended or self._concluded else run

    def end(self, status: int, kept: bytes | Unkept) -> Reply | None:
        """Record how the request ended. Return what is sent instead of its response, if any."""
        run, rules = self.run, self.rules
        assert run is not None  # noqa: S101 - only a claimed request is held back
        self._concluded = True  # whatever goes wrong from here on, the work is done
        try:
            if run.ended:
                pass  # the handler has said so itself
            elif self.keeps(status):
                recorded = run.engine.settle(run.ticket, run.settlement(kept))
                run.settled(kept, recorded=recorded)
            else:
                uncertain = status in rules.profile.uncertain
                run.release(f"answered {status}", uncertain=uncertain)
        except OncekeyError as error:
            return rules.answers.refusal(error)
        if run.ticket.duplicate:  # it was taken over, and the winner's answer stands
            return rules.replay(run.record, self.echo)
        return None

    def failed(self, error: BaseException) -> Reply | None:
        """End after the application raised. Return what is sent, where that is kept."""
        run = self.open()
        if run is None:
            return None
        reply = self.rules.failure() if isinstance(error, Exception) else None
        if reply is None or self.sent:
            run.fail(error)
            return None
        kept = packed(reply.status, reply.headers, reply.body)
        return self.end(reply.status, kept) or reply

    def over(self) -> None:
        """Free the key if the application is done and has given no whole response."""
        run = self.open()
        if run is not None:
            run.release("no whole response that is kept")
