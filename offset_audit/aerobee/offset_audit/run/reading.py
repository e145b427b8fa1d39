"""All tables of one run: from the registry, from one reading of each broker, and from stores.

Owns: what is cached between the checks, which `Reading.forget` releases. Nothing is read before the
first `Reading.count`, so that the order on the wire is the order of the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from aerobee.offset_audit.frames import functions as F
from aerobee.offset_audit.frames.columns_of_tables import names_of
from aerobee.offset_audit.frames.frame import Frame, union
from aerobee.offset_audit.frames.spark_rows import schema
from aerobee.offset_audit.outputs.console import counted
from aerobee.offset_audit.rules.limits import Limits
from aerobee.offset_audit.rules.names import JOURNAL_TOPIC
from aerobee.offset_audit.run.engine import LOCAL_ROWS, RunEngine
from aerobee.offset_audit.run.exit_codes import NothingToAudit
from aerobee.offset_audit.run.identities import (
    OF_PROGRESS,
    Identity,
    heard_stores,
    unheard,
    until_answered,
)
from aerobee.offset_audit.run.progress import Progress
from aerobee.offset_audit.run.request import AuditRequest, StorePlace
from aerobee.offset_audit.run.source_options import (
    live_named,
    live_options,
    options_of,
    store_options,
)
from aerobee.offset_audit.sources.live.asking import (
    RegistryView,
    registered_brokers,
    view_registry,
)
from aerobee.offset_audit.sources.live.columns import (
    table_schema,
    tables_in,
)
from aerobee.offset_audit.sources.live.journal import (
    OffsetJournalSource,
    whole_journals,
)
from aerobee.offset_audit.sources.live.offsets import OffsetsReader, OffsetsSource
from aerobee.offset_audit.sources.live.options import LOG_TABLE, READ_TABLES
from aerobee.offset_audit.sources.live.snapshots import registry_rows, standing
from aerobee.offset_audit.sources.store.config_rows import CONFIG_TABLES
from aerobee.offset_audit.sources.store.drills import Drill as PlannedDrill
from aerobee.offset_audit.sources.store.drills import (
    DrillReader,
    Facts,
    key_drills,
    queue_drills,
)
from aerobee.offset_audit.sources.store.kinds import SNAPSHOT
from aerobee.offset_audit.sources.store.ranges_rows import SUMMARIES, SUMMARY_TABLES
from aerobee.offset_audit.sources.store.summaries import (
    facts_of,
    first_whole_minutes,
    log_begins,
    split_summaries,
)
from aerobee.offset_audit.tables import (
    BLOCK_OFFSETS,
    COLUMNS,
    KEY_ROWS,
    ORIGIN,
    QUEUE_ROWS,
    Drill,
    Tables,
    empty_tables,
)
from aerobee.runtime.errors import AerobeeError
from aerobee.store.format.dead_letter_fields import RETRY_PREFIX

DEEP_TABLES = (*SUMMARY_TABLES, "pending")
"""Tables that need every byte of a store; except for the last one, one reading gives them all."""

NO_STORES = (
    "brokers gave checksums of their logs; the other deep checks did not run: they read the "
    "files of stores; name these with --store"
)

FILTERED_BY_GROUP = ("commits", "leases", "members", "journal", "failed")
FILTERED_BY_TOPIC = (
    "topics",
    "queues",
    "commits",
    "leases",
    "minutes",
    "waiting",
    "queue_ranges",
    "pending",
    "failed",
    "journal",
)


@dataclass
class Reading:
    """The tables, and what is known of their sizes."""

    engine: RunEngine
    tables: Tables
    filled: set[str] = field(default_factory=set)
    """Tables that have rows from somewhere."""
    empty: set[str] = field(default_factory=lambda: set(COLUMNS))
    """Tables that are known to have no rows."""
    settled: set[str] = field(default_factory=set)
    """Tables whose rows are all at hand: nothing needs to be cached for them."""
    heard: list[Identity] = field(default_factory=list)
    """Replicas that answered and whose files are read too."""
    notes: list[str] = field(default_factory=list)
    """What was requested and could not be read, a sentence each."""

    def settle(self, names: Iterable[str]) -> dict[str, int]:
        """Read these tables, count their rows, and keep the small ones at hand."""
        rows: dict[str, int] = {}
        together: dict[str, Any] = {}
        for name in names:
            frame = getattr(self.tables, name)
            found = self.engine.at_hand(frame)
            if found is None:
                rows[name] = frame.count()
            else:
                together[name], rows[name] = found
        self.tables = replace(self.tables, **together)
        self.settled |= set(together)
        self.empty = (self.empty - set(rows)) | {name for name in rows if rows[name] == 0}
        return rows

    def put(self, found: Mapping[str, Frame]) -> None:
        """Add rows to the tables of these names."""
        together: dict[str, Any] = {
            name: getattr(self.tables, name).unionByName(rows) if name in self.filled else rows
            for name, rows in found.items()
        }
        self.filled |= set(found)
        self.empty -= set(found)
        self.settled -= set(found)
        self.tables = replace(self.tables, **together)


def read_all(request: AuditRequest, reading: Reading, progress: Progress) -> dict[str, int]:
    """Everything that the request names. Returns the rows read, by table.

    Raises:
        NothingToAudit: no broker is registered and no store was found.
    """
    rows: dict[str, int] = {}
    if request.is_live:
        with progress.stage("registry"):
            view = view_registry(live_options(request)) if request.nameservers else None
        with progress.stage("brokers"):
            read_brokers(request, reading, view)
            if view is not None:
                rows |= put_registry(request, reading, view)
            rows |= reading.settle(READ_TABLES)
        with progress.stage("offset journals"):
            rows |= read_journals(request, reading)
        if request.is_deep:
            with progress.stage("logs of brokers"):
                rows |= read_logs(request, reading)
    if request.stores:
        with progress.stage("stores"):
            read_snapshots(request, reading)
            rows |= reading.settle(CONFIG_TABLES)
        if request.is_deep:
            with progress.stage("bytes of stores"):
                read_bytes(request, reading)
                rows |= reading.settle(DEEP_TABLES)
    if request.is_deep and not request.stores:
        reading.notes.append(NO_STORES)
    if not rows.get("brokers") and not rows.get("registry_brokers"):
        raise NothingToAudit("nothing to audit: no broker is registered and no store was found")
    progress.note(
        f"{counted(rows.get('brokers', 0), 'broker')}, {counted(rows.get('queues', 0), 'queue')}, "
        f"{counted(rows.get('commits', 0), 'committed offset')}"
    )
    return rows


def begin(engine: RunEngine) -> Reading:
    return Reading(engine, empty_tables(engine.frames))


def put_registry(request: AuditRequest, reading: Reading, view: RegistryView) -> dict[str, int]:
    """The nameservers' view from before the brokers were asked, as far as it still holds."""
    with suppress(AerobeeError):  # if none answers any more, nothing contradicts it
        view = standing(view, view_registry(live_options(request)))
    rows: dict[str, int] = {}
    for name, found in registry_rows(view).items():
        if request.topics and name == "registry_topics":  # because brokers are asked only for these
            place = names_of(COLUMNS[name]).index("topic")
            found = [row for row in found if row[place] in request.topics]
        frame = reading.engine.frames.frame(COLUMNS[name], found)
        rows[name] = len(found)
        is_small = len(found) <= LOCAL_ROWS
        reading.put({name: frame if is_small else reading.engine.keep_cut(frame)})
        if is_small:
            reading.settled.add(name)
        if not found:
            reading.empty.add(name)
    return rows


def read_brokers(request: AuditRequest, reading: Reading, view: RegistryView | None) -> None:
    """One reading of each broker, or of those in the view if there is one."""
    wanted = dict(request.source_options)
    if request.groups:
        wanted["groups"] = ",".join(request.groups)
    if request.topics:
        wanted["topics"] = ",".join(request.topics)
    for name in ("firstUnread", "matchingUnread"):
        wanted.setdefault(name, "true")
    options = live_options(request, wanted)
    known = registered_brokers(view.description, options) if view is not None else None
    reader = OffsetsReader(options, known)
    asked = reading.engine.read(reader, table_schema(""), is_small=True)
    reading.put(tables_in(reading.engine.take(asked)))


def read_logs(request: AuditRequest, reading: Reading) -> dict[str, int]:
    """Checksums of the brokers' logs, computed by them. Returns the number of ranges."""
    source = OffsetsSource({**live_named(request), "table": LOG_TABLE})
    columns = source.schema()
    ranges = reading.engine.read(source.reader(columns), columns)
    reading.put({LOG_TABLE: reading.engine.take(ranges)})
    rows = reading.settle((LOG_TABLE,))
    unread = reading.tables.log_ranges.where(F.col("checksum").isNull()).count()
    if unread:
        told = counted(unread, "range")
        reading.notes.append(f"{told} of the logs of live brokers could not be read")
    return rows


def read_journals(request: AuditRequest, reading: Reading) -> dict[str, int]:
    """What the brokers' journals say about commits and resets that are still reported. Read after
    the brokers, whose tables show when that was, and whether there are journals; a broker that does
    not answer is reported there. Returns the rows."""
    tables = reading.tables
    has_journal = tables.queues.where(F.col("topic") == JOURNAL_TOPIC).agg(
        F.count("*").alias("journals")
    )
    at_ms = tables.brokers.agg("max(asked_at_ms) asked_ms")
    told = at_ms.crossJoin(has_journal).collect()[0]
    asked, journals = told["asked_ms"], told["journals"]
    if asked is None or not (journals or request.topics):
        return {}
    told_ms = request.limits.get("reset_ms", Limits(now_ms=asked).reset_ms)
    source = OffsetJournalSource(
        {
            **live_named(request),
            "sinceMs": str(max(0, asked - told_ms)),
            "skipUnreachable": "true",
        }
    )
    columns = source.schema()
    asked_for = reading.engine.read(source.reader(columns), columns, is_small=True)
    rows, notes = whole_journals(reading.engine.take(asked_for))
    reading.notes += notes
    reading.put({"journal": _wanted(rows, "journal", request)})
    return reading.settle(("journal",))


def read_snapshots(request: AuditRequest, reading: Reading) -> None:
    """What stores at rest record about themselves, in one reading.

    Raises:
        InvalidArgument: two stores are of one replica.
    """
    each = [_source(reading.engine, request, place, SNAPSHOT) for place in request.stores]
    rows = reading.engine.take(union(each))
    found = {
        kind: _wanted(
            rows.where(F.col("table") == kind).select(*names_of(COLUMNS[kind])), kind, request
        )
        for kind in CONFIG_TABLES
    }
    reading.heard = heard_stores(reading.tables.brokers, found["brokers"])
    if reading.heard:
        reading.tables = replace(
            reading.tables,
            store_topics=reading.engine.take(found["topics"]),
            store_queues=reading.engine.take(found["queues"]),
        )
        found |= {name: unheard(found[name], reading.heard) for name in OF_PROGRESS}
        found["epochs"] = until_answered(found["epochs"], reading.tables.brokers)
    reading.put(found)


def read_bytes(request: AuditRequest, reading: Reading) -> None:
    """Every byte of the stores, once, and detailed reads of what does not agree."""
    # Before the log: what no longer waits is then already in its topic there.
    engine = reading.engine
    pending = [_source(engine, request, place, "pending") for place in request.stores]
    waiting = _wanted(union(pending), "pending", request)
    reading.put({"pending": engine.take(waiting)})
    each = [_source(engine, request, place, SUMMARIES) for place in request.stores]
    rows = engine.take(union(each))
    # After the reading: by now retention may have removed the first of what it counted.
    facts = facts_of([store_options(request, place) for place in request.stores])
    tables = split_summaries(rows)
    tables["journal"] = unheard(tables["journal"], reading.heard)
    whole = F.broadcast(first_whole_minutes(engine.frames, facts))
    tables["minutes"] = (
        tables["minutes"]
        .join(whole, names_of(ORIGIN))
        .withColumn("is_whole", F.col("is_whole") & (F.col("minute") >= F.col("whole_from")))
        .drop("whole_from")
    )
    reading.put({table: _wanted(one, table, request) for table, one in tables.items()})
    queue_rows, key_rows = drills(engine, facts)
    reading.tables = replace(
        reading.tables,
        queue_rows=queue_rows,
        key_rows=key_rows,
        log_begins=lambda: log_begins(engine.frames, facts),
    )


def drills(engine: RunEngine, facts: Facts) -> tuple[Drill, Drill]:
    """Those for `Tables.queue_rows` and `Tables.key_rows`; no work if no block is requested, as in
    every sound store."""

    def rows_of(planned: list[PlannedDrill], blocks: int, declared: str) -> Frame:
        engine.expect(blocks * BLOCK_OFFSETS)
        if not planned:
            return engine.frames.frame(declared, [])
        found = engine.read(DrillReader(planned), schema(declared), is_bounded=False)
        return engine.take(found)

    def queue_rows(blocks: Frame) -> Frame:
        wanted = blocks.collect()
        return rows_of(queue_drills(facts, wanted), len(wanted), QUEUE_ROWS)

    def key_rows(blocks: Frame) -> Frame:
        wanted = blocks.collect()
        rows = rows_of(key_drills(facts, wanted), len(wanted), KEY_ROWS)
        # A key that a broker filed twice, in two files, is one key.
        filed = rows.where("source = 'INDEX'").dropDuplicates(["store", "position", "key_hash"])
        return rows.where("source = 'LOG'").unionByName(filed)

    return queue_rows, key_rows


def _source(engine: RunEngine, request: AuditRequest, place: StorePlace, kind: str) -> Frame:
    options = {**options_of(request, place), "kind": kind}
    return engine.load(options, place.path)


def _wanted(rows: Frame, table: str, request: AuditRequest) -> Frame:
    if request.groups and table in FILTERED_BY_GROUP:
        # Which copies exist is decided for all groups together.
        is_of_all = F.col("kind") == "copied" if table == "journal" else F.lit(False)
        rows = rows.where(F.col("group").isin(list(request.groups)) | is_of_all)
    if request.topics and table in FILTERED_BY_TOPIC:
        topics = list(request.topics)
        is_named = F.col("topic").isin(topics)
        if table == "pending":
            is_named |= F.coalesce(F.col("real_topic").isin(topics), F.lit(False))
        elif table == "failed":
            retry_topic = F.concat(F.lit(RETRY_PREFIX), F.col("group"))
            origin = F.coalesce("origin_topic", "topic")
            is_named = F.when(F.col("state") == "DEAD", origin).otherwise(retry_topic).isin(topics)
        rows = rows.where(is_named)
    return rows
