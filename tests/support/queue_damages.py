"""Possible damage to the files of consume queues, each a function of the store's folder."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

from aerobee.store.format.consume_queue_entry import pack_entry


def queue_path(root: Path, queue_id: int = 1, first_entry: int = 0) -> Path:
    return root / "consumequeue/Orders" / str(queue_id) / f"{first_entry * 20:020d}"


def put(path: Path, entry: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(entry * 20)
        file.write(data)


def nothing(root: Path) -> None:
    pass


def lose_all(root: Path) -> None:
    shutil.rmtree(root / "consumequeue")


def lose_topic(root: Path) -> None:
    shutil.rmtree(root / "consumequeue/Orders")


def lose_queue(root: Path) -> None:
    shutil.rmtree(root / "consumequeue/Orders/1")


def lose_first_file(root: Path) -> None:
    queue_path(root).unlink()


def lose_last_file(root: Path) -> None:
    queue_path(root, 1, 10).unlink(missing_ok=True)


def zero_the_tail(root: Path) -> None:
    put(queue_path(root), 4, bytes(6 * 20))
    queue_path(root, 1, 10).unlink(missing_ok=True)


def zero_the_middle(root: Path) -> None:
    put(queue_path(root), 4, bytes(20))


def shorten(root: Path) -> None:
    queue_path(root).write_bytes(queue_path(root).read_bytes()[:150])


def lengthen(root: Path) -> None:
    queue_path(root).write_bytes(queue_path(root).read_bytes() + b"x")


def empty_last_file(root: Path) -> None:
    queue_path(root, 1, 20).touch()


def blank_last_file(root: Path) -> None:
    queue_path(root, 1, 20).write_bytes(bytes(200))


def foreign_file(root: Path) -> None:
    queue_path(root).with_name("notes.txt").write_text("hello")


def foreign_folder(root: Path) -> None:
    (root / "consumequeue/Orders/not-a-queue").mkdir()


def far_away_entry(root: Path) -> None:
    put(queue_path(root), 9, pack_entry(1 << 50, 100, 0))
    queue_path(root, 1, 10).unlink(missing_ok=True)


def entry_between_records(root: Path) -> None:
    position = int.from_bytes(queue_path(root).read_bytes()[180:188], "big")
    put(queue_path(root), 9, pack_entry(position + 5, 50, 0))
    queue_path(root, 1, 10).unlink(missing_ok=True)


def shifted_by_one(root: Path) -> None:
    entries = queue_path(root).read_bytes()
    queue_path(root).write_bytes(entries[20:] + bytes(20))
    queue_path(root, 1, 10).unlink(missing_ok=True)


def random_bytes(root: Path) -> None:
    queue_path(root).write_bytes(random.Random(5).randbytes(200))


def another_queues_file(root: Path) -> None:
    shutil.copy(queue_path(root, 2), queue_path(root, 1))


def misplaced_file(root: Path) -> None:
    queue_path(root).rename(queue_path(root).with_name("7".zfill(20)))


DAMAGES = [
    nothing,
    lose_all,
    lose_topic,
    lose_queue,
    lose_first_file,
    lose_last_file,
    zero_the_tail,
    zero_the_middle,
    shorten,
    lengthen,
    empty_last_file,
    blank_last_file,
    foreign_file,
    foreign_folder,
    far_away_entry,
    entry_between_records,
    shifted_by_one,
    random_bytes,
    another_queues_file,
    misplaced_file,
]


# Damage visible in the queue's own files, without the list of their ends.
VISIBLE_DAMAGES = [
    zero_the_middle,
    shorten,
    lengthen,
    far_away_entry,
    entry_between_records,
    shifted_by_one,
    random_bytes,
    another_queues_file,
    misplaced_file,
]
