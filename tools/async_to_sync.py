"""Write sync code from async code: `python -m tools.async_to_sync [--check]`.

Of each pair in `FILES` only `thing_async.py` is written by hand. `thing.py` is made from it:

- `async` and `await` go, and `Awaitable[X]` becomes `X`.
- Names change, those of modules too: `AsyncThing` to `Thing`, `thing_async` to `thing`, and those
  in `NAMES` and in the names of the pair.
- Strings and comments stay as they are, but for the phrases in `PHRASES` and those of the pair.
- A statement below the comment `# async only` is left out.
- `if False:  # sync only` is replaced by what it contains, in which nothing is changed.
- ruff takes out the imports that are not needed any more, sorts the others and formats the file.

With `--check` nothing is written; it fails when a file is not what would be written.
"""

from __future__ import annotations

import ast
import io
import keyword
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PACKAGE = Path("src", "oncekey")

NAMES = {
    "aclose": "close",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
}
PHRASES = {
    "async with": "with",
    "`await ": "`",
    "for coroutines": "for code that blocks",
    "of redis.asyncio": "of redis-py",
    "of the running loop ": "",
}


@dataclass(frozen=True)
class Pair:
    """What changes in one pair of files alone."""

    names: Mapping[str, str] = field(default_factory=dict)
    phrases: Mapping[str, str] = field(default_factory=dict)


FILES: Mapping[str, Pair] = {
    "engine/engine": Pair(),
    "engine/run": Pair(phrases={"in a coroutine": "in code that blocks"}),
    "http/exchange": Pair(),
    "stores/engine": Pair(),
    "stores/redis/store": Pair(phrases={", one for each event loop": ""}),
    "stores/postgres/store": Pair(
        names={"AsyncCrowd": "Link", "batch": "pool", "PerLoop": "PerProcess"},
        phrases={
            "Connections belong to one event loop, so each loop that asks has some of its own.": (
                "Connections belong to one process, so a forked child has some of its own."
            ),
            " of this loop": "",
        },
    ),
    "stores/postgres/engine": Pair(),
    "stores/postgres/pool": Pair(phrases={"tasks of one loop": "threads"}),
    "stores/postgres/listen": Pair(
        names={"asyncio": "time"}, phrases={"tasks of one loop": "threads"}
    ),
    "stores/mysql/store": Pair(
        names={"AsyncMySQLCrowd": "MySQLLink", "batch": "pool", "PerLoop": "PerProcess"},
        phrases={
            "Connections belong to one event loop, so each loop that asks has some of its own.": (
                "Connections belong to one process, so a forked child has some of its own."
            ),
            " of this loop": "",
        },
    ),
    "stores/mysql/engine": Pair(names={"is_stale_async": "is_stale"}),
    "stores/mysql/pool": Pair(
        names={
            "ask_async": "ask",
            "close_async": "close",
            "connect_async": "connect",
            "is_stale_async": "is_stale",
        },
        phrases={"tasks of one loop": "threads"},
    ),
    "messages/open_transaction": Pair(),
    "messages/transaction": Pair(),
    "messages/atomic": Pair(),
    "messages/atomic_many": Pair(),
    "messages/dead_letter": Pair(),
    "messages/leased": Pair(),
    "messages/inbox": Pair(),
    "messages/drivers/base": Pair(
        phrases={
            "aiosqlite": "sqlite3",
            "An AsyncSession or AsyncConnection": "A Session or Connection",
        }
    ),
    "messages/drivers/mysql": Pair(
        names={"AsyncAsyncmy": "PyMySQL", "asyncmy": "pymysql"},
        phrases={"driver asyncmy": "driver PyMySQL", "of asyncmy": "of PyMySQL"},
    ),
    "messages/drivers/psycopg": Pair(phrases={"An AsyncConnection": "A connection"}),
    "outbox/outbox": Pair(),
    "events/bus": Pair(phrases={"read, follow, and": "read, and"}),
    "events/redis_log": Pair(phrases={"Other loops close theirs": "The next use opens new ones"}),
}
"""The pairs, by their path in the package without `_async.py`."""

ASYNC_ONLY = "# async only"
SYNC_ONLY = "# sync only"
INDENT = 4


class Edit(NamedTuple):
    """The text between two places of a file, and what replaces it."""

    start: int
    end: int
    text: str = ""


class Block(NamedTuple):
    """A statement that only one of the two files has: nothing but these edits is done in it."""

    start: int
    end: int
    edits: list[Edit]


class Conversion:
    """One async file, and the edits that make it a sync one."""

    def __init__(self, text: str, source: str, pair: Pair) -> None:
        """Parse the text of the file `source`."""
        self._text = text
        self._source = source
        self._names = {**NAMES, **pair.names}
        self._phrases = {**pair.phrases, **PHRASES}
        self._tree = ast.parse(text)
        self._tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
        self._lines = text.splitlines(keepends=True)
        self._line_starts = [0]
        for line in self._lines:
            self._line_starts.append(self._line_starts[-1] + len(line))

    def sync_text(self) -> str:
        """Return the text of the sync file, before ruff has seen it."""
        self._refuse_f_strings()
        blocks = [*self._async_only(), *self._sync_only()]
        edits = [edit for block in blocks for edit in block.edits]
        edits += [
            edit
            for edit in (self._header(), *self._words(), *self._brackets(), *self._awaitables())
            if not any(block.start <= edit.start < block.end for block in blocks)
        ]
        text = self._text
        for edit in sorted(edits, reverse=True):  # from the end, so that earlier places stay
            text = text[: edit.start] + edit.text + text[edit.end :]
        return text

    def _header(self) -> Edit:
        """Return the line after the docstring that says where the file is from."""
        if ast.get_docstring(self._tree) is None:
            raise self._refusal(1, "the file has no docstring")
        place = self._line_starts[_last_line(self._tree.body[0])]
        line = f'\n# Generated from {self._source} by "make generate": do not edit.\n'
        return Edit(place, place, line)

    # Statements that only one of the two files has

    def _async_only(self) -> Iterator[Block]:
        """Yield the statements that are left out, and the comments above them."""
        for line in self._lines_with(ASYNC_ONLY):
            node = self._statement_at(line + 1)
            start, end = self._line_starts[line - 1], self._line_starts[_last_line(node)]
            yield Block(start, end, [Edit(start, end)])

    def _sync_only(self) -> Iterator[Block]:
        """Yield the blocks that lose their `if` and one level of indentation."""
        for line in self._lines_with(SYNC_ONLY):
            node = self._statement_at(line)
            if not isinstance(node, ast.If) or ast.unparse(node.test) != "False" or node.orelse:
                raise self._refusal(line, f"{SYNC_ONLY!r} is for `if False:` without else")
            start, *body, end = self._line_starts[line - 1 : _last_line(node) + 1]
            indented = [place for place in body if self._text[place] != "\n"]
            edits = [Edit(start, body[0]), *(Edit(place, place + INDENT) for place in indented)]
            yield Block(start, end, edits)

    def _lines_with(self, marker: str) -> Iterator[int]:
        for token in self._tokens:
            if token.type == tokenize.COMMENT and re.match(rf"{marker}\b", token.string):
                yield token.start[0]

    def _statement_at(self, line: int) -> ast.stmt:
        """Return the statement that begins in this line, with a decorator or without."""
        for node in ast.walk(self._tree):  # the outer ones come first
            if isinstance(node, ast.stmt):
                decorators: list[ast.expr] = getattr(node, "decorator_list", [])
                if line == min([node.lineno, *(one.lineno for one in decorators)]):
                    return node
        raise self._refusal(line, "a marker must belong to a statement, and here begins none")

    # What changes in all others

    def _words(self) -> Iterator[Edit]:
        """Yield `async` and `await`, names, and strings and comments with a phrase."""
        for token, following in pairwise(self._tokens):
            start, end = self._place(*token.start), self._place(*token.end)
            if token.type == tokenize.NAME and token.string in {"async", "await"}:
                yield Edit(start, self._place(*following.start))
                continue
            text = token.string
            if token.type == tokenize.NAME:
                text = self._sync_name(text)
            elif token.type == tokenize.COMMENT or _is_plain_string(token):
                for phrase, other in self._phrases.items():
                    text = text.replace(phrase, other)
            if text != token.string:
                yield Edit(start, end, text)

    def _sync_name(self, name: str) -> str:
        """Return what the sync file calls the same thing."""
        if name in self._names:
            return self._names[name]
        return re.sub(r"^(_*)Async(?=[A-Z])", r"\1", name).removesuffix("_async")

    def _brackets(self) -> Iterator[Edit]:
        """Yield the brackets of `(await thing())[0]`, which are needed for `await` alone."""
        simple = ast.Call | ast.Attribute | ast.Subscript | ast.Name
        ends = {}
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Await) and isinstance(node.value, simple):
                start, end = self._span(node)
                ends[start] = end
        for before, bracket, token in zip(
            self._tokens, self._tokens[1:], self._tokens[2:], strict=False
        ):
            start = self._place(*token.start)
            if token.string != "await" or bracket.string != "(" or _is_called(before):
                continue
            end = ends.get(start, 0)
            if self._text[start - 1] == "(" and self._text[end : end + 1] == ")":
                yield Edit(start - 1, start)
                yield Edit(end, end + 1)

    def _awaitables(self) -> Iterator[Edit]:
        """Yield what is around `X` in `Awaitable[X]`."""
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "Awaitable":
                start, end = self._span(node)
                inner_start, inner_end = self._span(node.slice)
                yield Edit(start, inner_start)
                yield Edit(inner_end, end)

    def _refuse_f_strings(self) -> None:
        """Refuse f-strings that would have to change: Python 3.11 does not see into them."""
        for node in ast.walk(self._tree):
            if isinstance(node, ast.JoinedStr):
                for one in ast.walk(node):
                    name = str(getattr(one, "id", getattr(one, "attr", "")))
                    if isinstance(one, ast.Await) or self._sync_name(name) != name:
                        why = "an f-string cannot be changed; give its parts names before it"
                        raise self._refusal(node.lineno, why)

    # Places

    def _place(self, line: int, column: int) -> int:
        return self._line_starts[line - 1] + column

    def _span(self, node: ast.expr) -> tuple[int, int]:
        """Return the places where an expression begins and ends."""
        line, last = node.lineno, _last_line(node)
        return (
            self._place(line, self._column(line, node.col_offset)),
            self._place(last, self._column(last, node.end_col_offset or 0)),
        )

    def _column(self, line: int, column: int) -> int:
        """Return the column in characters. In a syntax tree it is in bytes."""
        return len(self._lines[line - 1].encode()[:column].decode())

    def _refusal(self, line: int, why: str) -> ValueError:
        return ValueError(f"{self._source}:{line}: {why}")


def _last_line(node: ast.stmt | ast.expr) -> int:
    return node.end_lineno or node.lineno


def _is_plain_string(token: tokenize.TokenInfo) -> bool:
    """Tell whether the token is a string, but no f-string."""
    prefix = re.match(r"\w*", token.string)
    return token.type == tokenize.STRING and not (prefix and "f" in prefix[0].lower())


def _is_called(token: tokenize.TokenInfo) -> bool:
    """Tell whether a bracket after this token holds the arguments of a call."""
    named = token.type == tokenize.NAME and not keyword.iskeyword(token.string)
    return named or token.string in {")", "]"}


def sync_text(text: str, source: str, pair: Pair | None = None) -> str:
    """Return the sync code for the async code `text` of the file named `source`."""
    converted = Conversion(text, source, pair or Pair()).sync_text()
    for words in (
        ["check", "--fix-only", "--select", "F401,I"],
        ["format"],
    ):
        ruff = [sys.executable, "-m", "ruff", *words, "--quiet", "--stdin-filename", "sync.py", "-"]
        done = subprocess.run(
            ruff, cwd=ROOT, input=converted, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise ValueError(f"{source}: ruff cannot read what would be written: {done.stderr}")
        converted = done.stdout
    return converted


def outdated(root: Path = ROOT) -> dict[Path, str]:
    """Return the sync files that are not current, each with the text that it should have."""
    found = {}
    for name, pair in FILES.items():
        source = root / PACKAGE / f"{name}_async.py"
        target = root / PACKAGE / f"{name}.py"
        text = sync_text(source.read_text("utf-8"), source.name, pair)
        if not target.exists() or target.read_text("utf-8") != text:
            found[target] = text
    return found


def main(words: list[str]) -> int:
    """Write the sync files, or tell which of them are not current."""
    stale = outdated()
    names = ", ".join(str(path.relative_to(ROOT)) for path in stale)
    if "--check" in words:
        if stale:
            sys.stderr.write(f"Generated files are not current, run `make generate`: {names}\n")
        return 1 if stale else 0
    for path, text in stale.items():
        path.write_text(text, "utf-8")
    if stale:
        sys.stdout.write(f"Written: {names}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
