"""How many messages wait for a time, for a transaction's end, or for redelivery, by topic; and what
happened to those that groups could not handle."""

from __future__ import annotations

from typing import Final

from aerobee.offset_audit.frames import functions as F
from aerobee.offset_audit.frames.frame import Frame, union
from aerobee.offset_audit.tables import Tables
from aerobee.store.format.dead_letter_fields import DEAD_LETTER_PREFIX, RETRY_PREFIX

_GROUP: Final = ["cluster", "group"]
_QUEUE: Final = ["cluster", "broker_name", "topic", "queue_id"]
_KEY: Final = [*_QUEUE, "group"]
_COPIES: Final = ("waiting", "again", "dead", "resent")
_STATES: Final = ("unread", *_COPIES)
_IS_RETRY: Final = f"startswith(topic, '{RETRY_PREFIX}')"


def waiting_by_topic(tables: Tables) -> Frame:
    """`cluster`, `topic` (the messages' target), `kind`, `messages`, and `first_due_ms`.

    Replicas of one broker count once: the one of them and their stores that knows most.
    """
    of_store = (
        tables.pending.where("not coalesce(resolved, false)")
        .groupBy("cluster", "broker_name", "broker_id", "real_topic", "kind")
        .agg("count(1) messages", "min(due_ms) first_due_ms")
        .selectExpr(
            "cluster", "broker_name", "real_topic topic", "kind", "messages", "first_due_ms"
        )
    )
    of_live = tables.waiting.where("messages is not null").select(
        "cluster", "broker_name", "topic", "kind", "messages", "first_due_ms"
    )
    return (
        of_store.unionByName(of_live)
        .groupBy("cluster", "broker_name", "topic", "kind")
        .agg("max(messages) messages", "min(first_due_ms) first_due_ms")
        .groupBy("cluster", "topic", "kind")
        .agg("sum(messages) messages", "min(first_due_ms) first_due_ms")
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
    resent = _resent(tables)
    parts = [
        states.selectExpr(
            *_GROUP,
            f"if(not {_IS_RETRY}, max_offset, null) sent",
            f"if(not {_IS_RETRY} and max_offset is null, 1, null) unknown_sent",
            f"if(not {_IS_RETRY}, lag, null) unread",
            f"if(not {_IS_RETRY} and lag is null, 1, null) unknown_unread",
            f"if({_IS_RETRY}, lag, null) again",
            f"if({_IS_RETRY} and lag is null, 1, null) unknown",
        ),
        # For a group that never committed there, all of it is still ahead.
        _stored(tables, RETRY_PREFIX, "again").join(
            states.select(*_QUEUE).distinct(), _QUEUE, "left_anti"
        ),
        _sent_back(tables, states).selectExpr(*_GROUP, "cast(-1 as long) unread"),
        _send_backs(tables),
        waiting_by_topic(tables)
        .where(_IS_RETRY)
        .selectExpr("cluster", _group_of(RETRY_PREFIX), "messages waiting"),
        _stored(tables, DEAD_LETTER_PREFIX, "dead"),
        resent.withColumn("dead", "-(resent + returned)").drop("returned"),
    ]
    sums = (
        union(parts, allow_missing=True)
        .groupBy(*_GROUP)
        .agg(
            *(f"try_sum({name}) {name}" for name in ("sent", *_STATES, "copied", "taken_back")),
            *(f"max({name}) {name}" for name in ("unknown", "unknown_sent", "unknown_unread")),
        )
    )
    unsure = tables.waiting.agg(
        "coalesce(bool_or(messages is null or (topic is null and kind = 'DELAY')), false) is_unsure"
    )
    is_known = "not is_unsure" if knows_waiting else "false"
    found = (
        sums.where(f"{' + '.join(f'coalesce({name}, 0)' for name in _COPIES)} > 0")
        .crossJoin(F.broadcast(unsure))
        .selectExpr(
            *_GROUP,
            "if(unknown_sent is null, sent, null) sent",
            "if(unknown_unread is null, unread, null) unread",
            f"if({is_known}, coalesce(waiting, 0), null) waiting",
            "if(unknown is null, coalesce(again, 0), null) again",
            *(f"coalesce({name}, 0) {name}" for name in ("dead", "resent", "copied", "taken_back")),
        )
    )
    return _with_finished(found)


_ALL_COPIES: Final = f"({' + '.join(_COPIES)})"
_LEAST: Final = f"""greatest(
    if({_ALL_COPIES} <= copied, {_ALL_COPIES} + taken_back - copied, null),
    unread + {_ALL_COPIES} - sent, 0)"""
"""Of the copies that the journal knows, those that are finished may be any: `twice` is at least
this."""


def _with_finished(found: Frame) -> Frame:
    """Adds `twice` and `finished`, where they are known."""
    return (
        found.withColumn("least", _LEAST)
        .withColumn(
            "most",
            f"if(least > taken_back, {_ALL_COPIES}, least(taken_back, {_ALL_COPIES}))",
        )
        .withColumn("twice", "if(least = most, least, null)")
        .selectExpr(
            *_GROUP,
            "sent",
            f"sent - ({' + '.join(_STATES)}) + twice finished",
            *_STATES,
            "twice",
        )
    )


def _group_of(prefix: str) -> str:
    return f"substring(topic, {len(prefix) + 1}, {1 << 20}) group"


def _sent_back(tables: Tables, states: Frame) -> Frame:
    """Messages after the committed offset that are finished all the same, once each."""
    resets = tables.journal.where("kind = 'reset'").groupBy(*_KEY).agg("max(timestamp_ms) reset_ms")
    return (
        tables.journal.where("kind = 'sentBack'")
        .join(resets, _KEY, "left")
        .where("coalesce(timestamp_ms > reset_ms, true)")
        .join(states.select(*_KEY, "committed_offset"), _KEY)
        .where("offset >= committed_offset")
        .select(*_KEY, "offset")
        .distinct()
    )


def _send_backs(tables: Tables) -> Frame:
    """How often messages of each group were sent back, as far as journals say, and for how many of
    these a later reset made the group read the message again."""
    place = [*_KEY, "offset", "journal_offset"]
    backs = (
        tables.journal.where(f"kind = 'sentBack' and not {_IS_RETRY}")
        .groupBy(*place)
        .agg("max(timestamp_ms) back_ms")
    )
    resets = tables.journal.where("kind = 'reset'").selectExpr(
        *_KEY, "coalesce(offset, 0) reset_to", "timestamp_ms reset_ms"
    )
    taken = (
        backs.join(resets, _KEY)
        .where("reset_to <= offset and reset_ms >= back_ms")
        .selectExpr(*place, "cast(1 as long) taken_back")
        .distinct()
    )
    return (
        backs.join(taken, place, "left")
        .groupBy(*_GROUP)
        .agg("count(1) copied", "coalesce(sum(taken_back), 0) taken_back")
    )


def _resent(tables: Tables) -> Frame:
    """Letters that their queues still have; once each, although each replica's journal contains
    it."""
    begins = (
        tables.queues.where(f"startswith(topic, '{DEAD_LETTER_PREFIX}')")
        .groupBy(*_QUEUE)
        .agg("min(min_offset) queue_begin")
    )
    return (
        tables.journal.where("kind in ('resent', 'returned')")
        .join(begins, _QUEUE)
        .where("offset >= queue_begin")
        .select(*_QUEUE, "offset", "kind")
        .distinct()
        .selectExpr("cluster", _group_of(DEAD_LETTER_PREFIX), "kind")
        .groupBy("cluster", "group")
        .agg("count_if(kind = 'resent') resent", "count_if(kind = 'returned') returned")
    )


def _stored(tables: Tables, prefix: str, name: str) -> Frame:
    """How many messages are in the groups' topics of this prefix, by queue; replicas count once."""
    return (
        tables.queues.where(f"startswith(topic, '{prefix}')")
        .groupBy(*_QUEUE)
        .agg(f"try_subtract(max(max_offset), min(min_offset)) {name}")
        .selectExpr(*_QUEUE, _group_of(prefix), name)
    )
