"""Errors in the nameserver apart from elections: registrations, routes, topics."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant

NAMESERVER: Final = (
    Mutant(
        name="queues-on-a-group-below-its-minimum",
        breaks="a topic grows onto a group that refuses every message, and queues never move",
        at="route_table.py::RouteTable.short_of_replicas",
        old="self.is_master(record) and in_sync < record.in_sync_min",
        new="self.is_master(record) and in_sync < 0",
        tests=(
            "tests/nameserver/test_topics.py"
            "::test_a_group_below_its_minimum_gets_no_queues_of_a_topic_that_grows",
        ),
    ),
    Mutant(
        name="dead-broker-in-the-routes",
        breaks="clients are sent to a broker that is gone",
        at="route_table.py::RouteTable._changed",
        old="case BrokerKey() as broker_key:",
        new="case BrokerKey() as broker_key if value is not None:",
        tests=(
            "tests/nameserver/test_route_table.py"
            "::test_events_in_any_portions_give_the_table_of_a_snapshot",
        ),
    ),
    Mutant(
        name="leaving-broker-stays",
        breaks="clients are sent to a broker that has stopped, until its lease ends",
        at="registry.py::Registry.leave",
        old="await self._etcd.revoke_lease(current.lease_id)",
        new="pass",
        tests=("tests/nameserver/test_brokers.py::test_a_leaving_broker_is_gone_at_once",),
    ),
    Mutant(
        name="predecessor-keeps-its-lease",
        breaks="a process that was succeeded is told that its registration lives",
        at="registry.py::Registry.register",
        old="claim.attempt.is_new and entry is not None and entry.lease_id != 0",
        new="claim.attempt.is_new and entry is None",
        tests=(
            "tests/nameserver/test_brokers.py::test_a_successor_ends_the_lease_of_the_one_before",
        ),
    ),
    Mutant(
        name="old-copy-registered",
        breaks="an old copy of a folder is elected, and what it lacks is lost",
        at="log_reach.py::check_whole",
        old="is_other and opened_end < log.end",
        new="is_other and opened_end > log.end",
        tests=(
            "tests/nameserver/test_durable_logs.py"
            "::test_a_log_that_ends_before_what_an_earlier_instance_told_is_not_whole",
        ),
    ),
    Mutant(
        name="confirmed-by-who-is-out-of-sync",
        breaks="nobody can be elected, for a replica that left the set had more",
        at="log_reach.py::confirmed_end",
        old="(broker_id, log.incarnation) in named",
        new="broker_id >= 0",
        tests=(
            "tests/nameserver/test_election_rules.py"
            "::test_what_was_noted_of_replicas_in_sync_is_known_to_be_confirmed",
        ),
    ),
    Mutant(
        name="topic-shrinks",
        breaks="messages of the queues that a topic gives up are not read any more",
        at="topics.py::Topics._with_queues",
        old="queues < topic.queues",
        new="queues < 1",
        tests=("tests/nameserver/test_topics.py::test_a_topic_grows_but_never_shrinks",),
    ),
)
