"""`oncekey doctor` on real servers: findings and exit codes; those that count in a process."""

import json
import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from oncekey import Once
from oncekey.cli.program import program
from tests.doctor.conftest import SAFE
from tests.servers.redis_fixtures import another_redis  # noqa: F401 - a fixture

pytestmark = pytest.mark.xdist_group("doctor-postgres")  # they share a server that starts slowly


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch):
    for name in ("ONCEKEY_TTL", "ONCEKEY_RETRY_HORIZON", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def doctor(tmp_path, monkeypatch):
    """The command in this process."""
    monkeypatch.chdir(tmp_path)

    def run(url, *arguments, **settings):
        typed = ["--store", url, "doctor", *arguments]
        return CliRunner().invoke(
            program(terminal=False), typed, env=settings, catch_exceptions=False
        )

    return run


@pytest.fixture
def process(tmp_path):
    """The command in a process of its own."""

    def run(url, *arguments):
        script = "from oncekey.cli.main import main; main()"
        return subprocess.run(
            [sys.executable, "-c", script, "--store", url, "doctor", *arguments],
            cwd=tmp_path,
            env=dict(os.environ),
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_a_redis_that_evicts_and_forgets_is_found(another_redis, process):  # noqa: F811 - as above
    server = another_redis(**{"maxmemory-policy": "allkeys-lru"})
    done = process(server.url)
    assert (done.returncode, done.stderr) == (1, "")
    lines = done.stdout.splitlines()
    assert lines[0].startswith("danger   redis.eviction: a full server removes records")
    assert lines[1].strip() == "read  maxmemory-policy=allkeys-lru, maxmemory=0"
    assert lines[2].strip().startswith("do    set maxmemory-policy to noeviction")
    assert lines[3].startswith("danger   redis.persistence: a restart forgets records")
    assert lines[4].strip() == "read  appendonly=no"
    assert lines[-1] == "2 dangers, 0 warnings, 6 fine"
    assert "\x1b" not in done.stdout


def test_a_redis_without_an_append_only_file_is_found(another_redis, doctor):  # noqa: F811 - as above
    done = doctor(another_redis(**SAFE | {"appendonly": "no"}).url, "--json")
    assert done.exit_code == 1
    found = {one["check"]: one for one in map(json.loads, done.stdout.splitlines())}
    assert [name for name, one in found.items() if one["severity"] == "danger"] == [
        "redis.persistence"
    ]
    assert set(found["redis.persistence"]) == {"check", "severity", "meaning", "evidence", "fix"}


def test_a_postgres_that_does_not_wait_for_its_disk_is_found(setting, process):
    url = setting(synchronous_commit="off")
    done = process(url)
    assert (done.returncode, done.stderr) == (0, "")
    assert "warning  postgres.commit: the store's own writes wait" in done.stdout
    assert "read  synchronous_commit=off" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("0 dangers, 1 warning, ")


def test_good_configurations_are_left_in_peace(safe_redis, safe_database, process, tmp_path):
    once = Once(f"sqlite:///{tmp_path}/once.db", observers=())
    once.run("k", lambda: 7)
    once.close()
    for url in (safe_redis.url, safe_database):
        done = process(url)
        assert (done.returncode, done.stderr) == (0, ""), done.stdout
        assert done.stdout.splitlines()[-1].startswith("0 dangers, 0 warnings, ")
    done = process("sqlite:///once.db")
    assert done.returncode == 0, done.stdout


def test_late_retries_are_declared(safe_redis, doctor):
    assert doctor(safe_redis.url, "--retry-horizon", "24h").exit_code == 0
    assert doctor(safe_redis.url, "--retry-horizon", "3d").exit_code == 1
    assert doctor(safe_redis.url, "--retry-horizon", "3d", "--ttl", "7d").exit_code == 0
    assert doctor(safe_redis.url, ONCEKEY_RETRY_HORIZON="3d").exit_code == 1
    assert doctor(safe_redis.url, ONCEKEY_RETRY_HORIZON="3d", ONCEKEY_TTL="7d").exit_code == 0
    late = doctor(
        safe_redis.url, "--retry-horizon", "1h", "--events", "scan", "--marker-ttl", "5min"
    )
    assert late.exit_code == 1
    assert "marker_ttl=5min, retry horizon=1h" in late.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--retry-horizon", "soon"], "retry_horizon must be a duration"),
        (["--ttl", "0"], "ttl must be more than zero"),
        (["--events", "two words"], "a domain is a word"),
        (["--frob"], "No such option"),
    ],
)
def test_what_cannot_be_meant_is_said_in_one_sentence(safe_redis, doctor, arguments, words):
    done = doctor(safe_redis.url, *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "url", ["redis://127.0.0.1:1/0", "postgresql://127.0.0.1:1/x", "sqlite:///no.db", "memory://"]
)
def test_a_store_that_does_not_answer_is_said_in_one_sentence(doctor, url):
    done = doctor(url)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("oncekey: ")
    assert done.stderr.count("\n") == 1
