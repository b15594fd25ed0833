"""Explain errors of PostgreSQL: what to do about them, and whether the verb happened."""

from __future__ import annotations

from random import uniform
from typing import Final

import psycopg

from oncekey.errors import StoreAccessError, StoreError
from oncekey.stores.postgres.protocol import NoAnswerError, UnconfirmedError

# Errors before the login is complete have no SQLSTATE, only a text.
_REFUSALS: Final = (
    ("password authentication failed", "give the right user and password"),
    ("no password supplied", "add the password to the URL, or to ~/.pgpass"),
    ("authentication failed", "give a user that the server's pg_hba.conf lets in"),
    ("no pg_hba.conf entry", "add this host and user to the server's pg_hba.conf"),
    ("does not exist", "create it, or name another one in the URL"),
    ("is not permitted to log in", "give a role that may log in"),
    ("server does not support SSL", "switch SSL on there, or leave sslmode out"),
    ("certificate verify failed", "give the certificate that signed the server's (sslrootcert)"),
)

_PRIVILEGE: Final = "42501"
_READ_ONLY: Final = "25006"
_NO_SUCH: Final = frozenset({"3F000", "42P01", "42883", "42703"})
_BUSY: Final = frozenset({"55P03", "40001", "40P01", "57014"})
_CUT_OFF: Final = ("08", "57P0")
"""The server ended the connection: it is unknown how far the statement got."""

_CONFLICTS: Final = frozenset({"40001", "40P01"})
"""A serialization failure or a deadlock: the statement lost against another one."""
PAUSES: Final = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32)
"""The longest pauses in seconds before such a statement is tried again."""


def explain_connect(error: psycopg.Error, where: str) -> StoreError:
    """Return the error for a failed connection. Nothing was sent, so nothing happened."""
    text = _words(error)
    for sign, advice in _REFUSALS:
        if sign in text:
            msg = f"PostgreSQL at {where} refused: {text}; {advice}"
            return StoreAccessError(msg, happened=False)
    msg = f"PostgreSQL at {where} cannot be reached: {text}; nothing was changed"
    return StoreError(msg, happened=False, unreachable=True)


def explain(error: psycopg.Error, where: str, *, lost: bool = False) -> StoreError:
    """Return the error for a statement that was sent. `lost`: the connection broke."""
    text, state = _words(error), error.sqlstate or ""
    if lost or state.startswith(_CUT_OFF):
        silent = isinstance(error, NoAnswerError)
        msg = f"the connection to PostgreSQL at {where} was lost before the answer came: {text}"
        return StoreError(msg, happened=None, unreachable=silent)
    if state == _PRIVILEGE:
        msg = (
            f"the role may not do this in PostgreSQL at {where} ({text}); let the owner of the "
            f"database create the tables, and grant this role EXECUTE on the oncekey functions "
            f"and SELECT, INSERT, UPDATE and DELETE on oncekey_records"
        )
        return StoreAccessError(msg, happened=False)
    if state == _READ_ONLY:
        msg = (
            f"PostgreSQL at {where} is read-only, as a replica is; nothing was changed; name the "
            f"primary, or all servers with target_session_attrs=read-write"
        )
        return StoreError(msg, happened=False)
    if state in _BUSY:
        msg = f"PostgreSQL at {where} gave the statement up: {text}; nothing was changed"
        return StoreError(msg, happened=False)
    if not state and isinstance(error, psycopg.OperationalError):
        unconfirmed = isinstance(error, UnconfirmedError)
        what = "committed without its synchronous standby" if unconfirmed else "did not answer"
        return StoreError(f"PostgreSQL at {where} {what}: {text}", happened=None)
    msg = f"PostgreSQL at {where} refused the statement: {text}; nothing was changed"
    return StoreError(msg, happened=False)


def pause_after(error: psycopg.Error, longest: float) -> float:
    """Return how long to wait before the statement is tried again, so that two do not meet again.

    Raise the error if the statement did not lose against another one.
    """
    if error.sqlstate not in _CONFLICTS:
        raise error
    return uniform(0, longest)  # noqa: S311 - a pause is no secret


def elsewhere(error: psycopg.Error) -> bool:
    """Return whether another server may lead now: this one takes no writes, or says nothing."""
    return error.sqlstate == _READ_ONLY or isinstance(error, NoAnswerError)


def schema_is_gone(error: psycopg.Error) -> bool:
    """Return whether the tables or functions are missing: the database was created again."""
    return error.sqlstate in _NO_SUCH


def _words(error: psycopg.Error) -> str:
    """Return the text of the error, on one line and without a full stop."""
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__
