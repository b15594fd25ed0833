"""The demonstration ends by itself, checks what it claims, and is what its picture shows."""

import io
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

import httpx
import pytest
from rich.console import Console

from examples.demo import __main__ as demo
from examples.demo import serving
from examples.demo.cases import CASES
from examples.demo.server import listening
from examples.demo.stage import Lines, Plain, Terminal
from examples.demo.talk import Exchange
from examples.demo.watched import WATCHED
from examples.payments.gateway import Charge
from tests.patience import PATIENCE

pytestmark = pytest.mark.xdist_group("demo")  # what they share is made once

ROOT = Path(__file__).parents[2]
PICTURE = ROOT / "docs" / "images" / "demo.svg"
ENVIRONMENT = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONWARNINGS": "error"}

SAID = {
    "The first request charges": "ok      the gateway's book has 1 charge",
    "A retry gets the same answer, from another server": "< 200 OK, Idempotent-Replayed: true",
    "Ten at once, five to each server": "> the same 9 times more",
    "The same key with another amount is refused": "< 409 Conflict",
    "A charge that failed is an answer too": '{"status":"failed","reason":"insufficient_funds"}',
    "The time to live is over": "ok      another payment",
    "A webhook is delivered twice": '{"cached":true,"message":"Request already processed"}',
    "Server 1 is killed between charge and answer, and started again": "ended with -9: SIGKILL",
    "A job is watched, by somebody who is cut off": "< offsets 7 8 9 10 11 12 13 14 15",
    "Three services send each other messages, and each is killed": "< 20 orders, 20 charges, 20",
}


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """What the demonstration printed into a pipe, and what it drew."""
    svg = tmp_path_factory.mktemp("demo") / "demo.svg"
    done = subprocess.run(
        [sys.executable, "-m", "examples.demo", "--svg", svg],
        cwd=ROOT,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    return done.stdout, svg.read_text("utf-8")


@pytest.mark.row("P14")
def test_it_ends_by_itself_and_shows_every_case(shown):
    text, _ = shown
    parts = re.split(r"^\d+/10  (.+)$", text, flags=re.MULTILINE)[1:]
    titles, bodies = parts[::2], parts[1::2]
    assert titles == list(SAID)
    for title, body in zip(titles, bodies, strict=True):
        assert SAID[title] in body
        assert ("  > POST /" in body) == (title not in titles[-2:])
    assert "< a duplicate of offset 1, nothing was appended" in bodies[-2]


@pytest.mark.row("P14")
def test_every_claim_was_so(shown):
    text, _ = shown
    assert "NOT SO" not in text
    assert text.count("\n  ok      ") >= 3 * len(SAID) - 2
    assert "10 cases, and everything claimed was so." in text


def test_the_picture_is_what_the_demonstration_draws(shown):
    _, svg = shown
    assert PICTURE.read_text("utf-8") == svg, (
        "python -m examples.demo --svg docs/images/demo.svg draws it again"
    )


def test_the_picture_fetches_nothing():
    links = re.findall(r"https?://[^\s\"<]+", PICTURE.read_text("utf-8"))
    assert set(links) <= {"http://www.w3.org/2000/svg", "https://www.textualize.io"}


class Careless:
    """A place where every request is charged."""

    def __init__(self) -> None:
        self.book: list[Charge] = []

    def send(self, ask: Any, to: int = 1) -> Exchange:
        number = len(self.book) + 1
        self.book.append(Charge(number, "", 1, "VND", "", None))
        said = {"paymentId": f"pay_{number:06}", "status": "succeeded", "success": True}
        return Exchange(ask, 200, False, json.dumps(said))

    def charges(self) -> list[Charge]:
        return list(self.book)

    def events(self) -> list[str]:
        return ["webhook-001"] * 2

    def kill(self) -> int:
        return 0

    def restart(self) -> None:
        pass


EVERY = [case.name for case in demo.EVERY]


def test_claims_that_are_not_so_are_shown_and_reported(capsys):
    console = Console(width=80, force_terminal=True)
    stages: Any = [(Plain(), EVERY), (Terminal(console), EVERY)]
    failed = demo.play(demo.EVERY, Careless(), stages)
    out = capsys.readouterr().out
    assert out.count("NOT SO") == out.count("✗") == len(failed) > len(EVERY)


def test_json_has_an_object_for_each_case(capsys):
    demo.play((*CASES, WATCHED), Careless(), [(Lines(), EVERY)])
    cases = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [case["case"] for case in cases] == [
        name for name in EVERY if name not in ("crash", "chained")
    ]
    for case in cases:
        assert case.keys() == {"case", "title", "exchanges", "charged", "claims"}
        so = all(one["holds"] for one in case["claims"])
        assert so == (case["case"] in {"first", "expiry", "watched"})
    assert cases[-1]["exchanges"][1] == {"answer": "accepted, offset 1"}
    (first,) = cases[0]["exchanges"]
    assert first == {
        "method": "POST",
        "path": "/payments",
        "key": "idem_aaaa1111",
        "body": CASES[0].asks[0].body,
        "status": 200,
        "replayed": False,
        "answer": {"paymentId": "pay_000001", "status": "succeeded", "success": True},
    }


def test_a_demonstration_that_fails_says_so_with_its_exit_code(monkeypatch, capsys):
    class Site(Careless):
        def __enter__(self) -> Self:
            return self

        def __exit__(self, *error: object) -> None:
            pass

    monkeypatch.setattr(demo, "Site", Site)
    assert demo.demonstrate([(Plain(), EVERY)]) == 1
    assert "Not so: " in capsys.readouterr().out


def test_colours_are_for_terminals_that_have_the_letters():
    terminal = Console(force_terminal=True, file=io.StringIO())
    assert isinstance(demo.chosen(terminal, as_json=False), Terminal)
    assert isinstance(demo.chosen(terminal, as_json=True), Lines)
    with io.TextIOWrapper(io.BytesIO(), encoding="ascii") as ascii_only:
        console = Console(force_terminal=True, file=ascii_only)
        assert isinstance(demo.chosen(console, as_json=False), Plain)


def test_it_stays_up_for_requests_of_ones_own_until_it_is_told_to_stop():
    with subprocess.Popen(
        [sys.executable, "-m", "examples.demo", "--serve", "--port", "0"],
        cwd=ROOT,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        found = re.search(r"http://localhost(:\d+)", process.stdout.readline())
        assert found is not None
        base = f"http://127.0.0.1{found[1]}"
        with httpx.Client(base_url=base, trust_env=False, verify=False, timeout=PATIENCE) as client:  # noqa: S501 - nothing is encrypted
            ask = CASES[0].asks[0]
            answers = [client.post(ask.path, json=ask.body) for _ in range(2)]
            job = client.post("/watch/jobs").headers["location"]
            page = client.get(f"/watch/{job}").text
            script = client.get("/watch/oncekey-events.js")
            started = client.post("/chain/start").status_code
            chain = client.get("/chain/").text  # its processes end with the demonstration
            with client.stream("GET", f"/watch/events/{job.partition('/')[2]}") as events:
                received = events.iter_lines()
                told = [line for line, _ in zip(received, range(4), strict=False)]
                process.send_signal(signal.SIGINT)  # whoever watches does not hold it up
                rest = list(received)
        out = process.stdout.read()
    assert process.returncode == 0, out
    assert [answer.status_code for answer in answers] == [200, 200]
    assert answers[1].headers["idempotent-replayed"] == "true"
    assert "<progress" in page
    assert "export function follow" in script.text
    assert started == 303
    assert "A chain of services" in chain
    assert told[0].startswith("retry: ")
    assert rest[-1:] in ([], [""])
    assert out.count("curl -i http://localhost:") == sum(len(case.asks) for case in CASES)
    assert out.endswith("Charges in the gateway's book: 1\n")
    assert "Traceback" not in out


def test_a_port_that_is_taken_is_named(capsys):
    with listening() as taken:
        port = taken.getsockname()[1]
        assert serving.serve(port) == 1
    assert f"Port {port} cannot be used" in capsys.readouterr().out
