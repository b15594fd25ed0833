"""Arguments by name: the same as Python would bind them, only faster."""

import inspect

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from oncekey.errors import ConfigurationError
from oncekey.functions import Arguments


def plain(a, b, c=3): ...
def keyword(a, *, b, c=3): ...
def defaults(a=1, b=2): ...
def positional(a, /, b, c=3): ...
def many(a, *rest, **named): ...
def nothing(): ...


@given(
    st.sampled_from([plain, keyword, defaults, positional, many, nothing]),
    st.lists(st.integers(), max_size=4),
    st.dictionaries(st.sampled_from("abcd"), st.integers()),
)
@example(plain, [1, 2, 3], {})
@example(plain, [1], {"b": 2})
@example(plain, [1, 2], {"b": 2})
@example(plain, [1], {})
@example(positional, [1, 2], {})
@example(many, [1, 2], {"b": 3})
@example(nothing, [], {})
def test_arguments_are_bound_as_python_binds_them(function, args, kwargs):
    arguments = Arguments(function)
    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
    except TypeError:
        with pytest.raises(TypeError):
            arguments.bind(*args, **kwargs)
        with pytest.raises(TypeError):
            arguments._bind_second(*args, **kwargs)
        return
    bound.apply_defaults()
    for _ in range(3):  # the first call, the second, and all others go three ways
        made = arguments.bind(*args, **kwargs)
        assert list(made.items()) == list(bound.arguments.items())


@pytest.mark.parametrize("number", range(3))
def test_who_calls_it_wrongly_is_told_which_argument_is_missing(number):
    arguments = Arguments(plain)
    for _ in range(number):
        arguments.bind(1, 2)
    with pytest.raises(TypeError, match="'b'") as caught:
        arguments.bind(1)
    if number:
        assert str(caught.value) == "plain() missing 1 required positional argument: 'b'"


def test_a_default_is_the_very_object_that_the_function_has():
    shared = object()

    def function(defaults, call=shared, *, other=shared): ...

    arguments = Arguments(function)
    for _ in range(3):
        bound = arguments.bind(1)
        assert bound == {"defaults": 1, "call": shared, "other": shared}


def test_the_names_are_those_of_the_signature():
    assert Arguments(keyword).names == ("a", "b", "c")
    assert Arguments(nothing).names == ()


class Shop:
    def order(self, number): ...

    @classmethod
    def open(cls, number): ...

    @staticmethod
    def close(number): ...

    def alone(this): ...  # noqa: N805 - whoever names it so wants it counted


def self_of(self, number): ...


def test_the_object_of_a_method_is_no_argument_of_the_operation():
    order = Arguments(Shop.order)
    assert order.receiver == "self"
    assert order.without_receiver(order.bind(Shop(), 7)) == {"number": 7}
    opening = Arguments(Shop.__dict__["open"].__func__)
    assert opening.receiver == "cls"
    assert opening.without_receiver(opening.bind(Shop, 7)) == {"number": 7}


@pytest.mark.parametrize("function", [Shop.close, Shop.alone, self_of, plain, nothing])
def test_other_functions_have_no_such_object(function):
    assert Arguments(function).receiver is None


def test_a_function_inside_a_function_is_no_method():
    def inner(self): ...

    class Local:
        def method(self): ...

    assert Arguments(inner).receiver is None
    assert Arguments(Local.method).receiver == "self"


def test_without_an_object_everything_counts():
    arguments = Arguments(self_of)
    bound = arguments.bind(1, 2)
    assert arguments.without_receiver(bound) == {"self": 1, "number": 2}


def test_a_callable_without_a_name_has_arguments_too():
    class Job:
        def __call__(self, number): ...

    assert Arguments(Job()).names == ("number",)
    assert Arguments(Job()).receiver is None


@pytest.mark.parametrize("function", [type, 7])
def test_a_function_without_a_signature_says_what_to_do(function):
    with pytest.raises(ConfigurationError) as caught:
        Arguments(function)
    words = f"{function!r} has no signature to read; wrap it in a function that has one"
    assert str(caught.value) == words
