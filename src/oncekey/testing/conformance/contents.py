"""Tests of unusual keys and contents, which must come back as they went in."""
# ruff: noqa: D102, S101 - a test's name says what it proves, its asserts prove it

from __future__ import annotations

import pytest
from msgspec.structs import replace

from oncekey.core.requests import Replay, Scan
from oncekey.testing.conformance.base import DONE, Desk, Line, Suite

MEBIBYTE = 1024 * 1024
KEYS = [
    "x",
    'it\'s "quoted" `so`',
    "a/b//c",
    "a\\b",
    "100%",
    "%25",
    "%s {0} {x} $1 :name ?",
    "'; DROP TABLE oncekey_records; --",
    "* ? [a-z] _ %",
    "a:b",
    " ",
    "{tag}",
    "k" * 255,
    "k" * 254 + "j",
]
BYTES = {
    "empty": b"",
    "nil": b"\xc0",
    "zero": b"\x00",
    "every byte": bytes(range(256)),
    "not text": b"\xff\xfe\x80",
    "large": bytes(range(256)) * (MEBIBYTE // 256),
}

each_content = pytest.mark.parametrize("content", BYTES.values(), ids=BYTES)


class Contents(Suite):
    """Keys, bytes, texts and numbers that a store must keep unchanged."""

    def test_keys_may_look_like_anything_printable(self, desk: Desk) -> None:
        desks = [desk.at(key, scope) for key in KEYS for scope in (None, "s", *KEYS[1:5])]
        records = [one.grant("a", reference=one.key) for one in desks]
        assert [one.get() for one in desks] == records
        found = desk.store.scan(Scan(limit=len(desks))).records
        assert found == sorted(records, key=lambda record: (record.scope or "", record.key))
        for one, record in zip(desks, records, strict=True):
            assert one.settle(record, result=one.key.encode()) is DONE
        assert [one.read().result for one in desks] == [one.key.encode() for one in desks]
        for one, record in zip(desks, records, strict=True):
            assert one.forget(record) is DONE
        assert not desk.store.scan(Scan()).records

    def test_keys_differ_by_case(self, desk: Desk) -> None:
        assert desk.at("Key").grant("a") != desk.at("key").grant("b")
        assert desk.at("key", "S").get() is None

    @each_content
    def test_a_result_comes_back_as_it_was(self, content: bytes, desk: Desk) -> None:
        desk.settle(desk.grant("a"), result=content)
        answer = desk.claim("b")
        assert isinstance(answer, Replay)
        assert answer.record.result == content
        assert desk.read().result == content

    @each_content
    def test_an_error_comes_back_as_it_was(self, content: bytes, desk: Desk) -> None:
        owner = desk.grant("a")
        desk.settle(owner, status="failed", result=None, error=content)
        assert (desk.read().result, desk.read().error) == (None, content)

    @each_content
    def test_notes_come_back_as_they_were(self, content: bytes, desk: Desk) -> None:
        owner = desk.grant("a")
        desk.note(owner, content, 1)
        desk.release(owner, error=content)
        second = desk.grant("b")
        assert (second.noted, second.revision, second.error) == (content, 1, content)

    def test_a_result_that_was_not_kept_is_not_the_result_none(self, desk: Desk) -> None:
        kept, not_kept = desk.at("kept"), desk.at("not kept")
        kept.settle(kept.grant("a"), result=b"\xc0")
        not_kept.settle(not_kept.grant("a"), result=None)
        assert (kept.read().result, not_kept.read().result) == (b"\xc0", None)

    def test_texts_come_back_as_they_were(self, desk: Desk) -> None:
        texts = {"label": "bücher:€ 'x'", "reference": '{"id": "\u2603"}', "fingerprint": "1:ü"}
        record = desk.grant("\u2603 nonce", **texts)
        assert replace(record, **texts) == record == desk.get()

    def test_large_numbers_come_back_as_they_were(self, desk: Desk) -> None:
        century = 100 * 365 * 86_400_000_000
        record = desk.grant("a", lease=century, ttl=century)
        assert record.expires == record.started + 2 * century
        assert desk.renew(record) is DONE
        assert desk.note(record, b"noted", 2**53 + 1) is DONE
        assert desk.read().revision == 2**53 + 1

    def test_a_store_that_was_closed_opens_again_with_its_records(
        self, desk: Desk, line: Line
    ) -> None:
        owner = desk.grant("a")
        line.close()
        assert desk.get() == owner
        line.close()
        assert desk.settle(owner) is DONE
        line.close()
        line.close()
        assert isinstance(desk.claim("b"), Replay)
