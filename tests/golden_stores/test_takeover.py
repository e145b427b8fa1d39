"""Our store goes on where Apache's broker stopped, and Apache's could go on where ours did.

After each run a judge that knows nothing of our code reads every byte: what lies there obeys the
format, old and new, and a start of any Apache release would serve exactly the messages of the log.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aerobee.cli.store.dump_document import DumpRequest, dump_store
from aerobee.cli.store.questions import GivenQuestions
from aerobee.runtime.clock import ManualClock
from aerobee.store.engine.config import StoreConfig, consume_queue_entries
from aerobee.store.engine.disk import RealDisk
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.format.batch import BatchLimits, check_batch
from aerobee.store.format.checked_batch import CheckedBatch
from aerobee.store.format.properties import encode_properties
from aerobee.store.format.record import HostAddress, encode_batch
from aerobee.store.format.tags import TagsCodes
from tests.support.apache_start import apache_problems
from tests.support.documents import without_answers
from tests.support.plain_folder import Sizes, folder_problems
from tests.support.plain_store import PlainStore
from tests.support.stores import flush

pytestmark = pytest.mark.many_files
Compare = Callable[[Any, Any], list[str]]

BORN_HOST = HostAddress.parse("127.0.0.1:50000")
TAGS = ("TagA", "订单", "🚀", "Aa", "BB", "polygenelubricants", "")
QUEUES = (("OrderEvents", 1), ("AuditTrail", 3), ("Brand-New", 0), ("Brand-New", 5))


class Writer:
    """Messages as a busy producer sends them, from a seed."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._sent = 0

    def batch(self, topic: str) -> CheckedBatch:
        chance = self._chance
        count = chance.choice((1, 1, 1, 5, 17))
        properties = []
        for _ in range(count):
            self._sent += 1
            texts = {
                "UNIQ_KEY": f"7F000001AB{self._sent:022X}",
                "KEYS": chance.choice(("hot", f"order-{self._sent} hot", f"客户-{self._sent}", "")),
                "TAGS": chance.choice(TAGS),
            }
            properties.append(
                encode_properties({name: text for name, text in texts.items() if text})
            )
        records, sizes = encode_batch(
            topic=topic.encode(),
            bodies=[chance.randbytes(chance.choice((0, 10, 300, 5_000))) for _ in range(count)],
            properties=properties,
            born_timestamp_ms=1,
            born_host=BORN_HOST,
        )
        return check_batch(
            records,
            sizes,
            topic=topic,
            limits=BatchLimits(),
            store_host_ipv6=False,
            tags=TagsCodes(),
        )

    def send(self, store: MessageStore, clock: ManualClock, batches: int) -> None:
        for _ in range(batches):
            topic, queue_id = self._chance.choice(QUEUES)
            store.append(self.batch(topic), queue_id=queue_id)
            store.confirm(store.appended_end)
            clock.advance_ms(self._chance.choice((0, 1, 400, 7_000)))
            if self._chance.random() < 0.2:
                flush(store)


def open_store(golden: Any, root: Path, clock: ManualClock) -> MessageStore:
    config = StoreConfig(
        segment_bytes=golden.segment_bytes,
        consume_queue_entries_per_file=consume_queue_entries(
            int(golden.config["mappedFileSizeConsumeQueue"])
        ),
        index_slots_max=int(golden.config["maxHashSlotNum"]),
        index_entries_max=int(golden.config["maxIndexNum"]),
        disk_free_bytes_min=0,
    )
    return MessageStore.open(RealDisk(root), clock, config)


def all_problems(golden: Any, root: Path, *, closed: bool) -> list[str]:
    return [
        *folder_problems(root, golden.sizes, closed=closed),
        *apache_problems(root, golden.sizes),
    ]


def old_messages_differ(golden: Any, root: Path, compare: Compare) -> list[str]:
    """Whether anything that Apache's broker stored is gone or not as it was."""
    nothing_asked = DumpRequest(questions=GivenQuestions({}))
    found = without_answers(dump_store(root, golden.config, nothing_asked)["topics"])
    lines = []
    for topic, queues in golden.topics.items():
        for queue_id, queue in queues.items():
            count = len(queue["messages"])
            assert found[topic][queue_id]["minOffset"] == queue["minOffset"]
            kept = found[topic][queue_id]["messages"][:count]
            lines += compare(queue["messages"], kept)
    return lines


def test_the_judge_finds_nothing_in_what_apache_closed_and_something_in_what_was_torn(
    golden: Any,
) -> None:
    problems = folder_problems(
        golden.root, golden.sizes, closed=golden.manifest["state"] == "clean"
    )
    assert bool(problems) == (golden.name == "crashed-torn"), problems
    assert apache_problems(golden.root, golden.sizes) == []


def test_what_we_wrote_and_closed_is_as_apache_would_have_it(golden: Any, compare: Compare) -> None:
    clock = ManualClock(golden.manifest["snapshotTime"])
    writer = Writer(1)
    for _ in range(3):
        store = open_store(golden, golden.root, clock)
        writer.send(store, clock, 70)
        store.close()
        assert all_problems(golden, golden.root, closed=True) == []
    log = PlainStore(golden.root, golden.segment_bytes)
    assert len(log.records) > golden.manifest["commitLog"]["records"] + 600
    assert log.end > golden.manifest["commitLog"]["maxOffset"] + golden.segment_bytes
    assert len(list((golden.root / "index").iterdir())) > len(golden.manifest["index"]["files"])
    assert old_messages_differ(golden, golden.root, compare) == []


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.long) for n in (1, 2))])
def test_what_we_left_when_killed_loses_nothing_in_any_apache_release(
    golden: Any, compare: Compare, seed: int
) -> None:
    clock = ManualClock(golden.manifest["snapshotTime"])
    writer = Writer(seed)
    root = golden.root
    for kill in range(4):
        store = open_store(golden, root, clock)
        writer.send(store, clock, 20)
        copy = root.with_name(f"killed-{kill}")
        shutil.copytree(root, copy)
        store.close()
        assert all_problems(golden, copy, closed=False) == []
        shutil.rmtree(root)
        root = copy
    open_store(golden, root, clock).close()
    assert all_problems(golden, root, closed=True) == []
    assert old_messages_differ(golden, root, compare) == []


def test_files_of_apache_that_we_do_not_use_stay_as_they_are(golden: Any) -> None:
    for kind in ("consumequeue_ext", "batchconsumequeue"):
        (golden.root / kind / "OrderEvents" / "0").mkdir(parents=True)
        (golden.root / kind / "OrderEvents" / "0" / f"{0:020d}").write_bytes(b"apache" * 100)
    before = golden.files()
    clock = ManualClock(golden.manifest["snapshotTime"])
    store = open_store(golden, golden.root, clock)
    Writer(5).send(store, clock, 10)
    store.close()
    after = golden.files()
    kinds = ("config/", "timerlog/", "compaction/", "consumequeue_ext/", "batchconsumequeue/")
    untouched = [path for path in before if path.startswith(kinds)]
    assert len(untouched) > 17
    assert {path: after[path] for path in untouched} == {path: before[path] for path in untouched}


def test_the_model_of_apaches_start_finds_what_is_known_to_go_wrong(
    extract_golden: Callable[[str], Any],
) -> None:
    """A clean-looking store whose queue lags; one with an empty queue file; a stray file."""
    golden = extract_golden("clean-small")
    queue = golden.root / "consumequeue" / "OrderEvents" / "3"
    last = sorted(queue.iterdir())[-1]
    data = last.read_bytes()
    used = len(data.rstrip(b"\0")) // 20 * 20
    last.write_bytes(data[: used - 20].ljust(len(data), b"\0"))
    lag = apache_problems(golden.root, golden.sizes)
    assert any(line.startswith("5.1: ('OrderEvents', 3)") for line in lag)
    last.write_bytes(data)
    empty = queue / f"{int(last.name) + len(data):020d}"
    empty.write_bytes(bytes(len(data)))
    shifted = apache_problems(golden.root, golden.sizes)
    assert [line[:4] for line in shifted] == ["4.9:", "5.1:", "5.3:"]
    empty.unlink()
    (golden.root / "index" / "20261121091656523.tmp").write_bytes(b"")
    assert all("refuses" in line for line in apache_problems(golden.root, golden.sizes))


SMALL_SIZES = Sizes(segment_bytes=65_536, queue_file_bytes=200, index_slots=31, index_entries=40)


@pytest.mark.parametrize("seed", range(6))
def test_a_store_that_only_we_ever_wrote_is_one_that_apache_would_go_on_with(
    tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    clock = ManualClock(1_700_000_000_000)
    writer = Writer(seed)
    root = tmp_path / "store"
    config = StoreConfig(
        segment_bytes=SMALL_SIZES.segment_bytes,
        consume_queue_entries_per_file=SMALL_SIZES.queue_file_bytes // 20,
        index_slots_max=SMALL_SIZES.index_slots,
        index_entries_max=SMALL_SIZES.index_entries,
        disk_free_bytes_min=0,
    )
    for run in range(5):
        store = MessageStore.open(RealDisk(root), clock, config)
        writer.send(store, clock, chance.choice((1, 3, 30)))
        copy = tmp_path / f"killed-{run}"
        shutil.copytree(root, copy)
        store.close()
        for folder, closed in ((copy, False), (root, True)):
            assert folder_problems(folder, SMALL_SIZES, closed=closed) == []
            assert apache_problems(folder, SMALL_SIZES) == []
        if chance.random() < 0.5:
            shutil.rmtree(root)
            copy.rename(root)
