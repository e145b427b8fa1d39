"""A master asks producers about transactions that they have not ended.

A scan looks at everything open, once per interval. A half message that is old enough is stored
again at the end of its topic, with one more check, and a producer is asked. A check that reaches no
producer does not count: the transaction waits until there is one. After the last check, or when the
log would have been removed, the message is set aside.

Owns: the scans, and their pace. `Ends` deals with answers and interrupted scans in between: what
has ended is not asked about, and what is asked about twice ends once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from enum import Enum
from typing import Final, NamedTuple

from aerobee.broker.transactions.ends import Ends, ReadHalf
from aerobee.broker.transactions.pending import PendingHalves, TransactionName
from aerobee.broker.transactions.questions import Question
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import InvalidArgument, MessageIllegal, MessageNotFound, NotMaster
from aerobee.runtime.log import log_event
from aerobee.runtime.worker import Worker, warns
from aerobee.store.format.delayed_records import HALF_TOPIC
from aerobee.store.format.transaction_records import LEAD, HalfMessage

log = logging.getLogger(__name__)

LOOKS_PER_TURN: Final = 500
BURST_CHECKS: Final = 50
BURST_BYTES: Final = 1024 * 1024
BURST_S: Final = 0.1
"""This many checks, or the one that exceeds these bytes, take at least this long: at most 500 per
second, and about 10 MiB."""


class CheckRules(NamedTuple):
    """Apache's names: transactionTimeOut, transactionCheckInterval, transactionCheckMax,
    fileReservedTime."""

    timeout_ms: int
    interval_ms: int
    checks_max: int
    reserved_ms: int | None
    """None: the log keeps everything."""


class Verdict(Enum):
    """What a scan does with a half message."""

    LEAVE = "leave"
    CHECK = "check"
    SET_ASIDE = "set aside"


def verdict(half: HalfMessage, now_ms: int, rules: CheckRules) -> Verdict:
    """PURE. Uses only the broker's clock: clients set the birth time, and may be wrong."""
    age_ms = now_ms - half.stored_ms
    if rules.reserved_ms is not None and age_ms > rules.reserved_ms:
        return Verdict.SET_ASIDE
    if half.checks:
        # Scans are an interval apart, but checks not exactly: the last one may have been paced.
        wait_ms = rules.interval_ms // 2
    else:
        wait_ms = rules.timeout_ms if half.immunity_ms is None else half.immunity_ms
    if abs(age_ms) < wait_ms:  # so it is not below 0 for long if the clock was set back
        return Verdict.LEAVE
    return Verdict.CHECK if half.checks < rules.checks_max else Verdict.SET_ASIDE


def waits_since_ms(half: HalfMessage, rules: CheckRules) -> int:
    """About when a transaction began: each check stored its half message again."""
    return half.stored_ms - half.checks * rules.interval_ms


def _asked_of(half: HalfMessage) -> tuple[str, str]:
    """Who can be asked: producers of the topic, or in remoting of the group."""
    return half.topic, half.producer_group


class Checks:
    """On the loop, while `run` runs; asks between `begin` and `end`."""

    def __init__(
        self,
        ends: Ends,
        pending: PendingHalves,
        clock: Clock,
        rules: CheckRules,
        *,
        read_half: ReadHalf,
        ask: Callable[[Question], bool],
    ) -> None:
        self._ends = ends
        self._pending = pending
        self._clock = clock
        self.rules = rules
        self._read_half = read_half
        self._ask = ask
        self._worker = Worker(
            self._scan_in_time,
            warns(log, "transactions are not checked"),
            retry_s=self._rest_s,
            matters=lambda: self._is_on,
        )
        self._is_on = False
        self._begun_s = 0.0
        self._burst_checks = self._burst_bytes = 0
        self._without_producer: set[tuple[str, str]] = set()
        """Topics and producer groups without a producer, in this scan."""
        self.oldest_since_ms: int | None = None
        """When the oldest open transaction began, as of the last scan."""
        self.unasked = 0
        """How often a scan found no producer for a topic."""

    def begin(self) -> None:
        """The master's transactions are known."""
        self._is_on = True
        self._worker.wake()

    def end(self) -> None:
        """Stop asking."""
        self._is_on = False
        self.oldest_since_ms = None

    async def run(self) -> None:
        """Until cancelled. Raises StoreFailed."""
        await self._worker.run()

    async def _scan_in_time(self) -> float | None:
        if not self._is_on:
            return None
        self._begun_s = self._clock.monotonic_s()
        await self.scan()
        # Whether or not another term begins meanwhile.
        await asyncio.sleep(self._rest_s())
        return 0

    def _rest_s(self) -> float:
        """Until the next scan."""
        passed_s = self._clock.monotonic_s() - self._begun_s
        return max(BURST_S, self.rules.interval_ms / 1_000 - passed_s)

    async def scan(self) -> None:
        """Check everything open now. Raises AerobeeError: the rest comes with the next scan."""
        oldest_ms: int | None = None
        self._without_producer.clear()
        for number, offset in enumerate(self._pending.all_offsets(), 1):
            if number % LOOKS_PER_TURN == 0:
                await asyncio.sleep(0)
            if not self._is_on:
                return
            half = self._pending.at(offset)
            if half is None:
                continue
            since_ms = waits_since_ms(half, self.rules)
            oldest_ms = since_ms if oldest_ms is None else min(oldest_ms, since_ms)
            found = verdict(half, self._clock.now_ms(), self.rules)
            if found is Verdict.CHECK and _asked_of(half) in self._without_producer:
                continue  # its record need not be read
            if found is not Verdict.LEAVE:
                await self._pace(half.size)
                await self._act(half, found)
        self.oldest_since_ms = oldest_ms

    async def check_now(self, name: TransactionName) -> bool:
        """Ask about one transaction now, as the next scan would. False: no producer can be asked.

        Raises:
            NotMaster: another replica asks.
            MessageNotFound: none of that name is open here.
            InvalidArgument: its producer may still work on it, and would answer too early.
        """
        if not self._is_on:
            raise NotMaster("this broker does not ask producers now; ask the master")
        halves = self._pending.of(name)
        if not halves:
            raise MessageNotFound(
                f"transaction {name.transaction_id[:64]!r} of topic {name.topic!r} is not open here"
            )
        half = halves[-1]
        if not half.checks and verdict(half, self._clock.now_ms(), self.rules) is Verdict.LEAVE:
            raise InvalidArgument(
                "the transaction has just begun, and its producer may still work on it: repeat the "
                "call once it is old enough for the broker's own first check"
            )
        data = await self._read_half(HALF_TOPIC, half)
        return self._ends.check(half, data, self._ask)

    async def _act(self, half: HalfMessage, found: Verdict) -> None:
        try:
            data = await self._read_half(HALF_TOPIC, half)
        except MessageNotFound:
            return  # an operator is having the log cleaned
        if found is Verdict.CHECK:
            try:
                if not self._ends.check(half, data, self._asked):
                    return
            except MessageIllegal as error:
                self._tell("a transaction cannot be checked", half, error)
            else:
                return
        try:
            if self._ends.put_aside(half, data):
                self._tell("a transaction was set aside", half, "its producers did not end it")
        except MessageIllegal as error:
            self._tell("a transaction cannot be set aside", half, error)

    def _asked(self, question: Question) -> bool:
        if self._ask(question):
            return True
        self.unasked += 1
        if not question.record.property_value(LEAD):  # which fewer producers can be asked about
            self._without_producer.add(_asked_of(question.half))
        return False

    def _tell(self, event: str, half: HalfMessage, reason: object) -> None:
        log_event(
            log,
            event,
            level=logging.WARNING,
            topic=half.topic,
            transaction=half.transaction_id,
            checks=half.checks,
            reason=reason,
        )

    async def _pace(self, size: int) -> None:
        self._burst_checks += 1
        self._burst_bytes += size
        if self._burst_checks >= BURST_CHECKS or self._burst_bytes >= BURST_BYTES:
            self._burst_checks = self._burst_bytes = 0
            await asyncio.sleep(BURST_S)
        else:
            await asyncio.sleep(0)
