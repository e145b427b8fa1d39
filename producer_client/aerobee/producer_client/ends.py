"""Ends of transactions that are requested in one turn of the loop travel in one call.

Owns: the ends that wait for their call. The first of a turn makes the call for all of them. What
its answer does not settle, and everything if the call fails or its caller is cancelled, is
requested again one by one: repeating an end does no harm.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple

from aerobee.client_core.group_calls import GroupCalls
from aerobee.client_core.transactions import TransactionOutcome, together_request, told_outcome
from aerobee.cluster_view.methods import END_TRANSACTIONS
from aerobee.runtime import errors

TOGETHER_MAX: Final = 128
ID_LENGTH_MAX: Final = 256
"""Longer ids are not of our producers; their ends are requested one by one."""
UNKNOWN_CALL_S: Final = 60.0
"""How long a broker group is not asked again that did not know the call."""


class _Place(NamedTuple):
    topic: str
    broker_name: str


@dataclass(slots=True, eq=False)
class _End:
    transaction_id: str
    wanted: TransactionOutcome
    end_s: float
    """Its deadline, by the monotonic clock."""
    settled: asyncio.Future[TransactionOutcome | None]
    """None: request it by itself."""


class GatheredEnds:
    """On one event loop."""

    def __init__(self, calls: GroupCalls, now_s: Callable[[], float]) -> None:
        """`now_s`: the monotonic clock."""
        self._calls = calls
        self._now_s = now_s
        self._gathered: dict[_Place, list[_End]] = {}
        self._asks_again_s: dict[str, float] = {}
        """By broker group that did not know the call."""

    async def end(
        self,
        topic: str,
        broker_name: str,
        transaction_id: str,
        wanted: TransactionOutcome,
        end_s: float,
    ) -> TransactionOutcome | None:
        """How it ended. None: it has ended, or not; request it by itself."""
        if len(transaction_id) > ID_LENGTH_MAX or not self._may_ask(broker_name):
            return None
        place = _Place(topic, broker_name)
        settled: asyncio.Future[TransactionOutcome | None] = (
            asyncio.get_running_loop().create_future()
        )
        own = _End(transaction_id, wanted, end_s, settled)
        gathered = self._gathered.get(place)
        if gathered is not None:
            gathered.append(own)
            if len(gathered) == TOGETHER_MAX:
                del self._gathered[place]
            return await settled
        self._gathered[place] = together = [own]
        try:
            await asyncio.sleep(0)  # for the others of this turn
            if self._gathered.get(place) is together:
                del self._gathered[place]
            if len(together) > 1:
                with suppress(errors.AerobeeError):
                    await self._request(place, together)
        finally:
            if self._gathered.get(place) is together:
                del self._gathered[place]
            for each in together:
                if not each.settled.done():
                    each.settled.set_result(None)
        return await settled

    def _may_ask(self, broker_name: str) -> bool:
        asks_again_s = self._asks_again_s.get(broker_name)
        if asks_again_s is None:
            return True
        if self._now_s() < asks_again_s:
            return False
        del self._asks_again_s[broker_name]
        return True

    async def _request(self, place: _Place, together: list[_End]) -> None:
        """Raises AerobeeError: nothing is known."""
        # An end that was cancelled meanwhile may still happen, as if its request had left.
        together.sort(key=lambda each: each.wanted is not TransactionOutcome.COMMITTED)
        left_s = min(each.end_s for each in together) - self._now_s()
        left_ms = max(1, int(left_s * 1_000))
        request = together_request(
            place.topic, [(each.transaction_id, each.wanted) for each in together], left_ms
        )
        try:
            answer = await self._calls.at_master(
                place.topic, place.broker_name, END_TRANSACTIONS, request, timeout_ms=left_ms
            )
        except errors.AerobeeError as error:
            if type(error) is errors.AerobeeError:  # without a code: the method is not served
                self._asks_again_s[place.broker_name] = self._now_s() + UNKNOWN_CALL_S
            raise
        for each, outcome in zip(together, answer.outcomes, strict=False):
            if not each.settled.done():
                each.settled.set_result(told_outcome(outcome))
