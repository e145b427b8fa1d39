"""What a consumer does when its group has more old messages waiting to be read than it may."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from aerobee.broker.reading.egress import ColdRead, Egress, Fetched
from aerobee.consumer_client import ConsumerConfig, ReceivedMessage
from aerobee.runtime.errors import Busy
from tests.support.own_topic import OwnTopic
from tests.support.waiting import until


async def test_a_consumer_told_to_wait_tries_again_and_gets_every_message_once(
    own: OwnTopic,
    quick: ConsumerConfig,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for queue_id in range(4):
        bodies = [f"{queue_id}-{number}".encode() for number in range(300)]
        await own.store(bodies, queue_id)
    refusals = 0
    read = Egress.read

    def every_third_is_too_much(egress: Egress, wanted: Any) -> Fetched | ColdRead:
        nonlocal refusals
        found = read(egress, wanted)
        if isinstance(found, Fetched) and found.count and wanted.offset % 50 == 0 and refusals < 12:
            refusals += 1
            raise Busy("too much is being read for this group already; try again in a moment")
        return found

    monkeypatch.setattr(Egress, "read", every_third_is_too_much)
    seen: list[bytes] = []
    lock = threading.Lock()

    def listen(messages: Sequence[ReceivedMessage]) -> None:
        with lock:
            seen.extend(message.body for message in messages)

    options = replace(quick, fetch_messages_max=50)
    consumer = own.push(listen, config=options)
    async with consumer:
        await until(lambda: len(seen) >= 1_200)
    assert refusals == 12
    assert len(seen) == len(set(seen)) == 1_200
