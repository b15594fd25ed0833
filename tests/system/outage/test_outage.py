"""A provider's outage: held, alerted, found, understood and resolved in bulk by commands.

The command line runs in processes of its own, and a Prometheus with our rules watches the exporter.
"""

import json
import subprocess
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]  # it brings no types

from oncekey import Once, Policy
from tests.cli.outage import CHARGED, MANY, Provider, charge_all
from tests.cli.page import environment
from tests.fixtures import until
from tests.servers.ports import free_port
from tests.servers.postgres_fixtures import _shared_database, empty_postgres_url, postgres
from tests.servers.redis_fixtures import empty_redis, redis_server
from tests.system.packages import find_prometheus

__all__ = [
    "_shared_database",
    "empty_postgres_url",
    "empty_redis",
    "postgres",
    "redis_server",
    "until",
]

RULES = Path(__file__).parents[3] / "docs" / "alerts.yml"


@pytest.fixture(params=["sqlite", "redis", "postgres"])
def url(request, tmp_path):
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'records.db'}"
    if request.param == "redis":
        return request.getfixturevalue("empty_redis").url
    return request.getfixturevalue("empty_postgres_url")


@pytest.fixture
def once(url):
    """The shop before the outage."""
    once = Once(url, observers=(), policy=Policy(on_crash="hold"))
    once.run("opened", lambda: True)
    yield once
    once.close()


@pytest.fixture
def oncekey(url, tmp_path):
    """Runs a command. Returns its output, and its exit code where that is not 0."""

    def oncekey(*words: str, code: int = 0) -> str:
        done = subprocess.run(
            ["oncekey", *words],  # noqa: S607 - the one beside this interpreter
            cwd=tmp_path,
            env={**environment(), "ONCEKEY_STORE": url},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    return oncekey


@contextmanager
def running(*words: str, **options):
    """A process that ends with the block."""
    with subprocess.Popen(words, text=True, **options) as process:
        try:
            yield process
        finally:
            process.terminate()


@pytest.fixture
def alerts(url, once, tmp_path, until):
    """Asks Prometheus which alerts fire."""
    program = find_prometheus()
    assert program is not None, "no Prometheus: run make test-servers, which installs it"
    exporting = running(
        "oncekey", "exporter", "--port", "0",
        env={**environment(), "ONCEKEY_STORE": url, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
    )  # fmt: skip
    with exporting as exporter:
        target = exporter.stdout.readline().split("/")[2]
        settings = tmp_path / "prometheus.yml"
        wanted = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(RULES)],
            "scrape_configs": [{"job_name": "oncekey", "static_configs": [{"targets": [target]}]}],
        }
        settings.write_text(yaml.safe_dump(wanted))
        place = f"127.0.0.1:{free_port()}"

        def firing() -> set[str]:
            try:
                with urllib.request.urlopen(f"http://{place}/api/v1/alerts") as answer:
                    told = json.load(answer)["data"]["alerts"]
            except OSError:  # it is still starting
                return set()
            return {one["labels"]["alertname"] for one in told if one["state"] == "firing"}

        watching = running(
            program,
            f"--config.file={settings}",
            f"--storage.tsdb.path={tmp_path / 'prometheus'}",
            f"--web.listen-address={place}",
            stderr=subprocess.DEVNULL,
        )
        with watching:
            yield firing


def test_an_outage_from_the_alert_to_the_audit(once, oncekey, alerts, until):
    provider = Provider()
    charge_all(once, provider)
    until(lambda: "OncekeyHeld" in alerts())

    assert json.loads(oncekey("stats", "--json"))["by_status"]["held"] == MANY
    listed = oncekey("ls", "--status", "held", "--limit", "0", "--json").splitlines()
    assert len({json.loads(line)["name"] for line in listed}) == MANY
    assert "300  held  charge  billing" in oncekey("resolve-all", "--retry", "--dry-run")
    shown = oncekey("show", "billing/charge:5299")
    assert 'noted request = "req-5299"' in shown
    assert "held: TimeoutError: the provider did not answer within 10 s" in shown

    for order, receipt in provider.done.items():
        name = f"billing/charge:{order}"
        oncekey("resolve", name, "--result", json.dumps(receipt), "--reason", "in its list")
    rest = MANY - len(CHARGED)
    chosen = ("resolve-all", "--label", "charge", "--retry", "--reason", "provider down")
    assert f"{rest} records match, not {MANY}" in oncekey(*chosen, "--expect", str(MANY), code=1)
    assert "OncekeyHeld" in alerts()
    assert oncekey(*chosen, "--expect", str(rest)) == f"{rest} of {rest} resolved\n"

    until(lambda: "OncekeyHeld" not in alerts())
    assert json.loads(oncekey("stats", "--json"))["by_status"]["held"] == 0
    deeds = [json.loads(line) for line in oncekey("audit", "--limit", "0", "--json").splitlines()]
    assert len({deed["name"] for deed in deeds}) == len(deeds) == MANY
    reasons = [(deed["action"], deed["reason"]) for deed in deeds]
    assert reasons.count(("retry", "provider down")) == rest
    assert reasons.count(("resolve", "in its list")) == len(CHARGED)
    assert all("@" in deed["by"] for deed in deeds)

    billing = once.options(scope="billing", label="charge")
    for order, receipt in CHARGED.items():
        assert billing.run(f"charge:{order}", provider.charge, order) == receipt
    assert billing.run("charge:5299", lambda: "ch_new") == "ch_new"
