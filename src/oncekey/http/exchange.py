"""Claim, run, record and replay one covered request, independent of the framework."""

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
    """One covered request. An adapter calls it before it sends any part of the response.

    A server has many of these at once, and each waits twice for the store, so the garbage
    collector visits them again and again. To keep them small, defaults are class attributes, and
    nothing is kept longer than it is needed.
    """

    run: Run | None = None
    answer: Reply | None = None
    """The answer that a claiming handler was given, sent whatever the framework makes of it."""
    sent = False
    """Whether a part of the response may have been sent to the client."""
    _concluded = False

    def __init__(self, rules: Rules, echo: Headers) -> None:
        """Start without a claim. The headers `echo` are sent back with every answer."""
        self.rules = rules
        self.echo = echo

    def claim(self, asked: Asked, body: Body, call: Call | None) -> Reply | None:
        """Claim the call. Return the answer if it must not run, or None if it is to run.

        Without a call (None) nothing is claimed, and the request runs.
        """
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
        return asked_to or self.rules.keeps(status)

    def open(self) -> Run | None:
        """Return the run, or None if it has ended or its end is being recorded.

        If recording the end goes wrong, the work is done all the same, and the key must not be
        freed.
        """
        run = self.run
        return None if run is None or run.ended or self._concluded else run

    def end(self, status: int, kept: bytes | Unkept, *, later: bool = False) -> Reply | None:
        """Record how the request ended. Return a reply if it is sent instead of the response.

        `later` is whether the response is a refusal that says when to ask again.
        """
        run, rules = self.run, self.rules
        assert run is not None  # noqa: S101 - only a claimed request is held back
        self._concluded = True  # from here on the work counts as done, even after an error
        try:
            if run.ended:
                pass  # the handler has ended it itself
            elif run.keeps or (rules.keeps(status) and not later):
                recorded = run.engine.settle(run.ticket, run.settlement(kept))
                run.settled(kept, recorded=recorded)
            else:
                uncertain = status in rules.profile.uncertain
                run.release(f"answered {status}", uncertain=uncertain, brief=True)
        except OncekeyError as error:
            return rules.answers.refusal(error)
        if run.ticket.duplicate:  # taken over: the answer of the other attempt stands
            return rules.replay(run.record, self.echo)
        return None

    def failed(self, error: BaseException) -> Reply | None:
        """End after the application raised. Return the reply to send if failures are kept."""
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
        """Free the key if the application has returned without a whole response."""
        run = self.open()
        if run is not None:
            run.release("no whole response that is kept")
