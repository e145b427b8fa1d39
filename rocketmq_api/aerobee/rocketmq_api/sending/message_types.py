"""The types of messages (`rules.message_types`) as this protocol numbers them."""

from __future__ import annotations

from typing import Final

from aerobee.rocketmq_api.rules.message_types import MessageType
from apache.rocketmq.v2 import definition_pb2 as v2

V2_TYPES: Final[dict[MessageType, v2.MessageType]] = {
    MessageType.NORMAL: v2.NORMAL,
    MessageType.FIFO: v2.FIFO,
    MessageType.DELAY: v2.DELAY,
    MessageType.TRANSACTION: v2.TRANSACTION,
    MessageType.PRIORITY: v2.PRIORITY,
    MessageType.LITE: v2.LITE,
    MessageType.UNSPECIFIED: v2.MESSAGE_TYPE_UNSPECIFIED,
}
