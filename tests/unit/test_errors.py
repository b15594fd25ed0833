"""The errors: one tree, facts as attributes, and a status that a server may answer with."""

import copy
import pickle
import re

import pytest

import oncekey
from oncekey import errors
from oncekey.errors import (
    ConfigurationError,
    InProgressError,
    InvalidKeyError,
    KeyReusedError,
    LeaseLostError,
    NotRecordedError,
    OncekeyError,
    OutcomeUnknownError,
    RememberedError,
    ResultNotKeptError,
    StoreError,
    UnreadableError,
)

EVERY = [
    (ConfigurationError("no store"), 500),
    (InvalidKeyError("empty"), 400),
    (KeyReusedError("reused", key="k", scope="s"), 422),
    (InProgressError("busy", key="k", scope="s", retry_after=1.5), 409),
    (OutcomeUnknownError("held", key="k", scope="s"), 409),
    (LeaseLostError("lost", key="k", scope="s"), 409),
    (RememberedError("no funds", key="k", scope="s", type_name="CardDeclined"), 500),
    (ResultNotKeptError("too large", key="k", scope="s"), 409),
    (UnreadableError("other type", key="k", scope="s"), 500),
    (StoreError("down", happened=False), 503),
    (NotRecordedError("not yet", key="k", scope="s", result={"id": 7}), 503),
]
NAMES = [type(error).__name__ for error, _ in EVERY]


@pytest.mark.parametrize(("error", "status"), EVERY, ids=NAMES)
def test_each_error_belongs_to_the_tree_and_hints_at_a_status(error, status):
    assert isinstance(error, OncekeyError)
    assert error.status_hint == status


@pytest.mark.parametrize(("error", "status"), EVERY, ids=NAMES)
def test_each_error_can_be_imported_from_the_package(error, status):
    assert getattr(oncekey, type(error).__name__) is type(error)


def test_the_drawing_shows_exactly_the_errors_there_are():
    drawn = re.findall(r"[├└]── (\w+)", errors.__doc__ or "")
    public = {
        name
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, OncekeyError) and name[0] != "_"
    }
    assert sorted(drawn) == sorted(public - {"OncekeyError"})


def test_an_error_about_a_key_names_it():
    for error, _ in EVERY:
        if hasattr(error, "key"):
            assert (error.key, error.scope) == ("k", "s")


def test_a_key_without_a_scope_has_none():
    assert KeyReusedError("reused", key="k").scope is None
    assert InProgressError("busy", key="k", retry_after=1).scope is None
    assert RememberedError("x", key="k", type_name="T").scope is None
    assert NotRecordedError("x", key="k", result=1).scope is None


def test_facts_are_attributes():
    assert InProgressError("busy", key="k", retry_after=1.5).retry_after == 1.5
    assert NotRecordedError("not yet", key="k", result=[1]).result == [1]
    assert StoreError("down", happened=False).happened is False
    assert StoreError("no reply").happened is None


def test_a_remembered_error_says_what_was_raised_then():
    error = RememberedError("no funds", key="k", type_name="CardDeclined")
    assert (error.type_name, error.message) == ("CardDeclined", "no funds")
    assert str(error) == "CardDeclined: no funds"


@pytest.mark.parametrize(("error", "status"), EVERY, ids=NAMES)
@pytest.mark.parametrize("again", [lambda e: pickle.loads(pickle.dumps(e)), copy.copy])  # noqa: S301 - our own bytes
def test_each_error_survives_the_way_between_processes(error, status, again):
    other = again(error)
    assert type(other) is type(error)
    assert str(other) == str(error)
    assert vars(other) == vars(error)
