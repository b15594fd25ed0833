"""Profiles: data that a user can change."""

import pytest

from oncekey import ConfigurationError
from oncekey.http import IETF, PAYMENTS, STRIPE, WEBHOOK, Words
from oncekey.http.profiles import PROFILES, profile_of
from oncekey.policy import FUNCTION, SECOND, terms

HEADERS = {406, 411, 412, 417, 421, 423, 426, 428, 431}
"""They depend on headers, which may be others the next time."""
ELSEWHERE = {307, 308}
"""The client sends the same request to another address, with the same key."""
NEVER = {400, 401, 403, 404, 405, 408, 413, 415, 422, 425, 429} | HEADERS | ELSEWHERE


@pytest.mark.parametrize(
    ("profile", "kinds", "never"),
    [
        (IETF, {2, 3, 4}, NEVER),
        (STRIPE, {2, 3, 4, 5}, NEVER),
        (WEBHOOK, {2}, set()),
        (PAYMENTS, {2, 3, 4}, NEVER),
    ],
    ids=lambda one: getattr(one, "name", ""),
)
def test_what_is_kept(profile, kinds, never):
    kept = {status for status in range(200, 600) if profile.keeps(status)}
    assert kept == {status for status in range(200, 600) if status // 100 in kinds} - never


def test_the_lock_of_a_webhook_is_not_renewed_for_longer_than_it_lasts():
    found = terms(WEBHOOK.policy.over(FUNCTION))
    assert (found.max_run, found.lease / SECOND) == (300, 300)


def test_a_profile_is_found_by_name_and_can_be_changed():
    assert [profile_of(name) for name in PROFILES] == list(PROFILES.values())
    mine = IETF.replace(name="mine", key=("X-A", "/b"), words={"in-progress": Words(status=425)})
    assert profile_of(mine) is mine
    assert mine.keys == ("X-A", "/b")
    assert mine.says("in-progress").status == 425
    assert mine.says("key-reused").status == 422
    assert IETF.key == "Idempotency-Key"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"key": ""}, "key must name"),
        ({"key": ()}, "key must name"),
        ({"key": "/"}, "JSON pointer"),
        ({"fingerprint": ("/",)}, "JSON pointer"),
        ({"kept": ("200",)}, "kinds of responses"),
        ({"replay": "some"}, "'exact' or 'status'"),
        ({"colour": "red"}, "no such field"),
    ],
)
def test_a_wrong_profile_is_refused(changes, words):
    with pytest.raises(ConfigurationError, match=words):
        IETF.replace(**changes)


@pytest.mark.parametrize("profile", ["paypal", None, 7])
def test_an_unknown_profile_is_refused(profile):
    with pytest.raises(ConfigurationError, match="ietf, stripe, webhook, payments"):
        profile_of(profile)
