"""A row for each group and queue, joined from what brokers reported: the counterpart of
`checks.progress.judged`.

What only earlier runs and journals know is null here. The state is decided by the same texts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from aerobee.offset_audit.rules.expressions import read
from aerobee.offset_audit.rules.judging import CAUSE, KNOWN, SINCE, STATE, WAITING_SINCE
from aerobee.offset_audit.rules.limits import Limits
from aerobee.offset_audit.rules.names import IS_SYSTEM_GROUP, RETRY_TOPIC
from aerobee.offset_audit.rules.rule import numbers_of

Row = dict[str, Any]
Tables = Mapping[str, Sequence[Row]]
"""Rows of the tables `brokers`, `topics`, `queues`, `commits`, `leases` and `members`."""

BROKER: Final = ("cluster", "broker_name")
REPLICA: Final = (*BROKER, "broker_id")
KEY: Final = (*BROKER, "group", "topic", "queue_id")
QUEUE: Final = (*BROKER, "topic", "queue_id")
_OF_HISTORY: Final = ("previous", "before_reset", "standing_since_ms", "rise", "told_offset")
_ROLES: Final = {"MASTER": 0, "STORE": 1}


def judged_rows(tables: Tables, limits: Limits) -> list[Row]:
    """For each committed offset, and for each queue with messages that members subscribe to without
    one."""
    replicas = _judging(tables, limits)

    def of(name: str) -> list[Row]:
        return [row for row in tables.get(name, ()) if part_of(row, REPLICA) in replicas]

    commits = {part_of(row, KEY): row for row in of("commits")}
    members = of("members")
    queues = {part_of(row, QUEUE): row for row in of("queues")}
    topics = {part_of(row, (*BROKER, "topic")): row for row in of("topics")}
    told = {key[:2] for key in topics}
    subscribers = _subscribers(members)
    leases = {part_of(row, KEY): row for row in of("leases")}
    present = {part_of(row, (*BROKER, "group", "client_id")) for row in members}
    kinds: Counter[tuple[Any, ...]] = Counter()
    for row in members:
        kinds[*part_of(row, (*BROKER, "group")), bool(row["broadcasting"])] += 1
    newest = _best(commits.values(), ("cluster", "group", "client_id"), max)
    first = _best(commits.values(), ("cluster", "group", "topic"), min)
    by_group = {replica[:2]: each for replica, each in replicas.items()}
    rows = []
    for key in {**commits, **dict.fromkeys(_awaited(subscribers, queues))}:
        cluster, broker_name, group, topic, _ = key
        broker = (cluster, broker_name)
        commit, queue = commits.get(key, {}), queues.get((*broker, *key[3:]), {})
        known, lease = topics.get((*broker, topic)), leases.get(key)
        holder = None if lease is None else lease["client_id"]
        is_member = (*broker, group, holder) in present
        rows.append(
            {
                **dict(zip(KEY, key, strict=True)),
                **by_group[broker],
                "has_topics": broker in told,
                "committed_offset": commit.get("offset"),
                "lease_epoch": commit.get("lease_epoch"),
                "committed_at_ms": commit.get("committed_at_ms"),
                "client_id": commit.get("client_id"),
                "is_reset": commit.get("is_reset"),
                "first_unread_ms": commit.get("first_unread_ms"),
                "matching_lag": commit.get("matching_unread"),
                "commit_read_at_ms": commit.get("read_at_ms"),
                "min_offset": queue.get("min_offset"),
                "max_offset": queue.get("max_offset"),
                "last_store_ms": queue.get("last_store_ms"),
                "queue_read_at_ms": queue.get("read_at_ms"),
                # Known only from the log of a store.
                "held_min": queue.get("min_offset"),
                "held_end": queue.get("max_offset"),
                "queue_count": known and max(known["read_queue_count"], known["write_queue_count"]),
                "read_queue_count": known and known["read_queue_count"],
                "is_in_topics": None if known is None else True,
                "holder": holder,
                "holder_epoch": None if lease is None else lease["lease_epoch"],
                "holder_is_member": True if holder is not None and is_member else None,
                "subscribers": subscribers.get((*broker, group, topic)),
                "group_members": kinds.get((*broker, group, False)),
                "broadcasters": kinds.get((*broker, group, True)),
                "group_committed_ms": first.get((cluster, group, topic)),
                "holder_committed_at_ms": newest.get((cluster, group, holder)),
                **dict.fromkeys(_OF_HISTORY),
            }
        )
    return _decided(rows, limits)


def _decided(rows: list[Row], limits: Limits) -> list[Row]:
    numbers = numbers_of(limits)
    known = {name: read(text) for name, text in KNOWN.items()}
    then = {
        "waiting_since_ms": read(WAITING_SINCE),
        "state": read(STATE.format(**numbers)),
        "cause": read(CAUSE.format(**numbers)),
        "since_ms": read(SINCE),
    }
    for row in rows:
        row |= {name: value(row) for name, value in known.items()}
        for name, value in then.items():
            row[name] = value(row)
    return rows


def _judging(tables: Tables, limits: Limits) -> dict[tuple[Any, ...], Row]:
    """For each broker group the replica whose report counts, with what is asked of it."""
    best: dict[tuple[Any, ...], Row] = {}
    heard = [row for row in tables["brokers"] if row["answered"]]
    for row in sorted(heard, key=_worth):
        best.setdefault(part_of(row, BROKER), row)
    return {
        part_of(row, REPLICA): {
            "broker_id": row["broker_id"],
            "role": row["role"],
            "epoch": row["epoch"],
            "as_of_ms": row["commits_read_at_ms"] or row["ends_read_at_ms"] or limits.now_ms,
        }
        for row in best.values()
    }


def _worth(row: Row) -> tuple[Any, ...]:
    ends = ("epoch", "dispatched_end", "confirmed_end", "appended_end")
    return (
        _ROLES.get(row["role"], 2),
        *(-1 * (-1 if row[name] is None else row[name]) for name in ends),
        row["broker_id"],
    )


def _subscribers(members: Iterable[Row]) -> Counter[tuple[Any, ...]]:
    """How many members consume what; every member consumes its group's retry topic."""
    retry = read(RETRY_TOPIC)
    counts: Counter[tuple[Any, ...]] = Counter()
    for row in members:
        if not row["broadcasting"]:
            topics = {each["topic"] for each in row["subscriptions"] or ()} | {retry(row)}
            counts.update((*part_of(row, (*BROKER, "group")), topic) for topic in topics)
    return counts


def _awaited(
    subscribers: Iterable[tuple[Any, ...]], queues: Mapping[tuple[Any, ...], Row]
) -> Iterable[tuple[Any, ...]]:
    """Queues with messages, for each group that wants their topic."""
    is_system = read(IS_SYSTEM_GROUP)
    by_topic: dict[tuple[Any, ...], list[int]] = {}
    for (*place, queue_id), row in queues.items():
        if row["max_offset"] > row["min_offset"]:
            by_topic.setdefault(tuple(place), []).append(queue_id)
    for cluster, broker_name, group, topic in subscribers:
        if not is_system({"group": group}):
            for queue_id in by_topic.get((cluster, broker_name, topic), ()):
                yield cluster, broker_name, group, topic, queue_id


def _best(rows: Iterable[Row], by: tuple[str, ...], choose: Any) -> dict[tuple[Any, ...], int]:
    """The newest or oldest commit of each."""
    found: dict[tuple[Any, ...], int] = {}
    for row in rows:
        key, at_ms = part_of(row, by), row["committed_at_ms"]
        if at_ms is not None and key[-1] not in ("", None):
            found[key] = choose(found.get(key, at_ms), at_ms)
    return found


def part_of(row: Row, names: tuple[str, ...]) -> tuple[Any, ...]:
    """The values of some columns."""
    return tuple(row[name] for name in names)
