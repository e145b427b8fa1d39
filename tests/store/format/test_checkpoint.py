"""The checkpoint file."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.store.format.checkpoint import Checkpoint, CheckpointIllegal

I64 = st.integers(-(1 << 63), (1 << 63) - 1)


@given(st.builds(Checkpoint, I64, I64, I64, I64, I64))
def test_a_checkpoint_fills_a_page_and_comes_back(checkpoint: Checkpoint) -> None:
    data = checkpoint.encode()
    assert len(data) == 4096
    assert data[40:] == bytes(4056)
    assert Checkpoint.decode(data) == checkpoint


def test_old_releases_wrote_the_three_timestamps_only() -> None:
    data = Checkpoint(1, 2, 3, 4, 5).encode()
    assert Checkpoint.decode(data[:24]) == Checkpoint(1, 2, 3)
    assert Checkpoint.decode(data[:39]) == Checkpoint(1, 2, 3, 4)


@pytest.mark.parametrize("size", [0, 1, 23])
def test_less_than_three_timestamps_are_no_checkpoint(size: int) -> None:
    with pytest.raises(CheckpointIllegal):
        Checkpoint.decode(bytes(size))


def test_recovery_begins_three_seconds_before_the_older_timestamp() -> None:
    checkpoint = Checkpoint(10_000, 8_000, 4_000)
    assert checkpoint.min_timestamp() == 5_000
    assert checkpoint.min_timestamp(index_safe=True) == 1_000
    assert Checkpoint(10_000, 2_999).min_timestamp() == 0


def test_apaches_checkpoints_say_what_the_manifests_say(golden_log: Any) -> None:
    expected = golden_log.manifest["onDisk"]["checkpoint"]
    checkpoint = Checkpoint.decode(golden_log.checkpoint)
    assert checkpoint.physic_msg_timestamp == expected["physicMsgTimestamp"]
    assert checkpoint.logics_msg_timestamp == expected["logicsMsgTimestamp"]
    assert checkpoint.index_msg_timestamp == expected["indexMsgTimestamp"]
    assert checkpoint.master_flushed_offset == expected["masterFlushedOffset"]
    assert checkpoint.confirm_physical_offset == expected["confirmPhyOffset"]
