"""A queue in an environment of its own, which reads calls and writes what came of them.

python -m tests.system.queues.program arq redis://... redis://...
"""

import importlib
import json
import sys

from oncekey import Once
from tests.jobs.queues import FailedError


def main(name: str, broker: str, store: str) -> None:
    queue = importlib.import_module(f"tests.system.queues.{name}").Queue(broker, Once(store))
    _write({"value": "ready"})  # and its tables are there
    for line in sys.stdin:
        method, args = json.loads(line)
        try:
            found = getattr(queue, method)(*args)
        except FailedError as error:
            answer = {"failed": str(error)}
        else:
            if method == "put_once":
                found = [found.handle, found.duplicate]
            answer = {"value": found}
        _write(answer)
    queue.close()


def _write(answer: object) -> None:
    sys.stdout.write(f"{json.dumps(answer)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
