"""Errors of Python and of clients after which a request may have arrived, and all others."""

import asyncio
import errno
import http.client
import smtplib
import ssl
import subprocess
import urllib.error
from email.message import Message
from enum import Enum

import psycopg
import pytest
import redis
import sqlalchemy.exc

from oncekey.core.network_errors import of_a_client


def named(name, *bases):
    """A type as a client that is not installed here would define it."""
    module, _, plain = name.rpartition(".")
    return type(plain, bases or (Exception,), {"__module__": module, "__qualname__": plain})


class Code(Enum):
    UNAVAILABLE = 14
    DEADLINE_EXCEEDED = 4
    INVALID_ARGUMENT = 3


def of_grpc(code):
    error = named("grpc.aio._call.AioRpcError", named("grpc.RpcError"))()
    error.code = lambda: code
    return error


def of_asyncpg(state):
    error = named("asyncpg.exceptions.AnyError", named("asyncpg.exceptions._base.PostgresError"))()
    error.sqlstate = state
    return error


def of_sqlalchemy(cause, *, invalidated=False):
    return sqlalchemy.exc.OperationalError(
        "SELECT 1", {}, cause, connection_invalidated=invalidated
    )


LOST = [
    urllib.error.URLError("no answer"),
    http.client.IncompleteRead(b"half"),
    http.client.BadStatusLine(""),
    ssl.SSLEOFError(8, "EOF"),
    ssl.SSLZeroReturnError(6, "closed"),
    OSError(errno.EHOSTUNREACH, "no route"),
    OSError(errno.ENETDOWN, "down"),
    smtplib.SMTPServerDisconnected("gone"),
    subprocess.TimeoutExpired("pay", 5),
    asyncio.IncompleteReadError(b"half", 10),
    redis.ConnectionError("lost"),
    redis.TimeoutError("late"),
    psycopg.OperationalError("the connection is lost"),
    psycopg.errors.lookup("08006")(),
    psycopg.errors.AdminShutdown(),
    psycopg.errors.CannotConnectNow(),
    named("psycopg2.OperationalError")("the connection is lost"),
    of_asyncpg("08003"),
    of_sqlalchemy(psycopg.OperationalError("lost")),
    of_sqlalchemy(ValueError(), invalidated=True),
    of_grpc(Code.UNAVAILABLE),
    of_grpc(Code.DEADLINE_EXCEEDED),
]
ANSWERED = [
    ValueError(),
    FileNotFoundError(errno.ENOENT, "no file"),
    urllib.error.HTTPError("http://shop", 402, "declined", Message(), None),
    ssl.SSLCertVerificationError(1, "untrusted"),
    smtplib.SMTPRecipientsRefused({}),
    redis.AuthenticationError("wrong password"),
    redis.BusyLoadingError("loading"),
    redis.exceptions.MaxConnectionsError("too many"),
    redis.ResponseError("no such command"),
    psycopg.errors.SerializationFailure(),
    psycopg.errors.LockNotAvailable(),
    psycopg.errors.UniqueViolation(),
    psycopg.ProgrammingError("0 parameters passed"),
    of_asyncpg("23505"),
    of_sqlalchemy(psycopg.errors.SerializationFailure()),
    of_sqlalchemy(None),
    of_grpc(Code.INVALID_ARGUMENT),
    named("grpc.RpcError")(),
]


def name(error):
    return f"{type(error).__qualname__}-{error}"


@pytest.mark.parametrize("error", LOST, ids=name)
def test_after_these_a_request_may_have_arrived(error):
    assert of_a_client(error)


@pytest.mark.parametrize("error", ANSWERED, ids=name)
def test_after_these_it_was_answered_or_never_sent(error):
    assert not of_a_client(error)
