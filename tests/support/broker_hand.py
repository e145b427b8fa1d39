"""A hand to send to brokers with, queue by queue, and to look at what they know of groups.

Frames go out as a producer's do; what a test says of queues, tags and properties is what is stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from aerobee.cluster_view.channels import Channels
from aerobee.cluster_view.methods import DELETE_GROUP, DESCRIBE_GROUP, RESET_OFFSETS, SEND_STREAM
from aerobee.runtime import errors
from aerobee.store.format.properties import encode_properties
from aerobee.store.format.record import HostAddress, encode_batch
from aerobee.v1 import broker_pb2, common_pb2

BORN_HOST = HostAddress(b"\x7f\x00\x00\x01", 4242)


class BrokerHand:
    """Of a cluster that says where its brokers are."""

    channels: Channels

    def address_of(self, broker: str) -> str:
        """Of the broker of that name; empty: the first."""
        raise NotImplementedError

    async def send(
        self,
        topic: str,
        queue_id: int,
        bodies: Sequence[bytes],
        *,
        broker: str = "",
        tag: str = "",
        level: int = 0,
        properties: Sequence[Mapping[str, str]] = (),
    ) -> int:
        """Store messages in one queue; returns the offset of the first. `level`: they wait.
        `properties`: each message's own, beside the tag."""
        common = f"TAGS\x01{tag}\x02".encode() if tag else b""
        common += f"DELAY\x01{level}\x02".encode() if level else b""
        encoded = [common] * len(bodies)
        if properties:
            encoded = [common + encode_properties(each) for each in properties]
        records, sizes = encode_batch(
            topic=topic.encode(),
            bodies=bodies,
            properties=encoded,
            born_timestamp_ms=1_700_000_000_000,
            born_host=BORN_HOST,
        )
        frame = broker_pb2.SendFrame(
            batches=[
                broker_pb2.RecordBatch(
                    sequence=1,
                    topic=topic,
                    queue_id=queue_id,
                    records=records,
                    record_sizes=sizes,
                )
            ]
        )
        while True:
            stream = self.channels.open_stream(self.address_of(broker), SEND_STREAM)
            try:
                await stream.write(frame)
                break
            except errors.Unreachable as error:
                # The channel has not yet noticed that the broker is back: nothing was sent.
                if "connect" not in str(error):
                    raise
                await asyncio.sleep(0.05)
        answer = await stream.read()
        assert answer is not None
        assert answer.acks[0].code == common_pb2.OK, answer.acks[0]
        stream.cancel()
        return answer.acks[0].base_queue_offset

    async def group(self, group: str, *, broker: str = "") -> broker_pb2.GroupDescription:
        """What a broker knows of a group; empty if nothing."""
        try:
            return await self.channels.call(
                self.address_of(broker),
                DESCRIBE_GROUP,
                broker_pb2.DescribeGroupRequest(group=group),
            )
        except errors.GroupNotFound:
            return broker_pb2.GroupDescription(group=group)

    async def committed(self, group: str, *, broker: str = "") -> dict[tuple[str, int], int]:
        """Committed offsets by topic and queue id."""
        description = await self.group(group, broker=broker)
        return {
            (queue.topic, queue.queue_id): queue.committed_offset for queue in description.queues
        }

    async def holders(self, group: str, *, broker: str = "") -> dict[tuple[str, int], str]:
        """Who holds which queue."""
        description = await self.group(group, broker=broker)
        return {
            (queue.topic, queue.queue_id): queue.lease_holder
            for queue in description.queues
            if queue.lease_holder
        }

    async def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """As an operator does it."""
        await self.channels.call(
            self.address_of(""),
            RESET_OFFSETS,
            broker_pb2.ResetOffsetsRequest(
                group=group,
                offsets=[broker_pb2.QueueOffset(topic=topic, queue_id=queue_id, offset=offset)],
            ),
        )

    async def delete_group(self, group: str, *, broker: str) -> None:
        """As an operator does it, with the members that it has."""
        await self.channels.call(
            self.address_of(broker),
            DELETE_GROUP,
            broker_pb2.DeleteGroupRequest(group=group, force=True),
            timeout_ms=10_000,
        )
