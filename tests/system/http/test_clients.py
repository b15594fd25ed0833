"""The page about clients and signers says what they do."""

import pytest

from tests.system.http.tried import PAGE, found, in_page, tables

pytestmark = pytest.mark.xdist_group("http")  # one process makes the environment


@pytest.fixture(scope="module")
def said():
    return found()


def test_the_page_says_what_they_did(said):
    again = "python -m tests.system.http.tried --write writes it again"
    assert in_page(PAGE.read_text("utf-8")) == tables(said), again


def test_whoever_sends_a_key_twice_gets_one_answer(said):
    for name, one in said["clients"].items():
        assert one["replayed"], name
        assert one["after_loss"], name
        assert one["other"] in {400, 422}, name


def test_what_providers_sign_is_taken_once_and_not_when_it_was_changed(said):
    for name, one in said["signers"].items():
        assert one["statuses"] == [204, 200, 401], name
        assert one["runs"] == 1, name
