"""How many messages wait for a time, for a transaction's end, or for redelivery, by topic; and what
happened to those that groups could not handle."""

from __future__ import annotations

from functools import reduce
from typing import Final

from aerobee.offset_audit.frames import functions as F
from aerobee.offset_audit.frames.frame import Frame, union
from aerobee.offset_audit.frames.functions import Column
from aerobee.offset_audit.tables import Tables
from aerobee.store.format.dead_letter_fields import DEAD_LETTER_PREFIX, RETRY_PREFIX

_GROUP: Final = ["cluster", "group"]
_QUEUE: Final = ["cluster", "broker_name", "topic", "queue_id"]
_KEY: Final = [*_QUEUE, "group"]
_COPIES: Final = ("waiting", "again", "dead", "resent")
_STATES: Final = ("unread", *_COPIES)


def waiting_by_topic(tables: Tables) -> Frame:
    """`cluster`, `topic` (the messages' target), `kind`, `messages`, and `first_due_ms`.

    Replicas of one broker count once: the one of them and their stores that knows most.
    """
    of_store = (
        tables.pending.where(~F.coalesce("resolved", F.lit(False)))
        .groupBy("cluster", "broker_name", "broker_id", "real_topic", "kind")
        .agg(F.count("*").alias("messages"), F.min("due_ms").alias("first_due_ms"))
    )
    of_live = tables.waiting.where(F.col("messages").isNotNull()).select(
        "cluster",
        "broker_name",
        "broker_id",
        F.col("topic").alias("real_topic"),
        "kind",
        "messages",
        "first_due_ms",
    )
    of_broker = (
        of_store.unionByName(of_live)
        .groupBy("cluster", "broker_name", "real_topic", "kind")
        .agg(F.max("messages").alias("messages"), F.min("first_due_ms").alias("first_due_ms"))
    )
    return of_broker.groupBy("cluster", F.col("real_topic").alias("topic"), "kind").agg(
        F.sum("messages").alias("messages"), F.min("first_due_ms").alias("first_due_ms")
    )


def failed_by_group(tables: Tables, states: Frame, *, knows_waiting: bool) -> Frame:
    """For groups with failed messages: `cluster`, `group`, and how many messages are in which
    state.

    sent      to the queues of the group's topics since these were made
    finished  handled, or before where the group began; null if another state is, or `twice`
    unread    in the group's topics and not finished, but for those that were sent back
    waiting   to be put into the retry topic; null if `knows_waiting` says that nothing was read
              that has it, or a broker does not know of all that waits what it is for
    again     in the retry topic, and not finished there; null if that is not known
    dead      in the dead-letter topic, and not sent again
    resent    in the dead-letter topic, and sent again to a topic: counted once more wherever they
              are now; what went to the group's retry topic is counted there, or finished
    twice     of the waiting, again, dead and resent ones: copies of messages that an offset reset
              has taken back, so that they are also unread, finished or sent back once more; null if
              it is not known which of these copies are finished

    Each message is in one state: `sent` is the sum of the others less `twice`. `states` are the
    run's.
    """
    retry = F.col("topic").startswith(RETRY_PREFIX)
    resent = _resent(tables)
    parts = [
        states.select(
            *_GROUP,
            F.when(~retry, F.col("max_offset")).alias("sent"),
            F.when(~retry & F.col("max_offset").isNull(), 1).alias("unknown_sent"),
            F.when(~retry, F.col("lag")).alias("unread"),
            F.when(~retry & F.col("lag").isNull(), 1).alias("unknown_unread"),
            F.when(retry, F.col("lag")).alias("again"),
            F.when(retry & F.col("lag").isNull(), 1).alias("unknown"),
        ),
        # For a group that never committed there, all of it is still ahead.
        _stored(tables, RETRY_PREFIX, "again").join(
            states.select(*_QUEUE).distinct(), _QUEUE, "left_anti"
        ),
        _sent_back(tables, states).select(*_GROUP, F.lit(-1).cast("long").alias("unread")),
        _send_backs(tables),
        waiting_by_topic(tables)
        .where(retry)
        .select("cluster", _group_of(RETRY_PREFIX), F.col("messages").alias("waiting")),
        _stored(tables, DEAD_LETTER_PREFIX, "dead"),
        resent.withColumn("dead", -(F.col("resent") + F.col("returned"))).drop("returned"),
    ]
    together = union(parts, allow_missing=True)
    zero = F.lit(0).cast("long")
    sums = together.groupBy(*_GROUP).agg(
        *(F.try_sum(name).alias(name) for name in ("sent", *_STATES, "copied", "taken_back")),
        *(F.max(name).alias(name) for name in ("unknown", "unknown_sent", "unknown_unread")),
    )
    failed = reduce(Column.__add__, (F.coalesce(name, zero) for name in _COPIES))
    is_unknown = F.col("messages").isNull() | (F.col("topic").isNull() & (F.col("kind") == "DELAY"))
    unsure = tables.waiting.agg(F.coalesce(F.bool_or(is_unknown), F.lit(False)).alias("is_unsure"))
    is_known = F.lit(knows_waiting) & ~F.col("is_unsure")
    found = (
        sums.where(failed > 0)
        .crossJoin(F.broadcast(unsure))
        .select(
            *_GROUP,
            F.when(F.col("unknown_sent").isNull(), F.col("sent")).alias("sent"),
            F.when(F.col("unknown_unread").isNull(), F.col("unread")).alias("unread"),
            F.when(is_known, F.coalesce("waiting", zero)).alias("waiting"),
            F.when(F.col("unknown").isNull(), F.coalesce("again", zero)).alias("again"),
            F.coalesce("dead", zero).alias("dead"),
            F.coalesce("resent", zero).alias("resent"),
            F.coalesce("copied", zero).alias("copied"),
            F.coalesce("taken_back", zero).alias("taken_back"),
        )
    )
    return _with_finished(found)


def _with_finished(found: Frame) -> Frame:
    """Adds `twice` and `finished`, where they are known."""
    copies = reduce(Column.__add__, map(F.col, _COPIES))
    # Of the copies that the journal knows, those that are finished may be any.
    least = F.greatest(
        F.when(copies <= F.col("copied"), copies + F.col("taken_back") - F.col("copied")),
        F.col("unread") + copies - F.col("sent"),
        F.lit(0),
    )
    most = F.when(least > F.col("taken_back"), copies).otherwise(
        F.least(F.col("taken_back"), copies)
    )
    others = reduce(Column.__add__, map(F.col, _STATES))
    return found.withColumn("twice", F.when(least == most, least)).select(
        *_GROUP,
        "sent",
        (F.col("sent") - others + F.col("twice")).alias("finished"),
        *map(F.col, _STATES),
        "twice",
    )


def _group_of(prefix: str) -> Column:
    return F.substring("topic", len(prefix) + 1, 1 << 20).alias("group")


def _sent_back(tables: Tables, states: Frame) -> Frame:
    """Messages after the committed offset that are finished all the same, once each."""
    resets = (
        tables.journal.where(F.col("kind") == "reset")
        .groupBy(*_KEY)
        .agg(F.max("timestamp_ms").alias("reset_ms"))
    )
    return (
        tables.journal.where(F.col("kind") == "sentBack")
        .join(resets, _KEY, "left")
        .where(F.coalesce(F.col("timestamp_ms") > F.col("reset_ms"), F.lit(True)))
        .join(states.select(*_KEY, "committed_offset"), _KEY)
        .where(F.col("offset") >= F.col("committed_offset"))
        .select(*_KEY, "offset")
        .distinct()
    )


def _send_backs(tables: Tables) -> Frame:
    """How often messages of each group were sent back, as far as journals say, and for how many of
    these a later reset made the group read the message again."""
    place = [*_KEY, "offset", "journal_offset"]
    backs = (
        tables.journal.where(
            (F.col("kind") == "sentBack") & ~F.col("topic").startswith(RETRY_PREFIX)
        )
        .groupBy(*place)
        .agg(F.max("timestamp_ms").alias("back_ms"))
    )
    resets = tables.journal.where(F.col("kind") == "reset").select(
        *_KEY,
        F.coalesce("offset", F.lit(0)).alias("reset_to"),
        F.col("timestamp_ms").alias("reset_ms"),
    )
    taken = (
        backs.join(resets, _KEY)
        .where((F.col("reset_to") <= F.col("offset")) & (F.col("reset_ms") >= F.col("back_ms")))
        .select(*place)
        .distinct()
        .withColumn("taken_back", F.lit(1).cast("long"))
    )
    return (
        backs.join(taken, place, "left")
        .groupBy(*_GROUP)
        .agg(
            F.count("*").alias("copied"),
            F.coalesce(F.sum("taken_back"), F.lit(0)).alias("taken_back"),
        )
    )


def _resent(tables: Tables) -> Frame:
    """Letters that their queues still have; once each, although each replica's journal contains
    it."""
    begins = (
        tables.queues.where(F.col("topic").startswith(DEAD_LETTER_PREFIX))
        .groupBy(*_QUEUE)
        .agg(F.min("min_offset").alias("begin"))
    )
    return (
        tables.journal.where(F.col("kind").isin("resent", "returned"))
        .join(begins, _QUEUE)
        .where(F.col("offset") >= F.col("begin"))
        .select(*_QUEUE, "offset", "kind")
        .distinct()
        .groupBy("cluster", _group_of(DEAD_LETTER_PREFIX))
        .agg(
            F.count_if(F.col("kind") == "resent").alias("resent"),
            F.count_if(F.col("kind") == "returned").alias("returned"),
        )
    )


def _stored(tables: Tables, prefix: str, name: str) -> Frame:
    """How many messages are in the groups' topics of this prefix, by queue; replicas count once."""
    queues = (
        tables.queues.where(F.col("topic").startswith(prefix))
        .groupBy(*_QUEUE)
        .agg(F.max("max_offset").alias("end"), F.min("min_offset").alias("begin"))
    )
    messages = F.try_subtract(F.col("end"), F.col("begin"))
    return queues.select(*_QUEUE, _group_of(prefix), messages.alias(name))
