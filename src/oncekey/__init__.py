"""Oncekey: an operation that arrives twice happens once, and whoever asks twice gets one answer."""

from oncekey.attempt import AsyncAttempt, Attempt, current, current_async
from oncekey.core.decide import Done, NotDone, Unknown
from oncekey.core.record import Record
from oncekey.engine.run_base import Outcome
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
    StoreAccessError,
    StoreError,
    UnreadableError,
)
from oncekey.once import Once
from oncekey.policy import Policy

__all__ = [
    "AsyncAttempt",
    "Attempt",
    "ConfigurationError",
    "Done",
    "InProgressError",
    "InvalidKeyError",
    "KeyReusedError",
    "LeaseLostError",
    "NotDone",
    "NotRecordedError",
    "Once",
    "OncekeyError",
    "Outcome",
    "OutcomeUnknownError",
    "Policy",
    "Record",
    "RememberedError",
    "ResultNotKeptError",
    "StoreAccessError",
    "StoreError",
    "Unknown",
    "UnreadableError",
    "current",
    "current_async",
]

__version__ = "0.1.0"
