"""What users can import changes only where somebody meant it."""

from tools.public_names import KEPT, public_names


def test_the_public_names_are_those_that_are_written_down():
    kept = KEPT.read_text("utf-8").splitlines()
    assert list(public_names()) == kept, "if it is meant: python -m tools.public_names --write"
