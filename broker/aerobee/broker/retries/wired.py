"""The parts of sending back, put together: a piece of the composition root."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from aerobee.broker.offsets.sent_back import SentBack
from aerobee.broker.retention.holds import Hold, Need, Upkeep
from aerobee.broker.retries.dead_letters import DeadLetters
from aerobee.broker.retries.send_backs import SendBacks
from aerobee.broker.retries.settings import RetrySettings
from aerobee.broker.retries.topics import RetryTopics
from aerobee.broker.store.retention.retention_ledger import Candidate
from aerobee.broker.store.tables.config_tables import SUBSCRIPTION_GROUPS_PATH, TOPICS_PATH
from aerobee.store_format.delay_levels import DelayLevels

if TYPE_CHECKING:
    from aerobee.broker.wiring import Wiring


class Retries:
    """`send_backs.run` is one of the broker's tasks, `hold` one of the owners of old data."""

    def __init__(self, parts: Wiring) -> None:
        folder, store = parts.folder, parts.store
        self.topics = RetryTopics(folder.topics, partial(parts.files.save_if_room, TOPICS_PATH))
        self.settings = RetrySettings(
            folder.groups, parts.known.admit, partial(parts.files.save, SUBSCRIPTION_GROUPS_PATH)
        )
        self.hold = OpenCopiesHold(lambda: parts.journal_state.open_copies)
        self.send_backs = SendBacks(
            parts.offsets,
            parts.writes,
            parts.clock,
            term=lambda: parts.journal.term,
            standing=store.producers.windows.standing,
            read_original=lambda key, offset: parts.queues.record(key.topic, key.queue_id, offset),
            policy_of=self.settings.policy,
            levels=DelayLevels(parts.config.store.delay_levels_ms),
            check=parts.guard.check_master,
            prepare=self.topics.make,
            on_dead=lambda key, count: parts.traffic.dead(key.group, key.topic, count),
        )
        self.dead_letters = DeadLetters(
            self.send_backs,
            parts.offsets,
            parts.guard,
            parts.clock,
            queue_max=parts.queues.max_offset,
        )


class OpenCopiesHold(Hold):
    """The original of a message that was sent back is needed until its copy is in the log, which
    takes a moment."""

    def __init__(self, open_copies: Callable[[], Sequence[SentBack]]) -> None:
        self._open_copies = open_copies

    async def need(self, candidate: Candidate, upkeep: Upkeep) -> Need | None:
        if not self._open_copies():
            return None
        return Need(0, "copies of failed messages are being written; the log is asked again soon")
