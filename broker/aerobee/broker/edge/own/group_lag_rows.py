"""What groups have not read, as columns for one caller: only what it may see."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from math import inf
from typing import Final, NamedTuple
from zlib import crc32

from aerobee.broker.observe.group_totals import GroupTotal, TotalsRead
from aerobee.runtime.loop_turns import LISTINGS, LoopTurns
from aerobee.runtime.waiting import Waiters
from aerobee.v1 import broker_pb2

KEPT_FACTOR: Final = 400
KEPT_S_MAX: Final = 60.0

_NONE = GroupTotal()


class Asked(NamedTuple):
    """What a caller wants and may see."""

    topic: str
    """Empty: all."""
    group: str
    """Empty: all."""
    sees_group: Callable[[str], bool]
    sees_topic: Callable[[str], bool]


async def group_lag_rows(
    found: TotalsRead,
    known: Iterable[str],
    members: Callable[[str], Iterable[str]],
    asked: Asked,
    *,
    now_s: float,
    turns: LoopTurns,
) -> broker_pb2.GroupLagRows:
    """`known`: all groups of the broker; `members`: the client ids of a group's members."""
    names, counts, codes, topics = list[str](), list[int](), list[int](), list[int]()
    unread, in_flight, ages_ms, letters = list[int](), list[int](), list[int](), list[int]()
    is_whole = not asked.topic and all(map(asked.sees_topic, found.topics))
    names_known = {*known, *found.rows}
    if asked.group:
        names_known &= {asked.group}
    wanted = sorted(filter(asked.sees_group, names_known))
    async for name in turns.each(LISTINGS, wanted):
        total = found.totals.get(name, _NONE)
        if not is_whole:
            rows = [
                row
                for row in found.rows.get(name, ())
                if asked.topic in ("", row.topic) and asked.sees_topic(row.topic)
            ]
            if asked.topic and not rows:
                continue
            total = GroupTotal.of(rows)
        clients = [crc32(client_id.encode()) for client_id in members(name)]
        names.append(name)
        counts.append(len(clients))
        codes.extend(clients)
        topics.append(total.topics)
        unread.append(_number(total.unread))
        in_flight.append(_number(total.in_flight))
        ages_ms.append(_number(total.oldest_age_ms))
        letters.append(found.dead_letters.get(name, 0))
    return broker_pb2.GroupLagRows(
        age_ms=max(0, round((now_s - found.read_s) * 1_000)),
        groups=names,
        member_counts=counts,
        member_codes=codes,
        topic_counts=topics,
        unread=unread,
        in_flight=in_flight,
        oldest_ages_ms=ages_ms,
        dead_letters=letters,
    )


class KeptRows:
    """The rows of all groups, for callers that may see everything.

    They are kept for 400 times as long as making them took, at most for a minute: pages that
    refresh themselves then cost a broker about a quarter of a hundredth of its time, however many
    there are. Members in them may be as old as that.
    """

    def __init__(
        self,
        make: Callable[[TotalsRead], Awaitable[broker_pb2.GroupLagRows]],
        monotonic_s: Callable[[], float],
    ) -> None:
        self._make = make
        self._monotonic_s = monotonic_s
        self._is_making = False
        self._made = Waiters()
        self._rows = broker_pb2.GroupLagRows()
        self._read_s = 0.0
        self._until_s = -inf

    async def rows(self, found: TotalsRead) -> broker_pb2.GroupLagRows:
        while self._is_making:  # to share what is made
            await self._made.wait()
        began_s = self._monotonic_s()
        if began_s >= self._until_s:
            self._is_making = True
            try:
                self._rows, self._read_s = await self._make(found), found.read_s
            finally:
                self._is_making = False
                self._made.wake()
            ended_s = self._monotonic_s()
            self._until_s = ended_s + min((ended_s - began_s) * KEPT_FACTOR, KEPT_S_MAX)
        self._rows.age_ms = max(0, round((self._monotonic_s() - self._read_s) * 1_000))
        return self._rows


def _number(value: int | None) -> int:
    return -1 if value is None else value
