"""What the monitoring files query from Prometheus, and what the documentation lists."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy" / "monitoring"
RULES = tuple(FOLDER / name for name in ("alerts.yaml", "etcd_alerts.yaml", "objectives.yaml"))
"""Files of rules, as Prometheus loads them."""
DASHBOARD = FOLDER / "dashboard.json"
PAGE = ROOT / "docs" / "monitoring.md"

OF_AUDITS = ("aerobee_audit_exit_code", "aerobee_audit_run_timestamp_seconds")
"""Not served by a process: a run of the audit writes them to a file, as docs/audit.md explains."""

_NAME = re.compile(r"\b(?:aerobee|rocketmq|process)_[a-z0-9_]+\b(?!:)")
_ROW = re.compile(r"^\| `([a-z0-9]+_[a-z0-9_]+)` \|", re.MULTILINE)
_SERIES_OF_HISTOGRAMS = ("_bucket", "_count", "_sum")


def rules() -> list[dict[str, Any]]:
    """Alerts and recording rules, in file order."""
    groups = [group for file in RULES for group in yaml.safe_load(file.read_text())["groups"]]
    return [rule for group in groups for rule in group["rules"]]


def alert_rules() -> list[dict[str, Any]]:
    return [rule for rule in rules() if "alert" in rule]


def alert_expressions() -> list[str]:
    """Includes those of recording rules."""
    return [rule["expr"] for rule in rules()]


def dashboard_panels() -> list[dict[str, Any]]:
    """Rows as well, and the panels within those that are collapsed."""
    panels: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    return [one for panel in panels for one in (panel, *panel.get("panels", ()))]


def dashboard_expressions() -> list[str]:
    """With the dashboard's variables filled in."""
    found = [target["expr"] for panel in dashboard_panels() for target in panel.get("targets", ())]
    return [_filled(expression) for expression in found]


def variable_queries() -> list[str]:
    variables: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["templating"]["list"]
    return [one["query"]["query"] for one in variables if one["type"] == "query"]


def _filled(expression: str) -> str:
    return re.sub(
        r"\$(cluster|node|topic|group|namespace)", "x", expression.replace("$__rate_interval", "5m")
    )


def names_in(expressions: Sequence[str]) -> set[str]:
    """Metrics by the family names of a scrape; without those of audits."""
    found = {family_of(name) for text in expressions for name in _NAME.findall(text)}
    return found - set(OF_AUDITS)


def family_of(name: str) -> str:
    for ending in _SERIES_OF_HISTOGRAMS:
        name = name.removesuffix(ending)
    return name


def documented_names() -> set[str]:
    return set(_ROW.findall(PAGE.read_text()))
