"""Values as users pass them: scalars of many types in lists, tuples, dicts and sets."""

import math
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=4)
    | st.binary(max_size=4)
    | st.decimals(allow_nan=False)
    | st.datetimes(timezones=st.just(UTC))
    | st.uuids()
)
small = (
    st.sampled_from(
        [None, True, False, 0, 1, -1, 0.0, 1.0, "", "0", "1", b"", b"1", Decimal(1), "int"]
    )
    | scalars
)


def nested(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.lists(inner, max_size=3).map(tuple)
            | st.dictionaries(st.text(max_size=2) | st.integers(0, 2), inner, max_size=3)
        ),
        max_leaves=6,
    )


def told_apart(value: Any) -> Any:
    """A form that is equal exactly for values of one type that say the same, worked out plainly."""
    kind = type(value)
    if kind in (list, tuple):
        return (kind.__name__, tuple(told_apart(one) for one in value))
    if kind is dict:
        pairs = [(told_apart(name), told_apart(one)) for name, one in value.items()]
        return ("dict", frozenset(pairs))
    if kind is Decimal:
        return ("Decimal", value.is_signed() and bool(value), abs(value))
    if kind is float:
        return ("float", "nan" if math.isnan(value) else value, math.copysign(1.0, value))
    if kind is datetime:
        return ("datetime", value.isoformat())
    return (kind.__name__, value)
