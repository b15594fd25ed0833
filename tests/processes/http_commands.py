"""The curl commands of a page, run as a reader would run them, and the answers the page promises.

    $ curl -i http://localhost:8000/payments -d '...'
    HTTP/1.1 200 OK
    idempotent-replayed: true

    {"paymentId":"pay_000001"}

Of the headers a page shows those in SHOWN. Without curl, httpx sends the same.
"""

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.docs.snippets import blocks
from tests.patience import PATIENCE

BASE = "http://localhost:8000"
MARK = "idempotent-replayed: true"
SHOWN = ("idempotent-replayed", "retry-after")
CURL = shutil.which("curl")


@dataclass(frozen=True)
class Answer:
    """What came back. Numbers of payments are not compared: they depend on what was before."""

    status: str
    headers: tuple[str, ...]
    body: str

    @property
    def replayed(self) -> bool:
        return MARK in self.headers

    @classmethod
    def of(cls, text: str) -> "Answer":
        head, _, body = text.replace("\r\n", "\n").partition("\n\n")
        status, *lines = head.splitlines()
        headers = sorted(line.lower() for line in lines if line.lower().startswith(SHOWN))
        return cls(status, tuple(headers), re.sub(r"pay_\d+", "pay_N", body.strip()))


@dataclass(frozen=True)
class Command:
    """A line that a reader types; several requests in it are sent at once."""

    requests: list[list[str]]
    answers: list[Answer]

    @property
    def text(self) -> str:
        return str(self.requests)

    @property
    def sleeps(self) -> bool:
        return self.requests[0][0] == "sleep"


def commands(page: Path) -> list[Command]:
    """What the page sends to the server that it starts first, in order."""
    found = []
    for block in blocks(page.read_text("utf-8")):
        if block.language == "console" and f"curl -i {BASE}" in block.code:
            for part in re.split(r"^\$ ", block.code, flags=re.MULTILINE)[1:]:
                typed = re.match(r"(?:.*\\\n)*.*", part)
                assert typed is not None
                found.append(_command(typed[0], part[typed.end() :].strip()))
    return found


def _command(typed: str, said: str) -> Command:
    words = shlex.split(typed.replace("\\\n", " "))
    if words[0] != "curl":
        return Command([words], [])
    requests: list[list[str]] = [[]]
    for word in words:
        if word == "&":
            requests.append([])
        else:
            requests[-1].append(word)
    answers = [Answer.of(one) for one in re.split(r"(?=^HTTP/)", said, flags=re.MULTILINE) if one]
    return Command([one for one in requests if one != ["wait"]], answers)


def send_all(command: Command, urls: list[str]) -> list[Answer]:
    """The answers to what the command sends at once."""
    with ThreadPoolExecutor(len(command.requests)) as pool:
        return in_order(pool.map(send, command.requests, urls))


def in_order(answers: Iterable[Answer]) -> list[Answer]:
    """Of those that came at once, the one that ran is first."""
    return sorted(answers, key=lambda answer: (answer.status, answer.headers))


def send(request: list[str], url: str) -> Answer:
    """The answer of a server at that URL."""
    words = [word.replace(BASE, url) for word in request]
    if CURL is None:
        return _with_httpx(words)
    done = subprocess.run(
        [CURL, "-sS", "--noproxy", "*", *words[1:]],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    return Answer.of(done.stdout)


def _with_httpx(words: list[str]) -> Answer:
    """The same without curl."""
    headers, content, url = [], "", ""
    rest = iter(words[1:])
    for word in rest:
        if word == "-H":
            name, _, value = next(rest).partition(": ")
            headers.append((name, value))
        elif word == "-d":
            content = next(rest)
        elif word != "-i":
            url = word
    with httpx.Client(trust_env=False, timeout=PATIENCE, verify=False) as client:  # noqa: S501 - nothing is encrypted
        got = client.post(url, headers=headers, content=content)
    lines = [f"HTTP/1.1 {got.status_code} {got.reason_phrase}"]
    lines += [f"{name}: {value}" for name, value in got.headers.items()]
    return Answer.of("\n".join([*lines, "", got.text]))
