"""The arguments of an audit are understood, or refused in one sentence, without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from aerobee.offset_audit.rules.limits import LIMIT_NAMES, Limits
from aerobee.offset_audit.run.arguments import parse_arguments
from aerobee.offset_audit.run.request import StorePlace, store_place
from aerobee.offset_audit.run.source_options import live_options, options_of
from aerobee.runtime.errors import InvalidArgument


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("/data/a", StorePlace("/data/a")),
        ("/data/a=broker-a", StorePlace("/data/a", "broker-a")),
        ("/data/a=broker-a:2", StorePlace("/data/a", "broker-a", 2)),
        ("s3a://bucket/day=1/store", StorePlace("s3a://bucket/day=1/store")),
        ("/data/x=y/*=broker-b:0", StorePlace("/data/x=y/*", "broker-b", 0)),
    ],
)
def test_a_store_is_a_path_and_perhaps_whose_it_is(text: str, place: StorePlace) -> None:
    assert store_place(text) == place


def test_all_arguments_reach_the_request(tmp_path: Path) -> None:
    secrets = tmp_path / "options"
    secrets.write_text("# of the auditor\ntls.ca = /ca.pem\ncredentials.secret=a=b\n")
    line = (
        "--nameserver ns:1 --cluster harbour --store /a=b:1 --store /c --deep --group g --topic t "
        f"--history hdfs://h/x --out {tmp_path} --limit lag-messages=5 "
        f"--option timeoutMs=9 --options {secrets} --spark spark.executor.memory=4g "
        "--master local[4] --format json"
    )
    request = parse_arguments(line.split(), program="audit")
    assert (request.nameservers, request.cluster) == ("ns:1", "harbour")
    assert request.stores == (StorePlace("/a", "b", 1), StorePlace("/c"))
    assert request.is_deep
    assert (request.groups, request.topics) == (("g",), ("t",))
    assert request.parquet == request.history == "hdfs://h/x"
    assert request.limits == {"lag_messages": 5}
    assert request.source_options == {
        "tls.ca": "/ca.pem",
        "credentials.secret": "a=b",
        "timeoutMs": "9",
    }
    assert request.spark_settings == {"spark.executor.memory": "4g"}
    assert request.watch_s is None


def test_no_source_means_the_cluster_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AEROBEE_NAMESERVER", "elsewhere:1")
    assert parse_arguments([], program="audit").nameservers == "elsewhere:1"
    assert parse_arguments(["--store", "/a"], program="audit").nameservers == ""


def test_a_cluster_is_named_as_every_other_command_names_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AEROBEE_NAMESERVER", "elsewhere:1")
    named = parse_arguments(["--cluster", "harbour"], program="audit")
    assert (named.nameservers, named.cluster) == ("elsewhere:1", "harbour")
    assert live_options(named).cluster == "harbour"
    monkeypatch.setenv("AEROBEE_CLUSTER", "port")
    usual = parse_arguments([], program="audit")
    assert live_options(usual).cluster == "port"
    assert options_of(usual, StorePlace("/a")) == {"checkBodies": "true"}, "files say their own"
    with pytest.raises(InvalidArgument, match="use --nameserver ns-1:8081"):
        parse_arguments(["--cluster", "ns-1:8081"], program="audit")


def test_every_limit_of_the_checks_can_be_set_but_the_moment() -> None:
    names = LIMIT_NAMES
    line = [f"--limit={name.replace('_', '-')}={number}" for number, name in enumerate(names)]
    limits = parse_arguments(line, program="audit").limits
    assert limits == {name: number for number, name in enumerate(names)}
    assert Limits(now_ms=1, **limits).settle_ms == names.index("settle_ms")
    with pytest.raises(InvalidArgument, match="known are: lag-messages,"):
        parse_arguments(["--limit", "now-ms=1"], program="audit")


@pytest.mark.parametrize(
    "line",
    [
        "--limit lag-messages=many",
        "--option alone",
        "--watch --interval 0",
        "--store =name",
        "--nonsense",
    ],
)
def test_what_cannot_be_understood_is_refused(line: str) -> None:
    with pytest.raises(InvalidArgument):
        parse_arguments(line.split(), program="audit")


def test_the_summary_of_an_earlier_run_is_read_before_anything_is_audited(tmp_path: Path) -> None:
    summary = tmp_path / "summary.json"
    summary.write_text('{"run_id": "then", "run_at_ms": 1, "findings": [], "more": 1}')
    request = parse_arguments(["--after", str(summary)], program="p")
    assert request.after == {"run_id": "then", "run_at_ms": 1, "findings": []}
    for text in ("[]", "{", '{"run_id": "then"}'):
        summary.write_text(text)
        with pytest.raises(InvalidArgument, match="takes a run's summary"):
            parse_arguments(["--after", str(summary)], program="p")
