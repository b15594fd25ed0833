"""Markers and plain results have scopes of their own."""

import pytest

from oncekey.core.codec import PLAIN
from oncekey.errors import ConfigurationError, InvalidKeyError
from oncekey.markers import check_call, result_call, result_of
from oncekey.policy import FUNCTION, Policy, terms

TERMS = terms(FUNCTION)


@pytest.mark.parametrize(
    ("make", "kind"), [(check_call, "oncekey.check"), (result_call, "oncekey.result")]
)
def test_a_marker_and_a_result_never_meet_each_other_nor_a_call(make, kind):
    call = make(None, "k", TERMS)
    assert (call.identity, call.label, call.terms) == ((kind, "k"), kind, TERMS)
    assert make("shop", "k", TERMS).identity == (f"{kind}:shop", "k")
    assert call.fingerprint is None


@pytest.mark.parametrize("make", [check_call, result_call])
def test_the_key_is_checked(make):
    with pytest.raises(InvalidKeyError):
        make(None, "", TERMS)


@pytest.mark.parametrize("value", [None, 0, {"a": [1]}])
def test_a_plain_result_is_kept(value):
    assert result_of(result_call(None, "k", TERMS), value) == PLAIN.encode(value)


@pytest.mark.parametrize("value", [(1,), object(), {1}])
def test_a_result_must_be_plain(value):
    with pytest.raises(
        ConfigurationError,
        match=r"^keep_result takes plain values \(str, int, list, dict \.\.\.\): ",
    ):
        result_of(result_call(None, "k", TERMS), value)


def test_a_result_must_be_small_enough():
    small = terms(Policy(max_result=10).over(FUNCTION))
    call = result_call(None, "k", small)
    assert len(result_of(call, "x" * 9)) == 10
    with pytest.raises(ConfigurationError) as caught:
        result_of(call, "x" * 10)
    assert str(caught.value) == "the result has 11 bytes, more than max_result allows"
