"""What the decorator returns is a function to Python and to all who look at functions."""

import abc
import asyncio
import copy
import enum
import functools
import gc
import inspect
import multiprocessing
import pickle
import subprocess
import sys
import typing
import warnings
import weakref
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from types import FunctionType, MethodType
from unittest import mock

import pydantic
import pytest

from oncekey import Once
from oncekey.jobs import by_task_id, handler
from tests.functions.shop import Branch, Shop, charge, send, shop

FUNCTIONS = (charge, Shop.sell, Shop.wrap, shop.wrap, Shop.tie)
COROUTINE_FUNCTIONS = (send, Shop.deliver, Shop.seal, shop.seal)
METHODS = (shop.sell, Shop.count, shop.count, Shop.weigh, shop.weigh)
COROUTINE_METHODS = (shop.deliver, Shop.label, shop.label)
ALL = (*FUNCTIONS, *COROUTINE_FUNCTIONS, *METHODS, *COROUTINE_METHODS)

each = functools.partial(pytest.mark.parametrize, "one", ids=lambda one: one.__qualname__)


@pytest.fixture
def memory():
    return Once("memory://", observers=())


# What `inspect` says


def is_one_to_asyncio(function):
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # Python 3.14 would rather be asked less
        return asyncio.iscoroutinefunction(function)


@each(FUNCTIONS + COROUTINE_FUNCTIONS)
def test_it_is_a_function(one):
    assert type(one) is FunctionType
    assert inspect.isfunction(one)


@each(METHODS + COROUTINE_METHODS)
def test_a_method_is_a_method(one):
    assert inspect.ismethod(one)
    assert isinstance(one, MethodType)
    assert inspect.isroutine(one)


@each(COROUTINE_FUNCTIONS + COROUTINE_METHODS)
def test_a_coroutine_function_is_one(one):
    assert inspect.iscoroutinefunction(one)
    assert is_one_to_asyncio(one)


@each(FUNCTIONS + METHODS)
def test_any_other_is_none(one):
    assert not inspect.iscoroutinefunction(one)
    assert not is_one_to_asyncio(one)


@each(ALL)
def test_names_signature_and_annotations_are_kept(one):
    name = one.__name__
    assert one.__qualname__ in {name, f"Shop.{name}"}
    assert one.__module__ == "tests.functions.shop"
    assert one.__doc__.endswith(".")
    hints = typing.get_type_hints(one)
    assert (hints["order"], hints["return"]) == (int, str)
    assert inspect.unwrap(one) is one.__wrapped__
    assert inspect.getsource(one).strip().startswith("@")


def test_the_signature_of_a_method_is_without_its_receiver():
    assert str(inspect.signature(charge)) == "(order: int, *, note: str = '') -> str"
    assert str(inspect.signature(Shop.sell)) == "(self, order: int) -> str"
    for one in METHODS + COROUTINE_METHODS:
        assert str(inspect.signature(one)) == "(order: int) -> str"


def test_a_job_handler_is_a_function_too(memory):
    async def work(job: str) -> str:
        return job

    assert inspect.iscoroutinefunction(handler(memory, by_task_id, work))


def test_a_partial_and_an_object_are_called_by_their_names(memory):
    class Sender:
        async def __call__(self, order: int) -> int:
            return order

    given = memory("k:{order}")(functools.partial(charge, note="!"))
    sender = memory("k:{order}")(Sender())
    assert (given.__name__, given.__qualname__) == ("charge", "charge")
    assert sender.__name__.endswith("Sender")
    assert inspect.iscoroutinefunction(sender)
    assert given(1) == "1 is paid!"
    assert asyncio.run(sender(1)) == 1


def test_an_argument_may_be_called_self():
    assert Shop.sell(self=shop, order=1) == "A has sold 1"
    assert Shop.sell.key(self=shop, order=1) == "sell:A:1"
    assert Shop.sell.outcome(self=shop, order=1).duplicate


# Attributes that know their receiver


def test_the_attributes_of_a_method_know_its_object():
    other = Shop("B")
    assert other.sell(2) == "B has sold 2"
    assert other.sell.key(2) == Shop.sell.key(other, 2) == "sell:B:2"
    assert other.sell.outcome(2).duplicate
    assert Shop.sell.outcome(other, 2).duplicate
    assert shop.sell.record(2) is None
    assert other.sell.record(2).value == "B has sold 2"
    assert other.sell.forget(2)
    assert not other.sell.forget(2)


async def test_those_of_a_coroutine_method_do_too():
    other = Shop("B")
    assert await other.deliver(2) == "B has delivered 2"
    assert (await other.deliver.outcome(2)).duplicate
    assert (await Shop.deliver.outcome(other, 2)).duplicate
    assert other.deliver.key(2) == "deliver:B:2"
    assert (await other.deliver.record(2)).value == "B has delivered 2"
    assert await other.deliver.forget(2)


@pytest.mark.parametrize("name", ["count", "weigh"])
def test_those_of_a_class_method_know_its_class(name):
    for owner, said in ((Shop, "A"), (Branch, "B"), (Branch(), "B")):
        method = getattr(owner, name)
        assert method(3).startswith(f"{said} has ")
        assert method.key(3) == f"{name}:{said}:3"
        assert method.outcome(3).duplicate
        assert method.record(3).status == "completed"


def test_a_class_method_is_bound_without_an_owner_too():
    assert vars(Shop)["weigh"].__get__(Branch("C")).key(3) == "weigh:B:3"


@pytest.mark.parametrize("name", ["wrap", "tie"])
def test_those_of_a_static_method_need_none(name):
    for owner in (Shop, shop, Branch):
        method = getattr(owner, name)
        assert method(4).startswith("4 is ")
        assert method.key(4) == f"{name}:4"
        assert method.outcome(4).duplicate


def test_super_finds_the_method_of_the_object():
    branch = Branch("C")
    assert branch.sell_as_usual(1) == "C has sold 1"
    assert super(Branch, branch).sell.outcome(1).duplicate
    assert super(Branch, branch).sell.key(1) == "sell:C:1"


def test_a_decorator_of_ones_own_may_stand_between(memory):
    """In the class is what `functools.wraps` has made, and it has the attributes too."""

    def twice(function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            return [function(*args, **kwargs) for _ in range(2)]

        return wrapper

    def both(function):
        return twice(memory("k:{self.name}:{n}")(function))

    class Tool:
        name = "saw"

        @both
        def use(self, n: int) -> int:
            return n

    assert Tool().use(1) == [1, 1]
    assert Tool().use.outcome(1).duplicate


class Pair(typing.NamedTuple):
    """A class that is not made from its body."""

    name: str

    @Once("memory://", observers=())("k:{self.name}:{n}")
    def work(self, n: int) -> int:
        return n


class Late:
    name = "late"

    def work(self, n: int) -> int:
        return n


def test_a_function_that_enters_a_class_later_wants_the_object_named(memory, monkeypatch):
    """Python binds it, so that its attributes are those of the function."""
    monkeypatch.setattr(Late, "work", memory("k:{self.name}:{n}")(Late.work))
    for one in (Late(), Pair("pair")):
        assert inspect.isfunction(type(one).work)
        assert one.work(1) == 1
        assert one.work.outcome(one, 1).duplicate
        with pytest.raises(TypeError, match="missing 1 required positional argument"):
            one.work.outcome(1)


# Pickles and copies


def pickled(value):
    return pickle.loads(pickle.dumps(value))  # noqa: S301 - these bytes are our own


@each(FUNCTIONS + COROUTINE_FUNCTIONS)
def test_a_function_is_pickled_and_copied_by_name(one):
    assert pickled(one) is one
    assert copy.copy(one) is copy.deepcopy(one) is one


@each(METHODS + COROUTINE_METHODS)
def test_a_method_is_pickled_with_its_object(one):
    found = pickled(one)
    assert found.__func__ is one.__func__
    assert type(found.__self__) is type(one.__self__)
    assert found.key(5) == one.key(5)


def test_the_copy_of_a_method_has_a_copy_of_its_object():
    own = Shop("own")
    copied = copy.deepcopy(own.sell)
    own.name = "other"
    assert copied.key(1) == "sell:own:1"
    assert own.sell.key(1) == "sell:other:1"


def test_a_function_and_a_method_run_in_another_process():
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        assert pool.submit(charge, 6).result() == "6 is paid"
        assert pool.submit(Shop("C").sell, 6).result() == "C has sold 6"


PROGRAM = """
import multiprocessing, sys
from oncekey import Once

once = Once("sqlite:///program.db")

@once("greet")
def greet() -> int:
    print("runs", flush=True)
    return 1

if __name__ == "__main__":
    greet()
    for method in ("spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool(1) as pool:
            print(pool.apply(greet), flush=True)
"""


def test_a_function_of_the_program_itself_is_the_same_in_its_children(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    ended = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ended.stdout.split() == ["runs", "1", "1"], ended.stderr


# What else methods can do


def test_methods_compare_as_methods_do():
    other = Shop()
    assert shop.sell == shop.sell
    assert hash(shop.sell) == hash(shop.sell)
    assert shop.sell != other.sell
    assert shop.sell != shop.deliver
    assert shop.sell != MethodType(Shop.sell, shop)
    assert repr(shop.sell) == repr(MethodType(Shop.sell, shop))


def test_a_method_can_be_held_weakly():
    own = Shop("own")
    held = weakref.WeakMethod(own.sell)
    assert held().key(1) == "sell:own:1"
    del own
    gc.collect()
    assert held() is None


def test_a_method_keeps_nothing_alive():
    own = Shop("own")
    gone = weakref.ref(own)
    gc.disable()
    try:
        own.sell(1)
        own.sell.outcome(1)
        del own
        assert gone() is None
    finally:
        gc.enable()


def test_attributes_of_the_function_are_those_of_the_method(memory):
    class Tool:
        @memory("k")
        def use(self) -> int:
            return 1

    Tool.use.danger = "high"
    assert Tool().use.danger == "high"
    assert not hasattr(Tool().use, "nothing")


# Classes of every kind


def test_a_class_is_left_as_it_was_written(memory):
    class Tool:
        @memory("k")
        def use(self) -> int:
            return 1

    class Plain:
        def use(self) -> int:
            return 1

    assert vars(Tool).keys() == vars(Plain).keys()
    assert inspect.isfunction(vars(Tool)["use"])
    assert inspect.iscoroutinefunction(vars(Shop)["deliver"])
    assert isinstance(vars(Shop)["count"], classmethod)


def test_an_abstract_method_stays_abstract(memory):
    class Tool(abc.ABC):
        @abc.abstractmethod
        @memory("k")
        def use(self) -> int: ...

    with pytest.raises(TypeError, match="abstract"):
        Tool()


def test_classes_that_others_make_have_protected_methods(memory):
    class Colour(enum.Enum):
        RED = 1

        @memory("k:{self.name}")
        def paint(self) -> int:
            return 1

    @dataclass(slots=True)
    class Tool:
        name: str

        @memory("k:{self.name}")
        def use(self) -> int:
            return 2

    class Model(pydantic.BaseModel):
        name: str

        @memory("k:{self.name}")
        def use(self) -> int:
            return 3

    class Frozen(type):
        def __setattr__(cls, name, value):
            raise AttributeError(name)

    class Stone(metaclass=Frozen):
        name = "stone"

        @memory("k:{self.name}")
        def use(self) -> int:
            return 4

    assert list(Colour) == [Colour.RED]
    assert (Colour.RED.paint(), Colour.RED.paint.key()) == (1, "k:RED")
    assert (Tool("saw").use(), Tool("saw").use.key()) == (2, "k:saw")
    assert (Model(name="m").use(), Model(name="m").use.key()) == (3, "k:m")
    assert (Stone().use(), Stone().use.key()) == (4, "k:stone")


def test_a_mock_takes_the_signature_of_a_method():
    stand_in = mock.create_autospec(Shop)("A")
    stand_in.sell.return_value = "sold"
    assert stand_in.sell(7) == "sold"
    with pytest.raises(TypeError):
        stand_in.sell(7, 8)
    assert isinstance(mock.create_autospec(shop).deliver, mock.AsyncMock)
