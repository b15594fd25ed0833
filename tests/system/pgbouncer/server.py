"""A real PgBouncer: the Debian package, between the tests and their PostgreSQL."""

import os
import pwd
import subprocess
import time
from pathlib import Path
from typing import Any

import psycopg

from tests.patience import PATIENCE
from tests.servers.ports import free_port
from tests.servers.postgres import PostgresServer
from tests.system.packages import find_pgbouncer

SIZES = {"session": 30, "transaction": 4, "statement": 4}
"""The sessions that a pool has: fewer than clients where they can be shared."""


class PgBouncer:
    """One process that pools connections to a server. It refuses root, and runs as nobody then."""

    def __init__(self, folder: Path, server: PostgresServer, pool_mode: str) -> None:
        self._folder = folder
        self._server = server
        self._mode = pool_mode
        self.port = free_port()
        self.process: Any = None

    def start(self) -> "PgBouncer":
        program = find_pgbouncer()
        assert program is not None, "no PgBouncer: run make test-servers, which installs it"
        users = self._folder / "users.txt"
        users.write_text(f'"postgres" "{self._server.password}"\n')
        settings = self._folder / "pgbouncer.ini"
        settings.write_text(
            f"[databases]\n* = host=127.0.0.1 port={self._server.port}\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {self.port}\nunix_socket_dir =\n"
            f"auth_type = trust\nauth_file = {users}\n"
            f"pool_mode = {self._mode}\ndefault_pool_size = {SIZES[self._mode]}\n"
            f"server_lifetime = 86400\n"
        )
        who: dict[str, Any] = {}
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            who = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
            for path in (self._folder, users, settings):
                os.chown(path, nobody.pw_uid, nobody.pw_gid)
        self.process = subprocess.Popen(
            [program, "--quiet", str(settings)],
            cwd=self._folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, **who,
        )  # fmt: skip
        give_up = time.monotonic() + PATIENCE
        while True:
            try:
                psycopg.connect(self.url("postgres")).close()
            except psycopg.OperationalError:
                assert self.process.poll() is None, "PgBouncer ended by itself"
                assert time.monotonic() < give_up, "PgBouncer does not answer"
                time.sleep(0.01)
            else:
                return self

    def url(self, database: str) -> str:
        """Return the URL of a database of the server, through the pool."""
        return self._server.url(database).replace(f":{self._server.port}/", f":{self.port}/")

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(PATIENCE)
