"""The pure table against a naive model: a dictionary of keys and a list of all that happened."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aerobee.nameserver import route_table
from aerobee.nameserver.election import elect, is_master
from aerobee.nameserver.key_values import KeyEvent, KeyValue, Snapshot
from aerobee.nameserver.route_table import RouteTable
from aerobee.nameserver.stored import (
    BrokerKey,
    BrokerRecord,
    InSyncReplica,
    Keys,
    ReplicaSet,
    Topic,
    Unreadable,
    encode_broker,
    encode_replica_set,
    encode_topic,
)

KEYS = Keys("c")
TOPICS = ["t1", "t2", "t3"]


@dataclass
class Model:
    """etcd as a child would draw it."""

    revision: int = 10
    entries: dict[str, KeyValue] = field(default_factory=dict)
    events: list[KeyEvent] = field(default_factory=list)
    topics_at: dict[int, dict[str, Topic]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.topics_at[self.revision] = {}

    def change(self, key: str, value: bytes | None) -> None:
        if value is None and key not in self.entries:
            return
        self.revision += 1
        self.events.append(KeyEvent(key, value, self.revision, 7))
        if value is None:
            del self.entries[key]
        else:
            self.entries[key] = KeyValue(key, value, self.revision, 7)
        self.topics_at[self.revision] = {
            value.name: value
            for value in (KEYS.decode(entry) for entry in self.entries.values())
            if isinstance(value, Topic)
        }

    def snapshot(self) -> Snapshot:
        return Snapshot(self.revision, tuple(self.entries.values()))

    def events_after(self, revision: int) -> list[KeyEvent]:
        return [event for event in self.events if event.revision > revision]


def _value(key: str, number: int) -> bytes:
    match KEYS.parse(key):
        case BrokerKey() as broker:
            return encode_broker(BrokerRecord(broker, f"i{number}", f"h:{number}"))
        case ("groups", name):
            return encode_replica_set(ReplicaSet(name, epoch=number + 1, master_id=number % 2))
        case (_, name):
            return encode_topic(Topic(name, queues_by_broker={"a": number + 1}))
    raise AssertionError(key)


every_key = st.sampled_from(
    [KEYS.topic(name) for name in TOPICS]
    + [KEYS.broker(BrokerKey(name, number)) for name in "ab" for number in (0, 1)]
    + [KEYS.replica_set(name) for name in "ab"]
)
changes = st.lists(st.tuples(every_key, st.none() | st.integers(0, 5)), max_size=30)


def _play(model: Model, steps: Sequence[tuple[str, int | None]]) -> None:
    for key, number in steps:
        model.change(key, None if number is None else _value(key, number))


def _content(table: RouteTable) -> tuple[object, ...]:
    return (dict(table.brokers), dict(table.replica_sets), dict(table.topics))


@settings(deadline=None)
@given(before=changes, after=changes, cuts=st.lists(st.integers(0, 30), max_size=4))
def test_events_in_any_portions_give_the_table_of_a_snapshot(
    before: list[tuple[str, int | None]],
    after: list[tuple[str, int | None]],
    cuts: list[int],
) -> None:
    model = Model()
    _play(model, before)
    table = RouteTable.from_snapshot(KEYS, model.snapshot())
    start = model.revision
    _play(model, after)
    events = model.events_after(start)
    for begin, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(events)], strict=True):
        newer = table.apply(KEYS, events[begin:end])
        assert newer.version >= table.version
        table = newer
    assert _content(table) == _content(RouteTable.from_snapshot(KEYS, model.snapshot()))
    assert table.version == model.revision


@settings(deadline=None)
@given(before=changes, after=changes)
def test_events_that_a_table_has_seen_change_nothing(
    before: list[tuple[str, int | None]], after: list[tuple[str, int | None]]
) -> None:
    model = Model()
    _play(model, before)
    table = RouteTable.from_snapshot(KEYS, model.snapshot())
    assert table.apply(KEYS, model.events) is table
    start = model.revision
    _play(model, after)
    once = table.apply(KEYS, model.events_after(start))
    assert once.apply(KEYS, model.events) is once


@settings(deadline=None)
@given(
    first=changes,
    last=changes,
    deletions_max=st.sampled_from([1, 10_000]),
    data=st.data(),
)
def test_a_broker_that_follows_knows_all_topics_whatever_it_knew_before(
    first: list[tuple[str, int | None]],
    last: list[tuple[str, int | None]],
    deletions_max: int,
    data: st.DataObject,
) -> None:
    """Another nameserver told it what happened before this one's snapshot, or between."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(route_table, "DELETED_TOPICS_MAX", deletions_max)
        model = Model()
        _play(model, first)
        table = RouteTable.from_snapshot(KEYS, model.snapshot())
        start = model.revision
        _play(model, last)
        table = table.apply(KEYS, model.events_after(start))

    known_revision = data.draw(st.sampled_from(sorted(model.topics_at)))
    known = dict(model.topics_at[known_revision])
    news = table.topic_changes_after(known_revision)
    if news.complete:
        known = {}
    told: list[tuple[int, str, Topic | None]] = [
        (topic.revision, topic.name, topic) for topic in news.changed
    ]
    told += [(revision, name, None) for name, revision in news.deleted]
    for _, name, topic in sorted(told, key=lambda item: item[:2]):
        if topic is None:
            known.pop(name, None)
        else:
            known[name] = topic
    assert known == table.topics == model.topics_at[model.revision]
    counts = Counter[str]()
    for topic in table.topics.values():
        counts.update(topic.queues_by_broker)
    assert +Counter(table.queue_counts) == +counts
    assert news.revision == table.version
    assert len(table.deleted_topics) <= deletions_max
    again = table.topic_changes_after(news.revision)
    assert (again.changed, again.deleted, again.complete) == ((), (), False)


def test_a_broker_ahead_of_a_lagging_nameserver_forgets_nothing() -> None:
    model = Model()
    _play(model, [(KEYS.topic("t1"), 1)])
    table = RouteTable.from_snapshot(KEYS, model.snapshot())
    news = table.topic_changes_after(table.version + 5)
    assert (news.changed, news.deleted, news.complete) == ((), (), False)
    assert news.revision == table.version + 5


@pytest.mark.parametrize(
    "value",
    [b"", b"{", b"[]", b"null", b"{}", b'{"perm":6,"queuesByBroker":{"a":-1}}', b"\xff\xfe"],
)
def test_a_value_that_makes_no_sense_is_passed_over_until_it_is_mended(value: bytes) -> None:
    key = KEYS.topic("t1")
    with pytest.raises(Unreadable, match="t1"):
        KEYS.decode(KeyValue(key, value, 11))
    table = RouteTable.from_snapshot(KEYS, Snapshot(11, (KeyValue(key, value, 11),)))
    assert (dict(table.topics), set(table.unreadable)) == ({}, {key})
    mended = table.apply(KEYS, [KeyEvent(key, _value(key, 1), 12)])
    assert (list(mended.topics), mended.unreadable) == (["t1"], frozenset())


@pytest.mark.parametrize(
    "key", ["", "x", "topics/", "topics/a/b", "brokers/a", "brokers/a/x", "brokers/a/-1", "other/a"]
)
def test_keys_of_others_are_passed_over(key: str) -> None:
    events = [KeyEvent(KEYS.prefix + key, b"anything", 11)]
    table = RouteTable.from_snapshot(KEYS, Snapshot(10, ())).apply(KEYS, events)
    assert _content(table) == ({}, {}, {})
    assert table.unreadable == frozenset()


@settings(deadline=None)
@given(
    st.builds(
        Topic,
        name=st.just("t1"),
        perm=st.integers(1, 7),
        order=st.booleans(),
        attributes=st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3),
        queues_by_broker=st.dictionaries(st.text(max_size=5), st.integers(0, 99), max_size=3),
        revision=st.just(9),
    )
)
def test_a_stored_topic_reads_back_and_later_fields_are_ignored(topic: Topic) -> None:
    value = encode_topic(topic)
    assert KEYS.decode(KeyValue(KEYS.topic("t1"), value, 9)) == topic
    later = json.dumps(json.loads(value) | {"fieldOfTomorrow": 1}).encode()
    assert KEYS.decode(KeyValue(KEYS.topic("t1"), later, 9)) == topic


numbers = st.integers(0, 2**53)
broker_ids = st.integers(0, 2**31 - 1)


@settings(deadline=None)
@given(
    st.builds(
        BrokerRecord,
        key=st.just(BrokerKey("a", 1)),
        instance=st.text(),
        address=st.text(),
        store_host_ipv6=st.booleans(),
        writable=st.booleans(),
        outside_address=st.text(),
        zone=st.text(),
        topics_known=st.none() | numbers,
        lease_ms=numbers,
        incarnation=st.text(),
        predecessor=st.text(),
        log_epoch=numbers,
        log_end=numbers,
        resigned_epoch=numbers,
        successor_id=st.integers(-1, 2**31 - 1),
        revision=st.just(9),
        lease_id=st.just(7),
    )
)
def test_a_stored_broker_reads_back(record: BrokerRecord) -> None:
    entry = KeyValue(KEYS.broker(record.key), encode_broker(record), 9, 7)
    assert KEYS.decode(entry) == record


@settings(deadline=None)
@given(
    st.builds(
        ReplicaSet,
        broker_name=st.just("a"),
        epoch=numbers,
        master_id=st.integers(-1, 2**31 - 1),
        master_instance=st.text(),
        in_sync=st.dictionaries(broker_ids, st.text(max_size=5), max_size=4).map(
            lambda names: tuple(sorted(InSyncReplica(*item) for item in names.items()))
        ),
        replicas=st.sets(broker_ids, max_size=4).map(lambda ids: tuple(sorted(ids))),
        unclean_epochs=st.lists(numbers, max_size=3).map(tuple),
        revision=st.just(9),
    )
)
def test_a_stored_group_reads_back(group: ReplicaSet) -> None:
    assert KEYS.decode(KeyValue(KEYS.replica_set("a"), encode_replica_set(group), 9)) == group


def test_a_group_from_before_replication_has_no_master_yet_and_keeps_its_epoch() -> None:
    old = KEYS.decode(KeyValue(KEYS.replica_set("a"), b'{"epoch":1,"masterId":0}', 9))
    assert old == ReplicaSet("a", epoch=1, master_id=0, revision=9)
    running = BrokerRecord(BrokerKey("a", 0), "i1", "h:1")
    assert not is_master(old, running)
    due = elect(old, {0: running}, allow_unclean=False)
    assert due is not None
    assert (due.replica_set.epoch, due.replica_set.master_instance, due.is_unclean) == (
        2,
        "i1",
        False,
    )


@pytest.mark.parametrize(
    "change",
    [
        {"epoch": -1},
        {"epoch": 2**63},
        {"masterId": 2**31},
        {"replicas": [-2]},
        {"replicas": 7},
        {"inSync": [{"brokerId": 0}]},
        {"inSync": ["0"]},
        {
            "inSync": [
                {"brokerId": 0, "incarnation": "a"},
                {"brokerId": 0, "incarnation": "b"},
            ]
        },
        {"uncleanEpochs": ["x"]},
    ],
)
def test_a_group_that_makes_no_sense_is_unreadable(change: dict[str, object]) -> None:
    good = json.loads(encode_replica_set(ReplicaSet("a", epoch=3, replicas=(0,))))
    with pytest.raises(Unreadable, match="groups/a"):
        KEYS.decode(KeyValue(KEYS.replica_set("a"), json.dumps(good | change).encode(), 9))
