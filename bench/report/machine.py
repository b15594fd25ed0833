"""What a reader must know about the machine; nothing that would tell whose it is."""

from __future__ import annotations

import os
import platform
import sqlite3
import subprocess
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import redis
from redis.utils import HIREDIS_AVAILABLE

from bench.peers.functions import WANTED
from bench.redis_server import Server
from tests.servers.postgres import binaries
from tests.system.packages import find_mariadb


def facts(folder: Path, server: Server | None) -> dict[str, str]:
    """Names and values, in the order in which they are shown."""
    parser = "hiredis" if HIREDIS_AVAILABLE else "Python"
    return {
        "processor": f"{os.cpu_count()} x {platform.machine()}",
        "load at the start": f"{os.getloadavg()[0]:.1f}",
        "system": platform.system(),
        "file system": file_system(folder),
        "Python": f"{platform.python_implementation()} {platform.python_version()}",
        "oncekey": version("oncekey"),
        "SQLite": f"{sqlite3.sqlite_version}, WAL, synchronous=FULL",
        "redis-py": f"{redis.__version__}, parser in {parser}",
        "redis-server": "none was found" if server is None else server.version,
        "PostgreSQL": postgres_version(),
        "MariaDB": mariadb_version(),
        "peers": ", ".join(_plain(wanted) for wanted in WANTED.values()),
    }


def postgres_version() -> str:
    """Of the one that the tests use."""
    try:
        program = binaries() / "postgres"
    except RuntimeError:
        return "none was found"
    told = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    return told.stdout.split()[2]


def mariadb_version() -> str:
    """Of the Debian package, which the tests of `make test-servers` use."""
    program = find_mariadb()
    if program is None:
        return "none was found"
    told = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
    return told.stdout.split()[2].partition("-")[0]


def _plain(wanted: Sequence[str]) -> str:
    """The name and the version of a requirement, without what it shall bring along."""
    name, _, version = wanted[0].partition("==")
    return f"{name.partition('[')[0]} {version}"


def file_system(folder: Path) -> str:
    """The kind of the one the files are on; on one in memory a commit costs next to nothing."""
    try:
        mounts = [line.split() for line in Path("/proc/mounts").read_text("utf-8").splitlines()]
    except OSError:
        return "unknown"
    place = folder.resolve()
    fitting = [mount for mount in mounts if place.is_relative_to(mount[1])]
    return max(fitting, key=lambda mount: len(mount[1]))[2] if fitting else "unknown"
