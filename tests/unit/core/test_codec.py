"""Results and exceptions as bytes: back as what they were, or not kept at all."""

import functools
import typing
from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any, NamedTuple, Optional, TypedDict
from uuid import UUID

import attrs
import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncekey.core.codec import (
    LARGEST_ERROR,
    PLAIN,
    Codec,
    NotKeepableError,
    UnreadableBytesError,
    codec_of,
    decode_error,
    encode_error,
    error_words,
)

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text("ab") | st.integers(0, 9), inner, max_size=3)
    ),
    max_leaves=10,
)


def same(one, other):
    """Equal, and of the same types all the way down."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


@given(plain)
def test_plain_values_come_back_as_they_are(value):
    assert same(PLAIN.decode(PLAIN.encode(value)), value)


@pytest.mark.parametrize("value", [None, 0, "", {}, [], False, 0.0, b""])
def test_a_falsy_result_is_a_result(value):
    data = PLAIN.encode(value)
    assert data
    assert same(PLAIN.decode(data), value)


@dataclass
class Line:
    name: str
    price: Decimal


@dataclass
class Order:
    number: int
    lines: list[Line]
    ordered: datetime


@dataclass
class RushOrder(Order):
    pass


class Receipt(msgspec.Struct):
    number: int
    paid: bool = True


@attrs.define
class Parcel:
    weight: float
    to: str | None = None


class Address(TypedDict):
    city: str
    code: int


class Point(NamedTuple):
    x: int
    y: int


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class Item(pydantic.BaseModel):
    name: str
    price: Decimal
    tags: set[str] = set()


class Basket(pydantic.BaseModel):
    items: list[Item]
    at: datetime
    raw: bytes = b""


NAIVE = datetime(2026, 1, 2, 3, 4, 5, 678901)  # noqa: DTZ001 - a naive one has to come back naive
AWARE = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
FAR = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone(timedelta(hours=7)))
ITEM = Item(name="pen", price=Decimal("1.50"), tags={"a"})

TYPED: list[tuple[Any, Any]] = [
    (Order, Order(7, [Line("pen", Decimal("1.50"))], AWARE)),
    (list[Order], [Order(7, [], AWARE), Order(8, [], NAIVE)]),
    (Receipt, Receipt(7, paid=False)),
    (Parcel, Parcel(1.5, "here")),
    (Address, {"city": "Ulm", "code": 89073}),
    (Point, Point(1, 2)),
    (datetime, NAIVE),
    (datetime, AWARE),
    (datetime, FAR),
    (date, date(2026, 1, 2)),
    (time, time(3, 4, 5)),
    (timedelta, timedelta(days=1, microseconds=5)),
    (Decimal, Decimal("1.10")),
    (UUID, UUID(int=7)),
    (Colour, Colour.RED),
    (Level, Level.HIGH),
    (Item, ITEM),
    (Basket, Basket(items=[ITEM, ITEM], at=AWARE, raw=b"\x00\xff")),
    (list[Item], [ITEM]),
    (dict[str, Item], {"a": ITEM}),
    (Optional[Item], None),  # noqa: UP045 - the old spelling must work too
    (Optional[Item], ITEM),  # noqa: UP045 - the old spelling must work too
    (Order | None, None),
    (Order | None, Order(7, [], AWARE)),
    (tuple[int, str], (1, "a")),
    (tuple[int, ...], (1, 2, 3)),
    (set[int], {1, 2}),
    (frozenset[str], frozenset({"a"})),
    (bytearray, bytearray(b"a")),
    (type(None), None),
    (int, 5),
    (float, 0.5),
    (bool, False),
    (str, ""),
    (int | str, "a"),
    (dict[int, list[tuple[int, int]]], {1: [(2, 3)]}),
    (typing.Annotated[int, "meta"], 5),
]


@pytest.mark.parametrize(("annotation", "value"), TYPED)
def test_an_annotated_result_comes_back_as_its_type(annotation, value):
    codec = Codec(annotation)
    back = codec.decode(codec.encode(value))
    assert type(back) is type(value)
    assert back == value
    assert codec.typed


@pytest.mark.parametrize(
    ("annotation", "value", "words"),
    [
        (Any, (1, 2), "tuple would come back as list"),
        (Any, {1}, "set would come back as list"),
        (Any, Order(1, [], AWARE), "Order would come back as dict"),
        (Any, Decimal(1), "Decimal would come back as str"),
        (Any, [1, (2,)], "a list would not come back equal"),
        (Any, {"a": {"b": (2,)}}, "a dict would not come back equal"),
        (Any, UUID(int=1), "UUID would come back as str"),
        (Any, OrderedDict(a=1), "OrderedDict would come back as dict"),
        (object, (1, 2), "tuple would come back as list"),
        (Order, RushOrder(1, [], AWARE), "RushOrder would come back as Order"),
        (list[Order], [RushOrder(1, [], AWARE)], "a list would not come back equal"),
        (float, 1, "int would come back as float"),
        (list[int], (1,), "tuple would come back as list"),
        (dict[str, float], {"a": 1}, "a dict would not come back equal"),
    ],
)
def test_a_value_that_would_come_back_as_something_else_is_not_kept(annotation, value, words):
    with pytest.raises(NotKeepableError) as caught:
        Codec(annotation).encode(value)
    assert str(caught.value) == words


class Strange:
    pass


class Sometimes(pydantic.BaseModel):
    shown: int = 1
    hidden: int = pydantic.Field(default=0, exclude=True)


@dataclass
class Unequal:
    x: int

    def __eq__(self, other):
        return False

    __hash__ = None  # type: ignore[assignment]  # nothing that has to be hashed


@pytest.mark.parametrize(
    ("annotation", "value", "words"),
    [
        (Any, Strange(), "Strange cannot be encoded"),
        (Strange, Strange(), "Strange cannot be encoded"),
        (Any, 2**64, "."),
        (int, "not a number", "Expected `int`, got `str`"),
        (Sometimes, Sometimes(hidden=5), "a Sometimes would not come back equal"),
    ],
)
def test_a_value_that_cannot_make_the_way_is_not_kept(annotation, value, words):
    with pytest.raises(NotKeepableError, match=words):
        Codec(annotation).encode(value)


def test_a_value_that_contains_itself_is_not_kept():
    value = []
    value.append(value)
    with pytest.raises(NotKeepableError):
        PLAIN.encode(value)


class Holder:
    """Something that says how it is dumped, and not how it is loaded."""

    def model_dump(self, mode):
        assert mode == "python"
        return {"a": 1}


def test_a_type_that_cannot_be_loaded_is_not_kept():
    with pytest.raises(NotKeepableError, match="Holder cannot be decoded"):
        Codec(Holder).encode(Holder())


class Loaded(Holder):
    """Comes back, but compares by identity: its form decides whether it is the same."""

    @classmethod
    def model_validate(cls, value):
        assert value == {"a": 1}
        return cls()


def test_a_type_without_equality_is_compared_by_its_form():
    assert Codec(Unequal).decode(Codec(Unequal).encode(Unequal(5))).x == 5
    assert isinstance(Codec(Loaded).decode(Codec(Loaded).encode(Loaded())), Loaded)


class Quarrelsome(Loaded):
    def __eq__(self, other):
        msg = "compare me not"
        raise RuntimeError(msg)

    __hash__ = None  # type: ignore[assignment]  # nothing that has to be hashed


def test_a_value_that_refuses_to_be_compared_is_not_kept():
    with pytest.raises(NotKeepableError, match="compare me not"):
        Codec(Quarrelsome).encode(Quarrelsome())


def test_an_error_that_a_signal_raises_while_encoding_loses_no_result():
    raised = []

    @dataclass
    class Receipt:
        number: int

        def __eq__(self, other):
            if not raised:
                raised.append(1)
                raise TimeoutError
            return self.number == other.number

        __hash__ = None

    codec = Codec(Receipt)
    assert codec.decode(codec.encode(Receipt(7))).number == 7
    assert raised


@pytest.mark.parametrize("annotation", [Any, float, list[float], dict[str, float]])
def test_not_a_number_is_kept(annotation):
    nan = float("nan")
    value = nan
    if annotation == list[float]:
        value = [nan]
    if annotation == dict[str, float]:
        value = {"a": nan}
    assert str(Codec(annotation).decode(Codec(annotation).encode(value))) == str(value)


def test_every_duplicate_has_a_copy_of_its_own():
    codec = Codec(list[Order])
    data = codec.encode([Order(7, [], AWARE)])
    one, other = codec.decode(data), codec.decode(data)
    one[0].lines.append("changed")
    one.append("more")
    assert other == [Order(7, [], AWARE)]


@pytest.mark.parametrize(
    ("annotation", "data"),
    [
        (Any, b""),
        (Any, b"\xc1"),
        (Any, b"\x93\x01"),
        (int, PLAIN.encode("text")),
        (Order, PLAIN.encode({"number": 1})),
        (Item, PLAIN.encode({"name": "pen"})),
        (Strange, PLAIN.encode({})),
    ],
)
def test_bytes_that_do_not_fit_are_an_error_of_their_own(annotation, data):
    with pytest.raises(UnreadableBytesError):
        Codec(annotation).decode(data)


# Which codec a function has


def test_a_function_without_a_return_annotation_has_plain_results():
    def nothing(): ...
    def argument_only(x: int): ...

    assert codec_of(nothing) is PLAIN
    assert codec_of(argument_only) is PLAIN
    assert not PLAIN.typed


def test_the_return_annotation_tells_the_codec():
    def make() -> Order: ...  # type: ignore[empty-body]  # never called

    def later() -> "Order": ...  # type: ignore[empty-body]  # never called

    for function in (make, later):
        assert codec_of(function).annotation is Order


def test_wrappers_and_partials_are_looked_through():
    def make(x: int) -> Order: ...  # type: ignore[empty-body]  # never called

    @functools.wraps(make)
    def wrapper(*args):
        return make(*args)

    assert codec_of(wrapper).annotation is Order
    assert codec_of(functools.partial(make, 1)).annotation is Order
    assert codec_of(functools.partial(wrapper, 1)).annotation is Order


def test_an_annotation_that_cannot_be_read_leaves_plain_values():
    def unknown() -> "Missing": ...  # type: ignore[name-defined]  # noqa: F821 - the point

    codec = codec_of(unknown)
    assert not codec.typed
    assert "Missing" in codec.advice


@dataclass
class Unfinished:
    later: "Missing"  # type: ignore[name-defined]  # noqa: F821 - the point of the test


def test_a_type_whose_fields_cannot_be_read_leaves_plain_values():
    def unfinished() -> Unfinished: ...  # type: ignore[empty-body]  # never called

    codec = codec_of(unfinished)
    assert codec.encode(5) == PLAIN.encode(5)
    assert "Missing" in codec.advice


@pytest.mark.parametrize("annotation", [typing.Self, typing.NoReturn, 3, "text", Order | Line])
def test_an_annotation_that_is_no_usable_type_leaves_plain_values(annotation):
    codec = Codec(annotation)
    assert not codec.typed
    assert codec.decode(codec.encode([1])) == [1]


# Exceptions


class Declined(Exception):  # noqa: N818 - as users name theirs
    def __init__(self, reason, *, code):
        super().__init__(f"declined: {reason}")
        self.reason = reason
        self.code = code


class SoftDeclined(Declined):
    pass


class Picky(Exception):  # noqa: N818 - as users name theirs
    def __new__(cls, text, *, code):
        return super().__new__(cls, text)

    def __init__(self, text, *, code):
        super().__init__(text)
        self.code = code


class Mute(Exception):  # noqa: N818 - as users name theirs
    def __str__(self):
        msg = "no words"
        raise RuntimeError(msg)


def test_a_known_exception_comes_back_without_its_constructor():
    error = Declined("no funds", code=51)
    error.add_note("seen at the till")
    back, name, words = decode_error(encode_error(error), (Declined,))
    assert type(back) is Declined
    assert back.args == ("declined: no funds",)
    assert (back.reason, back.code) == ("no funds", 51)
    assert str(back) == str(error)
    assert not hasattr(back, "__notes__")
    assert (name, words) == ("Declined", "declined: no funds")


def test_an_exception_of_a_type_that_derives_from_a_known_one_comes_back_as_itself():
    back, _, _ = decode_error(encode_error(SoftDeclined("later", code=1)), (OSError, Declined))
    assert type(back) is SoftDeclined


def test_of_an_exception_that_is_too_large_the_beginning_of_its_message_is_kept():
    answer = "x" * LARGEST_ERROR
    for error in (
        ValueError(answer),
        Declined("long", code=answer),
        ExceptionGroup(answer, [OSError()]),
    ):
        data = encode_error(error)
        assert len(data) < LARGEST_ERROR // 100
        back, name, words = decode_error(data, (Exception,))
        assert back is None
        assert name == type(error).__name__
        assert words == str(error)[:4096] + " ..."


def test_the_message_of_a_group_may_have_half_a_character():
    data = encode_error(ExceptionGroup("\udce9", [ValueError("y")]))
    assert decode_error(data, (ValueError,))[2] == r"\udce9"


def test_of_many_derived_types_the_right_one_is_found():
    back, _, _ = decode_error(encode_error(KeyError("k")), (Exception,))
    assert type(back) is KeyError
    assert back.args == ("k",)


class OwnGroup(ExceptionGroup):
    """A group as a user may define it."""


class PickyGroup(ExceptionGroup):
    def __new__(cls, errors):
        return super().__new__(cls, "picky", errors)


@pytest.mark.parametrize("kind", [ExceptionGroup, OwnGroup])
def test_a_group_of_known_exceptions_comes_back_as_a_group(kind):
    error = kind("two", [Declined("x", code=1), ExceptionGroup("one", [KeyError("k")])])
    known = (Declined, KeyError, OwnGroup)
    back, name, words = decode_error(encode_error(error), known)
    assert (type(back), name, words) == (kind, kind.__name__, "two")
    assert back.exceptions[0].code == 1
    assert back.exceptions[1].exceptions[0].args == ("k",)


def test_a_group_that_cannot_be_rebuilt_leaves_its_words():
    unknown = ExceptionGroup("two", [Declined("x", code=1), ValueError("y")])
    assert decode_error(encode_error(unknown), (Declined,)) == (None, "ExceptionGroup", "two")
    own = encode_error(OwnGroup("one", [ValueError("y")]))
    renamed = own.replace(b"OwnGroup", b"NoGroup!")
    assert decode_error(renamed, (ValueError,))[0] is None
    picky = PickyGroup([ValueError("y")])
    assert decode_error(encode_error(picky), (ValueError, PickyGroup))[0] is None


def test_an_exception_of_an_unknown_type_leaves_its_words():
    assert decode_error(encode_error(Declined("x", code=1)), ()) == (
        None,
        "Declined",
        "declined: x",
    )
    assert decode_error(encode_error(Declined("x", code=1)), (OSError, SoftDeclined))[0] is None


@pytest.mark.parametrize("state", [Strange(), (1, 2), {1}, 2**70])
def test_an_exception_whose_state_would_not_come_back_leaves_its_words(state):
    error = ValueError("bad", state)
    assert decode_error(encode_error(error), (ValueError,)) == (None, "ValueError", str(error))
    own = Declined("x", code=state)
    assert decode_error(encode_error(own), (Declined,)) == (None, "Declined", "declined: x")


def test_an_exception_without_words_is_kept_all_the_same():
    back, name, words = decode_error(encode_error(Mute(1)), (Mute,))
    assert type(back) is Mute
    assert back.args == (1,)
    assert (name, words) == ("Mute", "")


def test_a_nested_type_is_named_as_it_is_written():
    class Inner(Exception):  # noqa: N818 - as users name theirs
        pass

    _, name, _ = decode_error(encode_error(Inner("x")), ())
    assert name == Inner.__qualname__


def test_an_exception_that_is_picky_about_how_it_is_made_leaves_at_least_its_words():
    back, name, words = decode_error(encode_error(Picky("no", code=3)), (Picky,))
    assert back is None or (str(back) == "no" and vars(back) == {"code": 3})
    assert (name, words) == ("Picky", "no")


class Slotted(Exception):  # noqa: N818 - as users name theirs
    __slots__ = ("code",)

    def __init__(self, code):
        super().__init__()
        self.code = code

    def __str__(self):
        return f"code {self.code}"


def test_an_exception_whose_words_would_not_come_back_leaves_them():
    back, name, words = decode_error(encode_error(Slotted(7)), (Slotted,))
    assert back is None or str(back) == "code 7"
    assert (name, words) == ("Slotted", "code 7")


def test_an_exception_whose_type_has_changed_since_leaves_its_words(monkeypatch):
    data = encode_error(Declined("x", code=1))

    def refuse(kind, *args):
        msg = "made in another way now"
        raise TypeError(msg)

    monkeypatch.setattr(Declined, "__new__", refuse)
    assert decode_error(data, (Declined,)) == (None, "Declined", "declined: x")


def undecodable():
    try:
        return b"\xff".decode()
    except UnicodeDecodeError as error:
        return error


@pytest.mark.parametrize(
    "error",
    [FileNotFoundError(2, "no such file", "a.txt"), undecodable(), KeyError("k"), OSError("x")],
    ids=["os", "unicode", "key", "words"],
)
def test_a_builtin_exception_says_the_same_when_it_comes_back(error):
    back, _, words = decode_error(encode_error(error), (Exception,))
    assert words == str(error)
    assert back is None or (type(back) is type(error) and str(back) == str(error))


@pytest.mark.parametrize("data", [b"", b"\xc1", PLAIN.encode("text"), PLAIN.encode(["m", "n"])])
def test_bytes_that_are_no_exception_are_an_error_of_their_own(data):
    with pytest.raises(UnreadableBytesError):
        decode_error(data, (ValueError,))
    assert error_words(data) == ""


@pytest.mark.parametrize(
    "state", [b"\xc1", PLAIN.encode([1]), PLAIN.encode(7), PLAIN.encode([1, 2])]
)
def test_a_state_that_is_none_is_an_error_of_its_own(state):
    data = PLAIN.encode(["builtins", "ValueError", "bad", state])
    with pytest.raises(UnreadableBytesError):
        decode_error(data, (ValueError,))


def test_what_went_wrong_is_told_to_people():
    assert error_words(encode_error(Declined("no funds", code=1))) == "Declined: declined: no funds"
