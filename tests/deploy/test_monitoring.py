"""Alert rules and dashboard as files: whole, checked, and about metrics that are explained."""

from __future__ import annotations

import inspect
import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from grpc_health.v1 import health_pb2

from aerobee.broker.counters import OWN_REFUSALS
from aerobee.offset_audit.outputs import prometheus
from aerobee.runtime.metrics.rpc_latencies import snake_case
from tests.docs.operations.machines import etcd_programs
from tests.support.cache_folder import cache_folder
from tests.support.command_parsing import parsed
from tests.support.etcd_cluster import running_members
from tests.support.monitoring import (
    DASHBOARD,
    FOLDER,
    OF_AUDITS,
    PAGE,
    ROOT,
    RULES,
    alert_expressions,
    alert_rules,
    dashboard_expressions,
    dashboard_panels,
    documented_names,
    names_in,
    rules,
)
from tests.support.scrapes import Scrape

SCENARIOS = sorted(FOLDER.glob("*_test.yaml"))
OF_DAYS = {"missing_test", "objectives_test", "etcd_alerts_test"}
"""Whose series are long: promtool takes seconds for them."""
ALERTS_PAGE = ROOT / "docs" / "operations" / "alerts.md"
RUNBOOKS = "https://aerobee.example/docs/operations/alerts.md#"
"""A name that nobody can own, for a place that each user names: deploy/k8s/README.md, the chart."""
SCRAPE_MAX_S = 60
"""Between scrapes of the slowest Prometheus that nothing shall page without need."""
SCREEN_UNITS = 24
"""Of Grafana's grid, 38 pixels each: what a screen of 1080 lines shows below the browser's bars."""
NOT_OF_ONE_SCRAPE = {
    "AerobeeAuditLogCutOff",
    "AerobeeAuditLogLosesLines",
    "AerobeeCertificateExpiresSoon",
    "AerobeeRecordsMisplaced",
    "AerobeeUnreadMessagesLost",
}
"""Pages about what a hand-over cannot look like: they need not wait."""

PROGRAMS = {"aerobee", "kubectl", "etcdctl", "openssl", "iostat", "df", "ls"}
"""Of commands that alerts name."""

PROMTOOL = shutil.which("promtool") or shutil.which(
    cache_folder() / "promtool" / "bin" / "promtool"
)
promtool = pytest.mark.skipif(
    PROMTOOL is None, reason="promtool is not installed (Debian: prometheus)"
)


def run(*arguments: str, folder: Path = FOLDER) -> str:
    done = subprocess.run(arguments, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@promtool
@pytest.mark.parametrize("file", RULES, ids=lambda file: file.stem)
def test_the_rules_are_legal(file: Path) -> None:
    assert "rules found" in run(str(PROMTOOL), "check", "rules", file.name)


@promtool
@pytest.mark.slow
@pytest.mark.parametrize(
    "file",
    [
        pytest.param(file, marks=[pytest.mark.thorough] if file.stem in OF_DAYS else [])
        for file in SCENARIOS
    ],
    ids=lambda file: file.stem,
)
def test_alerts_fire_when_they_should_and_not_before(file: Path) -> None:
    assert "SUCCESS" in run(str(PROMTOOL), "test", "rules", file.name)


def test_each_alert_has_a_scenario_in_which_it_fires() -> None:
    """And every scenario's other alerts are told to be silent: expectations name all that fire."""
    fired: set[str] = set()
    for file in SCENARIOS:
        for scenario in yaml.safe_load(file.read_text())["tests"]:
            fired |= {
                one["alertname"] for one in scenario.get("alert_rule_test", ()) if one["exp_alerts"]
            }
            for one in scenario.get("promql_expr_test", ()):
                text = "".join(sample["labels"] for sample in one.get("exp_samples", ()))
                fired |= set(re.findall(r'alertname="(\w+)"', text + one["expr"] * bool(text)))
    assert fired == {rule["alert"] for rule in alert_rules()}


@promtool
def test_every_query_of_the_dashboard_is_legal(tmp_path: Path) -> None:
    rules = [
        {"record": f"panel:{number}", "expr": expression}
        for number, expression in enumerate(dashboard_expressions())
    ]
    document = {"groups": [{"name": "dashboard", "rules": rules}]}
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(document))
    run(str(PROMTOOL), "check", "rules", "rules.yaml", folder=tmp_path)


def test_every_alert_says_what_it_is_and_where_to_read_on() -> None:
    alerts = alert_rules()
    assert len({rule["alert"] for rule in alerts}) == len(alerts) > 40
    assert len(alerts) + len([rule for rule in rules() if "record" in rule]) == len(rules())
    for rule in alerts:
        name = rule["alert"]
        assert rule["labels"] in ({"severity": "page"}, {"severity": "ticket"}), name
        annotations = set(rule["annotations"]) - {"says"}
        assert annotations == {"summary", "description", "command", "runbook_url"}, name
        assert rule["annotations"]["runbook_url"] == RUNBOOKS + name.lower()


def test_every_alert_carries_a_command_that_exists_and_the_sentence_that_it_then_prints() -> None:
    """At night nobody reads a page first. The sentences are those of the program's source."""
    roots = ("cli", "client_core", "cluster_view", "nameserver", "broker", "offset_audit")
    sources = "".join(
        file.read_text("utf-8") for root in roots for file in (ROOT / root).rglob("*.py")
    )
    sources += "".join(health_pb2.HealthCheckResponse.ServingStatus.keys())
    for rule in alert_rules():
        command = re.sub(r"{{[^}]*}}", "x:1", rule["annotations"]["command"])
        program, *words = shlex.split(command)
        assert program in PROGRAMS, rule["alert"]
        if program != "aerobee":
            continue
        # A file that does not exist here is no mistake of the rule.
        context = parsed([word.replace("FILE", str(ALERTS_PAGE)) for word in words])
        assert context.command.name
        says = rule["annotations"].get("says", "")
        assert says in sources, rule["alert"]
        tells = words in (["cluster", "show"], ["doctor"]) or words[0] == "health"
        assert says or not tells, f"{rule['alert']}: what does the command say?"


def test_what_pages_outlasts_a_scrape() -> None:
    """A gauge that was true in a hand-over stays so until the next scrape."""
    for rule in alert_rules():
        if rule["labels"]["severity"] == "page" and rule["alert"] not in NOT_OF_ONE_SCRAPE:
            number, unit = re.fullmatch(r"(\d+)([sm])", rule["for"]).groups()  # type: ignore[union-attr]
            assert int(number) * {"s": 1, "m": 60}[unit] > SCRAPE_MAX_S, rule["alert"]


def test_the_page_of_alerts_has_each_of_them_and_no_other() -> None:
    """`### Name`, then how urgent it is and how long it has to hold, then what to do."""
    sections = re.findall(r"(?ms)^### (\w+)\n\n(.*?)(?=^##|\Z)", ALERTS_PAGE.read_text("utf-8"))
    assert [name for name, _ in sections] == [rule["alert"] for rule in alert_rules()]
    for (name, text), rule in zip(sections, alert_rules(), strict=True):
        first = text.splitlines()[0]
        wait = f" after {rule['for']}" if "for" in rule else ""
        assert first.startswith(f"*{rule['labels']['severity']}{wait}*"), name
        assert len(text) > len(first) + 80, f"{name} says too little"
        for target in re.findall(r"\]\(([^)#]*)[^)]*\)", text):
            assert not target or (ALERTS_PAGE.parent / target).exists(), f"{name}: {target}"


def test_sends_that_fail_are_those_that_brokers_count_from_the_start() -> None:
    (asked,) = set(re.findall(r'reason=~"([^"]*)"', "".join(alert_expressions())))
    assert set(asked.split("|")) == {snake_case(name) for name in OWN_REFUSALS} - {"not_master"}


def test_what_alerts_and_dashboard_ask_for_is_explained() -> None:
    asked = names_in(alert_expressions() + dashboard_expressions())
    assert len(asked) > 30
    assert asked <= documented_names()


def test_audits_leave_what_is_asked_of_them() -> None:
    page, source = (ROOT / "docs" / "audit.md").read_text(), inspect.getsource(prometheus)
    for name in OF_AUDITS:
        assert f"`{name}`" in page
        assert f'"{name.removeprefix("aerobee_audit_")}"' in source


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
    panels = dashboard_panels()
    assert len({panel["id"] for panel in panels}) == len(panels)
    shown = json.loads(DASHBOARD.read_text())["panels"]
    are_apart(shown)
    for row in (panel for panel in shown if panel.get("collapsed")):
        are_apart(row["panels"])


def test_the_first_screen_says_whether_anything_is_wrong_and_the_rest_is_collapsed() -> None:
    """Six figures, the alerts and the objectives; and each panel says what it means."""
    shown = json.loads(DASHBOARD.read_text())["panels"]
    rows = [panel for panel in shown if panel["type"] == "row"]
    assert [row["collapsed"] for row in rows] == [False, *[True] * (len(rows) - 1)]
    first = [panel for panel in shown if panel["type"] != "row"]
    assert max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in first) <= SCREEN_UNITS
    assert [panel["type"] for panel in first[:7]] == [*["stat"] * 6, "table"]
    assert 'ALERTS{alertstate="firing"' in first[6]["targets"][0]["expr"]
    assert "aerobee:send_errors" in "".join(panel["targets"][0]["expr"] for panel in first)
    for panel in first[:6]:
        # Where nothing reports, a figure is unknown, and not zero.
        assert "vector(0)" not in panel["targets"][0]["expr"]
        assert panel["fieldConfig"]["defaults"]["noValue"] == "unknown"
    for panel in dashboard_panels():
        assert panel["type"] == "row" or len(panel["description"]) > 15, panel["title"]


def are_apart(panels: list[dict[str, Any]]) -> None:
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


@pytest.mark.slow
def test_etcd_has_the_series_that_are_asked_of_it(tmp_path: Path) -> None:
    """Of a real one, whose members know each other."""
    asked = set(re.findall(r"\betcd_\w+", "".join(alert_expressions() + dashboard_expressions())))
    assert len(asked) >= 8
    with running_members(tmp_path, 3, programs=etcd_programs()) as members:
        scrape = Scrape.of(members[0].endpoint.removeprefix("http://"))
    # How many members there are tells etcd 3.6 in this way, and any etcd in the other one.
    known = "etcd_network_known_peers"
    assert asked <= scrape.names() | {known}
    assert known not in scrape.names() or scrape.total(known) == 3
    assert len(scrape.rows("etcd_network_active_peers")) == 2
    assert scrape.get("etcd_server_has_leader") == 1
