"""PURE: what is known of how far a replica's logs reach, and whether a log that registers is whole.

An incarnation names a log as long as it lost nothing, and the replica itself says so. A folder that
was copied says it, too, and does not know that it is old. So what was confirmed and on the disk is
noted outside of it: a log of the same incarnation that ends before that is not what it was.

What always holds: for one incarnation the noted end never falls, and as long as the in-sync set
names an incarnation it is not forgotten.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping

from aerobee.nameserver.stored import (
    BrokerGroup,
    BrokerKey,
    BrokerRecord,
    DurableLog,
    DurableLogs,
)
from aerobee.runtime.errors import ReplicaIncomplete


def noted(durable: DurableLogs, log: DurableLog, named: Collection[str]) -> DurableLogs:
    """With what a registered replica says of its log; `named` are the incarnations under which the
    in-sync set has this replica. The same object if that is no news."""
    known = next((one for one in durable.logs if one.incarnation == log.incarnation), None)
    if known is not None and known.end >= log.end:
        return durable
    others = (one for one in durable.logs if one.incarnation != log.incarnation)
    kept = [one for one in others if one.incarnation in named]
    return dataclasses.replace(durable, logs=(*kept, log))


def check_whole(durable: DurableLogs, wished: BrokerRecord, opened_end: int | None) -> None:
    """`opened_end` is where the log ended when the instance opened it; None: it does not say, and
    would not understand a refusal.

    Raises ReplicaIncomplete: the log lacks what its incarnation is known to have had.
    """
    if opened_end is None:
        return
    for log in durable.logs:
        # What this very instance has said is true of the folder that it has open. What others said
        # must have been there before it wrote anything itself.
        is_other = log.incarnation == wished.incarnation and log.told_by != wished.instance
        if is_other and opened_end < log.end:
            name = f"{wished.key.broker_name}/{wished.key.broker_id}"
            raise ReplicaIncomplete(
                f"the log of {name} ended at {opened_end} when its folder was opened, and had "
                f"{log.end} bytes confirmed and on its disk before: an older copy of the folder "
                "was put back, or the disk lost bytes; it must register as another log"
            )


def compared(durable: DurableLogs, wished: BrokerRecord, named: Collection[str]) -> BrokerRecord:
    """The record, and whether its log, which counts as another one, lacks what the in-sync set
    counts on. One that lost power has everything that was on its disk; an old copy has not."""
    missed = any(log.incarnation in named and log.end > wished.log_end for log in durable.logs)
    return dataclasses.replace(wished, is_incomplete=missed and wished.incarnation not in named)


def confirmed_end(group: BrokerGroup, durable: Mapping[int, DurableLogs]) -> int:
    """What the notes, by broker id, say of how far the log of every replica in sync reaches: what
    one of them had confirmed all of them have."""
    named = {(one.broker_id, one.incarnation) for one in group.in_sync}
    ends = (
        log.end
        for broker_id, logs in durable.items()
        for log in logs.logs
        if (broker_id, log.incarnation) in named
    )
    return max(ends, default=0)


def named_in_sync(group: BrokerGroup | None, key: BrokerKey) -> frozenset[str]:
    """The incarnations under which a replica counts as having everything."""
    in_sync = () if group is None else group.in_sync
    return frozenset(one.incarnation for one in in_sync if one.broker_id == key.broker_id)
