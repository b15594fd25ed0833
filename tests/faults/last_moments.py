"""A process that makes one unprotected call, and ends as soon as it has the answer."""

import asyncio
import sys

from oncekey import Once
from oncekey.engine import keeper
from tests.patience import PATIENCE


def say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def work() -> str:
    say("inside")
    sys.stdin.readline()
    return "done"


async def work_async() -> str:
    return work()


if __name__ == "__main__":
    vars(keeper)["_LAST_CHANCE"] = PATIENCE
    once = Once(sys.argv[2], observers=()).options(fail_mode="open")
    if sys.argv[1] == "threads":
        say(once.run("job", work))
    else:
        say(asyncio.run(once.run_async("job", work_async)))
