"""Functions that can be protected, and what they are called."""

import functools
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest

from oncekey import functions
from oncekey.errors import ConfigurationError
from oncekey.functions import checked_function, is_async, name_of, scope_of


def plain(): ...
async def coroutine(): ...
def generator():
    yield


async def async_generator():
    yield


class Job:
    def __call__(self): ...
    def method(self): ...

    @classmethod
    def opened(cls): ...


class AsyncJob:
    async def __call__(self): ...


@pytest.mark.parametrize(
    "function", [plain, coroutine, Job(), Job().method, functools.partial(plain), len, lambda: 1]
)
def test_whatever_has_one_result_can_be_protected(function):
    assert checked_function(function) is function


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (Job, "Job is a class; protect a function or one of its methods"),
        (staticmethod(plain), "put @staticmethod above the oncekey decorator, not below it"),
        (Job.__dict__["opened"], "put @classmethod above the oncekey decorator, not below it"),
        (7, "a function must be given to protect, but 7 cannot be called"),
        (None, "a function must be given to protect, but None cannot be called"),
        (generator, "generator is a generator, which has no single result; return a list"),
        (
            async_generator,
            "async_generator is a generator, which has no single result; return a list",
        ),
        (
            functools.partial(generator),
            "generator is a generator, which has no single result; return a list",
        ),
    ],
)
def test_anything_else_is_refused_with_what_to_do(function, words):
    with pytest.raises(ConfigurationError) as caught:
        checked_function(function)
    assert str(caught.value) == words


class Stream:
    def __call__(self):
        yield


class AsyncStream:
    async def __call__(self):
        yield


@pytest.mark.parametrize("function", [Stream(), AsyncStream()])
def test_an_object_whose_call_is_a_generator_is_refused_too(function):
    with pytest.raises(ConfigurationError, match="is a generator"):
        checked_function(function)


@pytest.mark.parametrize(
    "function",
    [
        coroutine,
        AsyncJob(),
        functools.partial(coroutine),
        functools.partial(AsyncJob()),
        AsyncJob().__call__,
    ],
)
def test_what_gives_a_coroutine_is_async(function):
    assert is_async(function)


@pytest.mark.parametrize("function", [plain, Job(), functools.partial(plain), len, generator])
def test_what_gives_none_is_not(function):
    assert not is_async(function)


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (plain, "plain"),
        (Job.method, "Job.method"),
        (functools.partial(functools.partial(plain)), "plain"),
        (Job(), "Job"),
        (len, "len"),
    ],
)
def test_the_name_is_the_qualified_one(function, name):
    assert name_of(function) == name


def test_the_scope_is_module_and_name():
    module = plain.__module__
    assert scope_of(plain) == f"{module}.plain"
    assert scope_of(Job.method) == f"{module}.Job.method"
    assert scope_of(Job()) == f"{module}.Job"
    assert scope_of(len) == "builtins.len"


def test_the_scope_of_a_partial_is_that_of_its_function():
    assert scope_of(functools.partial(plain)) == scope_of(plain)


def test_a_scope_is_printable_whatever_the_name():
    def übung(): ...  # noqa: PLC2401 - the point of the test

    assert scope_of(übung).isascii()
    assert scope_of(übung).endswith("<locals>.%C3%BCbung")


def test_a_lambda_needs_a_scope():
    with pytest.raises(ConfigurationError) as caught:
        scope_of(lambda: 1)
    words = "a lambda has no name to keep its records under; give it one with scope=..."
    assert str(caught.value) == words


# A program that is run has the name that others import it by


@pytest.fixture
def program(monkeypatch):
    """A function of the program itself, and the module that stands for it."""

    def work(): ...

    work.__module__ = "__main__"
    work.__qualname__ = "work"
    main = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    return work, main


def test_a_module_that_is_run_is_called_by_its_name(program):
    work, main = program
    main.__spec__ = ModuleSpec("shop.worker", None)
    assert scope_of(work) == "shop.worker.work"
    main.__spec__ = ModuleSpec("shop.__main__", None)
    assert scope_of(work) == "shop.work"


def test_a_file_that_is_run_is_called_by_its_stem(program):
    work, main = program
    main.__file__ = "/srv/shop/worker.py"
    assert scope_of(work) == "worker.work"


def test_the_program_has_the_same_name_in_a_child_of_multiprocessing(monkeypatch):
    def work(): ...

    work.__module__ = "__mp_main__"
    work.__qualname__ = "work"
    main = ModuleType("__mp_main__")
    main.__file__ = "/srv/shop/worker.py"
    monkeypatch.setitem(sys.modules, "__mp_main__", main)
    assert scope_of(work) == "worker.work"


def test_a_program_without_a_file_is_the_main_one(program):
    work, _ = program
    assert scope_of(work) == "__main__.work"


def test_a_callable_without_a_module_has_that_of_its_type():
    job = Job()
    job.__module__ = None  # as some extension types have it
    assert functions.scope_of(job) == f"{Job.__module__}.Job"
