"""The copy that replaces a message that was sent back: its destination, its number, and its
content.

All of it follows from the journal's entry and the original's record. So each master makes the same
copy, and sees from the producers' windows whether the last one has appended it: see `timers.acts`.
"""

from __future__ import annotations

from typing import Final

from aerobee.broker.offsets.sent_back import Resend, SentBack
from aerobee.broker.timers.acts import Destination, Standing, producer_runs
from aerobee.store.engine.producers.producer_windows import ProducerName
from aerobee.store.format.dead_letter_fields import Death, dead_letter_topic
from aerobee.store.format.delayed_records import TIMER_TOPIC, Moved
from aerobee.store.format.producer_number import ProducerRun
from aerobee.store.format.record_view import Record
from aerobee.store.format.retry_records import dead_letter_record, resent_record, retry_record
from aerobee.store.format.tags import SCHEDULE_TOPIC

FIRST_NUMBER: Final = 1 << 47
"""The upper half of the broker's own numbers; the lower half belongs to the timers."""


def destination_of(entry: SentBack) -> Destination:
    """Where the copy goes: where it waits, or to the dead letters."""
    if isinstance(entry.way, Death):
        return Destination(dead_letter_topic(entry.key.group), 0)
    if isinstance(entry.way, Resend):
        return Destination(entry.way.topic, entry.way.queue_id)
    if entry.way.level:
        return Destination(SCHEDULE_TOPIC, entry.way.level - 1)
    return Destination(TIMER_TOPIC, 0)


def run_of(entry: SentBack) -> ProducerRun:
    """The copy's number as a producer's run."""
    return next(producer_runs(FIRST_NUMBER + entry.number, 1))


def is_stored(entry: SentBack, standing: Standing) -> bool | None:
    """Whether the log has the copy; None: the windows do not reach that far back."""
    run = run_of(entry)
    found = standing(ProducerName(*destination_of(entry), run.producer_id), run.first_sequence, 1)
    return None if found is None else found.stored_count > 0


def copy_of(record: Record, entry: SentBack, *, store_host_ipv6: bool) -> Moved:
    """The copy of the original. Raises RecordIllegal if it does not fit, never for a dead letter;
    ResendCircle, GroupNameTooLong, RecordCorrupt."""
    if isinstance(entry.way, Resend):
        return resent_record(
            record,
            topic=entry.way.topic,
            queue_id=entry.way.queue_id,
            now_ms=entry.timestamp_ms,
            store_host_ipv6=store_host_ipv6,
            resends_max=entry.way.resends_max,
        )
    if isinstance(entry.way, Death):
        return dead_letter_record(record, entry.way, store_host_ipv6=store_host_ipv6)
    return retry_record(record, entry.way, group=entry.key.group, store_host_ipv6=store_host_ipv6)
