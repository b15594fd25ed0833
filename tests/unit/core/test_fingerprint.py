"""Fingerprints: equal where two calls ask for the same thing, different where they do not."""

import os
import subprocess
import sys
from collections import OrderedDict, namedtuple
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, Flag, IntEnum, IntFlag, StrEnum, auto
from hashlib import sha256
from pathlib import PosixPath, PurePosixPath
from uuid import UUID

import attrs
import msgspec
import pydantic
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from oncekey.core import fingerprint
from oncekey.core.fingerprint import differ, of_arguments, of_json, of_value
from oncekey.errors import ConfigurationError

Pair = namedtuple("Pair", "x y")  # noqa: PYI024 - an old one is what we want to see


class Colour(Enum):
    RED = 1
    BLUE = 2


class Shade(Enum):
    RED = 1


class Level(IntEnum):
    LOW = 1


class Word(StrEnum):
    A = "a"


class Rights(Flag):
    READ = auto()
    WRITE = auto()


class Bits(IntFlag):
    ONE = 1


@dataclass
class Order:
    number: int
    lines: list[str]
    cached: int = field(default=0, compare=False)


@dataclass
class Invoice:
    number: int
    lines: list[str]


class Receipt(msgspec.Struct):
    number: int


@attrs.define
class Parcel:
    number: int
    weight: float = attrs.field(default=0.0, eq=False)


class Model(pydantic.BaseModel):
    number: int


class Open(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    number: int


class Name(str):
    __slots__ = ()


class Count(int):
    pass


class Ratio(float):
    pass


class Raw(bytes):
    pass


class Bag(list):  # type: ignore[type-arg]  # any will do
    pass


APART = [
    None,
    True,
    False,
    0,
    1,
    -1,
    2**63,
    2**64,
    2**64 + 1,
    -(2**63),
    -(2**63) - 1,
    str(2**64),
    0.5,
    1.0,
    float("inf"),
    "",
    "1",
    "None",
    b"",
    b"1",
    Decimal(1),
    Decimal(-1),
    Decimal("1.1"),
    Decimal(10),
    Decimal("NaN"),
    Decimal("Infinity"),
    [],
    [1],
    (1,),
    [1, 2],
    [2, 1],
    [[1], 2],
    [[1, 2]],
    ["list", [1]],
    {},
    {"a": 1},
    {"a": 2},
    {"b": 1},
    {1: "a"},
    {"1": "a"},
    {"a": {"b": 1}},
    set(),
    {1},
    {1, 2},
    {"1"},
    Colour.RED,
    Colour.BLUE,
    Shade.RED,
    Level.LOW,
    Word.A,
    Rights.READ,
    Rights.READ | Rights.WRITE,
    date(2026, 1, 2),
    datetime(2026, 1, 2),  # noqa: DTZ001 - a naive one is not the same
    datetime(2026, 1, 2, tzinfo=UTC),
    time(1, 2),
    "2026-01-02",
    timedelta(seconds=1),
    timedelta(days=1),
    timedelta(microseconds=1),
    UUID(int=1),
    str(UUID(int=1)),
    PurePosixPath("/a"),
    "/a",
    Name("1"),
    Count(1),
    Ratio(1.0),
    Raw(b"1"),
    Bag([1]),
    Pair(1, 2),
    (1, 2),
    Order(1, ["a"]),
    Order(2, ["a"]),
    Order(1, ["b"]),
    Invoice(1, ["a"]),
    Receipt(1),
    Receipt(2),
    Parcel(1),
    Parcel(2),
    Model(number=1),
    Model(number=2),
    {"number": 1},
]


def test_values_that_are_not_the_same_differ_and_types_count():
    seen = {}
    for value in APART:
        made = of_value(value)
        assert made not in seen, f"{value!r} looks like {seen[made]!r}"
        seen[made] = value


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({"a": {"x": 1, "y": [1]}}, {"a": OrderedDict(y=[1], x=1)}),
        ({3, 1, 2}, {2, 3, 1}),
        ({1, 2}, frozenset({2, 1})),
        (Decimal("1.0"), Decimal("1.00")),
        (Decimal(100), Decimal("1e2")),
        (Decimal("-0"), Decimal(0)),
        (Decimal("0.00"), Decimal(0)),
        (b"a", bytearray(b"a")),
        (b"a", memoryview(b"a")),
        (Order(1, ["a"], cached=1), Order(1, ["a"], cached=2)),
        (Parcel(1, weight=1), Parcel(1, weight=2)),
        (Receipt(1), Receipt(1)),
        (Model(number=1), Model(number=1)),
        (Pair(1, 2), Pair(1, 2)),
        ([Order(1, []), {"a": (Colour.RED,)}], [Order(1, []), {"a": (Colour.RED,)}]),
    ],
)
def test_values_that_are_the_same_are_alike(one, other):
    assert of_value(one) == of_value(other)


def test_a_path_counts_by_what_it_says():
    assert of_value(PurePosixPath("/a")) == of_value(PosixPath("/a"))
    assert of_value(PurePosixPath("/a")) != of_value(PurePosixPath("/b"))


def test_combined_and_empty_flags_stay_apart():
    made = [of_value(flag) for flag in (Bits(0), Bits(8), Bits(16), Bits(9), Rights(0))]
    assert len(set(made)) == len(made)


def test_what_a_model_takes_besides_its_fields_counts():
    assert of_value(Open(number=1, note="a")) != of_value(Open(number=1, note="b"))


scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.binary()
    | st.decimals(allow_nan=False)
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text("ab"), inner, max_size=3)
    ),
    max_leaves=8,
)


def same(one, other):
    """Equal, and of the same types all the way down."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float):
        return str(one) == str(other)  # 0.0 and -0.0 are told apart
    return bool(one == other)


@given(values, values)
def test_two_values_have_one_fingerprint_only_if_they_are_the_same(one, other):
    assert (of_value(one) == of_value(other)) == same(one, other)


@given(st.lists(st.tuples(st.text("abc"), values), max_size=4, unique_by=lambda pair: pair[0]))
def test_the_order_of_keys_does_not_count(items):
    assert of_value(dict(items)) == of_value(dict(reversed(items)))


# Arguments


def test_the_names_and_the_values_of_arguments_count():
    made = of_arguments({"a": 1, "b": [1]})
    assert made == of_arguments({"a": 1, "b": [1]})
    assert made != of_arguments({"a": 1, "c": [1]})
    assert made != of_arguments({"a": 1, "b": [2]})
    assert of_arguments({"a": "b", "c": 1}) != of_arguments({"a": 1, "b": "c"})


class Strange:
    pass


@pytest.mark.parametrize("value", [Strange(), [Strange()], {"x": (Strange(),)}, {Strange: 1}])
def test_an_argument_without_a_canonical_form_is_named_with_what_to_do(value):
    with pytest.raises(ConfigurationError) as caught:
        of_arguments({"n": 1, "order": value})
    kind = (
        "builtins.type" if isinstance(value, dict) and Strange in value else f"{__name__}.Strange"
    )
    assert str(caught.value) == (
        f"the argument 'order' cannot be fingerprinted ({kind} has no canonical form); "
        'choose what counts with fingerprint=("order.id",), a function, or None'
    )


def endless_list():
    value = []
    value.append(value)
    return value


def endless_dict():
    value = {}
    value["a"] = [value]
    return value


@pytest.mark.parametrize("value", [endless_list(), endless_dict()], ids=["list", "dict"])
def test_a_value_that_contains_itself_is_refused(value):
    why = "it contains itself or is nested too deeply"
    with pytest.raises(ConfigurationError, match=rf"'order' cannot be .* \({why}\)"):
        of_arguments({"order": value})
    with pytest.raises(ConfigurationError) as caught:
        of_value(value)
    words = f"the fingerprint cannot be made ({why}); pass plain values or bytes"
    assert str(caught.value) == words


def test_a_value_without_a_canonical_form_is_refused():
    with pytest.raises(ConfigurationError) as caught:
        of_value(Strange())
    assert str(caught.value) == (
        f"the fingerprint cannot be made ({__name__}.Strange has no canonical form); "
        "pass plain values or bytes"
    )


@pytest.mark.parametrize("value", ["\ud800", ["\ud800"], {"\ud800": 1}])
def test_a_text_that_cannot_be_written_down_is_named_like_any_other(value):
    with pytest.raises(ConfigurationError, match="the argument 'name' cannot be fingerprinted"):
        of_arguments({"name": value})
    with pytest.raises(ConfigurationError, match="the fingerprint cannot be made"):
        of_value(value)


# JSON


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b"100", b"100.0"),
        (b"100", b"1e2"),
        (b"100", b"1E+2"),
        (b"100", b"1000e-1"),
        (b"0", b"-0"),
        (b"0", b"-0.0"),
        (b"0", b"0e10"),
        (b'{"a":1,"b":2}', b' { "b" : 2.0 ,\n "a" : 1 } '),
        (b'"\\u00e9\\n"', '"é\\n"'.encode()),
        (b'[{"a":[1,{"x":1,"y":2}]}]', b'[{"a":[1.00,{"y":2,"x":1}]}]'),
        (b"1e400", b"10e399"),
        (b"123456789012345678901234567890", b"12345678901234567890123456789e1"),
    ],
)
def test_texts_that_mean_the_same_are_alike(one, other):
    assert of_json(one) == of_json(other)


def test_texts_that_mean_something_else_differ():
    bodies = [
        b"1",
        b"-1",
        b'"1"',
        b"true",
        b"false",
        b"null",
        b"[1]",
        b"[]",
        b"{}",
        b'""',
        b"0.1",
        b"0.1000000000000000000000000000000000000001",
        b"0.1000000000000000000000000000000000000002",
        b"123456789012345678901234567890",
        b"123456789012345678901234567891",
        b"1e400",
        b"1e-400",
        b"[1,2]",
        b"[2,1]",
        b"[[1],2]",
        b'{"a":1}',
        b'{"a":"1"}',
        b'{"b":1}',
        b'["n","1e0"]',
        b'[["n","1e0"]]',
    ]  # fmt: skip - a list of texts, not a column
    made = {of_json(body) for body in bodies}
    assert len(made) == len(bodies)


decimals = st.builds(
    lambda sign, digits, exponent: Decimal((sign, tuple(digits), exponent)),
    st.integers(0, 1),
    st.lists(st.integers(0, 9), min_size=1, max_size=40),
    st.integers(-60, 60),
)


def written(number, *, as_exponent):
    """The number as a JSON text, with an exponent or without."""
    if not as_exponent:
        return format(number, "f")
    sign, digits, exponent = number.as_tuple()
    text = "".join(map(str, digits)).lstrip("0") or "0"
    return f"{'-' if sign else ''}{text}e{exponent}"


@given(decimals, decimals)
def test_numbers_are_compared_by_what_they_are_worth(one, other):
    long, short = written(one, as_exponent=False), written(one, as_exponent=True)
    assert of_json(long.encode()) == of_json(short.encode())
    alike = of_json(long.encode()) == of_json(written(other, as_exponent=True).encode())
    assert alike == (one == other)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab\n"), inner, max_size=3),
    max_leaves=8,
)


@given(json_values)
def test_white_space_and_the_order_of_keys_do_not_count(value):
    def turned(part):
        if isinstance(part, dict):
            return {key: turned(part[key]) for key in reversed(part)}
        return [turned(item) for item in part] if isinstance(part, list) else part

    tight = msgspec.json.encode(value)
    loose = msgspec.json.format(msgspec.json.encode(turned(value)), indent=3)
    assert of_json(tight) == of_json(loose)


@given(json_values, json_values)
def test_two_texts_are_alike_only_if_their_values_are(one, other):
    assume(not same(one, other))
    assert of_json(msgspec.json.encode(one)) != of_json(msgspec.json.encode(other))


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"NaN", b"{'a': 1}", b"[1,]", b"01", b'"\xff"', b"1 2", b"\xff", b"nope"],
)
def test_what_is_not_json_is_a_value_error(body):
    with pytest.raises(ValueError, match=r"."):
        of_json(body)


@pytest.mark.parametrize(
    "body", [b"1e99999999999999999999", b"[" * 100_000 + b"]" * 100_000], ids=["exponent", "depth"]
)
def test_json_that_is_too_much_is_a_value_error(body):
    with pytest.raises(ValueError, match=r"."):
        of_json(body)


def test_a_json_text_is_never_taken_for_a_value():
    assert of_json(b"1") != of_value(1)
    assert of_json(b'"a"') != of_value("a")


# Comparing


def test_only_known_fingerprints_of_one_version_differ():
    one, other = of_value(1), of_value(2)
    assert differ(one, other)
    assert not differ(one, one)
    assert not differ(one, None)
    assert not differ(None, one)
    assert not differ(None, None)
    assert not differ(one, "2:" + other.partition(":")[2])
    assert differ("2:a", "2:b")


# The form is kept in stores: whoever changes it must change VERSION as well.

GOLDEN = {
    "none": (None, "1:e4ff5e7d7a7f08e9800a3e25cb774533cb20040df30b6ba10f956f9acd0eb3f7"),
    "plain": (
        {"order": [1, True, 1.5, "a", b"b", None]},
        "1:6a437dc534153396bfdc15050e4647bbb30eb9f16315d0a6909c1de50436158a",
    ),
    "numbers": (
        [2**70, -(2**70), Decimal("1.50"), Decimal("NaN")],
        "1:08bb2698c063cbb36f96cd386dc50c81701472e8b40f464f9353a43689b02125",
    ),
    "times": (
        [datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), timedelta(days=1, seconds=2)],
        "1:1dd5f7537dee213e4e0acab3f08e3763809e14a510a451e4161d8adf491512c4",
    ),
    "sets": (
        [{"a", "b", "c"}, (1,), UUID(int=5)],
        "1:7d236a8e7e6689b260429a5be8a001170becee5f7a05728e2957384dacf98f16",
    ),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_the_form_stays_what_it_was(name):
    value, expected = GOLDEN[name]
    assert fingerprint.VERSION == "1"
    assert of_value(value) == expected


def test_the_forms_of_arguments_and_json_stay_what_they_were():
    assert (
        of_arguments({"order": "A-7", "total": Decimal("9.90")})
        == "1:b074a5cf298d8ae7bb892b245b897acc529c063734ef66e30b18d72f14fd46f7"
    )
    assert (
        of_json(b'{"amount": 100.0, "to": ["x", null, true]}')
        == "1:0c58968dffeda75b51f524afe6f06bb21f98ac8067e80a14f5e8a31e607a68aa"
    )


SCRIPT = """
from decimal import Decimal
from oncekey.core.fingerprint import of_value
print(of_value({"s": {"a", "b", "c", 1, 2.5, None}, "f": frozenset("xyz"), "d": Decimal("1.10")}))
"""


def test_another_process_makes_the_same_fingerprints():
    made = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        for seed in ("1", "2", "77")
    }
    value = {"s": {"a", "b", "c", 1, 2.5, None}, "f": frozenset("xyz"), "d": Decimal("1.1")}
    assert made == {of_value(value)}


def test_the_argument_that_cannot_be_written_down_is_named_among_others():
    with pytest.raises(ConfigurationError, match="'second'"):
        of_arguments({"first": "fine", "second": "\ud800", "third": 3})


def test_long_integers_are_found_wherever_they_stand():
    long, short = b"1" + b"0" * 30, b"1e30"
    inside = b'{"a": [1, {"b": %s}], "c": "x", "d": 2}'
    assert of_json(inside % long) == of_json(inside % short)
    assert of_json(inside % long) != of_json(inside % b"1e31")


def test_an_integer_that_is_too_long_for_msgpack_is_written_in_digits_among_any_arguments():
    long = of_arguments({"order": "a", "amount": 2**64})
    assert long == of_arguments({"order": "a", "amount": 2**64})
    form = ["order", "a", "amount", ["int", str(2**64)]]
    assert long == f"1:{sha256(msgspec.msgpack.encode(form)).hexdigest()}"


def test_half_a_character_beside_a_long_integer_is_named():
    with pytest.raises(ConfigurationError, match="the argument 'note' cannot be fingerprinted"):
        of_arguments({"amount": 2**64, "note": "\ud800"})
