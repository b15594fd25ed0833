"""The mother of all workers: a process without threads that forks one for each order it gets.

A fork costs milliseconds where a new interpreter costs a second, so that workers can be killed
by the thousand. Orders are lines of JSON on standard input; what became of them are lines on
standard output. When the input ends, all workers do.
"""

import contextlib
import os
import select
import signal
import sys
import traceback
from typing import Any, NoReturn

import msgspec

from tests.faults.matrix import events_worker, worker
from tests.faults.matrix.spec import Spec


def main() -> None:
    children: dict[int, str] = {}
    woken, wake = os.pipe()
    for one in (woken, wake):
        os.set_blocking(one, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake)
    say({"ready": os.getpid()})
    kept = b""
    while True:
        ready, _, _ = select.select([0, woken], [], [])
        if woken in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(woken, 4096)
            bury(children)
        if 0 in ready:
            data = os.read(0, 65536)
            if not data:
                end(children)
            *orders, kept = (kept + data).split(b"\n")
            for order in orders:
                obey(msgspec.json.decode(order), children)


def obey(order: dict[str, Any], children: dict[int, str]) -> None:
    if "signal" in order:
        for pid, name in children.items():
            if name == order["name"]:
                os.kill(pid, order["signal"])
        return
    kind = "spec" if "spec" in order else "router"
    name = order[kind]["name"]
    pid = os.fork()
    if pid == 0:
        be_a_child(kind, order[kind])
    children[pid] = name
    say({"started": name, "pid": pid})


def be_a_child(kind: str, facts: dict[str, Any]) -> NoReturn:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    folder, name = facts["folder"], facts["name"]
    with open(f"{folder}/trouble.{name}", "a") as trouble:  # noqa: PTH123 - the path is given
        os.dup2(trouble.fileno(), 2)
    os.close(1)
    code = 1
    try:
        if kind == "spec":
            worker.work(msgspec.convert(facts, Spec))
        else:
            events_worker.route(facts)
        code = 0
    except BaseException:  # noqa: BLE001 - whoever started it reads this
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def bury(children: dict[int, str]) -> None:
    """Whoever has ended is told of, with its return code."""
    for pid in list(children):
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            name = children.pop(pid)
            say({"ended": name, "pid": pid, "code": os.waitstatus_to_exitcode(status)})


def end(children: dict[int, str]) -> NoReturn:
    for pid in children:
        os.kill(pid, signal.SIGKILL)
    for pid in children:
        os.waitpid(pid, 0)
    raise SystemExit(0)


def say(fact: dict[str, Any]) -> None:
    os.write(1, msgspec.json.encode(fact) + b"\n")


if __name__ == "__main__":
    main()
