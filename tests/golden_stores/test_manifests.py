"""The manifests say what a plain walk over the files finds: so we may rely on both."""

from __future__ import annotations

from typing import Any


def test_a_plain_walk_over_the_log_finds_what_the_manifest_says(
    golden: Any, plain_store: Any
) -> None:
    plain = plain_store(golden.root, golden.segment_bytes)
    assert plain.commit_log() == golden.manifest["commitLog"]
    assert plain.topics() == golden.topics
    assert golden.manifest["listedEvery"] == 1


def test_acknowledged_messages_are_in_the_log_except_behind_a_cut(
    golden: Any, plain_store: Any
) -> None:
    acknowledged = [position for position, _ in golden.manifest.get("acknowledged", [])]
    plain = plain_store(golden.root, golden.segment_bytes)
    positions = {record.physical_offset for record in plain.records}
    lost = [position for position in acknowledged if position not in positions]
    if golden.name != "crashed-torn":
        assert not lost
    else:
        assert lost
        assert min(lost) >= plain.end
