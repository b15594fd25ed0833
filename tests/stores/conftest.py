"""What the tests of the stores share."""

from tests.fixtures import until, until_async

__all__ = ["until", "until_async"]
