"""A log that lacks messages of a queue is not copied, or read, without a word."""

from __future__ import annotations

from pathlib import Path

import pytest

from aerobee.runtime.log import TextFormatter
from tests.support.gapped_log import write_gapped_log
from tests.support.replication_streams import STORE, running_master, running_slave
from tests.support.waiting import until


async def test_a_slave_whose_copy_lacks_messages_of_a_queue_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_gapped_log(tmp_path / "m", STORE, topic="t", messages=10, gap_at=6, missing=3)
    async with running_master(tmp_path / "m") as master, running_slave(tmp_path / "s") as slave:
        # The first one after the gap, and all behind it: none has the place that it says.
        assert master.store.statistics().misplaced_records == 4, "its start has read them"
        assert slave.store.statistics().misplaced_records == 0
        slave.follow(master.address)
        await until(lambda: slave.store.appended_end == master.store.appended_end)
        assert slave.store.statistics().misplaced_records == 4
        event = "a copied record does not continue its queue"
        told = [one for one in caplog.records if one.getMessage().startswith(event)]
        lines = [TextFormatter().format(one) for one in told]
        assert len(lines) == 4
        assert "continues with offset 9: records in between are missing" in lines[0]
