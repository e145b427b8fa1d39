"""Invariants of messages that wait, and of those that fail and are redelivered.

Judged only by the confirmed log, record by record, and by what members were told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aerobee.broker.journal.records import read_body
from aerobee.broker.retries.copies import FIRST_NUMBER
from aerobee.broker.timers.entries import (
    TIMER_JOURNAL_TOPIC,
    GivenUp,
    Intent,
    IntentKind,
    decode_entry,
)
from aerobee.store.format.dead_letter_fields import DEAD_LETTER_PREFIX
from aerobee.store.format.delayed_records import TIMER_TOPIC, timer_due_ms
from aerobee.store.format.producer_number import BROKER_PRODUCER_IDS, SEQUENCE_BITS, ProducerRun
from aerobee.store.format.record_view import Record as StoredRecord
from aerobee.store.format.tags import SCHEDULE_TOPIC
from tests.simulation.cluster.log import Record
from tests.simulation.cluster.seen_store import LEVELS
from tests.simulation.judge import Judge

if TYPE_CHECKING:
    from tests.simulation.cluster.checks import Figures

Attempt = tuple[int, int]
"""A message's name, and how often it was redelivered."""
JUDGE: Final = Judge("I7")
_WAITS: Final = (SCHEDULE_TOPIC, TIMER_TOPIC)


class WaitingChecks:
    """Its methods raise Violation."""

    def __init__(self, figures: Figures) -> None:
        self.figures = figures
        self._intents: dict[int, Intent] = {}
        """By act number."""
        self._due: dict[Attempt, tuple[int, int]] = {}
        """Its first due time, and how long its level waits; 0: it waits for a time."""
        self._came: set[Attempt] = set()
        self._dead: set[tuple[str, int]] = set()
        """By topic, and so by group."""
        self._retried: dict[int, int] = {}
        """A message's name -> the attempts with which it was last redelivered."""
        self._told: dict[int, int] = {}
        """A message's name -> the attempts of its last answered send-back."""

    # ------------------------------------------------------------------------------ the log

    def confirmed(self, place: tuple[str, int], record: Record) -> None:
        """One more record is confirmed."""
        topic, stored = place[0], record.data
        if topic == TIMER_JOURNAL_TOPIC:
            self._journalled(stored.data)
            return
        message: StoredRecord = stored.record
        attempt = int(bytes(message.body)), message.reconsume_times
        number = None if stored.run is None else number_of(stored.run)
        if number is None:
            if topic in _WAITS:
                self._waits(attempt, topic, message)
        elif number >= FIRST_NUMBER:
            self._sent_back(attempt, topic, message)
        else:
            intent = self._intents.get(number)
            if intent is None:
                JUDGE.broken(f"{attempt} comes by act {number}, which no journal has")
            if topic in _WAITS:
                self._waits_on(attempt, timer_due_ms(message), intent)
            else:
                self._arrives(attempt, intent)

    def _journalled(self, body: bytes) -> None:
        for entry in read_body(body, decode_entry):
            if isinstance(entry, GivenUp):
                JUDGE.broken(f"{entry}, though nothing was wrong with it")
            if isinstance(entry, Intent):
                for number in range(entry.first_number, entry.end_number):
                    self._intents[number] = entry

    def _waits(self, attempt: Attempt, topic: str, message: StoredRecord) -> None:
        self.figures.waited += 1
        if topic == TIMER_TOPIC:
            self._due[attempt] = timer_due_ms(message), 0
        else:
            level_ms = LEVELS.delay_ms(int(message.property_value("DELAY") or 0))
            self._due[attempt] = message.store_timestamp_ms + level_ms, level_ms

    def _waits_on(self, attempt: Attempt, new_due_ms: int, intent: Intent) -> None:
        """As long as before; or, if the clock was set back, for the whole delay from then on."""
        self.figures.rolled += 1
        due_ms, level_ms = self._due[attempt]
        if intent.kind is IntentKind.RETIME:
            is_right = level_ms > 0 and new_due_ms >= intent.timestamp_ms + level_ms
            self._due[attempt] = min(due_ms, new_due_ms), level_ms
        else:
            is_right = intent.kind is IntentKind.ROLL and new_due_ms == due_ms
        if not is_right:
            JUDGE.broken(f"{attempt} is due {due_ms}, and {new_due_ms} after {intent}")

    def _sent_back(self, attempt: Attempt, topic: str, message: StoredRecord) -> None:
        if topic.startswith(DEAD_LETTER_PREFIX):
            letter = topic, attempt[0]
            JUDGE.once(self._dead, letter, letter)
            self._dead.add(letter)
            self.figures.dead_letters += 1
            return
        JUDGE.once(self._due, attempt, attempt)
        self._waits(attempt, topic, message)

    def _arrives(self, attempt: Attempt, intent: Intent) -> None:
        JUDGE.once(self._came, attempt, attempt)
        self._came.add(attempt)
        self.figures.came += 1
        if intent.kind is not IntentKind.MOVE:
            JUDGE.broken(f"{attempt} came by {intent}")
        JUDGE.not_early(self._due[attempt][0] - intent.timestamp_ms, attempt)
        name, times = attempt
        if times:
            JUDGE.attempts_rise(times, self._retried.get(name, 0), name)
            self._retried[name] = times

    # ------------------------------------------------------------------------------ members

    def handed_out(self, attempt: Attempt) -> None:
        """A member gets it."""
        name, times = attempt
        JUDGE.attempts_rise(times, self._told.get(name, -1), name)

    def was_sent_back(self, attempt: Attempt) -> None:
        """A member is told that a message is finished and replaced by a copy."""
        name, times = attempt
        self._told[name] = max(times, self._told.get(name, -1))
        self.figures.sent_back += 1

    # ------------------------------------------------------------------------------ the end

    def missing(self) -> str:
        """What has not arrived yet; empty when all has."""
        if waits := self._due.keys() - self._came:
            return f"{len(waits)} messages wait, {min(waits)} is one"
        dead = {name for _, name in self._dead}
        for name, times in self._told.items():
            if (name, times + 1) not in self._due and name not in dead:
                return f"message {name} was sent back with {times} attempts, and has no copy"
        return ""


def number_of(run: ProducerRun) -> int:
    """The number of the broker's own act that a record represents."""
    return (run.producer_id - BROKER_PRODUCER_IDS << SEQUENCE_BITS) + run.first_sequence
