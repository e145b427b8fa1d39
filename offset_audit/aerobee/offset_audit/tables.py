"""The tables between readers and checks: their columns, and what an empty value means.

Null is "not known", never zero. Times are Unix milliseconds of the broker's clock. Every table
names where its rows come from: the broker group, the replica, and for files the store's folder.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import cast

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

ORIGIN = "cluster string, broker_name string, broker_id int"
"""Who said so. A store at rest is named as its own files or the caller name it."""

BROKERS = f"""{ORIGIN}, address string, answered boolean, error string, role string, epoch long,
instance string, incarnation string, master_id int, in_sync array<int>, keeps_unread boolean,
flush_mode string, replication_mode string, version string,
log_min_offset long, appended_end long, flushed_end long, confirmed_end long, dispatched_end long,
commits_read_at_ms long, ends_read_at_ms long, asked_at_ms long, answered_at_ms long"""
"""One row for each broker that was asked, those that did not answer too (`answered` false,
`error`). `role`: MASTER, SLAVE, or STORE for files at rest. `asked_at_ms` and `answered_at_ms`
are the reader's clock around the call, so a broker's clock can be judged."""

TOPICS = f"""{ORIGIN}, topic string, read_queue_count int, write_queue_count int, perm int,
revision long"""

QUEUES = f"""{ORIGIN}, topic string, queue_id int, min_offset long, max_offset long,
last_store_ms long, read_at_ms long"""
"""`max_offset`: the offset of the next message that a consumer can see."""

COMMITS = f"""{ORIGIN}, group string, topic string, queue_id int, offset long, lease_epoch long,
committed_at_ms long, client_id string, is_reset boolean, first_unread_ms long,
matching_unread long, read_at_ms long"""
"""`offset`: the next message to consume. `first_unread_ms`: store time of that message, null if
nothing is unread or it is not known. `matching_unread`: unread messages that the group's tag filter
lets through; null if the group has no tag filter or it is not known."""

LEASES = f"""{ORIGIN}, group string, topic string, queue_id int, client_id string,
lease_epoch long"""

MEMBERS = f"""{ORIGIN}, group string, client_id string, broadcasting boolean,
last_heartbeat_age_ms long,
subscriptions array<struct<topic: string, expression: string, is_sql: boolean>>"""

EPOCHS = f"{ORIGIN}, epoch long, start_offset long"

SEGMENTS = f"{ORIGIN}, position long, size long, first_store_ms long"

MINUTES = f"""{ORIGIN}, tier string, group string, topic string, minute long, messages long,
is_whole boolean"""
"""How many messages of each minute of store time. `tier`: ACKNOWLEDGED (by a broker's counters),
STORED (records in the log), DELIVERED (offsets below a group's committed one; `group` set)."""

REGISTRY_BROKERS = """cluster string, revision long, broker_name string, broker_id int,
address string, role string, epoch long, instance string, heartbeat_age_ms long, stale boolean"""

REGISTRY_GROUPS = """cluster string, revision long, broker_name string, epoch long, master_id int,
master_instance string, in_sync array<int>, replicas array<int>, unclean_epochs array<long>"""

REGISTRY_TOPICS = """cluster string, revision long, topic string, broker_name string,
read_queue_count int, write_queue_count int, perm int"""

JOURNAL = f"""{ORIGIN}, journal_offset long, entry int, group string, topic string, queue_id int,
offset long, lease_epoch long, timestamp_ms long, client_id string, kind string"""
"""The history of commits, entry by entry; `kind`: commit, reset or image."""

LOG_RANGES = f"""{ORIGIN}, store string, begin long, end long, records long, blanks long,
checksum long, first_store_ms long, last_store_ms long"""
"""Ranges of a log on a grid that is equal in all stores. `checksum`: CRC-32 of the bytes, null
where the range is not whole. A range that an empty log or a missing segment leaves out has no
row."""

QUEUE_RANGES = f"""{ORIGIN}, store string, source string, topic string, queue_id int, block long,
first_offset long, last_offset long, messages long, distinct_messages long, digest decimal(38,0),
first_position long, last_position long, first_store_ms long, last_store_ms long,
disorders long"""
"""What one reader saw of one block of `BLOCK_OFFSETS` queue offsets, from the log (`source` LOG) or
from the queue's files (ENTRIES). `digest`: the sum over its messages of a 64-bit mix of queue
offset, log position, size and tags code, so that sums of parts are the sum of the whole whatever
the order. `disorders`: places where offset or position falls though the other rises."""

INDEX_RANGES = f"""{ORIGIN}, store string, source string, block long, first_position long,
last_position long, keys long, digest decimal(38,0), first_store_ms long"""
"""Keys of records by block of `INDEX_BLOCK_BYTES` of log position: what the log says there should
be (LOG) and what a search of the index files would find (INDEX). `digest`: sum of a 64-bit mix of
key hash and position, each pair once."""

FAULTS = f"""{ORIGIN}, store string, file string, position long, kind string, topic string,
queue_id int, queue_offset long, detail string"""
"""Bytes that are not what they should be, one row each: BAD_MAGIC, BAD_LENGTHS, BAD_CRC, BAD_TOPIC,
MISPLACED, TORN, MISSING_SEGMENT, MISSING_FILE, BAD_ENTRY, TAGS_CODE, INDEX_SLOT, INDEX_ENTRY,
BAD_CONFIG, ..."""

PENDING = f"""{ORIGIN}, store string, kind string, topic string, queue_id int, queue_offset long,
position long, store_ms long, due_ms long, resolved boolean, unique_key string"""
"""Messages that wait in system topics: HALF, DELAY (by level) and TIMER. `due_ms`: when it should
have been delivered, or checked; `resolved`: delivered, committed, rolled back or recalled."""

BLOCK_OFFSETS = 65_536
INDEX_BLOCK_BYTES = 64 * 1024 * 1024
LOG_RANGE_BYTES = 64 * 1024 * 1024

STATES = """cluster string, run_id string, run_at_ms long, broker_name string, group string,
topic string, queue_id int, committed_offset long, min_offset long, max_offset long, lag long,
matching_lag long, first_unread_ms long, committed_at_ms long, holder string, members int,
state string, since_ms long"""
"""Each group's progress on each queue in one run; `state`: OK, LAGGING, SLOW, STUCK, STOPPED,
UNKNOWN. Earlier runs' rows are the history of the next."""

FINDINGS = """cluster string, run_id string, run_at_ms long, check string, severity string,
broker_name string, broker_id int, role string, epoch long, topic string, queue_id int,
group string, state string, previous_state string, first_seen_ms long, evidence string,
affected long, command string"""
"""`severity`: INFO, WARNING, ERROR, CRITICAL. `evidence`: one sentence with the numbers that
prove it. `affected`: messages (or keys, or bytes: the check's page says which), null if not
known. `command`: what an operator may run next."""


def schema(columns: str) -> StructType:
    """Spark's schema of one of the tables above."""
    return cast(StructType, StructType.fromDDL(columns))


@dataclass(frozen=True, slots=True)
class Tables:
    """All that one run reads, and what earlier runs left; a table that no reader gave is empty."""

    brokers: DataFrame
    topics: DataFrame
    queues: DataFrame
    commits: DataFrame
    leases: DataFrame
    members: DataFrame
    epochs: DataFrame
    segments: DataFrame
    minutes: DataFrame
    registry_brokers: DataFrame
    registry_groups: DataFrame
    registry_topics: DataFrame
    journal: DataFrame
    log_ranges: DataFrame
    queue_ranges: DataFrame
    index_ranges: DataFrame
    faults: DataFrame
    pending: DataFrame
    history: DataFrame
    """States of earlier runs."""
    earlier_findings: DataFrame


COLUMNS: dict[str, str] = {
    "brokers": BROKERS,
    "topics": TOPICS,
    "queues": QUEUES,
    "commits": COMMITS,
    "leases": LEASES,
    "members": MEMBERS,
    "epochs": EPOCHS,
    "segments": SEGMENTS,
    "minutes": MINUTES,
    "registry_brokers": REGISTRY_BROKERS,
    "registry_groups": REGISTRY_GROUPS,
    "registry_topics": REGISTRY_TOPICS,
    "journal": JOURNAL,
    "log_ranges": LOG_RANGES,
    "queue_ranges": QUEUE_RANGES,
    "index_ranges": INDEX_RANGES,
    "faults": FAULTS,
    "pending": PENDING,
    "history": STATES,
    "earlier_findings": FINDINGS,
}
"""The columns of each member of `Tables`."""


def empty_tables(spark: SparkSession) -> Tables:
    """Every table without rows: what a run starts from, and a test."""
    return Tables(
        **{one.name: spark.createDataFrame([], schema(COLUMNS[one.name])) for one in fields(Tables)}
    )
