"""A master sends the runs that are due, each once.

    the last master's open run is finished -> for each schedule that is due: the run is in the
      journal -> its message is appended, in the same turn -> acted

Owns: the order of these steps, and when the next one is due. Clocks get adjusted, so it reads the
clock at least every LOOK_S while a run is to come.

Invariant: one run at a time; there is no wait between a run and its message, unless an append
failed, and then nothing else is sent before that is done. A schedule whose topic takes no message
does not hold up the others: it stays due, and what it misses meanwhile is missed.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from aerobee.broker.recurring.message import run_record
from aerobee.broker.recurring.schedules import Progress, Ran, Schedule, step_of
from aerobee.broker.recurring.state import ScheduleTerm
from aerobee.broker.sending.durability import Durability
from aerobee.broker.sending.guard import Guard
from aerobee.broker.sending.own_writes import OwnWrites
from aerobee.broker.timers.acts import producer_runs
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import (
    AerobeeError,
    IllegalName,
    MessageTooLarge,
    NotWritableTopic,
    QueueNotFound,
    TopicNotFound,
)
from aerobee.runtime.log import log_event
from aerobee.runtime.worker import Worker, warns
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.producers.producer_windows import ProducerName
from aerobee.store.format.batch import BatchIllegal
from aerobee.store.format.producer_number import ProducerRun
from aerobee.store.format.record_layout import HostAddress, RecordIllegal

log = logging.getLogger(__name__)

LOOK_S: Final = 1.0
RETRY_S: Final = 0.25
TOGETHER_MAX: Final = 100
"""Runs that are sent before others get the loop."""
FIRST_NUMBER: Final = 1 << 46
"""Of the broker's own numbers; those below belong to the timers, those above `retries`' first to
what is sent back."""
_NEVER_TAKEN: Final = (IllegalName, MessageTooLarge, NotWritableTopic, QueueNotFound, TopicNotFound)


class Runner:
    """On the loop, while `run` runs."""

    def __init__(
        self,
        writes: OwnWrites,
        guard: Guard,
        store: MessageStore,
        durability: Durability,
        clock: Clock,
        host: HostAddress,
    ) -> None:
        self._writes = writes
        self._guard = guard
        self._store = store
        self._durability = durability
        self._clock = clock
        self._host = host
        self._worker = Worker(
            self._send_due,
            warns(log, "schedules do not run now"),
            retry_s=RETRY_S,
            matters=lambda: self._term is not None,
        )
        self._term: ScheduleTerm | None = None
        self.troubles: dict[str, str] = {}
        """By schedule: why its next run cannot be sent now."""
        self.sent = self.given_up = 0
        """Runs since the start."""

    def __repr__(self) -> str:
        return f"Runner(term={self._term is not None})"

    # ------------------------------------------------------------------------------ the role

    def begin(self, term: ScheduleTerm) -> None:
        """Everything in the log is confirmed and applied."""
        self._term = term
        self._worker.wake()

    def end(self) -> None:
        """Nothing is sent from here on."""
        self._term = None
        self.troubles.clear()
        self._worker.wake()

    def wake(self) -> None:
        """A schedule was changed."""
        self._worker.wake()

    async def run(self) -> None:
        """Until cancelled. Raises StoreFailed."""
        await self._worker.run()

    # ------------------------------------------------------------------------------ sending

    async def _send_due(self) -> float | None:
        term = self._term
        if term is None:
            return None
        self.finish(term)
        if self._send_some(term):
            if self._durability.is_behind():
                await self._durability.wait_progress()
            await asyncio.sleep(0)  # let others run
            return 0
        wake_ms = term.schedules.wake_ms()
        if wake_ms is None:
            return None
        left_s = (wake_ms - self._clock.now_ms()) / 1_000
        return min(LOOK_S, left_s) if left_s > 0 else LOOK_S

    def _send_some(self, term: ScheduleTerm) -> bool:
        """Whether more is due. Raises AerobeeError."""
        now_ms, sent = self._clock.now_ms(), 0
        for name in [*term.schedules.by_name]:
            while (step := step_of(schedule := term.schedules.by_name[name], now_ms)) is not None:
                if not step.time_ms:
                    term.note_passed(name, step.progress)
                elif self._is_refused(schedule):
                    break
                else:
                    self.send(term, schedule, step.time_ms, step.progress)
                    sent += 1
                if missed := step.progress.missed - schedule.progress.missed:
                    log_event(log, "runs of a schedule were missed", schedule=name, runs=missed)
                if sent >= TOGETHER_MAX:
                    return True
        return False

    def _is_refused(self, schedule: Schedule) -> bool:
        """Its topic takes no message now."""
        name, topic = schedule.name, schedule.definition.topic
        try:
            self._guard.check_send(topic, self._queue_of(schedule))
        except AerobeeError as error:
            if self.troubles.get(name) != str(error):
                self.troubles[name] = str(error)
                log_event(
                    log,
                    "a schedule cannot run",
                    level=logging.WARNING,
                    schedule=name,
                    topic=topic,
                    reason=error,
                )
            return True
        self.troubles.pop(name, None)
        return False

    def _queue_of(self, schedule: Schedule) -> int:
        """In turn."""
        queues = self._guard.write_queues(schedule.definition.topic)
        return schedule.progress.runs % queues if queues else 0

    def send(
        self, term: ScheduleTerm, schedule: Schedule, time_ms: int, progress: Progress
    ) -> None:
        """Send a run now; `finish` was called, and its topic takes a message.

        Raises:
            AerobeeError: nothing is done, or the run will be finished.
        """
        with self._writes.publishing:
            ran = term.intend(schedule, time_ms, self._queue_of(schedule), progress)
            self._append(term, ran)

    def send_now(self, term: ScheduleTerm, schedule: Schedule, time_ms: int) -> None:
        """Send a run on request, as `send`. Raises AerobeeError, also if its topic takes none."""
        self._guard.check_send(schedule.definition.topic, self._queue_of(schedule))
        self.send(term, schedule, time_ms, schedule.progress._replace(asked_ms=time_ms))

    def finish(self, term: ScheduleTerm) -> None:
        """Finish the run that the last master, or a failed append, left open. Raises
        AerobeeError: it stays open."""
        ran = term.schedules.open
        if ran is None:
            return
        schedule = term.schedules.by_name.get(ran.name)
        if schedule is None or self._is_stored(ran, schedule.definition.topic):
            term.note_acted()
            return
        with self._writes.publishing:
            self._append(term, ran)

    def _is_stored(self, ran: Ran, topic: str) -> bool:
        run = _number_of(ran)
        name = ProducerName(topic, ran.queue_id, run.producer_id)
        found = self._store.producers.windows.standing(name, run.first_sequence, 1)
        # None: the window does not reach back so far, which it would if it had no newer run.
        return found is None or found.stored_count > 0

    def _append(self, term: ScheduleTerm, ran: Ran) -> None:
        schedule = term.schedules.by_name[ran.name]
        topic = schedule.definition.topic
        try:
            self._guard.check_append(topic, ran.queue_id)
            record = run_record(
                schedule,
                ran.time_ms,
                ran.number,
                broker_name=self._guard.broker_name,
                now_ms=self._clock.now_ms(),
                host=self._host,
            )
            self._writes.append_copies(topic, ran.queue_id, [record], [_number_of(ran)])
            self.sent += 1
        except (BatchIllegal, RecordIllegal, *_NEVER_TAKEN) as error:
            self.given_up += 1
            log_event(
                log,
                "a run of a schedule could not be sent and is given up",
                level=logging.ERROR,
                schedule=ran.name,
                topic=topic,
                run_ms=ran.time_ms,
                reason=error,
            )
        term.note_acted()


def _number_of(ran: Ran) -> ProducerRun:
    return next(producer_runs(FIRST_NUMBER + ran.number, 1))
