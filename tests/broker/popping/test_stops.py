"""What POP has finished is in the folder's tables when the broker has stopped: Apache's broker,
which may own the folder next, reads nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from aerobee.store.engine.tables.config_tables import TopicConfig
from aerobee.store.format.json_config import parse_object
from apache.rocketmq.v2 import definition_pb2 as v2
from tests.broker.conftest import running_broker
from tests.support.v2_calls import V2

pytestmark = pytest.mark.slow


async def test_a_stop_right_after_an_acknowledgement_commits_it(tmp_path: Path) -> None:
    async with running_broker(
        tmp_path, topics={"orders": TopicConfig(name="orders", read_queue_count=1)}
    ) as broker:
        await broker.send_bodies("orders", 0, b"0", b"1", b"2")
        client = V2(broker.channel)
        received = (await client.receive("orders", "billing")).messages
        assert await client.acknowledge("billing", *received[:2]) == [v2.OK, v2.OK]
        await broker.stop()
    table: Any = parse_object((tmp_path / "config" / "consumerOffset.json").read_bytes())
    assert table["offsetTable"]["orders@billing"]["0"] == 2
