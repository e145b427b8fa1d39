"""The messages in flight in a folder when it is opened. Blocks on the disk."""

from __future__ import annotations

from aerobee.broker.journal.log import JOURNAL_QUEUE
from aerobee.broker.journal.state_file import forget_state, load_state
from aerobee.broker.pop.entries import POP_JOURNAL_TOPIC
from aerobee.broker.pop.journal_state import POP_PATH, PopJournalState, file_reader
from aerobee.store.engine.disk import Disk
from aerobee.store.engine.message_store import MessageStore


def open_pops(disk: Disk, store: MessageStore) -> PopJournalState:
    """Raises OSError."""
    journal_end = store.queues.bounds(POP_JOURNAL_TOPIC, JOURNAL_QUEUE).max_offset
    return load_state(disk, POP_PATH, file_reader(journal_end)) or PopJournalState()


def forget_pops(disk: Disk) -> None:
    """Called before a closed folder's log restarts. Raises OSError."""
    forget_state(disk, POP_PATH)
