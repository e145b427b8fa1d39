"""What a run says outside of Spark: metrics, text, JSON, and files that are replaced as a whole."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from aerobee.offset_audit.outputs.after import FINDINGS_MAX, after
from aerobee.offset_audit.outputs.console import printed
from aerobee.offset_audit.outputs.local_files import replace_file
from aerobee.offset_audit.outputs.prometheus import metrics_text
from aerobee.offset_audit.outputs.summary import Summary

AT_MS = 1_790_000_000_000
SAMPLE = re.compile(r'aerobee_audit_\w+(\{(\w+="(\\.|[^"\\\n])*",?)+\})? -?\d+(\.\d+)?')

SUMMARY = Summary(
    run_id="r",
    run_at_ms=AT_MS,
    judged_at_ms=AT_MS,
    took_ms=1_500,
    depth="snapshot",
    engine="local",
    clusters=("harbour",),
    version="1",
    counts={"INFO": 0, "WARNING": 1, "ERROR": 0, "CRITICAL": 0},
    checks=({"check": "LAG", "severity": "WARNING", "findings": 1, "affected": None},),
    findings=(
        {
            "check": "LAG",
            "severity": "WARNING",
            "cluster": "harbour",
            "group": "billing",
            "topic": "orders",
            "queue_id": 3,
            "affected": 12_345,
            "state": "LAGGING",
            "previous_state": "OK",
            "first_seen_ms": AT_MS - 60_000,
            "evidence": "It lags.",
            "command": "aerobee group show billing",
        },
    ),
    states={"LAGGING": 1, "OK": 2},
    groups=(
        {
            "cluster": "harbour",
            "group": 'odd "name"\n\\',
            "topic": "orders",
            "lag": 12_345,
            "matching_lag": None,
            "unknown": 0,
            "first_unread_ms": AT_MS - 2_500,
        },
    ),
    groups_total=1,
    brokers=(
        {"broker_name": "broker-b", "broker_id": 1, "address": "h:1", "answered": False},
        {"broker_name": "broker-a", "broker_id": 0, "address": "h:2", "answered": True},
    ),
    brokers_total=2,
    brokers_answered=1,
    stages_ms={"judge": 7},
    rows={"commits": 3},
    waiting=({"cluster": "harbour", "topic": "orders", "kind": "TIMER", "messages": 12},),
    waiting_total=1,
    failed=(
        {
            "cluster": "harbour",
            "group": "billing",
            "sent": 1_200,
            "finished": None,
            "unread": 0,
            "waiting": None,
            "again": 2,
            "dead": 3,
            "resent": 0,
            "twice": 0,
        },
    ),
    failed_total=1,
    not_asked=("GAP", "CORRUPT"),
)


def test_every_line_of_the_metrics_is_one_that_prometheus_reads() -> None:
    lines = metrics_text(SUMMARY).splitlines()
    assert metrics_text(SUMMARY).endswith("\n")
    described: list[str] = []
    for line in lines:
        if line.startswith("# TYPE"):
            described.append(line.split()[2])
        elif not line.startswith("# HELP"):
            assert SAMPLE.fullmatch(line), line
            # The samples of one metric stand together, behind its type.
            assert re.split(r"[{ ]", line)[0] == described[-1]
    assert len(described) == len(set(described))


def test_metrics_say_what_is_known_and_nothing_else() -> None:
    text = metrics_text(SUMMARY)
    pair = 'cluster="harbour",group="odd \\"name\\"\\n\\\\",topic="orders"'
    assert f"aerobee_audit_group_lag_messages{{{pair}}} 12345\n" in text
    assert f"aerobee_audit_group_lag_age_seconds{{{pair}}} 2.5\n" in text
    assert 'aerobee_audit_check_findings{check="LAG",severity="WARNING"} 1\n' in text
    assert "aerobee_audit_exit_code 1\n" in text
    assert 'aerobee_audit_queues{state="STUCK"} 0\n' in text
    of_billing = 'cluster="harbour",group="billing",state'
    assert f'aerobee_audit_failed_messages{{{of_billing}="dead"}} 3\n' in text
    assert f'{of_billing}="waiting"' not in text
    of_orders = 'cluster="harbour",topic="orders",kind="TIMER"'
    assert f"aerobee_audit_waiting_messages{{{of_orders}}} 12\n" in text
    assert "matching_lag_messages{" not in text
    assert "check_affected{" not in text


def test_text_tells_findings_with_what_to_do_and_what_was_not_seen() -> None:
    text = printed(replace(SUMMARY, notes=("something was not read",)), "text")
    assert text.splitlines() == [
        "1 warning, no errors. Stored bytes were not read.",
        "harbour: snapshot of 2026-09-21 14:13:20 UTC, took 1 s in this process",
        "1 of 2 brokers answered; 3 queues of 1 pair of group and topic: 1 LAGGING, 2 OK",
        "  no answer from broker-b:1 at h:1",
        "  group billing: 1,200 sent: ? finished, ? waiting for a retry, 2 to be retried, 3 dead",
        "  note: something was not read",
        "  not asked: GAP, CORRUPT",
        "",
        "WARNING LAG: group billing, orders/3 · 12,345 affected · "
        "since 1 min (2026-09-21 14:12:20 UTC) · was OK",
        "  It lags.",
        "  run (shows): aerobee group show billing",
    ]
    assert printed(SUMMARY, "none") == ""
    nothing = printed(replace(SUMMARY, findings=(), counts={}), "text")
    assert nothing.startswith("No findings. Stored bytes were not read.\n")


def test_the_first_words_say_what_is_lost() -> None:
    checks = (
        {"check": "GAP", "severity": "CRITICAL", "findings": 2, "affected": 1_203},
        {"check": "CORRUPT", "severity": "CRITICAL", "findings": 1, "affected": None},
        {"check": "CORRUPT", "severity": "ERROR", "findings": 1, "affected": 7},
        {"check": "ROUTE", "severity": "CRITICAL", "findings": 1, "affected": 2},
    )
    told = replace(SUMMARY, checks=checks, counts={"CRITICAL": 4, "ERROR": 1})
    assert printed(told, "text").startswith(
        "Lost or skipped: 1,203 messages (GAP), an unknown number (CORRUPT). "
        "4 critical findings, 1 error. "
    )


@pytest.mark.parametrize(
    ("counts", "depth", "not_asked", "words"),
    [
        ({}, "snapshot", ("GAP",), "No findings. Stored bytes were not read."),
        (
            {"WARNING": 12},
            "snapshot",
            ("GAP",),
            "12 warnings, no errors. Stored bytes were not read.",
        ),
        (
            {"CRITICAL": 1, "ERROR": 2, "WARNING": 1, "INFO": 3},
            "deep",
            ("GAP",),
            "1 critical finding, 2 errors, 1 warning, 3 notes. "
            "Of stored bytes only the brokers' own checksums were compared.",
        ),
        (
            {"INFO": 1},
            "deep",
            (),
            "1 note, no errors. All bytes of the named stores were read.",
        ),
    ],
)
def test_the_verdict_says_what_was_found_and_what_was_not_read(
    counts: dict[str, int], depth: str, not_asked: tuple[str, ...], words: str
) -> None:
    summary = replace(SUMMARY, counts=counts, depth=depth, not_asked=not_asked)
    assert summary.verdict == words
    assert json.loads(summary.text())["verdict"] == words
    assert words in printed(summary, "text")


def test_json_is_the_summary_with_its_exit_code() -> None:
    document = json.loads(printed(SUMMARY, "json"))
    assert (document["worst"], document["exit_code"]) == ("WARNING", 1)
    assert document["findings"][0]["group"] == "billing"
    assert document["findings"][0]["command_effect"] == "shows"
    assert document["not_asked"] == ["GAP", "CORRUPT"]
    assert document["notes"] == []


def test_a_file_is_replaced_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "new" / "metrics.prom"
    replace_file(path, "one\n")
    replace_file(path, "größer\n")
    assert path.read_text(encoding="utf-8") == "größer\n"
    with pytest.raises(UnicodeEncodeError):
        replace_file(path, "half\n" * 10_000 + "\ud800")
    assert path.read_text(encoding="utf-8") == "größer\n"
    assert [one.name for one in path.parent.iterdir()] == ["metrics.prom"]


def test_a_file_that_cannot_be_written_is_an_error_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(OSError, match="taken"):
        replace_file(tmp_path / "taken" / "report.html", "x")


def test_an_earlier_finding_is_cured_only_if_this_run_could_have_found_it_again() -> None:
    def finding(check: str, broker: str | None = "broker-a", **values: object) -> dict[str, object]:
        place = dict.fromkeys(("cluster", "broker_id", "topic", "queue_id", "group"))
        return {**place, "check": check, "broker_name": broker, "evidence": f"{check}.", **values}

    earlier = {
        "run_id": "then",
        "run_at_ms": 1,
        "findings": [
            finding("LAG", None, group="billing"),
            finding("LAG", None, group="mail"),
            finding("GAP", topic="orders"),
            finding("ROUTE", "broker-b"),
        ],
    }
    now = [
        finding("LAG", None, group="mail", evidence="It lags more."),
        finding("STUCK", None, group="mail"),
    ]
    brokers = [
        {"broker_name": "broker-a", "answered": True},
        {"broker_name": "broker-b", "answered": False},
    ]
    told = after(earlier, now, findings_total=2, not_asked=["GAP"], brokers=brokers)
    assert [one["group"] for one in told.cured] == ["billing"]
    assert [one["group"] for one in told.still] == ["mail"]
    assert [one["check"] for one in told.unknown] == ["GAP", "ROUTE"]
    assert [one["check"] for one in told.new or ()] == ["STUCK"]
    text = printed(replace(SUMMARY, after=told), "text")
    assert "since run then: 1 new, 1 cured, 1 still there, 2 not known now\n" in text
    assert "  new: STUCK: STUCK.\n" in text
    assert "  still there: LAG: LAG.\n" in text
    assert "  cured: LAG: LAG.\n" in text
    of_history = printed(replace(SUMMARY, after=replace(told, is_asked=False)), "text")
    assert "  cured: LAG: LAG.\n" in of_history
    assert "  still there: LAG" not in of_history
    of_many = after(earlier, now, findings_total=999, not_asked=[], brokers=brokers)
    assert of_many.cured == ()
    of_one_group = after(
        earlier, now, findings_total=2, not_asked=[], brokers=brokers, groups=["mail"]
    )
    assert of_one_group.cured == ()
    many = {**earlier, "findings": [finding("GAP", topic=f"t-{n}") for n in range(FINDINGS_MAX)]}
    assert after(many, now, findings_total=2, not_asked=[], brokers=brokers).new is None
