"""A second client of the journal, not part of the product: notes by name, in their own topic. It
shows what the library requires of a client, without groups or offsets.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from aerobee.broker.cold_reads.read_pool import ReadPool
from aerobee.broker.counters import Counters
from aerobee.broker.journal.journal import Journal, JournalledLog
from aerobee.broker.journal.log import JOURNAL_QUEUE, JournalLog
from aerobee.broker.journal.records import UNKNOWN_IMAGE, ImageEnd
from aerobee.broker.journal.writer import JournalWriter
from aerobee.broker.replication.config import ReplicationConfig
from aerobee.broker.replication.epoch_history import EpochHistory
from aerobee.broker.replication.master_term import MasterTerm, ReplicaName
from aerobee.broker.replication.mastership import Mastership
from aerobee.broker.replication.roles import Roles
from aerobee.broker.sending.acknowledged import AcknowledgedBatches
from aerobee.broker.sending.append import Appender
from aerobee.broker.sending.durability import Durability
from aerobee.broker.sending.guard import Guard
from aerobee.broker.sending.own_writes import OwnWrites
from aerobee.broker.sending.watermarks import EndWaiters
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.errors import StoreFailed
from aerobee.runtime.loop_delay import LoopDelay
from aerobee.store.engine.config import StoreConfig
from aerobee.store.engine.tables.config_tables import TopicTable
from aerobee.store.format.batch import BatchLimits
from aerobee.store.format.record import HostAddress
from aerobee.store.format.tags import TagsCodes
from tests.support.journal_replica import Led
from tests.support.stores import flush, open_store
from tests.support.unfollowed import NoStreams

NOTES_TOPIC = "AEROBEE_TEST_NOTES"
NEVER = 1 << 60
STORE = StoreConfig(segment_bytes=1 << 20, disk_free_bytes_min=0)


class Note(NamedTuple):
    """The present content of a page; None: it was torn out."""

    name: str
    text: str | None


class Notebook:
    """All pages, up to one record: a `JournalState`."""

    def __init__(self, snapshot: str = "") -> None:
        self.pages: dict[str, str] = {}
        self.next_offset, self.image_position, self.is_whole = 0, 0, True
        if snapshot:
            self.pages, self.next_offset, self.image_position, self.is_whole = json.loads(snapshot)
        self._whole_from = 0
        self._unsaid: set[str] = set()

    def snapshot(self) -> str:
        return json.dumps([self.pages, self.next_offset, self.image_position, self.is_whole])

    def encode(self, entry: Note) -> str:
        return json.dumps({"kind": "note", "name": entry.name, "text": entry.text})

    def decode(self, value: dict[str, Any]) -> Note | None:
        return Note(value["name"], value["text"]) if value["kind"] == "note" else None

    def apply(self, entries: Sequence[Note | ImageEnd], queue_offset: int) -> None:
        assert queue_offset == self.next_offset
        for entry in entries:
            if isinstance(entry, Note):
                self._write(entry)
            elif entry.first_offset >= self._whole_from:
                self.image_position, self.is_whole = entry.position, True
                for name in self._unsaid:
                    self.pages.pop(name, None)
                self._unsaid.clear()
        self.next_offset = queue_offset + 1

    def skip_to(self, queue_offset: int) -> None:
        self._whole_from = self.next_offset = queue_offset
        self.image_position, self.is_whole = UNKNOWN_IMAGE, False
        self._unsaid = set(self.pages)

    def _write(self, note: Note) -> None:
        self._unsaid.discard(note.name)
        if note.text is None:
            self.pages.pop(note.name, None)
        else:
            self.pages[note.name] = note.text


class Pen:
    """A master's writer of the notebook: a `JournalTerm`."""

    def __init__(self, notebook: Notebook, writer: JournalWriter[Note]) -> None:
        self._notebook = notebook
        self._writer = writer
        self.counts = 0

    def write(self, name: str, text: str | None) -> asyncio.Future[None]:
        return self._writer.add(Note(name, text))

    def pages(self) -> dict[str, str]:
        """The pages once everything waiting is in effect."""
        ahead = Notebook(self._notebook.snapshot())
        ahead.apply(list(self._writer.waiting()), ahead.next_offset)
        return ahead.pages

    def counted(self, entries: Sequence[Note | ImageEnd]) -> None:
        self.counts += len(entries)

    def dropped(self, waiting: Iterable[Note | ImageEnd]) -> None: ...

    def image(self) -> Iterator[Note]:
        for name in list(self.pages()):
            text = self.pages().get(name)
            if text is not None:
                yield Note(name, text)


class Writers:
    """The current writer: a `JournalClient`."""

    def __init__(self, notebook: Notebook) -> None:
        self._notebook = notebook
        self.terms: list[tuple[int, bool]] = []
        self.ends = 0

    def begin(self, writer: JournalWriter[Note], epoch: int, *, is_unclean: bool) -> Pen:
        self.terms.append((epoch, is_unclean))
        return Pen(self._notebook, writer)

    def end(self) -> None:
        self.ends += 1


class NotedReplica:
    """One replica's notebook and its journal over any log."""

    def __init__(
        self, log: JournalledLog, snapshot: str = "", *, image_interval_bytes: int = NEVER
    ) -> None:
        self.notebook = Notebook(snapshot)
        self.writers = Writers(self.notebook)
        self.journal: Journal[Note, Pen] = Journal(
            self.notebook,
            log,
            self.writers,
            SystemClock(),
            name="test journal",
            subject="the notes",
            image_interval_bytes=image_interval_bytes,
        )

    def take_role(self, epoch: int | None) -> None:
        if epoch is None:
            self.journal.end()
        else:
            self.journal.begin(Led(epoch))

    async def write(self, name: str, text: str | None) -> None:
        await self.journal.writer().write(name, text)


class StoredReplica(NotedReplica):
    """A replica over a real store, in a folder; without the network between replicas."""

    def __init__(self, root: Path) -> None:
        clock = SystemClock()
        self.store = open_store(root, STORE, clock)
        self.own = ReplicaName(0, "notes")
        self.roles = Roles(
            Mastership(self.own, "run", is_alone=True),
            EpochHistory(),
            self.store,
            clock,
            ReplicationConfig(),
            segment_bytes=STORE.segment_bytes,
        )
        self.durability = Durability(
            self.store,
            self.roles,
            AcknowledgedBatches(),
            STORE,
            lambda end: EndWaiters(end, on_deadline_set=lambda _: None),
            self,
            NoStreams(),
            _fail,
        )
        pool = ReadPool(
            ThreadPoolExecutor(1),
            Counters(),
            clock,
            loop_delay=LoopDelay(clock),
            threads=1,
            bytes_per_s=0,
        )
        appender = Appender(
            Guard(TopicTable(), broker_name="notes", authority=self.roles),
            self.store,
            AcknowledgedBatches(),
            Counters(),
            self.durability.on_appended,
            _fail,
        )
        writes = OwnWrites(
            appender,
            clock,
            store_host=HostAddress(b"\x7f\x00\x00\x01", 1),
            limits=BatchLimits(),
            tags=TagsCodes(),
        )
        log = JournalLog(
            NOTES_TOPIC,
            self.store,
            self.durability,
            self.roles,
            pool,
            writes,
            on_store_failed=_fail,
        )
        super().__init__(log)

    def lead(self, epoch: int) -> None:
        """As a replica that is the only one in sync: what it has appended is confirmed."""
        self.roles.begin_term(
            MasterTerm(
                epoch=epoch,
                own=self.own,
                in_sync=(self.own,),
                revision=0,
                log_end=self.store.appended_end,
                confirmed_end=self.roles.confirmed_end,
                policy=self.roles.config.term_policy,
                now_s=0.0,
            )
        )
        self.take_role(epoch)
        self.durability.advance()

    @property
    def record_count(self) -> int:
        return self.store.queues.bounds(NOTES_TOPIC, JOURNAL_QUEUE).max_offset

    def appended(self) -> None:
        """The policy does not call for a flush yet."""

    def request(self) -> None:
        asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        flush(self.store)
        self.durability.on_flushed(self.store.flushed_end)


def _fail(error: StoreFailed) -> None:
    raise error
