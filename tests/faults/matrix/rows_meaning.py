"""Rows about what a call means: how long, the same or another, how large, and never."""

import asyncio
import json
import random
import time
from collections import Counter
from contextlib import closing
from functools import partial
from typing import Any

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from oncekey import KeyReusedError, Once, ResultNotKeptError
from oncekey.http.asgi import IdempotencyMiddleware
from tests.faults.matrix.cells import cell
from tests.faults.matrix.lab import Lab, Result, Run
from tests.faults.matrix.spec import SCOPE
from tests.faults.matrix.verdict import Figures

STORES = ("sqlite", "redis", "postgres", "mariadb")


@cell("F11", "the ttl is half, once, twice the retry horizon", STORES, mode="bare")
def horizons(lab: Lab, store: str) -> Result:
    """F11: whoever repeats a call after the ttl runs it again; before that nobody does."""
    horizon = 1.0 if lab.small else 3.0
    keys = 20 if lab.small else 100
    again: dict[str, int] = {}
    asked = 0
    with closing(Once(lab.places.get(store).fresh(), cache=False, observers=())) as once:
        for times in (0.5, 1.1, 2.0):
            counts: Counter[str] = Counter()
            view = once.options(scope=f"ttl {times}", ttl=horizon * times)
            began = time.monotonic()
            while time.monotonic() - began < horizon:
                for number in range(keys):
                    view.run(f"k{number}", partial(counts.update, [f"k{number}"]))
                asked += keys
                time.sleep(horizon / 20)
            again[f"{times}x"] = sum(count > 1 for count in counts.values())
    figures = Figures(keys=3 * keys, operations=asked, asked_again=sum(again.values()))
    figures.doubled = again["1.1x"] + again["2.0x"]
    return Result(
        figures=figures,
        passed=again["0.5x"] > 0 and not figures.doubled,
        promise="0 doubled from the horizon on; below it: shown",
        notes={f"run again at {name}": count for name, count in again.items()},
    )


def pairs(seed: int, count: int) -> list[tuple[Any, Any, bool]]:
    """Two payloads, and whether they mean the same."""
    dice = random.Random(seed)  # noqa: S311 - no secret
    values: list[Any] = [
        0,
        1,
        100,
        -5,
        0.5,
        1e20,
        "",
        "a",
        "é",
        "\u0065\u0301",
        "1",
        True,
        None,
        [],
    ]
    found = []
    for _ in range(count):
        first = {dice.choice("abc"): dice.choice(values) for _ in range(dice.randrange(1, 4))}
        first["nested"] = {"x": [dice.choice(values), dice.choice(values)]}
        second = dict(sorted(first.items(), reverse=dice.random() < 0.5))
        same = dice.random() < 0.5
        if not same:
            place = dice.choice(sorted(second))
            second[place] = "something else" if place != "nested" else {"x": ["other"]}
        found.append((first, second, same))
    return found


@cell("F12", "the same key for another operation", STORES, mode="bare")
def reuse(lab: Lab, store: str) -> Result:
    """F12: another payload is a conflict, the same in another form is none."""
    missed = false = 0
    cases = pairs(12, 60 if lab.small else 1000)
    with closing(Once(lab.places.get(store).fresh(), observers=())) as once:

        @once("{key}", scope=SCOPE)
        def work(key: str, payload: dict[str, Any]) -> str:
            return key

        for number, (first, second, same) in enumerate(cases):
            work(f"k{number}", first)
            try:
                work(f"k{number}", second)
            except KeyReusedError:
                false += same
            else:
                missed += not same
    figures = Figures(keys=len(cases), operations=2 * len(cases), doubled=missed, mismatched=false)
    return Result(
        figures=figures,
        passed=not missed and not false,
        promise="0 missed conflicts, 0 false ones",
        notes={"pairs": len(cases), "missed": missed, "false": false},
    )


@cell("F12", "the same key for another request or tenant", STORES, surface="http", mode="bare")
def reuse_http(lab: Lab, store: str) -> Result:
    """F12: JSON in another form is the same request; another tenant has keys of its own."""
    cases = pairs(13, 40 if lab.small else 500)
    wrong: list[str] = []

    async def pay(request: Request) -> PlainTextResponse:
        return PlainTextResponse(f"{request.headers['X-Tenant']}: {await request.body()!r}")

    async def ask() -> None:
        once = Once(url, observers=())
        app = IdempotencyMiddleware(
            Starlette(routes=[Route("/pay", pay, methods=["POST"])]),
            once,
            scope=lambda request: request.header("x-tenant"),
        )
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
            for number, (first, second, same) in enumerate(cases):
                answers: list[httpx.Response] = []
                for tenant, body in (("a", first), ("a", second), ("b", second)):
                    loose = json.dumps(body, indent=len(answers) or None, ensure_ascii=not answers)
                    headers = {
                        "Idempotency-Key": f"k{number}",
                        "X-Tenant": tenant,
                        "Content-Type": "application/json",
                    }
                    answers.append(await client.post("/pay", content=loose, headers=headers))
                if answers[1].status_code != (200 if same else 422):
                    wrong.append(f"{first} and {second}: {answers[1].status_code}")
                if same and answers[1].text != answers[0].text:
                    wrong.append(f"{first}: another answer")
                if answers[2].status_code != 200 or not answers[2].text.startswith("b:"):
                    wrong.append(f"{first}: the other tenant got {answers[2].text}")
        await once.aclose()

    url = lab.places.get(store).fresh()
    asyncio.run(ask())
    figures = Figures(keys=len(cases), operations=3 * len(cases), mismatched=len(wrong))
    return Result(
        figures=figures,
        passed=not wrong,
        promise="0 missed conflicts, 0 false ones, tenants apart",
        notes={"pairs": len(cases), **({"wrong": wrong[:3]} if wrong else {})},
    )


@cell("F13", "results from 1 B to 16 MB, and some that cannot be kept", STORES, mode="bare")
def sizes(lab: Lab, store: str) -> Result:
    """F13: what fits comes back byte for byte; what does not never runs again."""
    kept = [1, 100, 10_000, 500_000, 1_000_000]
    large = [2_000_000] if lab.small else [2_000_000, 16_000_000]
    runs: dict[str, int] = {}
    wrong: list[str] = []
    with closing(Once(lab.places.get(store).fresh(), cache=False, observers=())) as once:
        for size in (*kept, *large):

            def work(size: int = size) -> bytes:
                runs[f"{size}"] = runs.get(f"{size}", 0) + 1
                return bytes(range(256)) * (size // 256) + b"x" * (size % 256)

            first = once.run(f"k{size}", work)
            try:
                again = once.run(f"k{size}", work)
            except ResultNotKeptError:
                if size in kept:
                    wrong.append(f"{size} was not kept")
            else:
                if again != first or size in large:
                    wrong.append(f"{size} came back as {len(again)}")

        def strange() -> object:
            runs["strange"] = runs.get("strange", 0) + 1
            return object()

        once.run("strange", strange)
        try:
            once.run("strange", strange)
        except ResultNotKeptError:
            pass
        else:
            wrong.append("an object came back")
    doubled = sum(count > 1 for count in runs.values())
    figures = Figures(keys=len(runs), operations=2 * len(runs), doubled=doubled)
    figures.mismatched = len(wrong)
    return Result(
        figures=figures,
        passed=not wrong and not doubled,
        promise="the same bytes, or a refusal; never a second run",
        notes={"wrong": wrong} if wrong else {},
    )


@cell("F14", "some keys kill whoever runs them", STORES, mode="held")
def poison(lab: Lab, store: str) -> Result:
    """F14: after three attempts such a key is held, and the others flow."""
    url = lab.places.get(store).fresh()
    keys, each, most = (40, 20, 3) if lab.small else (300, 30, 3)
    run = Run(
        place=url,
        mode="bare",
        keys=keys,
        options={"poison": each, "max_attempts": most, "lease": "300ms", "callers": 1},
    )
    attempts: list[int] = []

    def heal(_crowd: Any) -> None:
        with closing(Once(url, observers=())) as once:
            for record in list(once.scan(scope=SCOPE, status="held")):
                attempts.append(record.attempt)
                once.resolve(record.key, scope=SCOPE, retry=True)  # the poison is taken out

    figures = lab.crowd(run, heal=heal)
    wanted = [most] * (keys // each)
    return Result(
        figures=figures,
        passed=figures.clean and attempts == wanted and not figures.asked_again,
        promise=f"held after exactly {most} attempts; 0 doubled, 0 lost",
        notes={"held": len(attempts), "attempts of each": sorted(set(attempts))},
    )
