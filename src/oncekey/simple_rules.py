"""Where markers and plain results are kept, for both colours of `simple.py`."""

from __future__ import annotations

from oncekey.core.call import Call
from oncekey.core.codec import NotKeepableError
from oncekey.core.key import checked_key
from oncekey.errors import ConfigurationError
from oncekey.policy import Terms


def check_call(scope: str | None, key: str, terms: Terms) -> Call:
    """The marker of a key."""
    return _call("oncekey.check", scope, key, terms)


def result_call(scope: str | None, key: str, terms: Terms) -> Call:
    """The plain result of a key."""
    return _call("oncekey.result", scope, key, terms)


def result_of(call: Call, value: object) -> bytes:
    """The bytes of a plain result, which must be plain and small enough."""
    try:
        data = call.codec.encode(value)
    except NotKeepableError as error:
        msg = f"keep_result takes plain values (str, int, list, dict ...): {error}"
        raise ConfigurationError(msg) from None
    if len(data) > call.terms.max_result:
        msg = f"the result has {len(data)} bytes, more than max_result allows"
        raise ConfigurationError(msg)
    return data


def _call(kind: str, scope: str | None, key: str, terms: Terms) -> Call:
    place = kind if scope is None else f"{kind}:{scope}"
    return Call(scope=place, key=checked_key(key), terms=terms, label=kind, surface="mark")
