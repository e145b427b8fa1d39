"""What is noted of how far logs reach: never less for one incarnation, never without those that the
in-sync set names; and which log is whole, against what a folder that was copied could say."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from aerobee.nameserver.key_values import KeyEvent, KeyValue, Snapshot
from aerobee.nameserver.log_reach import check_whole, noted
from aerobee.nameserver.route_table import RouteTable
from aerobee.nameserver.stored import (
    BrokerKey,
    BrokerRecord,
    DurableKey,
    DurableLog,
    DurableLogs,
    Keys,
    Topic,
    Unreadable,
    encode_durable,
    encode_topic,
)
from aerobee.runtime.errors import ReplicaIncomplete

KEYS = Keys("c")
KEY = BrokerKey("broker-a", 1)
NAMES = ("log-a", "log-b", "log-c")


def record(incarnation: str = "log-a", instance: str = "i2") -> BrokerRecord:
    return BrokerRecord(KEY, instance, "h:1", incarnation=incarnation)


class NotedEnds(RuleBasedStateMachine):
    """Logs of one replica that come, grow, and are in sync or not, beside a naive record."""

    def __init__(self) -> None:
        super().__init__()
        self.durable = DurableLogs()
        self.told: dict[str, int] = {}
        self.named: frozenset[str] = frozenset()
        self.kept: dict[str, int] = {}

    @rule(named=st.frozensets(st.sampled_from(NAMES), max_size=1))
    def alter_in_sync_set(self, named: frozenset[str]) -> None:
        self.named = named

    @rule(name=st.sampled_from(NAMES), end=st.integers(1, 50), by=st.sampled_from("xyz"))
    def note(self, name: str, end: int, by: str) -> None:
        before = self.durable
        self.kept = {log.incarnation: log.end for log in before.logs}
        self.told[name] = max(end, self.told.get(name, 0))
        self.durable = noted(before, DurableLog(name, end, by), self.named)
        after = {log.incarnation: log.end for log in self.durable.logs}
        assert after[name] == max(end, self.kept.get(name, 0)), "it never falls"
        assert all(after[one] == self.kept[one] for one in self.kept if one in self.named - {name})
        assert (self.durable is before) == (after[name] == self.kept.get(name))

    @invariant()
    def it_stays_small_and_true(self) -> None:
        names = [log.incarnation for log in self.durable.logs]
        assert len(names) == len(set(names)) <= len(NAMES)
        assert all(log.end <= self.told[log.incarnation] for log in self.durable.logs)


NotedEndsTest = NotedEnds.TestCase


def test_a_log_that_ends_before_what_an_earlier_instance_told_is_not_whole() -> None:
    durable = DurableLogs((DurableLog("log-a", 1_000, "i1"),))
    check_whole(durable, record(), 1_000)
    check_whole(durable, record("log-b"), 0)
    with pytest.raises(ReplicaIncomplete, match=r"ended at 999 when .* although 1000 bytes"):
        check_whole(durable, record(), 999)


def test_what_an_instance_told_itself_is_no_reason_to_refuse_it() -> None:
    durable = DurableLogs((DurableLog("log-a", 1_000, "i2"),))
    check_whole(durable, record(instance="i2"), 400)


def test_a_broker_that_would_not_understand_a_refusal_is_not_refused() -> None:
    check_whole(DurableLogs((DurableLog("log-a", 1_000, "i1"),)), record(), None)


def test_what_is_noted_is_read_again_and_nonsense_is_refused() -> None:
    durable = DurableLogs((DurableLog("log-a", 7, "i1"), DurableLog("log-b", 9, "i2")), 5)
    key = KEYS.durable(KEY)
    assert KEYS.parse(key) == DurableKey(KEY)
    assert KEYS.decode(KeyValue(key, encode_durable(durable), 5)) == durable
    for nonsense in (b"{}", b"[]", b'{"logs":[{"incarnation":"a","end":-1}]}'):
        with pytest.raises(Unreadable):
            KEYS.decode(KeyValue(key, nonsense, 5))


def test_what_is_noted_of_logs_moves_the_version_and_nothing_that_is_shown() -> None:
    topic = KeyValue(KEYS.topic("orders"), encode_topic(Topic("orders")), 10)
    table = RouteTable.from_snapshot(KEYS, Snapshot(10, (topic,)))
    event = KeyEvent(KEYS.durable(KEY), b"nonsense", 12)
    after = table.apply(KEYS, [event])
    assert after.version == 12, "so it is comparable with a table whose snapshot came later"
    assert after.shows_same_as(table)
    assert after.topic_changes_after(10).revision == 10, "brokers need not store a new revision"
    assert (after.topics, after.unreadable) == (table.topics, frozenset())
    entry = KeyValue(event.key, b"nonsense", 12)
    assert RouteTable.from_snapshot(KEYS, Snapshot(12, (topic, entry))).topics == after.topics
    shown = after.apply(KEYS, [KeyEvent(KEYS.topic("new"), encode_topic(Topic("new")), 13)])
    assert not shown.shows_same_as(after)
    assert shown.topic_changes_after(10).revision == 13
