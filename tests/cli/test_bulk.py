"""resolve-all and forget-all: one decision, confirmed by a number, for everything that matches."""

import json

import pytest

from oncekey import Once, StoreError
from oncekey.core.audit import KEPT
from oncekey.inspection.bulk import apply_to_all, collect, forgetting, resolving
from oncekey.inspection.listing import count_records, read_audit
from oncekey.stores.browse import RecordQuery
from tests.cli.shop import url_of


@pytest.fixture
def once(shop):
    once = Once(url_of(shop), observers=(), cache=False).options(on_crash="hold")
    for number in range(7):
        with (
            pytest.raises(TimeoutError),
            once.options(scope="billing", label="refund").attempt(f"refund:{number}"),
        ):
            raise TimeoutError
    yield once
    once.close()


def held(once):
    return count_records(once.store).by_status["held"]


def test_one_decision_for_all_that_match(once, run):
    plan = run("resolve-all", "--label", "refund", "--retry", "--dry-run")
    assert plan.stdout.splitlines()[0] == "7 records match; nothing was changed"
    assert "7  held  refund  billing" in plan.stdout
    assert held(once) == 8
    chosen = ("resolve-all", "--label", "refund", "--retry", "--reason", "provider was down")
    assert (run(*chosen, "--expect", "8").exit_code, held(once)) == (1, 8)
    refused = run(*chosen)
    assert (refused.exit_code, held(once)) == (2, 8)
    assert "--expect 7" in refused.stderr
    done = run(*chosen, "--expect", "7")
    assert (done.exit_code, done.stdout) == (0, "7 of 7 resolved\n")
    assert held(once) == 1
    entries = read_audit(once.store, KEPT)
    assert len(entries) == 7
    assert {(one.action, one.reason) for one in entries} == {("retry", "provider was down")}
    assert run(*chosen, "--expect", "0").exit_code == 1


def test_forgetting_leaves_alone_what_runs_or_is_held(once, run):
    chosen = ("forget-all", "--scope", "billing", "--json", "--rate", "0")
    count = json.loads(run(*chosen, "--dry-run").stdout)["matches"]
    told = json.loads(run(*chosen, "--expect", str(count)).stdout)
    assert told == {"forgotten": 2, "changed": 0, "refused": 8}
    told = json.loads(run(*chosen, "--expect", "8", "--force").stdout)
    assert told == {"forgotten": 8, "changed": 0, "refused": 0}
    assert run("forget-all", "--expect", "1").exit_code == 2  # not everything by accident


def test_what_has_changed_since_it_was_read_is_left_alone(once):
    records = collect(once.store, RecordQuery(status="held", label="refund", limit=2))
    assert len(records) == 7
    once.resolve("refund:3", scope="billing", result="paid")
    once.forget("refund:4", scope="billing", force=True)
    act = resolving({"retry": True}, by="ann", reason="")
    outcome = apply_to_all(once, records, act)
    assert (outcome.done, outcome.changed, outcome.refused) == (5, 2, 0)
    assert once.get("refund:3", scope="billing").value == "paid"
    outcome = apply_to_all(once, records, forgetting(force=True, by="ann", reason=""))
    assert outcome.done == 0


def test_the_rate_is_kept(once):
    records = collect(once.store, RecordQuery(status="held", label="refund"))
    pauses = []
    act = forgetting(force=False, by="", reason="")
    apply_to_all(once, records, act, per_second=0.001, sleep=pauses.append)
    assert pauses[0] == 0
    assert all(2000 * n > pause > 999 * n for n, pause in enumerate(pauses) if n)


@pytest.mark.parametrize(
    ("trouble", "code"), [(KeyboardInterrupt(), 130), (StoreError("away", happened=False), 4)]
)
def test_what_was_done_before_it_was_cut_off_is_told(once, run, monkeypatch, trouble, code):
    resolved, left = Once.resolve, iter(range(3))

    def resolve(*arguments, **options):
        if next(left, None) is None:
            raise trouble
        return resolved(*arguments, **options)

    monkeypatch.setattr(Once, "resolve", resolve)
    done = run("resolve-all", "--label", "refund", "--retry", "--expect", "7")
    again = "run the command again for the rest, with its number"
    assert (done.exit_code, held(once)) == (code, 5)
    said = ", then the store failed: away" if code == 4 else ""
    assert done.stderr == f"oncekey: 3 of 7 are resolved ({again}){said}\n"
