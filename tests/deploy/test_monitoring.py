"""Alert rules and dashboard as files: whole, checked, and about metrics that are explained."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.support.monitoring import (
    ALERTS,
    DASHBOARD,
    FOLDER,
    PAGE,
    alert_expressions,
    dashboard_expressions,
    documented_names,
    names_in,
)

promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed (Debian: prometheus)"
)


def run(*arguments: str, folder: Path = FOLDER) -> str:
    done = subprocess.run(arguments, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@promtool
def test_the_rules_are_legal() -> None:
    assert "rules found" in run("promtool", "check", "rules", ALERTS.name)


@promtool
def test_alerts_fire_when_they_should_and_not_before() -> None:
    assert "SUCCESS" in run("promtool", "test", "rules", "alerts_test.yaml")


@promtool
def test_every_query_of_the_dashboard_is_legal(tmp_path: Path) -> None:
    rules = [
        {"record": f"panel:{number}", "expr": expression}
        for number, expression in enumerate(dashboard_expressions())
    ]
    document = {"groups": [{"name": "dashboard", "rules": rules}]}
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(document))
    run("promtool", "check", "rules", "rules.yaml", folder=tmp_path)


def test_every_alert_says_what_it_is_and_what_to_do() -> None:
    rules = [
        rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]
    ]
    assert len({rule["alert"] for rule in rules}) == len(rules) > 15
    for rule in rules:
        assert rule["labels"]["severity"] in ("warning", "critical"), rule["alert"]
        assert set(rule["annotations"]) == {"summary", "description"}, rule["alert"]


def test_what_alerts_and_dashboard_ask_for_is_explained() -> None:
    asked = names_in(alert_expressions() + dashboard_expressions())
    assert len(asked) > 30
    assert asked <= documented_names()


def test_labels_and_metrics_of_rocketmq_that_are_missing_are_named() -> None:
    """Labels of RocketMQ 5 (its BrokerMetricsManager and RemotingMetricsConstant)."""
    every = {
        "rocketmq_producer_connections": {"language", "version", "protocol_type"},
        "rocketmq_consumer_connections": {
            *("consumer_group", "language", "version", "consume_mode", "protocol_type"),
            "is_system",
        },
        "rocketmq_rpc_latency": {
            *("protocol_type", "request_code", "response_code", "is_long_polling", "result"),
        },
    }
    page = PAGE.read_text()
    missing = page.partition("### What RocketMQ 5 has and this has not")[2].partition("\n## ")[0]
    for name, labels in every.items():
        (row,) = re.findall(rf"^\| `{name}` \|[^|]*\|([^|]*)\|", page, re.MULTILINE)
        (said,) = re.findall(rf"^- `{name}`: ([^;.]*)[;.]", missing, re.MULTILINE)
        assert set(re.findall(r"`(\w+)`", said)) == labels - set(re.findall(r"`(\w+)`", row))
    for name in ("rocketmq_consumer_queueing_latency", "rocketmq_processor_watermark"):
        assert name in missing
        assert name not in documented_names()


def test_the_dashboard_s_panels_stand_side_by_side() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells
