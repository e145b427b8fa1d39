"""Which engine a run gets, and that a run that grows too large for this process says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from aerobee.offset_audit.frames.local_frame import LocalEngine
from aerobee.offset_audit.frames.spark_rows import schema
from aerobee.offset_audit.run.choosing import DEEP_BYTES_MAX, chosen_engine, rows_max
from aerobee.offset_audit.run.engine import TooManyRows
from aerobee.offset_audit.run.local_run import LocalRun
from aerobee.offset_audit.run.request import AuditRequest, StorePlace
from aerobee.offset_audit.sources.store.source import StoreSource
from tests.golden_stores.conftest import GoldenStore

LIVE = "ns:8081"


@pytest.mark.parametrize(
    ("request_", "engine"),
    [
        (AuditRequest(nameservers=LIVE), "local"),
        (AuditRequest(nameservers=LIVE, out="/tmp/audit"), "local"),
        (AuditRequest(nameservers=LIVE, history="s3a://audits/all"), "spark"),
        (AuditRequest(nameservers=LIVE, master="spark://m:7077"), "spark"),
        (AuditRequest(nameservers=LIVE, engine="spark"), "spark"),
        (AuditRequest(nameservers=LIVE, history="s3a://audits/all", engine="local"), "local"),
        (AuditRequest(stores=(StorePlace("hdfs://n/backup"),)), "spark"),
    ],
)
def test_small_audits_of_this_machine_need_no_spark(request_: AuditRequest, engine: str) -> None:
    assert chosen_engine(request_) == engine


def test_only_what_stores_occupy_counts_and_only_if_every_byte_is_read(tmp_path: Path) -> None:
    segment = tmp_path / "commitlog" / f"{0:020d}"
    segment.parent.mkdir()
    with open(segment, "wb") as file:
        file.truncate(4 * DEEP_BYTES_MAX)  # a hole, as in a new segment
    store = (StorePlace(str(tmp_path)),)
    assert chosen_engine(AuditRequest(stores=store, is_deep=True)) == "local"


def test_more_rows_than_this_process_should_hold_are_refused_unless_it_was_asked_to(
    tmp_path: Path,
) -> None:
    root = str(GoldenStore("retained", tmp_path).root)
    options = {"kind": "queues", "path": root}
    source = StoreSource(options)
    columns = "topic string, queue_id int"
    rows = LocalRun().read(source.reader(schema(columns)), schema(columns)).count()
    assert rows > 3
    with pytest.raises(TooManyRows, match="more than 3 rows"):
        LocalRun(3).load(options, root)
    assert rows_max(AuditRequest(engine="local")) is None
    assert rows_max(AuditRequest()) is not None


def test_a_frame_of_this_process_has_the_columns_of_its_declaration_without_rows() -> None:
    frame = LocalEngine().frame("topic string, in_sync array<int>", [])
    assert (frame.columns, frame.collect()) == (["topic", "in_sync"], [])
