"""A report as JSON: for programs, and so that the page can be written from it at any time."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from typing import Any

from bench.report.rows import Report, Row
from bench.settings import Settings
from bench.timing import Spread


class NotOursError(ValueError):
    """It was not written by this version of the benchmark."""


def as_json(report: Report) -> str:
    """Everything, unrounded."""
    rows = [
        {**asdict(row), "ratio": row.ratio and row.ratio._asdict(), "verdict": row.verdict}
        for row in report.rows
    ]
    whole = {
        "settings": asdict(report.settings),
        "machine": report.machine,
        "parts": report.parts,
        "rows": rows,
    }
    return json.dumps(whole, indent=2, ensure_ascii=False)


def from_json(text: str) -> Report:
    """The report that `as_json` wrote."""
    try:
        whole = json.loads(text)
        settings = Settings(**whole["settings"])
        rows = [_row(row) for row in whole["rows"]]
        return Report(settings, whole["machine"], rows, tuple(whole["parts"]))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        msg = f"these are not results of this version of the benchmark: {error!r}"
        raise NotOursError(msg) from error


def _row(told: dict[str, Any]) -> Row:
    known = {field.name: told[field.name] for field in fields(Row)}
    if known["ratio"] is not None:
        known["ratio"] = Spread(**known["ratio"])
    return Row(**known)
