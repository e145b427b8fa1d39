"""The tables between readers and checks: their columns, and the meaning of an empty value.

Null means "not known", never zero. Times are Unix milliseconds of the broker's clock. Every table
names where its rows come from: the broker group, the replica, and for files the store's folder.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aerobee.offset_audit.frames.frame import Engine, Frame

ORIGIN = "cluster string, broker_name string, broker_id int"
"""The source of a row. A store at rest is named by its own files or by the caller."""

BROKERS = f"""{ORIGIN}, address string, answered boolean, error string, role string, epoch long,
instance string, incarnation string, master_id int, in_sync array<int>,
flush_mode string, replication_mode string, version string,
log_min_offset long, appended_end long, flushed_end long, confirmed_end long, dispatched_end long,
commits_read_at_ms long, ends_read_at_ms long, asked_at_ms long, answered_at_ms long,
entries_until_ms long, keys_until_ms long, misplaced_records long, not_writable_reason string"""
"""One row for each broker that was asked, including those that did not answer (`answered` false,
`error`). `role`: MASTER, SLAVE, or STORE for files at rest. `asked_at_ms` and `answered_at_ms` are
the reader's clock around the call, so a broker's clock can be judged. Files at rest: messages
stored until `entries_until_ms` must be in queue files, until `keys_until_ms` in index files.
`epoch`: null for a slave that no master has told one yet. `misplaced_records`: those that a broker
read at its start or copied since, and that did not continue their queue; null for files.
`not_writable_reason`: why it takes no messages now, empty if it takes them; null for files."""

TOPICS = f"""{ORIGIN}, topic string, read_queue_count int, write_queue_count int, perm int,
revision long"""

QUEUES = f"""{ORIGIN}, topic string, queue_id int, min_offset long, max_offset long,
last_store_ms long, read_at_ms long"""
"""`max_offset`: the offset of the next message that a consumer can see."""

COMMITS = f"""{ORIGIN}, group string, topic string, queue_id int, offset long, lease_epoch long,
committed_at_ms long, client_id string, is_reset boolean, first_unread_ms long,
matching_unread long, read_at_ms long"""
"""`offset`: the next message to consume. `first_unread_ms`: store time of that message, null if
nothing is unread or it is unknown. `matching_unread`: unread messages that the group's filter lets
through; null if the group has no filter or it is unknown."""

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
STORED (records in the log). `group` is null: what groups were given is in the journal."""

REGISTRY_BROKERS = """cluster string, revision long, broker_name string, broker_id int,
address string, role string, epoch long, instance string, heartbeat_age_ms long, stale boolean,
zone string"""

REGISTRY_GROUPS = """cluster string, revision long, broker_name string, epoch long, master_id int,
master_instance string, in_sync array<int>, replicas array<int>, unclean_epochs array<long>"""

REGISTRY_TOPICS = """cluster string, revision long, topic string, broker_name string,
read_queue_count int, write_queue_count int, perm int, topic_revision long"""
"""`topic_revision`: of the topic's last change, as in TOPICS; `revision` is the reading's."""

JOURNAL = f"""{ORIGIN}, journal_offset long, entry int, group string, topic string, queue_id int,
offset long, lease_epoch long, timestamp_ms long, client_id string, kind string, number long"""
"""The history of commits, entry by entry; `kind`: commit, reset, image, remove (offsets deleted: of
its `group`, `topic` and `queue_id` null stands for all), sentBack (the message at `offset` failed,
and copy `number` takes its place), resent (the
same of a dead letter that was sent again), returned (the same if it was sent to its group's retry
topic), or copied (all copies below `number` are in the log)."""

LOG_RANGES = f"""{ORIGIN}, store string, begin long, end long, records long, blanks long,
checksum long, first_store_ms long, last_store_ms long"""
"""Ranges of a log on a grid that is equal in all stores; a range that the log's begin or end or a
missing segment cuts is told in steps of a finer grid. `checksum`: CRC-32 of the bytes, null where
not known. What an empty log or a missing segment leaves out has no row."""

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
queue_id int, queue_offset long, size long, store_ms long, back_ms long, detail string"""
"""Bytes that are not what they should be, one row each: BAD_MAGIC, BAD_LENGTHS, BAD_CRC, BAD_TOPIC,
MISPLACED, HOLE, TORN, BAD_TIME, TIME_BACKWARD, MISSING_SEGMENT, CUT_SEGMENT, MISSING_FILE,
QUEUE_FILE_SIZE, INDEX_HEADER, INDEX_SLOT, INDEX_ENTRY, INDEX_FILE_SIZE, BAD_CONFIG,
BAD_CHECKPOINT, ... (all are in `sources/store/faults.py`). `size`: bytes from `position` that
nobody can read because of it, null if none or not known. `store_ms` is what a record of BAD_TIME
(one whose time its neighbours contradict) or TIME_BACKWARD (all that follow are earlier, too) says,
`back_ms` by how much the time falls there; null for others."""

QUEUE_ROWS = f"""{ORIGIN}, store string, source string, topic string, queue_id int,
queue_offset long, position long, size int, tags_code long, store_ms long"""
"""Single messages of blocks of QUEUE_RANGES that differ, as the log (LOG) and the queue's files
(ENTRIES) have them; `store_ms` is null in the latter. Neither has filler entries or those of
records below the log's minimum."""

KEY_ROWS = f"""{ORIGIN}, store string, source string, position long, key_hash int, topic string,
store_ms long"""
"""Single keys of blocks of INDEX_RANGES that differ: those of the records (LOG), and those that a
search of the index files finds (INDEX; `topic` and `store_ms` null). Each pair once."""

PENDING = f"""{ORIGIN}, store string, kind string, topic string, queue_id int, queue_offset long,
position long, store_ms long, due_ms long, resolved boolean, unique_key string,
real_topic string, reason string"""
"""Messages that wait in system topics: HALF, ASIDE (half messages that no producer ended), DELAY
(by level) and TIMER. `due_ms`: when it should have been delivered or checked, or was set aside;
`resolved`: delivered, committed, rolled back or recalled; `real_topic`: the topic that it is for.
What Aerobee's timer journal says is done has no row, but for what it gave up: GIVEN_UP, resolved,
with the `reason`."""

WAITING = f"""{ORIGIN}, topic string, kind string, messages long, first_due_ms long"""
"""Messages that wait at a live broker, by the topic that they are for (null: not known): DELAY (by
level) and TIMER. `messages` null: the broker does not know it now."""

FAILED = f"""{ORIGIN}, store string, state string, topic string, queue_id int, queue_offset long,
position long, store_ms long, group string, number long, attempt int, unique_key string,
origin_topic string, origin_queue_id int, origin_offset long, origin_id string,
origin_position long"""
"""Copies of failed messages, as far as a log still has them. `state`: WAITING (in a system topic;
PENDING shows whether it still waits), RETRY, DEAD. `number`: the copy's in the journal of offsets,
null if it has none. `attempt`: how often the message had been delivered in vain. `origin_...`: the
message that failed first, null if the copy does not say; `origin_position` is its position in the
log of the broker that had it."""

BLOCK_OFFSETS = 65_536
INDEX_BLOCK_BYTES = 64 * 1024 * 1024
LOG_RANGE_BYTES = 64 * 1024 * 1024
LOG_STEP_BYTES = 64 * 1024
"""The finer grid, for ranges that are not whole."""

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


Drill = Callable[[Frame], Frame]
"""Reads single rows of the requested blocks, where sums do not agree; at once."""


@dataclass(frozen=True, slots=True)
class Tables:
    """Everything that one run reads, and what earlier runs left; a table that no reader gave is
    empty."""

    brokers: Frame
    topics: Frame
    queues: Frame
    commits: Frame
    leases: Frame
    members: Frame
    epochs: Frame
    segments: Frame
    minutes: Frame
    waiting: Frame
    registry_brokers: Frame
    registry_groups: Frame
    registry_topics: Frame
    journal: Frame
    log_ranges: Frame
    queue_ranges: Frame
    index_ranges: Frame
    faults: Frame
    pending: Frame
    failed: Frame
    history: Frame
    """States of earlier runs."""
    earlier_findings: Frame
    queue_rows: Drill | None = None
    """QUEUE_ROWS of blocks: of rows with `store`, `topic`, `queue_id`, `block`, and both sources'
    least `first_position` and greatest `last_position`. None: there are no stores."""
    key_rows: Drill | None = None
    """KEY_ROWS of blocks: of rows with `store`, `block`."""
    store_topics: Frame | None = None
    """Topics from the stores' own files, when those of an answering broker count in `topics`; None:
    `topics` has them."""
    store_queues: Frame | None = None
    """The same for queues."""
    log_begins: Callable[[], Frame] | None = None
    """Gives `store` and `log_begin`, where each store's log begins by now; to be called after
    everything else was read, since retention may continue meanwhile. None: there are no stores."""
    replicas: Frame | None = None
    """The result of `checks.progress.judging_replicas`, made once by the run; None: the caller
    makes it."""
    compared: Frame | None = None
    """The result of `checks.data.compare`, made once by the run for the checks that use it; None:
    each makes its own."""
    changes: Frame | None = None
    """The result of `checks.progress.find_changes`, made once by the run for `judged` and `moves`;
    None: each makes its own."""
    judged: Frame | None = None
    """The result of `checks.progress.judge`: every group's progress on every queue, for all checks
    of progress. A run makes and persists it once; without it each makes its own."""
    moves: Frame | None = None
    """The result of `checks.progress.find_moves`: offsets that were moved in other ways than by
    consuming. Likewise."""


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
    "waiting": WAITING,
    "registry_brokers": REGISTRY_BROKERS,
    "registry_groups": REGISTRY_GROUPS,
    "registry_topics": REGISTRY_TOPICS,
    "journal": JOURNAL,
    "log_ranges": LOG_RANGES,
    "queue_ranges": QUEUE_RANGES,
    "index_ranges": INDEX_RANGES,
    "faults": FAULTS,
    "pending": PENDING,
    "failed": FAILED,
    "history": STATES,
    "earlier_findings": FINDINGS,
}
"""The columns of each member of `Tables` that is read."""


def empty_tables(engine: Engine) -> Tables:
    """Every table without rows: what a run starts from, and a test."""
    empty: dict[str, Any] = {name: engine.frame(columns, []) for name, columns in COLUMNS.items()}
    return Tables(**empty)
