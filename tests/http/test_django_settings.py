"""The setting ONCEKEY: every mistake in it is named when the server starts."""

import subprocess
import sys
from typing import Any

import pytest
from django.core.checks import run_checks  # type: ignore[import-untyped]  # Django brings no types
from django.core.handlers.wsgi import WSGIHandler  # type: ignore[import-untyped]  # Django brings no types
from django.test import override_settings  # type: ignore[import-untyped]  # Django brings no types

from oncekey import ConfigurationError, Once, Policy
from oncekey.http import WEBHOOK
from oncekey.http.django import _rules_of as rules_of
from tests.http.django_project import OURS

MEMORY: dict[Any, Any] = {"store": "memory://", "scope": None}
KIND = WEBHOOK.replace(name="ours")
POLICY = Policy(ttl="7d")
once = Once("memory://")


class LateError(Exception):
    pass


def whose(request):
    return "everybody"


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("redis://", "ONCEKEY must be a dict"),
        ({"store": "memory://"}, "needs scope="),
        ({**MEMORY, "tll": "7d"}, "there is no setting tll"),
        ({**MEMORY, 7: 7}, "there is no setting 7"),
        ({**MEMORY, "ttl": "a week"}, "ttl"),
        ({**MEMORY, "store": "carrier-pigeon://"}, "carrier-pigeon"),
        ({**MEMORY, "profile": "strip"}, "profile names 'strip'"),
        ({**MEMORY, "scope": "shop.nowhere.whose"}, "scope names 'shop.nowhere.whose'"),
        ({**MEMORY, "scope": f"{__name__}.nobody"}, "cannot be imported"),
        ({**MEMORY, "when": f"{__name__}.MEMORY"}, "when must be a function"),
        ({**MEMORY, "once": f"{__name__}.once"}, "store and prefix belong to a Once"),
        ({"once": f"{__name__}.MEMORY", "scope": None}, "once must be a Once"),
        ({**MEMORY, "routes": "/orders"}, "routes and methods are lists"),
        ({**MEMORY, "uncertain": ["shop.LateError"]}, "uncertain names 'shop.LateError'"),
        ({**MEMORY, "uncertain": 7}, "uncertain"),
    ],
)
def test_a_mistake_is_named_at_the_start_and_by_the_check(setting, says):
    with override_settings(ONCEKEY=setting, MIDDLEWARE=[OURS]):
        with pytest.raises(ConfigurationError, match=says):
            WSGIHandler()
        (found,) = [one for one in run_checks() if one.id == "oncekey.E001"]
    assert says in found.msg
    assert found.is_serious()


def test_names_stand_for_what_they_name():
    rules = rules_of(
        {
            "once": f"{__name__}.once",
            "profile": f"{__name__}.KIND",
            "policy": f"{__name__}.POLICY",
            "scope": f"{__name__}.whose",
            "uncertain": [f"{__name__}.LateError", TimeoutError],
        }
    )
    assert rules.once is once
    assert rules.profile is KIND
    assert rules.terms.ttl == 7 * 24 * 3600 * 1_000_000
    assert rules.terms.uncertain == (LateError, TimeoutError)
    assert rules._scope is whose


@pytest.mark.parametrize("scope", ["oncekey.http.by_user", "/userId", None])
def test_scopes_that_need_no_code(scope):
    assert rules_of({"store": "memory://", "scope": scope})


def test_all_who_name_one_store_share_it():
    first = rules_of({"store": "memory://", "prefix": "a:", "scope": None})
    assert rules_of({"store": "memory://", "prefix": "a:", "scope": "/user"}).once is first.once
    assert rules_of({"store": "memory://", "prefix": "b:", "scope": None}).once is not first.once


def test_a_setting_that_is_right_has_nothing_to_say():
    with override_settings(ONCEKEY=MEMORY):
        assert not [one for one in run_checks() if one.id == "oncekey.E001"]


def test_manage_py_finds_the_mistake(tmp_path):
    (tmp_path / "shop.py").write_text(
        "SECRET_KEY = 'a secret of tests'\n"
        "INSTALLED_APPS = ['oncekey.http.django']\n"
        "ONCEKEY = {'store': 'memory://'}\n"
    )
    checked = subprocess.run(
        [sys.executable, "-m", "django", "check", "--settings=shop"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 1
    assert "?: (oncekey.E001) ONCEKEY is wrong: the profile 'ietf' needs scope=" in checked.stderr
