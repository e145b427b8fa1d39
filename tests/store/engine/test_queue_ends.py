"""The list of queue ends: what a start knows of the queues without reading any of their files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.store.engine.disk import RealDisk
from aerobee.store.engine.queues.queue_ends import (
    QUEUE_ENDS_FILE,
    QueueEnd,
    QueueEnds,
    QueueEndsFile,
    decode_queue_ends,
    read_queue_ends,
)
from aerobee.store.format.checkpoint import Checkpoint
from aerobee.testing.simulated_disk import SimulatedDisk
from tests.support.fault_disk import FaultDisk, no_space


def end_of(number: int, end: int, *, damaged: bool = False) -> QueueEnd:
    return QueueEnd(
        number, f"Topic-{number}", number % 8, 0, 1, 100, end - 1, end, end * 300, damaged
    )


def checkpoint_of(number: int) -> Checkpoint:
    return Checkpoint(1_000 + number, 900 + number, 0, 0, number * 500)


def named(*ends: QueueEnd) -> dict[tuple[str, int], QueueEnd]:
    return {(end.topic, end.queue_id): end for end in ends}


changes = st.lists(
    st.lists(st.tuples(st.integers(0, 30), st.integers(2, 1 << 50), st.booleans()), max_size=9),
    min_size=1,
    max_size=6,
)


@given(changes=changes, cut=st.integers(0, 1 << 30))
def test_a_file_cut_anywhere_tells_what_its_whole_blocks_say(
    changes: list[list[tuple[int, int, bool]]], cut: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("ends")
    file = QueueEndsFile(RealDisk(root))
    numbers: dict[int, int] = {}
    known: dict[int, QueueEnd] = {}
    states: list[tuple[int, dict[tuple[str, int], QueueEnd]]] = []
    for index, change in enumerate(changes):
        changed: dict[int, QueueEnd] = {}
        for queue, end, damaged in change:
            number = numbers.setdefault(queue, len(numbers))
            changed[number] = end_of(number, end, damaged=damaged)
        known |= changed
        file.write(checkpoint_of(index), list(changed.values()))
        states.append(((root / QUEUE_ENDS_FILE).stat().st_size, named(*known.values())))
    data = (root / QUEUE_ENDS_FILE).read_bytes()
    assert len(data) == states[-1][0]
    data = data[: cut % (len(data) + 1)]
    whole = [state for size, state in states if size <= len(data)]
    for index in range(len(changes)):
        ends = decode_queue_ends(data, checkpoint_of(index))
        assert ends.counts == (index < len(whole))
        assert ends.queues == (whole[-1] if ends.counts else {})


@given(at=st.integers(0, 1 << 30), bit=st.integers(0, 7))
def test_a_flipped_bit_takes_its_block_and_those_behind(at: int, bit: int) -> None:
    disk = SimulatedDisk()
    file = QueueEndsFile(disk)
    file.write(checkpoint_of(0), [end_of(0, 5)])
    first_size = len(disk.read_file(QUEUE_ENDS_FILE))
    file.write(checkpoint_of(1), [end_of(0, 9), end_of(1, 4)])
    data = bytearray(disk.read_file(QUEUE_ENDS_FILE))
    data[at % len(data)] ^= 1 << bit
    in_first = at % len(data) < first_size
    assert not decode_queue_ends(bytes(data), checkpoint_of(1)).counts
    ends = decode_queue_ends(bytes(data), checkpoint_of(0))
    assert ends == (QueueEnds() if in_first else QueueEnds(True, named(end_of(0, 5))))


@pytest.mark.parametrize("field", ["physic_msg_timestamp", "confirm_physical_offset"])
def test_the_list_counts_only_beside_its_own_checkpoint(tmp_path: Path, field: str) -> None:
    disk = RealDisk(tmp_path)
    QueueEndsFile(disk).write(checkpoint_of(3), [end_of(0, 5)])
    assert read_queue_ends(disk, checkpoint_of(3)).queues == named(end_of(0, 5))
    other = replace(checkpoint_of(3), **{field: 7})
    assert read_queue_ends(disk, other) == QueueEnds()
    assert read_queue_ends(RealDisk(tmp_path / "none"), checkpoint_of(3)) == QueueEnds()


def test_a_checkpoint_writes_what_changed_and_the_file_does_not_grow_for_ever(
    tmp_path: Path,
) -> None:
    disk = RealDisk(tmp_path)
    file = QueueEndsFile(disk)
    all_queues = [end_of(number, 5) for number in range(2_000)]
    file.write(checkpoint_of(0), all_queues)
    path = tmp_path / QUEUE_ENDS_FILE
    size_of_all = path.stat().st_size
    file.write(checkpoint_of(1), [end_of(7, 6)])
    assert path.stat().st_size < size_of_all + 200
    sizes = []
    for number in range(2, 60):
        file.write(checkpoint_of(number), [end_of(index, number) for index in range(1_000)])
        sizes.append(path.stat().st_size)
    assert max(sizes) < 3 * size_of_all + (1 << 20)
    assert sorted(sizes) != sizes  # it was written anew in between
    ends = read_queue_ends(disk, checkpoint_of(59)).queues
    assert ends == named(*[end_of(index, 59) for index in range(1_000)], *all_queues[1_000:])


def test_after_a_failed_write_the_next_one_says_it_all(tmp_path: Path) -> None:
    disk = FaultDisk(tmp_path)
    file = QueueEndsFile(disk)
    file.write(checkpoint_of(0), [end_of(0, 5)])
    disk.write_error = (lambda path: path.startswith(QUEUE_ENDS_FILE), no_space())
    with pytest.raises(OSError, match="No space"):
        file.write(checkpoint_of(1), [end_of(1, 6)])
    disk.write_error = None
    assert read_queue_ends(disk, checkpoint_of(0)).queues == named(end_of(0, 5))
    file.write(checkpoint_of(2), [end_of(0, 7), end_of(1, 6)])
    assert read_queue_ends(disk, checkpoint_of(2)).queues == named(end_of(0, 7), end_of(1, 6))
