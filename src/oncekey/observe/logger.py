"""The logger of the package, for code that a failing handler of the user must not end.

A handler can fail: the standard one does when `sys.stderr` was closed, as in many daemons. The
error would reach a caller whose effect has happened, or end the thread that renews leases.
"""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Any, Final


class _Logger(logging.LoggerAdapter[logging.Logger]):
    """A logger whose methods do not raise."""

    def process(
        self, msg: object, kwargs: MutableMapping[str, Any]
    ) -> tuple[object, MutableMapping[str, Any]]:
        """Change nothing."""
        return msg, kwargs

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Write the line, if the handlers can."""
        with suppress(Exception):
            super().log(level, msg, *args, stacklevel=2, **kwargs)  # the line of the caller


logger: Final = _Logger(logging.getLogger("oncekey"))
