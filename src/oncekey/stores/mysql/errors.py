"""Explain errors of MySQL and MariaDB: what to do about them, and whether the verb happened.

A driver raises errors with a number and a text. Numbers from 2000 to 2999 are its own; without a
number, nothing was heard from the server.
"""

from __future__ import annotations

from random import uniform
from typing import Final

from oncekey.errors import ConfigurationError, StoreAccessError, StoreError

_REFUSALS: Final = {
    1044: "grant this user the rights on the database",
    1045: "give the right user and password",
    1049: "create the database, or name another one in the URL",
    1130: "let the user in from this host",
    1698: "give a user that may log in with a password",
}
_PRIVILEGES: Final = frozenset({1142, 1143, 1227, 1370})
_READ_ONLY: Final = frozenset({1290, 1792, 1836})
_NO_SUCH: Final = frozenset({1146, 1305})
"""No such table, no such procedure."""
_DEADLOCK: Final = 1213
_CONFLICTS: Final = frozenset({1205, _DEADLOCK})
"""A lock that was waited for too long, and a deadlock. The procedure has rolled back."""
_BUSY: Final = _CONFLICTS | {1040, 1203, 1226}
_INTERRUPTED: Final = frozenset({1180, 1317, 1969, 3024})
"""A commit that failed, a statement that was killed or took too long: it may have committed."""
_CUT_OFF: Final = frozenset({1053, 1077, 1079, 1152, 1158, 1159, 1160, 1161, 1927, 4031})
"""The server ended the connection: it is unknown how far the statement got."""
_NO_TIME_ZONE: Final = 1298
_FIRST: Final = 1000
_DRIVERS_OWN: Final = range(2000, 3000)

PAUSES: Final = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32)
"""The longest pauses in seconds before a statement that lost to another one is tried again."""


def number_of(error: BaseException) -> int:
    """Return the number that the server or the driver gave the error, or 0 if neither did."""
    first = error.args[0] if error.args and not isinstance(error, OSError) else 0
    return first if isinstance(first, int) and first >= _FIRST else 0


def is_refusal(error: BaseException) -> bool:
    """Return whether the server has answered, and goes on listening."""
    number = number_of(error)
    return number > 0 and number not in _DRIVERS_OWN and number not in _CUT_OFF


def breaks_off(error: BaseException) -> bool:
    """Return whether nobody knows how far the connection has come in a procedure.

    It may be inside of a transaction, and have other settings than it began with.
    """
    return not is_refusal(error) or number_of(error) in _INTERRUPTED


def explain_connect(error: BaseException, where: str) -> StoreError:
    """Return the error for a failed connection. Nothing was sent, so nothing happened."""
    text, advice = _words(error), _REFUSALS.get(number_of(error))
    if advice is not None:
        msg = f"the MySQL server at {where} refused: {text}; {advice}"
        return StoreAccessError(msg, happened=False)
    msg = f"the MySQL server at {where} cannot be reached: {text}; nothing was changed"
    return StoreError(msg, happened=False, unreachable=True)


def explain_preparing(error: BaseException, where: str) -> StoreError:
    """Return the error for a database that could not be checked or migrated before a verb."""
    told = explain(error, where)
    return told if told.happened is False else explain_connect(error, where)


def explain(error: BaseException, where: str) -> StoreError:
    """Return the error for a statement that was sent."""
    text, number = _words(error), number_of(error)
    if not is_refusal(error):
        silent = isinstance(error, TimeoutError) or "timed out" in text
        msg = f"the connection to the MySQL server at {where} was lost before the answer came"
        return StoreError(f"{msg}: {text}", happened=None, unreachable=silent)
    if number in _INTERRUPTED:
        msg = f"the MySQL server at {where} broke the statement off, which may have happened"
        return StoreError(f"{msg}: {text}", happened=None)
    if number in _PRIVILEGES:
        msg = (
            f"the user may not do this on the MySQL server at {where} ({text}); let the owner of "
            f"the database run `oncekey migrate`, and grant this user EXECUTE, SELECT, INSERT, "
            f"UPDATE and DELETE on it"
        )
        return StoreAccessError(msg, happened=False)
    if number in _READ_ONLY:
        msg = (
            f"the MySQL server at {where} is read-only, as a replica is; nothing was changed; name "
            f"the primary"
        )
        return StoreError(msg, happened=False)
    if number in _BUSY:
        msg = f"the MySQL server at {where} gave the statement up: {text}; nothing was changed"
        return StoreError(msg, happened=False)
    msg = f"the MySQL server at {where} refused the statement: {text}; nothing was changed"
    return StoreError(msg, happened=False)


def too_large(size: int, largest: int, where: str) -> StoreError:
    """Return the error for a statement that the server would not read. It was not sent."""
    msg = (
        f"the MySQL server at {where} reads statements of up to {largest} bytes, and this one has "
        f"{size}; nothing was changed; raise max_allowed_packet of the server"
    )
    return StoreError(msg, happened=False)


def check_idle(error: BaseException) -> None:
    """Raise ConfigurationError if the connection was inside of a transaction: see `schema.LENT`."""
    if number_of(error) == _NO_TIME_ZONE:
        msg = (
            "the engine lent a connection that is inside a transaction, where a claim protects "
            "nothing until it is committed; let handlers of its events commit what they begin, and "
            "leave pool_reset_on_return as it is"
        )
        raise ConfigurationError(msg) from error


def pause_after(error: BaseException, longest: float) -> float:
    """Return how long to wait before the statement is tried again, so that two do not meet again.

    Raise the error if the statement did not lose to another one.
    """
    if number_of(error) not in _CONFLICTS:
        raise error
    return uniform(0, longest)  # noqa: S311 - a pause is no secret


def is_deadlock(error: BaseException) -> bool:
    """Return whether the server ended the statement in favour of another one at once."""
    return number_of(error) == _DEADLOCK


def schema_is_gone(error: BaseException) -> bool:
    """Return whether the tables or procedures are missing: the database was created again."""
    return number_of(error) in _NO_SUCH


def _words(error: BaseException) -> str:
    """Return the text of the error, on one line and without a full stop."""
    text = str(error.args[-1]) if error.args else ""
    return " ".join(text.split()).rstrip(".") or type(error).__name__
