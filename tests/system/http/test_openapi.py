"""Linters find nothing in what we add to documents, and a fuzzer finds that services keep to it."""

import json
from collections import Counter
from pathlib import Path

import pytest

from examples.payments.document import DOCUMENT
from tests.patience import PATIENCE
from tests.system.http import environment
from tests.system.http.documents import FRAMEWORKS
from tests.system.http.serving import served

pytestmark = pytest.mark.xdist_group("http")  # one process makes the environment

CASES = "40"
# The demo's gateway is down and hangs on cue, which its document says: 503 and 504.
DEMO = "not_a_server_error"
# The fuzzer sends one key with several bodies, which is refused, and FastAPI answers 405 without
# all methods that it has.
SHOP = "positive_data_acceptance,allow_header_conformance"


@pytest.fixture(scope="module")
def python():
    return environment.prepare()


@pytest.fixture(scope="module")
def node():
    return environment.prepare_node()


def redocly(node, path):
    """The rules that a document breaks according to Redocly, and how often."""
    done = environment.run(
        node / "node_modules" / ".bin" / "redocly",
        *("lint", path, "--extends=recommended", "--format=json"),
        cwd=node,
    )
    found = json.loads(done.stdout[done.stdout.index("{") :])
    return Counter(one["ruleId"] for one in found["problems"])


def spectral(node, path):
    """The same according to Spectral."""
    rules = node / "spectral.json"
    rules.write_text('{"extends": ["spectral:oas"]}', "utf-8")
    done = environment.run(
        node / "node_modules" / ".bin" / "spectral",
        *("lint", path, "--ruleset", rules, "--format", "json", "--quiet"),
        cwd=node,
    )
    return Counter(one["code"] for one in json.loads(done.stdout))


LINTERS = [redocly, spectral]


def written(path: Path, document: object) -> Path:
    path.write_text(json.dumps(document), "utf-8")
    return path


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_linters_find_nothing_in_what_is_added(python, node, framework, tmp_path):
    done = environment.run(python, "-m", "tests.system.http.documents", framework)
    assert done.returncode == 0, done.stderr
    plain, described = json.loads(done.stdout)
    operation = described["paths"]["/orders"]["post"]
    assert operation["parameters"] == [{"$ref": "#/components/parameters/IdempotencyKey"}]
    assert operation["responses"].keys() >= {"201", "400", "409", "413", "422", "503"}
    assert "x-idempotency" not in described["paths"]["/orders"].get("get", {})
    for linter in LINTERS:
        before = linter(node, written(tmp_path / "plain.json", plain))
        after = linter(node, written(tmp_path / "described.json", described))
        # A shared response to which something is added is written out, and may be used no more.
        for rule in ("no-unused-components", "oas3-unused-component"):
            before[rule] = max(before[rule], after[rule])
        assert after <= before, linter.__name__


@pytest.mark.parametrize("linter", LINTERS)
def test_a_linter_finds_what_is_wrong(node, linter, tmp_path):
    wrong = {**DOCUMENT, "paths": {"/orders": {"post": {"parameters": [{"$ref": "#/nowhere"}]}}}}
    assert linter(node, written(tmp_path / "wrong.json", wrong))


def fuzz(python, address, tmp_path, without):
    return environment.run(
        python.with_name("schemathesis"),
        *("run", f"{address}/openapi.json", "--url", address, "--max-examples", CASES),
        *("--request-timeout", PATIENCE, "--seed", 7, "--no-color", "--exclude-checks", without),
        cwd=tmp_path,
    )


def test_the_demo_is_linted_and_keeps_to_its_document(python, node, tmp_path):
    with served("examples.payments.app:app", tmp_path, "--factory") as address:
        document = environment.run("curl", "-s", f"{address}/openapi.json").stdout
        path = tmp_path / "openapi.json"
        path.write_text(document, "utf-8")
        assert not redocly(node, path)
        assert not spectral(node, path)
        done = fuzz(python, address, tmp_path, DEMO)
    assert done.returncode == 0, done.stdout
    assert "No issues found" in done.stdout


def test_a_shop_in_fastapi_keeps_to_its_document(python, tmp_path):
    with served("tests.system.http.fastapi_shop:make", tmp_path, "--factory") as address:
        done = fuzz(python, address, tmp_path, SHOP)
    assert done.returncode == 0, done.stdout
    assert "No issues found" in done.stdout


def test_the_fuzzer_notices_what_is_not_in_the_document(python, tmp_path):
    with served("tests.system.http.silent_shop:app", tmp_path) as address:
        done = fuzz(python, address, tmp_path, SHOP)
    assert done.returncode == 1, done.stdout
    assert "Undocumented status code" in done.stdout


def test_the_constraints_are_names_and_versions():
    lines = environment.CONSTRAINTS.read_text("utf-8").splitlines()
    assert all(line.count("==") == 1 and "/" not in line for line in lines)
