"""Nobody but the owner can read what a broker stores."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from aerobee.v1 import broker_pb2, common_pb2


def open_to_others(root: Path) -> list[str]:
    found = [root, *root.rglob("*")]
    return [str(path.relative_to(root.parent)) for path in found if path.stat().st_mode & 0o077]


async def test_every_file_and_folder_of_a_store_is_private(
    start_broker: Any, tmp_path: Path
) -> None:
    root = tmp_path / "store"
    before = os.umask(0)
    try:
        broker = await start_broker()
        await broker.send_bodies("t", 0, b"secret")
        committed = await broker.offsets.CommitOffsets(
            broker_pb2.CommitOffsetsRequest(
                group="g", offsets=[broker_pb2.QueueOffset(topic="t", queue_id=0, offset=1)]
            )
        )
        assert committed.results[0].code == common_pb2.OK
        await broker.stop()
    finally:
        os.umask(before)
    made = {path.name for path in root.rglob("*") if path.is_file()}
    assert {"lock", "checkpoint", "topics.json", "consumerOffset.json"} <= made
    assert open_to_others(root) == []


async def test_a_store_that_is_there_is_closed_when_it_is_opened(
    start_broker: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "store"
    await (await start_broker()).stop()
    root.chmod(0o755)
    with caplog.at_level("INFO"):
        await start_broker()
    assert root.stat().st_mode & 0o777 == 0o700
    assert f"the store is closed to other users path={root} parts=1" in caplog.text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a folder to another user")
async def test_a_volume_whose_root_is_anothers_is_used_and_its_parts_are_private(
    start_broker: Any, tmp_path: Path
) -> None:
    """As Kubernetes mounts it, with `fsGroup`; and after a remount that gave the group its rights
    back, as one without `OnRootMismatch` does."""
    root = tmp_path / "store"
    root.mkdir()
    os.chown(root, 12_345, 12_345)
    root.chmod(0o2775)
    broker = await start_broker()
    await broker.send_bodies("t", 0, b"secret")
    await broker.stop()
    assert root.stat().st_mode & 0o7777 == 0o2775
    assert open_to_others(root) == ["store"]
    for path in root.rglob("*"):
        path.chmod(path.stat().st_mode | 0o060)
    await start_broker()
    assert root.stat().st_mode & 0o7777 == 0o2775
    assert not [path for path in root.iterdir() if path.stat().st_mode & 0o077]
