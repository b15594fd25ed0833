"""How the user's function is told of a dead letter."""

from __future__ import annotations

import logging
from typing import Final

from oncekey.compat import invoke_async, pause_async
from oncekey.messages.config import DeadLetterBox
from oncekey.messages.rules import DeadLetter

_log = logging.getLogger("oncekey")

PAUSES: Final = (0.1, 0.5, 2.0)
"""Seconds between the tries."""


async def tell(box: DeadLetterBox | None, letter: DeadLetter) -> None:
    """Call the function with the dead letter, a few times if it raises, then give up.

    A message must not be delivered for ever because nobody can be told of its death. It is marked
    as dead all the same, and the log has what the function should have got.
    """
    if box is None:
        return
    for seconds in PAUSES:
        try:
            await invoke_async(box, letter)
        except Exception as error:  # noqa: BLE001 - it is the user's
            _log.warning("the dead letter of %s could not be told: %r", letter.key, error)
            await pause_async(seconds)
        else:
            return
    try:
        await invoke_async(box, letter)
    except Exception:  # noqa: BLE001 - as above
        _log.exception(
            "the dead letter of %s was given up; %s failed %d times with %s",
            letter.key,
            letter.consumer,
            letter.attempts,
            letter.error,
        )
