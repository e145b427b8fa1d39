"""The nodes of a running cluster, each with a client."""

from __future__ import annotations

import grpc

from apache.rocketmq.v2 import service_pb2
from tests.support.grpcio_client import build_channel
from tests.support.local_up import Up
from tests.support.v2_calls import V2


class Nodes:
    """A client of each node."""

    def __init__(self, up: Up) -> None:
        self._channels: list[grpc.aio.Channel] = []
        self.nameserver = self.connect(up.document()["nameserver"])

    def connect(self, address: str, metadata: dict[str, str] | None = None) -> V2:
        channel = build_channel(address)
        self._channels.append(channel)
        return V2(channel, metadata)

    async def close(self) -> None:
        for channel in self._channels:
            await channel.close()


def addresses(route: service_pb2.QueryRouteResponse) -> dict[str, str]:
    """By broker name."""
    return {
        queue.broker.name: f"{address.host}:{address.port}"
        for queue in route.message_queues
        for address in queue.broker.endpoints.addresses
    }
