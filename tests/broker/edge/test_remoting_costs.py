"""What remoting clients that only wait cost a broker."""

from __future__ import annotations

import gc
import json
import socket
import tracemalloc
from contextlib import ExitStack

import pytest

from aerobee.broker.edge.remoting.feature import Remoting
from aerobee.remoting_core.command import ONE_WAY, Command
from aerobee.remoting_core.frames import encode_frame
from aerobee.store.engine.tables.config_tables import TopicConfig
from tests.broker.conftest import StartBroker
from tests.support.waiting import until

CLIENTS = 200
BYTES_MAX = 20 << 10
"""Of a client that waits, as Python counts: 10,000 of them must fit beside a broker. Sockets are
not in it."""


def frames(number: int) -> bytes:
    """A member of one of ten groups, which waits for a message."""
    group = f"g{number % 10}"
    wanted = {"topic": "t", "subString": "*", "expressionType": "TAG", "subVersion": 1}
    consumer = {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "subscriptionDataSet": [wanted],
    }
    body = {
        "clientID": f"10.0.0.{number}@4711#1234567890",
        "consumerDataSet": [consumer],
        "producerDataSet": [{"groupName": "CLIENT_INNER_PRODUCER"}],
    }
    beat = Command(34, {}, json.dumps(body).encode(), flag=ONE_WAY)
    fields = {
        "consumerGroup": group, "topic": "t", "queueId": "0", "queueOffset": "0",
        "maxMsgNums": "32", "sysFlag": "6", "commitOffset": "0", "subscription": "*",
        "suspendTimeoutMillis": "60000", "subVersion": "0", "expressionType": "TAG",
    }  # fmt: skip
    return encode_frame(beat) + encode_frame(Command(11, fields, opaque=2))


@pytest.mark.slow
async def test_a_client_that_only_waits_takes_little_memory(start_broker: StartBroker) -> None:
    """Its connection, its place in its groups, and its pull: 9.5 KiB when this was written."""
    topic = TopicConfig(name="t", read_queue_count=1, write_queue_count=1)
    broker = await start_broker(topics={"t": topic})
    pulls = broker.feature(Remoting).pulls
    said = [frames(number) for number in range(CLIENTS)]
    with ExitStack() as clients:
        gc.collect()
        tracemalloc.start(1)
        try:
            for each in said:
                client = socket.create_connection(("127.0.0.1", broker.port))
                clients.enter_context(client)
                client.sendall(each)
            await until(lambda: pulls.waiting == CLIENTS)
            gc.collect()
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert held / CLIENTS < BYTES_MAX
