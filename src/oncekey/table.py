"""The machine's table: what each input does to a record in each status.

It is data for people and for proofs. The docs draw their diagram from it, and the tests walk the
machine exhaustively and compare: no row that is not so, and nothing that is not a row.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Row(NamedTuple):
    """One line of the table: in this status, this input leads to that status and that answer."""

    status: str
    verb: str
    when: str
    becomes: str
    answer: str


TABLE: Final = (
    Row("none", "claim", "", "running", "Granted"),
    Row("running", "claim", "other fingerprint", "running", "Mismatch"),
    Row("running", "claim", "own nonce again", "running", "Granted"),
    Row("running", "claim", "lease alive", "running", "Busy"),
    Row("running", "claim", "lease over, attempts left", "running", "Granted"),
    Row("running", "claim", "lease over, hold or attempts used up", "held", "Held"),
    Row("released", "claim", "other fingerprint, notes or uncertain", "released", "Mismatch"),
    Row("released", "claim", "nonce of the released attempt", "released", "Spent"),
    Row("released", "claim", "other fingerprint, nothing left: afresh", "running", "Granted"),
    Row("released", "claim", "attempts left", "running", "Granted"),
    Row("released", "claim", "attempts used up", "held", "Held"),
    Row("completed", "claim", "other fingerprint", "completed", "Mismatch"),
    Row("completed", "claim", "", "completed", "Replay"),
    Row("failed", "claim", "other fingerprint", "failed", "Mismatch"),
    Row("failed", "claim", "", "failed", "Replay"),
    Row("held", "claim", "other fingerprint", "held", "Mismatch"),
    Row("held", "claim", "", "held", "Held"),
    Row("running", "settle", "completed, by owner", "completed", "done"),
    Row("running", "settle", "failed, by owner", "failed", "done"),
    Row("held", "settle", "completed, by owner", "completed", "done"),
    Row("held", "settle", "failed, by owner", "failed", "done"),
    Row("completed", "settle", "the same again", "completed", "done"),
    Row("completed", "settle", "failed, by owner", "completed", "ended"),
    Row("failed", "settle", "the same again", "failed", "done"),
    Row("failed", "settle", "completed, by owner", "failed", "ended"),
    Row("released", "settle", "by owner", "released", "ended"),
    Row("running", "renew", "by owner", "running", "done"),
    Row("held", "renew", "by owner", "held", "ended"),
    Row("released", "renew", "by owner", "released", "ended"),
    Row("completed", "renew", "by owner", "completed", "ended"),
    Row("failed", "renew", "by owner", "failed", "ended"),
    Row("running", "note", "by owner", "running", "done"),
    Row("held", "note", "by owner", "held", "done"),
    Row("released", "note", "by owner", "released", "ended"),
    Row("completed", "note", "by owner", "completed", "ended"),
    Row("failed", "note", "by owner", "failed", "ended"),
    Row("running", "release", "by owner", "released", "done"),
    Row("running", "release", "uncertain under hold, by owner", "held", "done"),
    Row("released", "release", "the same again", "released", "done"),
    Row("released", "release", "under hold, by owner", "released", "ended"),
    Row("held", "release", "the same again", "held", "done"),
    Row("held", "release", "not under hold, by owner", "held", "ended"),
    Row("completed", "release", "by owner", "completed", "ended"),
    Row("failed", "release", "by owner", "failed", "ended"),
    Row("held", "resolve", "completed, token as read", "completed", "done"),
    Row("held", "resolve", "failed, token as read", "failed", "done"),
    Row("held", "resolve", "retry, token as read", "released", "done"),
    Row("completed", "forget", "token as read", "none", "done"),
    Row("failed", "forget", "token as read", "none", "done"),
    Row("released", "forget", "token as read", "none", "done"),
    Row("running", "forget", "forced, token as read", "none", "done"),
    Row("held", "forget", "forced, token as read", "none", "done"),
    Row("none", "forget", "", "none", "done"),
)
"""Whatever is not here leaves the record as it is and is answered `lost`."""
