"""Every short story of three workers and one key, told to the machine.

A request that was sent once may arrive at any later moment, any number of times: whatever a
worker could ever have asked stays askable. That covers lost replies (the worker asks again with
its nonce or token), late ones and doubled ones. People resolve and forget with a token they read
now or long ago, and time moves to where a lease or a record ends, and beside it.

The walk keeps its own account of who owns what, and never looks into the machine for it. Each
promise is a test of its own, so that a broken rule shows by name.
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

import pytest
from msgspec.structs import asdict, replace

from oncekey.core import machine
from oncekey.core.machine import TABLE, Row
from oncekey.core.record import Record
from oncekey.core.requests import (
    Busy,
    Claim,
    Forget,
    Granted,
    Held,
    Note,
    Owned,
    Release,
    Renew,
    Replay,
    Request,
    Resolve,
    Settle,
    Verdict,
)
from oncekey.testing.reference import RULES

pytestmark = pytest.mark.xdist_group("walk")  # what they share is made once

DEPTH = 8
LEASE = 100
TTL = 1_000
START = 1_000_000
PLACE = (None, "key")

MEANS = {"ann": "1:x", "bob": "1:x", "cyd": "1:y"}
ASKS: dict[str, tuple[dict[str, Any], ...]] = {
    "ann": ({},),
    "bob": ({"max_attempts": 2}, {"on_expired": "hold"}),
    "cyd": ({},),
}
RELEASES = {
    "definite": (False, False, False),
    "uncertain": (True, False, False),
    "hold": (True, True, False),
    "unused": (False, False, True),
}


class Grant(NamedTuple):
    """What a worker was given once, and never throws away."""

    worker: str
    token: int
    nonce: str


class Account(NamedTuple):
    """What must be so, told by the answers alone."""

    owner: Grant | None = None
    leased_until: int = 0
    noted: tuple[bytes, int] = (b"", 0)
    settled_until: int = 0
    largest_token: int = 0


class World(NamedTuple):
    """The record, the time, what workers hold, and the account."""

    record: Record | None
    now: int
    grants: frozenset[Grant]
    nonces: tuple[str, ...]
    account: Account
    story: Any  # (story before, what happened), or None


class Found:
    """What the walk has seen."""

    def __init__(self) -> None:
        self.broken: dict[str, list[str]] = defaultdict(list)
        self.rows: Counter[Row] = Counter()
        self.worlds = 0
        self.steps = 0

    def check(self, promise: str, kept: bool, world: World, happened: str, why: object) -> bool:
        if not kept and len(self.broken[promise]) < 5:
            self.broken[promise].append(f"{tell(world.story, happened)}\n    {why}")
        return kept


def tell(story: Any, last: str) -> str:
    told = [last]
    while story is not None:
        story, happened = story
        told.append(happened)
    return " > ".join(reversed(told))


# What can be asked in a world


def requests(world: World) -> Iterator[Request]:
    yield from claims(world)
    for grant in reachable_grants(world):
        yield from writes(grant.token, grant.nonce, world.record)
    tokens = {1, world.account.largest_token, *(grant.token for grant in reachable_grants(world))}
    if world.record is not None:
        tokens.add(world.record.token)
    for token in sorted(tokens)[-2:]:
        for force in (False, True):
            yield Forget(*PLACE, token=token, force=force)
        for status in ("completed", "failed", "released"):
            yield Resolve(*PLACE, token=token, status=status, result=None, error=None, ttl=TTL)


def claims(world: World) -> Iterator[Claim]:
    in_record = None if world.record is None else world.record.nonce
    for worker, means in MEANS.items():
        mine = [nonce for nonce in world.nonces if nonce.startswith(worker)]
        again = dict.fromkeys([*mine[-1:], *(nonce for nonce in mine if nonce == in_record)])
        for nonce in (*again, f"{worker}{len(mine)}"):
            for how in ASKS[worker]:
                yield Claim(*PLACE, nonce=nonce, fingerprint=means, lease=LEASE, ttl=TTL, **how)


def reachable_grants(world: World) -> list[Grant]:
    """The owner's, and for each worker the latest of the others: older ones are no different."""
    latest: dict[object, Grant] = {}
    for grant in sorted(world.grants, key=lambda grant: grant.token):
        latest[grant if grant == world.account.owner else grant.worker] = grant
    return list(latest.values())


def writes(token: int, nonce: str, record: Record | None) -> Iterator[Owned]:
    revision = 0 if record is None else record.revision
    proof: dict[str, Any] = {"token": token, "nonce": nonce}
    yield Renew(*PLACE, **proof, lease=LEASE, ttl=TTL)
    yield Note(*PLACE, **proof, noted=b"new", revision=revision + 1)
    yield Note(*PLACE, **proof, noted=b"old", revision=revision)
    yield Settle(*PLACE, **proof, status="completed", result=b"r", error=None, ttl=TTL)
    yield Settle(*PLACE, **proof, status="failed", result=None, error=b"e", ttl=TTL)
    for uncertain, hold, unused in RELEASES.values():
        yield Release(
            *PLACE,
            **proof,
            error=b"e",
            uncertain=uncertain,
            hold=hold,
            unused=unused,
            counted=False,
            bare_ttl=LEASE,
            ttl=TTL,
        )


def moments(world: World) -> Iterator[tuple[str, int]]:
    record = world.record
    if record is None:
        return
    for name in ("lease_end", "expires"):
        end = getattr(record, name)
        for beside, words in ((-1, "just before"), (0, "exactly"), (1, "past")):
            if end and end + beside > world.now:
                yield f"{words} {name}", end + beside


# What the table says must come of it


def left(record: Record, ask: Any) -> bool:
    return ask.max_attempts is None or record.attempt < ask.max_attempts


def owned(record: Record, ask: Any) -> bool:
    return (record.token, record.nonce) == (ask.token, ask.nonce)


def other(record: Record, ask: Any) -> bool:
    return bool(record.fingerprint != ask.fingerprint)


def same_again(record: Record, ask: Any) -> bool:
    wanted = ("held" if ask.hold else "released") if isinstance(ask, Release) else ask.status
    return owned(record, ask) and record.status == wanted


def over(record: Record, now: int) -> bool:
    return now >= record.lease_end


WHEN = {
    "": lambda r, a, now: True,
    "other fingerprint": lambda r, a, now: other(r, a),
    "own nonce again": lambda r, a, now: r.nonce == a.nonce,
    "lease alive": lambda r, a, now: not over(r, now),
    "lease over, attempts left": lambda r, a, now: (
        over(r, now) and a.on_expired == "take" and left(r, a)
    ),
    "lease over, hold or attempts used up": lambda r, a, now: (
        over(r, now) and not (a.on_expired == "take" and left(r, a))
    ),
    "other fingerprint, notes or uncertain": lambda r, a, now: (
        other(r, a) and (r.noted or r.uncertain)
    ),
    "nonce of the released attempt": lambda r, a, now: r.nonce == a.nonce,
    "other fingerprint, nothing left: afresh": lambda r, a, now: (
        other(r, a) and not (r.noted or r.uncertain)
    ),
    "attempts left": lambda r, a, now: left(r, a),
    "attempts used up": lambda r, a, now: not left(r, a),
    "by owner": lambda r, a, now: owned(r, a),
    "completed, by owner": lambda r, a, now: owned(r, a) and a.status == "completed",
    "failed, by owner": lambda r, a, now: owned(r, a) and a.status == "failed",
    "the same again": lambda r, a, now: same_again(r, a),
    "uncertain under hold, by owner": lambda r, a, now: owned(r, a) and a.hold,
    "under hold, by owner": lambda r, a, now: owned(r, a) and a.hold,
    "definite, by owner": lambda r, a, now: owned(r, a) and not (a.hold or a.uncertain),
    "uncertain, not under hold, by owner": lambda r, a, now: owned(r, a) and not a.hold,
    "token as read": lambda r, a, now: r.token == a.token,
    "forced, token as read": lambda r, a, now: r.token == a.token and a.force,
    "completed, token as read": lambda r, a, now: r.token == a.token and a.status == "completed",
    "failed, token as read": lambda r, a, now: r.token == a.token and a.status == "failed",
    "retry, token as read": lambda r, a, now: r.token == a.token and a.status == "released",
}
OVERRIDES = {
    # Its neighbour in the table speaks of the same owner under hold.
    ("running", "release", "by owner"): lambda r, a, now: owned(r, a) and not a.hold,
}


@cache
def rows_for(status: str, verb: str) -> list[tuple[Row, Any]]:
    return [
        (row, OVERRIDES.get((row.status, row.verb, row.when)) or WHEN[row.when])
        for row in TABLE
        if (row.status, row.verb) == (status, verb)
    ]


def predicted(record: Record | None, ask: Request, now: int) -> Row | None:
    """The first row that applies; None: it is lost."""
    for row, applies in rows_for(status_of(record, now), type(ask).__name__.lower()):
        if applies(record, ask, now):
            return row
    return None


def status_of(record: Record | None, now: int) -> str:
    alive = record is not None and not 0 < record.expires <= now
    return record.status if record is not None and alive else "none"


# One step


def step(world: World, ask: Request, found: Found) -> World | None:
    """The world after a request arrived; None when it is as before, or a promise was broken."""
    before, now = world.record, world.now
    rule = RULES[type(ask)]
    after, reply = rule(before, ask, now)
    happened = f"{ask} at {now} = {reply if isinstance(reply, Verdict) else type(reply).__name__}"
    found.steps += 1

    def check(promise: str, kept: object, why: object) -> bool:
        return found.check(promise, bool(kept), world, happened, why)

    kept = check("pure", rule(before, ask, now) == (after, reply), "a second call differs")
    row = predicted(before, ask, now)
    word = reply.value if isinstance(reply, Verdict) else type(reply).__name__
    if row is None:
        kept &= check("table", word == "lost" and after is before, "no row: must be lost")
    else:
        found.rows[row] += 1
        kept &= check("table", (status_of(after, now), word) == (row.becomes, row.answer), row)
    account, fine = keep_account(world, ask, Event(after, reply, check))
    if not (kept and fine) or (after is before and account == world.account):
        return None
    grants, nonces = world.grants, world.nonces
    if isinstance(ask, Claim) and ask.nonce not in nonces:
        nonces = (*nonces, ask.nonce)
    if account.owner is not None:
        grants |= {account.owner}
    if after is None and before is not None:
        # Nothing is left to tell the last token but time, and no two verbs take no time at all.
        now = max(now, account.largest_token) + 1
    return World(after, now, grants, nonces, account, (world.story, happened))


class Event(NamedTuple):
    """What came of a request, and where to report what should not have."""

    after: Record | None
    reply: Any
    check: Callable[[str, object, object], bool]


def keep_account(world: World, ask: Request, event: Event) -> tuple[Account, bool]:
    """The account after the step, and whether the promises were kept in it."""
    if status_of(world.record, world.now) == "none":
        world = world._replace(account=Account(largest_token=world.account.largest_token))
    if isinstance(ask, Claim):
        account, fine = account_of_claim(world, ask, event)
    elif isinstance(ask, Owned):
        account, fine = account_of_write(world, ask, event)
    else:
        account, fine = account_of_decision(world, ask, event)
    if status_of(event.after, world.now) != "none":
        assert event.after is not None
        noted = (event.after.noted, event.after.revision)
        fine &= event.check("notes", noted == account.noted, f"noted was {account.noted}")
    return account, fine


def account_of_claim(world: World, ask: Claim, event: Event) -> tuple[Account, bool]:
    account, now, record, check = world.account, world.now, event.reply.record, event.check
    before = world.record if status_of(world.record, now) != "none" else None
    if isinstance(event.reply, Busy):
        return account, check("lease", now < account.leased_until, "busy, but the lease is over")
    if not isinstance(event.reply, Granted):
        return account, True
    grant = Grant(ask.nonce.rstrip("0123456789"), record.token, ask.nonce)
    if grant == account.owner:
        return account, check("owner", record == before, "granted again, but changed")
    fine = check("settled", not account.settled_until, "a settled record is granted")
    fine &= check("lease", now >= account.leased_until, "granted while another's lease is alive")
    fine &= check("tokens", record.token > account.largest_token, "the token did not grow")
    fine &= check("owner", record.nonce == ask.nonce, "granted with another's nonce")
    means_other = before is not None and before.fingerprint != ask.fingerprint
    nothing_left = before is not None and not (account.noted[0] or before.uncertain)
    if before is None or (means_other and before.status == "released" and nothing_left):
        account = Account()
    else:
        fine &= check("meaning", not means_other, "granted to another meaning")
    return account._replace(
        owner=grant, leased_until=now + ask.lease, largest_token=record.token
    ), fine


def account_of_write(world: World, ask: Owned, event: Event) -> tuple[Account, bool]:
    account, now, check = world.account, world.now, event.check
    owner = account.owner
    is_owner = owner is not None and (owner.token, owner.nonce) == (ask.token, ask.nonce)
    fine = check("owner", (event.reply is not Verdict.LOST) == is_owner, f"the owner is {owner}")
    fine &= check("owner", is_owner or event.after is world.record, "changed by somebody else")
    if account.settled_until:
        fine &= check("settled", event.after is world.record, "a settled record changed")
    elif event.reply is Verdict.DONE and is_owner:
        if isinstance(ask, Renew):
            account = account._replace(leased_until=now + ask.lease)
        elif isinstance(ask, Note) and ask.revision > account.noted[1]:
            account = account._replace(noted=(ask.noted, ask.revision))
        elif isinstance(ask, Settle):
            account = account._replace(leased_until=0, settled_until=now + TTL)
        elif isinstance(ask, Release):
            account = account._replace(leased_until=0)
    return account, fine


def account_of_decision(world: World, ask: Request, event: Event) -> tuple[Account, bool]:
    account, fine = world.account, True
    if event.reply is not Verdict.DONE:
        return account, fine
    if isinstance(ask, Resolve):
        fine = event.check("settled", not account.settled_until, "resolved, though settled")
        until = 0 if ask.status == "released" else world.now + TTL
        return account._replace(owner=None, leased_until=0, settled_until=until), fine
    return Account(largest_token=account.largest_token), fine


# What is true of a world as it stands


def inspect(world: World, found: Found) -> None:
    only_the_owner_writes(world, found)
    the_key_can_end(world, found)


def only_the_owner_writes(world: World, found: Found) -> None:
    """Any mixture of a known token and a known nonce that is not the owner's is refused."""
    record = world.record
    if record is None:
        return
    tokens = {record.token, *(grant.token for grant in reachable_grants(world))}
    nonces = {record.nonce, *world.nonces[-3:]}
    owner = world.account.owner if status_of(record, world.now) != "none" else None
    for token, nonce in itertools.product(tokens, nonces):
        if owner is not None and (token, nonce) == (owner.token, owner.nonce):
            continue
        for ask in writes(token, nonce, record):
            after, reply = RULES[type(ask)](record, ask, world.now)
            # A resolve leaves a token that nobody was granted; it is told no more than "ended".
            nobodys = owner is None and (token, nonce) == (record.token, record.nonce)
            kept = after is record and (reply is Verdict.LOST or nobodys)
            found.check("owner", kept, world, f"{ask} = {reply}", f"the owner is {owner}")


def the_key_can_end(world: World, found: Found) -> None:
    """Somebody new asks after the lease, and the key ends settled; long after, it is free."""
    record, now = world.record, world.now
    means = "1:x" if record is None else record.fingerprint
    ask = Claim(*PLACE, nonce="last", fingerprint=means, lease=LEASE, ttl=TTL)
    if record is not None:
        now = max(now, record.lease_end)
    after: Record | None
    after, reply = machine.claim(record, ask, now)
    if isinstance(reply, Granted):
        proof = {"token": reply.record.token, "nonce": "last"}
        end = Settle(*PLACE, **proof, status="completed", result=b"", error=None, ttl=TTL)  # type: ignore[arg-type]  # mixed dict
        after, verdict = machine.settle(after, end, now)
    elif isinstance(reply, Held):
        token = reply.record.token
        said = Resolve(*PLACE, token=token, status="completed", result=b"", error=None, ttl=TTL)
        after, verdict = machine.resolve(after, said, now)
    else:
        verdict = Verdict.DONE if isinstance(reply, Replay) else Verdict.LOST
    ended = verdict is Verdict.DONE and status_of(after, now) in ("completed", "failed")
    found.check("ends", ended, world, f"{ask} at {now}", (reply, verdict))
    if after is not None and ended:
        free = machine.claim(after, replace(ask, fingerprint="1:y"), after.expires)[1]
        found.check("ends", isinstance(free, Granted), world, "claim after expiry", free)


def alike(world: World) -> object:
    """Worlds with the same answer here have the same future: only relations count."""
    record, now = world.record, world.now
    spent = frozenset(nonce.rstrip("0123456789") for nonce in world.nonces)
    if record is None:
        return spent, frozenset(grant.worker for grant in world.grants)
    return (
        record.status,
        record.fingerprint,
        record.nonce.rstrip("0123456789"),
        min(record.attempt, 3),
        near(record.lease_end - now),
        near(record.expires - now) if record.expires else None,
        bool(record.noted),
        record.uncertain,
        near(record.token - now),
        world.account.owner is not None,
        spent,
        frozenset(
            (g.worker, g.token == record.token, g.nonce == record.nonce) for g in world.grants
        ),
    )


def near(distance: int) -> int:
    return max(-2, min(distance, 2))


@pytest.fixture(scope="module")
def found() -> Found:
    found = Found()
    worlds = [World(None, START, frozenset(), (), Account(), None)]
    seen = {alike(worlds[0])}
    for depth in range(DEPTH + 1):
        later: list[World] = []
        for world in worlds:
            found.worlds += 1
            inspect(world, found)
            if depth == DEPTH:
                continue
            snapshot = None if world.record is None else asdict(world.record)
            for new in neighbours(world, found):
                form = alike(new)
                if form not in seen:
                    seen.add(form)
                    later.append(new)
            same = snapshot == (None if world.record is None else asdict(world.record))
            found.check("pure", same, world, "everything", "a rule changed its input")
        worlds = later
    return found


def neighbours(world: World, found: Found) -> Iterator[World]:
    for ask in requests(world):
        new = step(world, ask, found)
        if new is not None:
            yield new
    for words, moment in moments(world):
        yield world._replace(now=moment, story=(world.story, words))
    if world.record is not None and machine.purgeable(world.record, world.now, 0):
        account = Account(largest_token=world.account.largest_token)
        yield world._replace(record=None, account=account, story=(world.story, "purge"))


def kept(found: Found, promise: str) -> None:
    assert not found.broken[promise], "\n".join(found.broken[promise])


def test_the_walk_is_long_enough_to_mean_something(found):
    assert found.worlds > 10_000
    assert found.steps > 300_000


def test_at_most_one_attempt_owns_the_record_and_only_it_writes(found):
    kept(found, "owner")


def test_nobody_is_granted_the_key_while_a_lease_is_alive_and_nobody_waits_longer(found):
    kept(found, "lease")


def test_tokens_grow_and_never_come_again(found):
    kept(found, "tokens")


def test_what_was_settled_never_runs_again_while_it_lives(found):
    kept(found, "settled")


def test_notes_never_vanish_from_a_living_record(found):
    kept(found, "notes")


def test_a_key_keeps_its_meaning_while_something_of_it_is_alive(found):
    kept(found, "meaning")


def test_every_key_can_end(found):
    kept(found, "ends")


def test_the_rules_change_nothing_and_answer_the_same_twice(found):
    kept(found, "pure")


def test_everything_that_happened_is_a_row_of_the_table(found):
    kept(found, "table")


def test_every_row_of_the_table_happened(found):
    assert [row for row in TABLE if not found.rows[row]] == []
