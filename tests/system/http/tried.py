"""Try real clients and signers, and print what they did: `python -m tests.system.http.tried`.

With `--write` the tables go into `docs/http-clients.md`.
"""

import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.outside.environment import ROOT
from tests.system.http import environment
from tests.system.http.serving import served

PAGE = ROOT / "docs" / "http-clients.md"
HERE = Path(__file__).parent


def found() -> dict[str, Any]:
    """Run the clients of Python and of Node against the service."""
    python, node = environment.prepare(), environment.prepare_node()
    with (
        tempfile.TemporaryDirectory() as folder,
        served("tests.system.http.clients_site:app", Path(folder)) as address,
    ):
        told = json.loads(_run(python, "-m", "tests.system.http.clients", address))
        more = json.loads(_run("node", HERE / "clients.mjs", address, cwd=node))
    return {"clients": {**told["clients"], **more}, "signers": told["signers"]}


def _run(*words: object, cwd: Path | None = None) -> str:
    done = environment.run(*words, cwd=cwd)
    if done.returncode:
        raise SystemExit(done.stderr)
    return done.stdout


def tables(said: dict[str, Any]) -> str:
    """Return two tables of Markdown."""
    clients = [
        [
            name,
            "sends a random one" if one["own_key"] else "sends none",
            "the first answer, once run" if one["replayed"] else "WRONG",
            str(one["other"]),
            "asks again by itself" if one["by_itself"] else "the caller asks again",
            "the first answer, once run" if one["after_loss"] else "WRONG",
        ]
        for name, one in said["clients"].items()
    ]
    signers = [
        [name, f"`{one['preset']}`", *map(str, one["statuses"]), str(one["runs"])]
        for name, one in said["signers"].items()
    ]
    heads = (
        ["client", "without a key", "sent twice", "another body", "answer lost", "it then gets"],
        ["signer", "preset", "delivered", "again", "with another body", "runs"],
    )
    return "\n".join(
        _table(head, rows) for head, rows in zip(heads, (clients, signers), strict=True)
    )


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [f"| {' | '.join(line)} |\n" for line in (head, *rows)]
    return "".join([lines[0], "|---" * len(head) + "|\n", *lines[1:]])


def in_page(text: str) -> str:
    """Return the tables in the text of the page."""
    return "\n".join(re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE))


def main(words: list[str]) -> None:
    made = tables(found())
    if words == ["--write"]:
        text = PAGE.read_text("utf-8")
        for old, new in zip(in_page(text).split("\n\n"), made.split("\n\n"), strict=True):
            text = text.replace(old.strip("\n"), new.strip("\n"))
        PAGE.write_text(text, "utf-8")
    else:
        sys.stdout.write(made)


if __name__ == "__main__":
    main(sys.argv[1:])
