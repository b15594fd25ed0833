"""Options: what is said about a use, laid over what was said before."""

from types import SimpleNamespace

import pytest

from oncekey import Once
from oncekey.core.fingerprint import of_arguments, of_value
from oncekey.errors import ConfigurationError, InvalidKeyError
from oncekey.functions import ALL, UNSET, Arguments, Options, fingerprinter, made_key
from oncekey.policy import Policy

BASE = Options(policy=Policy(lease="1min", ttl="1h"))


def reconcile(record):
    """Asked, it says nothing."""


def test_nothing_said_changes_nothing():
    assert BASE.having() == BASE
    assert BASE.scope is UNSET
    assert BASE.fingerprint == ALL


def test_fields_beat_the_policy_beside_them_which_beats_the_one_before():
    made = BASE.having(policy=Policy(ttl="2h", wait="2s"), fields={"wait": "1s"}).policy
    assert made == Policy(lease="1min", ttl="2h", wait="1s")


def test_everything_that_is_said_replaces_what_was_there():
    made = BASE.having(scope="s", fingerprint=None, reconcile=reconcile, label="job", reference="r")
    assert (made.scope, made.fingerprint, made.reconcile) == ("s", None, reconcile)
    assert (made.label, made.reference) == ("job", "r")
    again = made.having(scope=None, fingerprint=("a",), label="", reference="")
    assert (again.scope, again.fingerprint, again.reconcile) == (None, ("a",), reconcile)
    assert (again.label, again.reference) == ("", "")


def test_what_is_not_said_stays():
    made = BASE.having(scope="s", fingerprint=None, label="job", reference="r").having()
    assert (made.scope, made.fingerprint) == ("s", None)
    assert (made.label, made.reference) == ("job", "r")


def test_blanks_are_filled_by_the_defaults_of_functions():
    made = BASE.terms()
    assert (made.lease, made.ttl, made.wait) == (60_000_000, 3_600_000_000, 10.0)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"policy": {"ttl": 1}}, "policy must be a Policy, but it is {'ttl': 1}"),
        ({"reconcile": "ask"}, "reconcile must be a function of the record, but it is 'ask'"),
        ({"label": 7}, "label must be a string, but it is 7"),
        ({"reference": b"r"}, "reference must be a string, but it is b'r'"),
        ({"scope": ""}, "a scope must be None or a string of 1 to 255 characters, not ''"),
        (
            {"fields": {"ttl": 0}},
            "ttl must be more than zero and at most a hundred years, but it is 0",
        ),
    ],
)
def test_a_mistake_is_told_at_once(said, words):
    with pytest.raises(ConfigurationError) as caught:
        BASE.having(**said)
    assert str(caught.value) == words


# Fingerprints


class Shop:
    def pay(self, order, note="x"): ...


ARGUMENTS = Arguments(Shop.pay)
ORDER = SimpleNamespace(id=7, total={"eur": 5}, at="now")


def bound(order=ORDER, note="x"):
    return {"self": None, "order": order, "note": note}


def test_all_arguments_but_the_object_count():
    make = fingerprinter(ALL, ARGUMENTS)
    assert make(bound(7), (), {}) == of_arguments({"order": 7, "note": "x"})
    assert make(bound(7, "y"), (), {}) != make(bound(7), (), {})


def test_none_counts_nothing():
    assert fingerprinter(None, ARGUMENTS)(bound(), (), {}) is None


def test_paths_choose_what_counts():
    make = fingerprinter(("order.id", "order.total.eur"), ARGUMENTS)
    expected = of_arguments({"order.id": 7, "order.total.eur": 5})
    assert make(bound(), (), {}) == expected
    assert make(bound(note="y"), (), {}) == expected
    other = SimpleNamespace(id=7, total={"eur": 6})
    assert make(bound(other), (), {}) != expected


def test_a_function_of_the_arguments_chooses_what_counts():
    make = fingerprinter(lambda order, *, note: (order, note), ARGUMENTS)
    assert make({}, (7,), {"note": "y"}) == of_value((7, "y"))


def test_a_function_may_choose_that_nothing_counts():
    assert fingerprinter(lambda: None, ARGUMENTS)({}, (), {}) is None


@pytest.mark.parametrize("wrong", ["order.id", ["order.id"], ("order.id", 7), 7])
def test_anything_else_is_told_how_to_choose(wrong):
    with pytest.raises(ConfigurationError) as caught:
        fingerprinter(wrong, ARGUMENTS)
    assert str(caught.value) == (
        'fingerprint must be a tuple of paths such as ("order.id", "order.total"), a function of '
        f"the arguments, or None, but it is {wrong!r}"
    )


def test_a_path_must_start_at_an_argument():
    words = "the fingerprint uses the argument 'user', but the function has: self, order, note"
    with pytest.raises(ConfigurationError) as caught:
        fingerprinter(("user.id",), ARGUMENTS)
    assert str(caught.value) == words


# Key functions


def test_a_key_function_gives_a_string_and_may_give_an_empty_one():
    assert made_key("charge:7") == "charge:7"
    assert made_key("") == ""


@pytest.mark.parametrize("made", [None, 7, b"k"])
def test_a_key_function_that_gives_something_else_is_wrong(made):
    with pytest.raises(InvalidKeyError) as caught:
        made_key(made)
    words = f"the key function returned {type(made).__name__}; it must return a string"
    assert str(caught.value) == words


def test_a_view_tells_what_surfaces_build_on():
    once = Once("memory://")
    view = once.options(ttl="1h")
    assert view.policy.ttl == "1h"
    assert view.having(label="charge").label == "charge"
    assert view.store is once.store
    assert view.store_async is once.store_async
