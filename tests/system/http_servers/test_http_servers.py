"""Both middlewares behind the servers that people use, below a prefix as each of them has it."""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from oncekey import Once
from tests.outside.environment import ROOT, pip
from tests.patience import PATIENCE
from tests.servers.ports import free_port

pytestmark = pytest.mark.xdist_group("http_servers")  # one process installs them
FOLDER = ROOT / "build" / "http-servers"
CONSTRAINTS = Path(__file__).with_name("constraints.txt")
SHOP = "tests.system.http_servers.shop"


class Server(NamedTuple):
    """The arguments of a server, and the path at which a client or a proxy asks it for orders."""

    arguments: str
    prefix: str
    http2: bool = False
    script_name: str = ""


SERVERS = {
    "uvicorn-h11": Server(f"uvicorn --http h11 --root-path /api --port PORT {SHOP}:asgi_app", ""),
    "uvicorn-httptools": Server(
        f"uvicorn --http httptools --root-path /api --port PORT {SHOP}:asgi_app", ""
    ),
    "hypercorn": Server(
        f"hypercorn --keep-alive 3600 --root-path /api -b 127.0.0.1:PORT {SHOP}:asgi_app", ""
    ),
    "hypercorn-http2": Server(
        f"hypercorn --keep-alive 3600 --root-path /api -b 127.0.0.1:PORT {SHOP}:asgi_app",
        "",
        http2=True,
    ),
    "granian": Server(
        f"granian --interface asgi --url-path-prefix /api --port PORT {SHOP}:asgi_app", "/api"
    ),
    "granian-wsgi": Server(
        f"granian --interface wsgi --url-path-prefix /api --port PORT {SHOP}:wsgi_app", "/api"
    ),
    "gunicorn-gthread": Server(
        f"gunicorn -k gthread --threads 4 -b 127.0.0.1:PORT {SHOP}:wsgi_app", "/api", False, "/api"
    ),
    "gunicorn-gevent": Server(
        f"gunicorn -k gevent -b 127.0.0.1:PORT {SHOP}:wsgi_app", "/api", False, "/api"
    ),
    "waitress": Server(
        f"waitress --url-prefix=/api --listen=127.0.0.1:PORT {SHOP}:wsgi_app", "/api"
    ),
}


@pytest.fixture(scope="module")
def installed() -> Path:
    """The folder with exactly the packages of the constraints."""
    stamp, wanted = FOLDER / "stamp", f"{sys.version}\n{CONSTRAINTS.read_text('utf-8')}"
    if not stamp.is_file() or stamp.read_text("utf-8") != wanted:
        shutil.rmtree(FOLDER, ignore_errors=True)
        pip(Path(sys.executable), "install", "--no-deps", "--target", FOLDER, "-r", CONSTRAINTS)
        stamp.write_text(wanted, "utf-8")
    return FOLDER


def answers(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def started(server: Server, installed: Path, folder: Path) -> Iterator[str]:
    """Yield the address of the server, which answers by then."""
    port = free_port()
    paths = os.pathsep.join(map(str, (ROOT / "src", ROOT, installed)))
    environment = {**os.environ, "PYTHONPATH": paths, "SHOP_FOLDER": str(folder)}
    if server.script_name:
        environment["SCRIPT_NAME"] = server.script_name
    command = [sys.executable, "-m", *server.arguments.replace("PORT", str(port)).split()]
    with subprocess.Popen(command, env=environment, cwd=folder) as process:
        try:
            give_up = time.monotonic() + PATIENCE
            while not answers(port):
                assert process.poll() is None
                assert time.monotonic() < give_up
                time.sleep(0.05)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(PATIENCE)


@pytest.mark.parametrize("name", SERVERS)
def test_a_request_runs_once_below_a_prefix(name, installed, tmp_path, monkeypatch):
    server = SERVERS[name]
    monkeypatch.syspath_prepend(installed)  # httpx needs h2
    with (
        started(server, installed, tmp_path) as url,
        httpx.Client(base_url=url, http1=not server.http2, http2=server.http2) as client,
    ):
        orders, parts = f"{server.prefix}/orders", f"{server.prefix}/parts"
        assert client.post(orders).status_code == 400
        key = {"Idempotency-Key": "k"}
        first, again = (client.post(orders, headers=key, json={}) for _ in range(2))
        assert (first.status_code, first.json()) == (201, {"order": 1})
        assert (again.json(), again.headers["Idempotent-Replayed"]) == ({"order": 1}, "true")
        first, again = (client.post(parts, headers=key) for _ in range(2))
        assert first.content == again.content == b"one,two,six."
        assert first.http_version == ("HTTP/2" if server.http2 else "HTTP/1.1")
    assert (tmp_path / "orders.txt").read_text() == "order\n" * 2
    once = Once(f"sqlite:///{tmp_path}/records.db")
    assert {record.scope for record in once.scan()} == {"POST:/api/orders", "POST:/api/parts"}
    once.close()


def test_under_trio_an_application_does_not_start(installed, tmp_path):
    paths = os.pathsep.join(map(str, (ROOT / "src", ROOT, installed)))
    done = subprocess.run(
        [sys.executable, "-m", "hypercorn", "-k", "trio", "-b", "127.0.0.1:0", f"{SHOP}:asgi_app"],
        env={**os.environ, "PYTHONPATH": paths, "SHOP_FOLDER": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert "async calls need an event loop of asyncio" in done.stderr


def test_the_constraints_are_names_and_versions():
    lines = CONSTRAINTS.read_text("utf-8").splitlines()
    assert all(line.count("==") == 1 and "/" not in line for line in lines)
