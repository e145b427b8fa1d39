"""What the broker writes itself enters the log as clients' batches do."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from aerobee.broker.counters import Counters
from aerobee.broker.sending.acknowledged import AcknowledgedBatch, AcknowledgedBatches
from aerobee.broker.sending.append import Appender
from aerobee.broker.sending.guard import Guard
from aerobee.broker.sending.own_writes import OwnWrites
from aerobee.runtime.clock import ManualClock
from aerobee.runtime.errors import MessageTooLarge, NotMaster, NotWritable, StoreFailed
from aerobee.store.engine.retention.retention_policy import DiskSpace
from aerobee.store.engine.tables.config_tables import TopicTable
from aerobee.store.format.batch import BatchLimits
from aerobee.store.format.record_encode import encode_record
from aerobee.store.format.tags import TagsCodes
from tests.support.fault_disk import FaultDisk, broken
from tests.support.source_trees import source_trees
from tests.support.stores import BORN_HOST, SMALL, open_store, read_queue

JOURNAL = "AEROBEE_OFFSET_JOURNAL"
BROKER = Path(__file__).resolve().parents[3] / "broker" / "aerobee" / "broker"


@dataclass
class Scene:
    root: Path
    is_master: bool = True
    published: int = 0
    failures: list[StoreFailed] = field(default_factory=list)
    counted: list[AcknowledgedBatch] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.disk = FaultDisk(self.root)
        self.store = open_store(self.disk, replace(SMALL, disk_free_bytes_min=1_000_000))
        self.guard = Guard(TopicTable(), broker_name="a", authority=self)
        self.counters = Counters()
        self.batches = AcknowledgedBatches((self.counted.append,))
        appender = Appender(
            self.guard,
            self.store,
            self.batches,
            self.counters,
            on_appended=self._publish,
            on_store_failed=self.failures.append,
        )
        self.writes = OwnWrites(
            appender,
            ManualClock(),
            store_host=BORN_HOST,
            limits=BatchLimits(batch_bytes_max=10_000),
            tags=TagsCodes(),
        )

    def check_may_act(self) -> None:
        if not self.is_master:
            raise NotMaster("a slave")

    def check_enough(self) -> None: ...

    def check_reads(self) -> None: ...

    def _publish(self) -> None:
        self.published += 1
        self.store.confirm(self.store.appended_end)
        self.batches.reached(self.store.appended_end)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_a_record_is_stored_published_and_counted_by_its_topic(scene: Scene) -> None:
    """No client sent it just now."""
    appended = scene.writes.append("t", 1, b"moved here")
    assert read_queue(scene.store, "t", 1) == [b"moved here"]
    assert scene.published == 1
    assert (scene.counters.batches_in, scene.counters.messages_in) == (0, 0)
    assert [(batch.topic, batch.end) for batch in scene.counted] == [("t", appended.end)]


def test_what_the_broker_notes_for_itself_is_nobodys_message(scene: Scene) -> None:
    scene.writes.append(JOURNAL, 0, b"a commit")
    assert read_queue(scene.store, JOURNAL, 0) == [b"a commit"]
    assert (scene.counters.messages_in, scene.counted) == (0, [])


def test_a_slave_writes_nothing(scene: Scene) -> None:
    scene.is_master = False
    with pytest.raises(NotMaster):
        scene.writes.append(JOURNAL, 0, b"a commit")
    assert (scene.store.appended_end, scene.published) == (0, 0)


def test_only_what_asks_for_the_reserve_gets_the_last_space(scene: Scene) -> None:
    scene.writes.append("t", 0, b"while there was space")
    scene.store.retention.observe(DiskSpace(0, 2_000_000))
    with pytest.raises(NotWritable):
        scene.writes.append("t", 0, b"due")
    scene.writes.append(JOURNAL, 0, b"a commit", reserve=True)
    assert read_queue(scene.store, JOURNAL, 0) == [b"a commit"]


def test_a_record_that_no_batch_may_be_is_refused(scene: Scene) -> None:
    with pytest.raises(MessageTooLarge):
        scene.writes.append("t", 0, b"x" * 20_000)
    assert scene.published == 0


def test_a_failed_store_ends_the_broker(scene: Scene) -> None:
    scene.disk.write_error = (lambda path: path.startswith("commitlog/"), broken())
    with pytest.raises(StoreFailed):
        scene.writes.append(JOURNAL, 0, b"a commit")
    assert len(scene.failures) == 1


def test_what_is_appended_in_one_block_is_published_once_at_its_end(scene: Scene) -> None:
    with scene.writes.publishing:
        scene.writes.append("t", 0, b"one")
        scene.writes.append("t", 0, b"two")
        assert scene.published == 0
    assert scene.published == 1
    assert read_queue(scene.store, "t", 0) == [b"one", b"two"]


def test_what_was_appended_before_an_error_is_published(scene: Scene) -> None:
    def append_both() -> None:
        with scene.writes.publishing:
            scene.writes.append("t", 0, b"one")
            scene.writes.append("t", 0, b"x" * 20_000)

    with pytest.raises(MessageTooLarge):
        append_both()
    assert scene.published == 1


def test_a_block_that_appends_nothing_publishes_nothing(scene: Scene) -> None:
    scene.is_master = False
    with pytest.raises(NotMaster), scene.writes.publishing:
        scene.writes.append("t", 0, b"one")
    assert scene.published == 0


def test_nothing_is_appended_without_being_published(scene: Scene) -> None:
    copy = encode_record(
        topic=b"t",
        body=b"copy",
        properties=b"",
        born_timestamp_ms=1_700_000_000_000,
        born_host=BORN_HOST,
    )
    with pytest.raises(AssertionError, match="never published"):
        scene.writes.append_copies("t", 0, [copy], [])


def test_no_block_that_publishes_awaits_anything() -> None:
    """What another task appends meanwhile would be published late."""
    blocks, wrong = 0, []
    for path, tree in source_trees(sorted(BROKER.rglob("*.py"))):
        for node in ast.walk(tree):
            if isinstance(node, ast.With) and any(
                isinstance(item.context_expr, ast.Attribute)
                and item.context_expr.attr == "publishing"
                for item in node.items
            ):
                blocks += 1
                if any(isinstance(each, ast.Await) for each in ast.walk(node)):
                    wrong.append(f"{path}:{node.lineno}")
    assert wrong == []
    assert blocks >= 6
