"""The alerts about what is in the stores, asked by Prometheus' own tests of rules."""

import subprocess
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]  # it brings no types

RULES = Path(__file__).parents[3] / "docs" / "alerts.yml"


def looks(job: str, *, up: str, held: str = "0x720") -> list[dict[str, str]]:
    """What Prometheus saw of the store of a service, in its own words."""
    told = {"oncekey_store_up": up, "oncekey_held_records": held}
    return [{"series": f'{name}{{job="{job}"}}', "values": seen} for name, seen in told.items()]


@pytest.mark.parametrize(
    ("alert", "at", "jobs"),
    [
        ("OncekeyHeld", "2m", ["shop"]),
        ("OncekeyHeld", "2h", ["shop"]),
        ("OncekeyHeld", "2h50m", []),
        ("OncekeyNotExported", "9m", []),
        ("OncekeyNotExported", "20m", ["mail"]),
    ],
)
def test_each_store_has_its_own_alert(tmp_path, alert, at, jobs):
    """Of two stores one is down from the tenth minute on, and one holds records for 2 h 40."""
    [rule] = [
        one
        for group in yaml.safe_load(RULES.read_text("utf-8"))["groups"]
        for one in group["rules"]
        if one.get("alert") == alert
    ]
    series = [*looks("shop", up="1x720", held="3x640 0x80"), *looks("mail", up="1x40 0x680")]
    expected = [
        {"exp_labels": {**rule["labels"], "job": job}, "exp_annotations": rule["annotations"]}
        for job in jobs
    ]
    test = {
        "interval": "15s",
        "input_series": series,
        "alert_rule_test": [{"eval_time": at, "alertname": alert, "exp_alerts": expected}],
    }
    path = tmp_path / "tests.yml"
    path.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "tests": [test]}))
    done = subprocess.run(
        ["promtool", "test", "rules", path],  # noqa: S607 - it comes with Prometheus
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
