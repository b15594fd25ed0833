"""The pages about observing and the rules for Prometheus name what there really is."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # it brings no types
from prometheus_client import CollectorRegistry

from oncekey.exporter import NAMES, OUTBOX_NAMES
from oncekey.observe.prometheus import PrometheusObserver

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "observing.md").read_text("utf-8")
REFERENCE = (DOCS / "reference.md").read_text("utf-8")
GROUPS: list[dict[str, Any]] = yaml.safe_load((DOCS / "alerts.yml").read_text("utf-8"))["groups"]
RULES = [rule for group in GROUPS for rule in group["rules"]]
NAME = re.compile(r"\b(?:oncekey|idempotency)[a-z0-9_:]*")
BY_STATUS = ("oncekey_records", "oncekey_estimated_records", "oncekey_outbox_messages")
SUFFIXES = ("_bucket", "_count", "_sum")


@pytest.fixture(scope="module")
def metrics():
    """Every metric with its labels, as the registry has them."""
    registry = CollectorRegistry()
    PrometheusObserver(registry)
    made = {}
    for collector in registry._collector_to_names:
        for metric in collector._metrics:
            suffix = "_total" if metric._type == "counter" else ""
            made[metric._name + suffix] = metric._labelnames
    return made | {
        name: ("status",) if name in BY_STATUS else () for name in (*NAMES, *OUTBOX_NAMES)
    }


def test_the_page_lists_every_metric_with_its_labels_and_no_other(metrics):
    rows = re.findall(r"^\| `((?:oncekey|idempotency)_\w+)` \| (.*?) \|", PAGE, re.MULTILINE)
    listed = {name: tuple(re.findall(r"`(\w+)`(?=[,:]|$)", labels)) for name, labels in rows}
    listed = {name: labels[:1] if "result" in labels else labels for name, labels in listed.items()}
    assert listed == metrics


def test_there_are_rules():
    assert [rule["alert"] for rule in RULES if "alert" in rule]
    assert {rule["record"] for rule in RULES if "record" in rule} >= {
        "oncekey:duplicate_rate:ratio5m",
        "oncekey:hit_ratio:ratio5m",
    }


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.get("alert") or rule["record"])
def test_a_rule_asks_for_what_there_is(rule, metrics):
    known = {*metrics, *(other["record"] for other in RULES if "record" in other)}
    known |= {f"{name}{suffix}" for name in metrics for suffix in SUFFIXES}
    asked = set(NAME.findall(rule["expr"]))
    assert asked
    assert asked <= known


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.get("alert") or rule["record"])
def test_a_rule_groups_by_labels_that_there_are(rule, metrics):
    labels = {label for names in metrics.values() for label in names}
    given = {"job", "instance", "le", "result"}  # by Prometheus, by a histogram, by our own rule
    for group in re.findall(r"\bby \(([^)]*)\)", rule["expr"]):
        assert {label.strip() for label in group.split(",")} <= labels | given
    assert rule["expr"].count("(") == rule["expr"].count(")")


def test_grafana_asks_for_what_there_is(metrics):
    """There is no Grafana here: the names and labels of every panel are compared."""
    board = json.loads((DOCS / "grafana.json").read_text("utf-8"))
    known = {*metrics, *(f"{name}{suffix}" for name in metrics for suffix in SUFFIXES)}
    labels = {label for names in metrics.values() for label in names} | {"le", "result"}
    asked = set()
    for panel in board["panels"]:
        assert panel["datasource"]["uid"] == "${datasource}"
        for target in panel["targets"]:
            asked |= set(NAME.findall(target["expr"]))
            groups = re.findall(r"\bby \(([^)]*)\)", target["expr"])
            grouped = {one.strip() for group in groups for one in group.split(",")}
            assert grouped <= labels
            assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= grouped
            assert target["expr"].count("(") == target["expr"].count(")")
    assert asked <= known
    assert {"oncekey_held_records", "oncekey_oldest_held_seconds"} <= asked
    assert {"oncekey_outbox_messages", "oncekey_outbox_oldest_seconds"} <= asked
    places = [tuple(panel["gridPos"].values()) for panel in board["panels"]]
    assert len(set(places)) == len({panel["id"] for panel in board["panels"]}) == len(places)


def test_an_alert_says_what_is_wrong_and_what_to_do():
    for rule in RULES:
        if "alert" in rule:
            assert rule["labels"]["severity"] in ("critical", "warning")
            assert set(rule["annotations"]) == {"summary", "action"}


def test_there_are_alerts_for_what_waits_in_an_outbox_and_for_what_is_dead():
    asked = " ".join(rule["expr"] for rule in RULES if "alert" in rule)
    assert "oncekey_outbox_oldest_seconds" in asked
    assert 'oncekey_outbox_messages{status="dead"}' in asked


def test_the_page_names_the_ratios():
    for rule in RULES:
        if "ratio" in rule.get("record", ""):
            assert f"`{rule['record']}`" in PAGE
