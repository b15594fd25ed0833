"""docs/doctor.md names every check, and its example is what the command prints."""

import re
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from oncekey.cli.program import program
from tests.servers.redis_fixtures import another_redis  # noqa: F401 - a fixture

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "doctor.md").read_text("utf-8")
SOURCES = sorted((ROOT / "src" / "oncekey" / "doctor").glob("*.py"))
CHECK = re.compile(r'"((?:redis|postgres|sqlite|memory|events|store)\.[a-z_]+)"')
CHANGING = (
    (r"redis_version=[\d.]+", "redis_version=6.2.14"),
    (r"[+-]\d\.\d{3} s from", "+0.000 s from"),
    (r"give or take \d\.\d{3} s", "give or take 0.000 s"),
)


def test_the_page_names_every_check_and_no_other():
    made = {check for path in SOURCES for check in CHECK.findall(path.read_text("utf-8"))}
    made |= {"lifetime.ttl", "lifetime.marker_ttl"}
    listed = re.findall(r"^\| (`[^|]*`) \|", PAGE.partition("## What it looks at")[2], re.MULTILINE)
    assert {name for row in listed for name in re.findall(r"`([^`]+)`", row)} == made


@pytest.fixture
def steady():
    def steady(text):
        for pattern, instead in CHANGING:
            text = re.sub(pattern, instead, text)
        return text

    return steady


def test_the_example_is_what_the_command_prints(another_redis, steady):  # noqa: F811 - as above
    server = another_redis(**{"maxmemory-policy": "allkeys-lru"})
    [example] = re.findall(r"```console\n\$ oncekey [^\n]* doctor\n(.*?)```", PAGE, re.DOTALL)
    done = CliRunner().invoke(program(terminal=False), ["--store", server.url, "doctor"])
    assert steady(done.stdout) == steady(example)


def test_the_page_names_every_option():
    command = getattr(get_command(program(terminal=False)), "commands")["doctor"]  # noqa: B009 - untyped
    known = {option for parameter in command.params for option in parameter.opts}
    wanted = {option for option in known if option.startswith("--")} - {"--help"}
    assert set(re.findall(r"^\| `(--[a-z-]+)", PAGE, re.MULTILINE)) == wanted
