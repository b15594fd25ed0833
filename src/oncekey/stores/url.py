"""URLs of stores: what of them may be printed, and which cannot mean what they say.

A password that is not percent-encoded makes a URL ambiguous: in `redis://:pa/ss@host` the host is
empty, the port is `pa` and the rest is a path. Nothing of such a URL is printed.
"""

from __future__ import annotations

import re
from typing import Final

from oncekey.errors import ConfigurationError

_HOST: Final = r"(?:\[[0-9A-Fa-f:.%]*\]|[\w.%-]*)(?::\d*)?"
_URL: Final = re.compile(
    r"(?P<scheme>[A-Za-z][\w+.-]*)://(?P<user>[^@/?#\s]*@)?"
    rf"(?P<hosts>{_HOST}(?:,{_HOST})*)(?P<path>/[^@?#]*)?(?:\?(?P<query>[^@#]*))?"
)
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+-]{0,20}://")


def safe_url(url: str) -> str:
    """Return the URL without user, password and options, as it may be printed or logged.

    Of a URL that may be read in two ways return the scheme only.
    """
    found = _URL.fullmatch(url)
    if found is None:
        scheme = _SCHEME.match(url)
        return f"{scheme[0]}..." if scheme else "..."
    return f"{found['scheme']}://{found['hosts']}{found['path'] or ''}"


def has_secrets(url: str) -> bool:
    """Return whether the URL may hold a password, or something else that must not be printed."""
    found = _URL.fullmatch(url)
    return found is None or found["user"] is not None or bool(found["query"])


def check_url(url: str) -> None:
    """Raise ConfigurationError if a part of a password may have been taken for something else."""
    if _URL.fullmatch(url) is None:
        msg = (
            f"the URL {safe_url(url)!r} can be read in more than one way; percent-encode what is "
            f"special in the user name and the password: / as %2F, @ as %40, # as %23, ? as %3F, "
            f": as %3A"
        )
        raise ConfigurationError(msg)
