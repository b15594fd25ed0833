"""The suite's own rules hold, in one process and with workers."""

from pathlib import Path

import pytest

from tests.heavy import HEAVY

CONFTEST = Path(__file__).parents[1] / "conftest.py"

PASSES = "def test_it(): pass"

BREAKS_THE_RULES = {
    "skip in a test": "import pytest\ndef test_it(): pytest.skip('no reason')",
    "skip marker": "import pytest\n@pytest.mark.skip('no reason')\ndef test_it(): pass",
    "skipif marker": (
        "import pytest\n@pytest.mark.skipif(True, reason='no reason')\ndef test_it(): pass"
    ),
    "skip in a fixture": (
        "import pytest\n@pytest.fixture\ndef thing(): pytest.skip('no reason')\n"
        "def test_it(thing): pass"
    ),
    "skip in unittest": (
        "import unittest\nclass TestIt(unittest.TestCase):\n"
        "    def test_it(self): self.skipTest('no reason')"
    ),
    "xfail marker that fails": (
        "import pytest\n@pytest.mark.xfail(reason='no reason')\ndef test_it(): assert False"
    ),
    "xfail marker that passes": (
        "import pytest\n@pytest.mark.xfail(reason='no reason', strict=False)\ndef test_it(): pass"
    ),
    "skip for want of servers": (
        "import pytest\ndef test_it(): pytest.skip('this run starts no servers: no reason')"
    ),
    "xfail in a test": "import pytest\ndef test_it(): pytest.xfail('no reason')",
    "module skips itself": "import pytest\npytest.skip('no reason', allow_module_level=True)",
    "module misses an import": (
        "import pytest\npytest.importorskip('no_such_module', reason='no reason')"
    ),
    "module cannot be imported": "import no_such_module  # no reason",
    "row that does not exist": (
        "import pytest\n@pytest.mark.row('J1', 'Q9')\ndef test_it(): 'no reason'"
    ),
    "row without an id": "import pytest\n@pytest.mark.row()\ndef test_it(): pass",
    "row of a class that does not exist": (
        "import pytest\n@pytest.mark.row('Q9')\nclass TestIt:\n    def test_it(self): pass"
    ),
}


WAYS = {"one process": "-n0", "workers": "-n1"} if HEAVY else {"one process": "-n0"}


@pytest.fixture(params=WAYS.values(), ids=list(WAYS))
def run(request: pytest.FixtureRequest, pytester: pytest.Pytester, monkeypatch):
    def run(**modules: str) -> pytest.RunResult:
        # The inner run is no part of what the outer one measures.
        for name in ("COVERAGE_PROCESS_CONFIG", "COVERAGE_PROCESS_START"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("ONCEKEY_TEST_SERVERS", "none")  # only --no-servers excuses a skip
        monkeypatch.setenv("PYTHONPATH", str(CONFTEST.parents[1]))  # it imports from there
        pytester.makeconftest(CONFTEST.read_text("utf-8"))
        (pytester.path / "docs").mkdir()
        (pytester.path / "docs" / "requirements.md").write_text("| J1 | it works | not yet |\n")
        (pytester.path / "pytest.ini").write_text(
            "[pytest]\nmarkers =\n    row(*ids): rows\nfilterwarnings = error\n"
        )
        pytester.makepyfile(**modules)
        return pytester.runpytest_subprocess(
            "-p", "no:cacheprovider", "-rfE", "--continue-on-collection-errors", request.param
        )

    return run


def test_whatever_evades_a_test_is_a_failure(run):
    modules = {f"test_{case.replace(' ', '_')}": text for case, text in BREAKS_THE_RULES.items()}
    result = run(test_good=PASSES, **modules)

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert {*result.parseoutcomes()} == {"passed", "failed", "errors"}
    result.assert_outcomes(passed=1, failed=6, errors=9)
    blamed = [
        line.split()[1].split(".py")[0]
        for line in result.outlines
        if line.startswith(("FAILED ", "ERROR "))
    ]
    assert sorted(blamed) == sorted(modules)


@pytest.mark.parametrize("case", ["skip marker", "module skips itself"])
def test_one_skip_is_enough_to_fail_the_suite_and_its_reason_is_shown(run, case):
    result = run(test_good=PASSES, test_subject=BREAKS_THE_RULES[case])

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*does not allow*no reason*"])


def test_an_honest_suite_passes(run):
    proves = "import pytest\n@pytest.mark.row('J1')\ndef test_it(): pass"
    result = run(test_good=PASSES, test_subject=proves)

    assert result.ret == pytest.ExitCode.OK
    result.assert_outcomes(passed=2)


async def test_async_tests_run_on_asyncio(anyio_backend_name):
    assert anyio_backend_name == "asyncio"
