"""What remoting clients do with messages that they have popped: acknowledge, or change their time.

A client's handle names a delivery by its times, because that is what answers can give it; see
`rocketmq_remoting.pops`. Here it becomes the handle that all protocols use.
"""

from __future__ import annotations

from collections.abc import Sequence

from aerobee.broker.edge.rocketmq.own_pops import OwnPops
from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.popping.pops import Pops
from aerobee.remoting_core.command import Command
from aerobee.remoting_core.connection import Connection
from aerobee.rocketmq_api.rules.handles import ReceiptHandle
from aerobee.rocketmq_remoting import fields as read
from aerobee.rocketmq_remoting.codes import refusal
from aerobee.rocketmq_remoting.pops import IN_ORDER, PopHandle, changed_ms, read_acks
from aerobee.runtime.errors import InvalidArgument, NotMaster
from aerobee.store.format.pop_records import retry_topics_of


class PopHandles:
    """On the loop."""

    def __init__(self, own: OwnPops, pops: Pops) -> None:
        self._own = own
        self._pops = pops

    async def acknowledge(self, connection: Connection, request: Command) -> Command:
        """Code 200051. Raises AerobeeError."""
        return await self._acknowledged(request, [PopHandle.of(request.fields)])

    async def acknowledge_batch(self, connection: Connection, request: Command) -> Command:
        """Code 200151: as many as there are. Raises AerobeeError."""
        return await self._acknowledged(request, read_acks(request.body))

    async def _acknowledged(self, request: Command, handles: Sequence[PopHandle]) -> Command:
        found = [self._handle(each) for each in handles]
        for error in await self._own.acknowledge(found):
            if error is not None:
                return refusal(request, error)
        return request.answer()

    async def change(self, connection: Connection, request: Command) -> Command:
        """Code 200053: the answer has what the client needs for its new handle. Raises
        AerobeeError."""
        handle, invisible_ms = PopHandle.of(request.fields), changed_ms(request.fields)
        is_suspended = read.flag(request.fields, "suspend")
        changed = await self._own.change(
            self._handle(handle), invisible_ms, is_counted=not is_suspended
        )
        return request.answer(
            fields={
                "popTime": str(changed.visible_ms - invisible_ms),
                "invisibleTime": str(invisible_ms),
                "reviveQid": str(handle.revive),
            }
        )

    def _handle(self, handle: PopHandle) -> ReceiptHandle:
        """A delivery that is not the last one has a serial that no delivery has. Raises
        AerobeeError."""
        own, group = self._own, handle.group
        if handle.broker_name != own.broker_name:
            raise InvalidArgument(
                f"the message was popped from broker {handle.broker_name}: acknowledge it there"
            )
        if not own.is_master():
            raise NotMaster(f"this replica of broker {own.broker_name} is not its master")
        key = GroupQueue(group, _topic(handle), handle.queue_id)
        serial = self._pops.serial_of(key, handle.offset, handle.popped_ms, handle.visible_ms)
        return ReceiptHandle(
            own.broker_name,
            key.topic,
            group,
            key.queue_id,
            handle.offset,
            serial,
            handle.visible_ms,
        )


def _topic(handle: PopHandle) -> str:
    """Of the queue. Raises InvalidArgument."""
    if handle.revive in (0, IN_ORDER):
        return handle.topic
    retries = retry_topics_of(handle.group, handle.topic)
    if handle.revive > len(retries):
        raise InvalidArgument("the handle is of no queue of the group")
    return retries[handle.revive - 1]
