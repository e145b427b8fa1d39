"""A nameserver that stops answering costs the calls that wait for it, and no later one."""

from __future__ import annotations

import asyncio
import random
import socket

import pytest

from aerobee.cluster_view.channels import Channels
from aerobee.cluster_view.methods import QUERY_ROUTE
from aerobee.cluster_view.nameservers import Nameservers
from aerobee.runtime import errors
from aerobee.runtime.clock import SystemClock
from tests.support.channel_peer import QUESTION, Peer
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE_S, until


async def test_the_first_call_waits_for_a_nameserver_and_says_so_and_later_ones_do_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    address = f"127.0.0.1:{free_port()}"
    channels = Channels(chance=random.Random(1))
    nameservers = Nameservers(
        channels,
        [address],
        clock=SystemClock(),
        chance=random.Random(1),
        await_cluster_ms=int(PATIENCE_S * 1_000),
    )
    peer = Peer()
    asked = asyncio.create_task(nameservers.call(QUERY_ROUTE, QUESTION()))
    try:
        await until(lambda: "a call waits for the cluster" in caplog.text)
        assert not asked.done()
        await peer.server.start(address)
        assert (await asked).version == peer.version
    finally:
        asked.cancel()
        await peer.server.stop(0)
    with pytest.raises(errors.Unreachable, match="is one running there"):
        async with asyncio.timeout(PATIENCE_S / 2):
            await nameservers.call(QUERY_ROUTE, QUESTION())
    await channels.close()


async def test_after_a_call_that_timed_out_the_only_nameserver_has_a_new_connection() -> None:
    """Its host hung: connections to it stay open, and what is sent on them is never read."""
    hung = socket.create_server(("127.0.0.1", 0))
    hung.setblocking(False)
    address = f"127.0.0.1:{hung.getsockname()[1]}"
    accepting = asyncio.create_task(asyncio.get_running_loop().sock_accept(hung))
    channels = Channels(chance=random.Random(1))
    nameservers = Nameservers(channels, [address], clock=SystemClock(), chance=random.Random(1))
    with pytest.raises(errors.DeadlineExceeded):
        await nameservers.call(QUERY_ROUTE, QUESTION(), timeout_ms=500)
    silent, _ = await accepting
    hung.close()
    peer = Peer()
    await peer.server.start(address)
    try:
        answer = await nameservers.call(QUERY_ROUTE, QUESTION(), timeout_ms=1_500)
        assert answer.version == peer.version
    finally:
        silent.close()
        await channels.close()
        await peer.server.stop(0)
