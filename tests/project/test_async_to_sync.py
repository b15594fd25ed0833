"""The generated sync files are current, and the tool that writes them does what it says."""

import shutil
import subprocess
import sys
from textwrap import dedent

import pytest

from tools import async_to_sync
from tools.async_to_sync import FILES, PACKAGE, ROOT, Pair, main, outdated, sync_text

# Pairs that truly differ, and say why.
BY_HAND = {"stores/sqlite/store", "stores/redis/connection", "outbox/relay"}


def converted(text: str, pair: Pair | None = None) -> str:
    """Return the sync code for some lines of async code, without what stands above them."""
    docstring = '"""A file."""\n\n'
    written = sync_text(docstring + dedent(text), "thing_async.py", pair)
    header = '# Generated from thing_async.py by "make generate": do not edit.\n\n'
    assert written.startswith(docstring + header)
    return written.removeprefix(docstring + header).strip("\n")


def lines(text: str) -> str:
    return dedent(text).strip("\n")


# The files


def test_every_generated_file_is_current():
    assert not outdated()


def test_every_async_file_is_in_the_table_or_written_by_hand():
    found = {
        path.relative_to(ROOT / PACKAGE).as_posix().removesuffix("_async.py")
        for path in (ROOT / PACKAGE).rglob("*_async.py")
    }
    assert found == {*FILES, *BY_HAND}


@pytest.mark.parametrize("name", FILES)
def test_whatever_the_table_says_of_a_pair_is_needed(name):
    text = (ROOT / PACKAGE / f"{name}_async.py").read_text("utf-8")
    assert not [word for word in (*FILES[name].names, *FILES[name].phrases) if word not in text]


def test_a_drift_of_one_token_is_noticed_in_every_generated_file(tmp_path):
    shutil.copytree(ROOT / PACKAGE, tmp_path / PACKAGE)
    generated = {tmp_path / PACKAGE / f"{name}.py" for name in FILES}
    for path in generated:
        text = path.read_text("utf-8")
        drifted = text.replace("def ", "def other_", 1)
        assert drifted != text
        path.write_text(drifted, "utf-8")
    assert set(outdated(tmp_path)) == generated


def test_a_file_that_is_missing_is_written(monkeypatch, tmp_path):
    name = next(iter(FILES))
    monkeypatch.setattr(async_to_sync, "FILES", {name: FILES[name]})
    source = tmp_path / PACKAGE / f"{name}_async.py"
    source.parent.mkdir(parents=True)
    shutil.copy(ROOT / PACKAGE / f"{name}_async.py", source)
    target = tmp_path / PACKAGE / f"{name}.py"
    assert outdated(tmp_path) == {target: (ROOT / PACKAGE / f"{name}.py").read_text("utf-8")}


def test_the_check_names_what_would_change_and_writes_nothing(monkeypatch, capsys):
    path = ROOT / PACKAGE / "thing.py"
    monkeypatch.setattr(async_to_sync, "outdated", lambda: {path: "text"})
    assert main(["--check"]) == 1
    told = "Generated files are not current, run `make generate`: src/oncekey/thing.py\n"
    assert capsys.readouterr().err == told
    assert not path.exists()


def test_the_check_is_a_command_that_succeeds():
    words = [sys.executable, "-m", "tools.async_to_sync", "--check"]
    subprocess.run(words, cwd=ROOT, check=True)


# The tool


def test_async_and_await_go_and_comments_stay():
    assert converted(
        """
        async def run(line):
            # why it waits
            async with line.lock:  # beside it
                await line.send()
            async for reply in line:
                print(reply)  # noqa: T201 - a sample
        """
    ) == lines(
        """
        def run(line):
            # why it waits
            with line.lock:  # beside it
                line.send()
            for reply in line:
                print(reply)  # noqa: T201 - a sample
        """
    )


@pytest.mark.parametrize(
    ("awaited", "blocking"),
    [
        ("str((await run(1))[0][2])", "str(run(1)[0][2])"),
        ("(await run(await find()))[1]", "run(find())[1]"),
        ("run(await find())", "run(find())"),
        ("self.run(await find(), await find())", "self.run(find(), find())"),
        ("known or await find() or await make()", "known or find() or make()"),
        ("not (await first or await second)", "not (first or second)"),
        ("(await (a or b)).close()", "(a or b).close()"),
        ("('é', (await find()).name)", '("é", find().name)'),
        ("[one async for one in found]", "[one for one in found]"),
        ("[await one() for one in found]", "[one() for one in found]"),
        ("{one: 1 async for one in found if await one}", "{one: 1 for one in found if one}"),
    ],
)
def test_expressions(awaited, blocking):
    written = converted(f"async def run(self):\n    return {awaited}")
    assert written == f"def run(self):\n    return {blocking}"


def test_names_change_and_those_of_the_pair_too():
    pair = Pair(names={"batch": "pool", "AsyncCrowd": "Link"})
    text = """
        from oncekey.batch import AsyncCrowd
        from oncekey.store_async import AsyncStore, open_async


        class _AsyncThing(AsyncStore, AsyncCrowd):
            async def __aenter__(self):
                return open_async(self)

            async def aclose(self):
                await super().aclose()
    """
    assert converted(text, pair) == lines(
        """
        from oncekey.pool import Link
        from oncekey.store import Store, open


        class _Thing(Store, Link):
            def __enter__(self):
                return open(self)

            def close(self):
                super().close()
        """
    )


def test_names_that_only_look_like_it_stay():
    assert converted("Asynchronous = async_name = _asyncio = is_async_too = 1") == (
        "Asynchronous = async_name = _asyncio = is_async_too = 1"
    )


def test_strings_and_comments_change_only_where_the_table_says_so():
    pair = Pair(phrases={"of one loop": "of one process"})
    text = '''
        async def leave(thing):
            """Leave `AsyncThing` with aclose, for coroutines: `async with` it."""
            return "AsyncThing of one loop", "await"  # AsyncThing of one loop
    '''
    assert converted(text, pair) == lines(
        '''
        def leave(thing):
            """Leave `AsyncThing` with aclose, for code that blocks: `with` it."""
            return "AsyncThing of one process", "await"  # AsyncThing of one process
        '''
    )


def test_an_awaitable_becomes_what_it_gives():
    assert converted("def send(words: list[str]) -> Awaitable[AsyncReply | None]: ...") == (
        "def send(words: list[str]) -> Reply | None: ..."
    )


def test_what_is_async_only_is_left_out_with_its_decorators_and_imports():
    assert converted(
        """
        import asyncio
        from contextlib import asynccontextmanager, suppress


        class AsyncThing:
            def __init__(self):
                self.name = suppress
                # async only
                self.loop = asyncio.get_running_loop()

            # async only: nobody can follow it without a loop
            @asynccontextmanager
            async def follow(
                self,
            ):
                yield self

            # kept
            async def run(self):
                pass
        """
    ) == lines(
        """
        from contextlib import suppress


        class Thing:
            def __init__(self):
                self.name = suppress

            # kept
            def run(self):
                pass
        """
    )


def test_what_is_sync_only_is_taken_as_it_stands():
    text = '''
        class AsyncThing:
            if False:  # sync only

                def as_async(self):
                    """Return the same for coroutines.

                    An AsyncThing.
                    """
                    return AsyncThing()

            async def find(self):
                # async only
                raw = await self.get_raw()
                if False:  # sync only
                    raw = self.raw  # of AsyncThing
                return raw
    '''
    assert converted(text) == lines(
        '''
        class Thing:
            def as_async(self):
                """Return the same for coroutines.

                An AsyncThing.
                """
                return AsyncThing()

            def find(self):
                raw = self.raw  # of AsyncThing
                return raw
        '''
    )


def test_imports_are_sorted_anew():
    written = converted("from redis import AsyncZebra, Lion\n\nprint(AsyncZebra, Lion)")
    assert written == "from redis import Lion, Zebra\n\nprint(Zebra, Lion)"
    written = converted("from redis import AsyncAnt, Bee\n\nprint(AsyncAnt, Bee)")
    assert written == "from redis import Ant, Bee\n\nprint(Ant, Bee)"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("value = f'{AsyncThing}'", "thing_async.py:3: an f-string"),
        ("async def run():\n    return f'{await find()}'", "thing_async.py:4: an f-string"),
        ("# async only\n\nvalue = 1", "thing_async.py:4: a marker"),
        ("if True:  # sync only\n    pass", "thing_async.py:3: '# sync only' is for"),
        ("if False:  # sync only\n    a = 1\nelse:\n    a = 2", "thing_async.py:3: '# sync only'"),
        (
            "async def run():\n    # async only\n    await find()",
            "thing_async.py: ruff cannot read",
        ),
    ],
)
def test_what_cannot_be_converted_is_refused(text, why):
    with pytest.raises(ValueError, match=why):
        converted(text)


def test_a_file_without_a_docstring_is_refused():
    with pytest.raises(ValueError, match="no docstring"):
        sync_text("value = 1\n", "thing_async.py")
