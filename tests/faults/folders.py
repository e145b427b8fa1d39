"""A small broker folder with something in every file, and what must be found in it again."""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from aerobee.broker.opened import OpenedFolder
from aerobee.broker.opening import open_folder
from aerobee.broker.wiring import FEATURES
from aerobee.runtime.clock import Clock, ManualClock
from aerobee.store.engine.disk import Disk, RealDisk
from aerobee.store.engine.tables.atomic_file import replace_atomically
from aerobee.store.engine.tables.config_tables import (
    CONSUMER_OFFSETS_PATH,
    SUBSCRIPTION_GROUPS_PATH,
    TOPICS_PATH,
    SubscriptionGroupConfig,
    TopicConfig,
)
from tests.support.stores import SMALL, batch_of, check_agreement, flush, read_queue

CONFIG = replace(SMALL, checkpoint_interval_ms=1_000)
TOPIC = "Orders"
QUEUES = 3
MESSAGES = 60
COMMITTED = 5
RUNS = 3
"""How often the folder has been opened when it is made."""


def bodies_of(queue_id: int) -> list[bytes]:
    return [b"%d" % number * 100 for number in range(MESSAGES) if number % QUEUES == queue_id]


@dataclass(frozen=True)
class Folder:
    """A folder that a broker left, in order or by a crash."""

    root: Path

    def copy_to(self, target: Path) -> Folder:
        shutil.copytree(self.root, target)
        return Folder(target)

    def open(self, clock: Clock | None = None, disk: Disk | None = None) -> OpenedFolder:
        """As a broker's start does. Raises InvalidArgument."""
        return open_folder(disk or RealDisk(self.root), clock or later_clock(), CONFIG, FEATURES)

    def files(self) -> dict[str, bytes]:
        return {
            str(path.relative_to(self.root)): path.read_bytes()
            for path in sorted(self.root.rglob("*"))
            if path.is_file()
        }

    def path(self, name: str) -> Path:
        return self.root / name

    def flip(self, name: str, position: int, bit: int) -> None:
        with (self.root / name).open("r+b") as file:
            file.seek(position)
            (byte,) = file.read(1)
            file.seek(position)
            file.write(bytes((byte ^ 1 << bit,)))


def later_clock() -> ManualClock:
    """A clock some hours after the folder was made."""
    return ManualClock(now_ms=1_700_000_000_000 + 10_000_000)


def make_folder(root: Path, *, crashed: bool = False) -> Folder:
    """Twenty keyed messages in each of three queues over several segments, queue files and starts;
    committed offsets, a group, and backups of every table."""
    folder = Folder(root)
    clock = ManualClock()
    for run in range(RUNS):
        opened = folder.open(clock)
        if run == 0:
            opened.topics.put(
                TopicConfig(name=TOPIC, read_queue_count=QUEUES, write_queue_count=QUEUES)
            )
            opened.groups.put(SubscriptionGroupConfig(name="billing"))
        share = MESSAGES // RUNS
        for number in range(run * share, (run + 1) * share):
            _append(opened, number)
            clock.advance_ms(200)
            if number % 7 == 0:
                flush(opened.store)
        opened.groups.put(SubscriptionGroupConfig(name=f"run-{run}"))
        for queue_id in range(QUEUES):
            opened.offsets.commit("billing", TOPIC, queue_id, COMMITTED - (RUNS - 1) + run)
        _save(opened, RealDisk(root), clock)
        if crashed and run == RUNS - 1:
            copy = root.with_name(f"{root.name}-crashed")
            shutil.copytree(root, copy)
            opened.store.close()
            return Folder(copy)
        opened.store.close()
    return folder


def check_messages(opened: OpenedFolder, *, kept: int = MESSAGES) -> None:
    """Every one of the first `kept` messages is there, in order, once; derived files agree."""
    for queue_id in range(QUEUES):
        wanted = [b"%d" % number * 100 for number in range(kept) if number % QUEUES == queue_id]
        assert read_queue(opened.store, TOPIC, queue_id) == wanted
    check_agreement(opened.store)


def check_folder(opened: OpenedFolder) -> None:
    """`check_messages`, and the tables say what they said."""
    check_messages(opened)
    topic = opened.topics.get(TOPIC)
    assert topic is not None
    assert (topic.read_queue_count, topic.write_queue_count, topic.perm) == (QUEUES, QUEUES, 6)
    assert opened.groups.names() == ["billing", "run-0", "run-1", "run-2"]
    for queue_id in range(QUEUES):
        assert opened.offsets.query("billing", TOPIC, queue_id) == COMMITTED


def places(data: bytes, chance: random.Random, count: int) -> list[int]:
    """Positions to damage: all of a short file, else some of its used part and some anywhere."""
    if len(data) <= count:
        return list(range(len(data)))
    used = len(data.rstrip(b"\0"))
    inside = chance.sample(range(max(used, 1)), min(count * 3 // 4, max(used, 1)))
    return sorted({*inside, *chance.sample(range(len(data)), count // 4)})


def _append(opened: OpenedFolder, number: int) -> None:
    store = opened.store
    store.append(
        batch_of(
            TOPIC,
            b"%d" % number * 100,
            tag="even" if number % 2 == 0 else "odd",
            properties={"KEYS": f"order-{number}", "UNIQ_KEY": f"{number:032X}"},
        ),
        queue_id=number % QUEUES,
    )
    store.confirm(store.appended_end)


def _save(opened: OpenedFolder, disk: Disk, clock: Clock) -> None:
    for path, table in (
        (TOPICS_PATH, opened.topics),
        (SUBSCRIPTION_GROUPS_PATH, opened.groups),
        (CONSUMER_OFFSETS_PATH, opened.offsets),
    ):
        replace_atomically(disk, path, table.snapshot_bytes(clock.now_ms()))
