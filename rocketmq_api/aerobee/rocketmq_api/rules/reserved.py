"""Property names that users of this API may not set, and those they do not see.

Names in neither set pass as user properties in both directions, even some that have a meaning:
clients' own tests look for `__SHARDINGKEY` and `__transactionId__` among them.
"""

from __future__ import annotations

from typing import Final

from aerobee.store.format.properties import PropertyIllegal, PropertyName
from aerobee.store.format.reserved_properties import allowed_of, check_property

_N: Final = PropertyName

# Apache's set.
_SYSTEM: Final = frozenset(
    {
        _N.FIRST_POP_TIME,
        _N.ARRIVE_TIME,
        _N.BORN_TIMESTAMP,
        _N.BUYER_ID,
        _N.CLUSTER,
        _N.CONSUME_START_TIME,
        _N.CORRECTION_FLAG,
        _N.CORRELATION_ID,
        _N.DELAY,
        _N.DLQ_ORIGIN_MESSAGE_ID,
        _N.DLQ_ORIGIN_TOPIC,
        _N.DUP_INFO,
        _N.EXTEND_UNIQ_INFO,
        _N.INNER_MULTI_QUEUE_OFFSET,
        _N.INSTANCE_ID,
        _N.KEYS,
        _N.MAX_OFFSET,
        _N.MAX_RECONSUME_TIMES,
        _N.MIN_OFFSET,
        _N.MQ2_FLAG,
        _N.MSG_REGION,
        _N.MSG_TYPE,
        _N.ORIGIN_MESSAGE_ID,
        _N.PGROUP,
        _N.POP_CK,
        _N.POP_CK_OFFSET,
        _N.PUSH_REPLY_TIME,
        _N.REAL_QID,
        _N.REAL_TOPIC,
        _N.RECONSUME_TIME,
        _N.REPLY_TO_CLIENT,
        _N.RETRY_TOPIC,
        _N.TAGS,
        _N.TIMER_DELAY_LEVEL,
        _N.TIMER_DELAY_MS,
        _N.TIMER_DELAY_SEC,
        _N.TIMER_DELIVER_MS,
        _N.TIMER_DEL_UNIQKEY,
        _N.TIMER_DEQUEUE_MS,
        _N.TIMER_ENQUEUE_MS,
        _N.TIMER_OUT_MS,
        _N.TIMER_ROLL_TIMES,
        _N.TRACE_ON,
        _N.TRANSFER_FLAG,
        _N.TRAN_MSG,
        _N.TRAN_PREPARED_QUEUE_OFFSET,
        _N.TTL,
        _N.UNIQ_KEY,
        _N.WAIT,
        _N.BORN_HOST,
        _N.CRC32,
    }
)

HIDDEN: Final = _SYSTEM | {
    # These have fields of their own.
    _N.PRIORITY,
    _N.LITE_TOPIC,
    # A consumer that forwards what it received must not be refused for properties that only brokers
    # may set.
    _N.ORIGIN_QUEUE_ID,
    _N.ORIGIN_QUEUE_OFFSET,
    _N.DLQ_RESENDS,
    _N.PRODUCER,
    _N.CLIENT,
    _N.TRANSACTION_CHECK_TIMES,
}
"""Removed from delivered messages. What a dead letter says about its failure stays visible."""


def is_plain_name(name: str) -> bool:
    """Whether a user may set any value for this name, because it has no meaning."""
    return bool(name) and name not in HIDDEN and allowed_of(name) is None


def may_be_set(name: str, value: str) -> bool:
    """Whether a user's property of a sent message may have this name and value."""
    if name in HIDDEN:
        return False
    try:
        check_property(name, value)
    except PropertyIllegal:
        return False
    return True
