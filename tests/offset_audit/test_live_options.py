"""What the live sources understand, and what they refuse; without Spark."""

from __future__ import annotations

import json

import pytest

from aerobee.offset_audit.frames.spark_rows import schema
from aerobee.offset_audit.sources.live.columns import (
    WIDE_TABLES,
    rest_schema,
    table_schema,
)
from aerobee.offset_audit.sources.live.options import READ_TABLES, parse_options
from aerobee.offset_audit.sources.registry import RegistrySource
from aerobee.offset_audit.sources.store.journal_entries import JournalRecord, entries_of
from aerobee.offset_audit.tables import COLUMNS, JOURNAL
from aerobee.runtime.errors import InvalidArgument

HERE = {"nameservers": "127.0.0.1:8081"}


def test_options_are_read_whatever_their_case() -> None:
    options = parse_options(
        {
            "NameServers": "a:1; b:2",
            "FIRSTUNREAD": "True",
            "topics": "x, y,",
            "timeoutms": "5",
            "Table": "commits",
            "tls.enabled": "false",
        }
    )
    assert options.nameservers == ("a:1", "b:2")
    assert options.first_unread
    assert not options.matching_unread
    assert options.topics == ("x", "y")
    assert options.timeout_ms == 5
    assert options.table == "commits"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "name what to read"),
        ({**HERE, "brokers": "a:1"}, "name what to read"),
        ({"path": "/data"}, "name what to read"),
        ({"nameservers": "nowhere"}, "host:port"),
        ({"brokers": "nowhere"}, "broker address 'nowhere'"),
        ({**HERE, "table": "comits"}, "table=comits is not one of"),
        ({**HERE, "firstUnread": "yes"}, "option firstUnread is .yes., neither true nor false"),
        ({**HERE, "timeoutMs": "0"}, "option timeoutMs is .0., not a whole number of 1"),
        ({**HERE, "timeoutMs": "soon"}, "option timeoutMs is .soon., not a whole number"),
        ({**HERE, "nameserver": "a:1"}, "is nameservers meant"),
        ({**HERE, "firstUnred": "true"}, "is firstUnread meant"),
        ({**HERE, "tls.enabled": "true"}, "set TLS by the environment"),
        ({**HERE, "tls.ca": "/x"}, "option tls.ca is not supported"),
        ({**HERE, "credentials.accessKey": "k"}, "set credentials by the environment"),
    ],
)
def test_what_cannot_be_right_is_refused_with_what_would_be(
    given: dict[str, str], said: str
) -> None:
    with pytest.raises(InvalidArgument, match=said):
        parse_options(given)


def test_options_of_other_sources_are_passed_over() -> None:
    assert parse_options({**HERE, "kind": "records", "partitionBytes": "1", "bodies": "true"})


def test_only_nameservers_have_a_registry() -> None:
    for given in ({"brokers": "a:1", "table": "brokers"}, HERE, {**HERE, "table": "commits"}):
        with pytest.raises(InvalidArgument):
            RegistrySource(dict(given)).schema()


def test_the_frame_of_all_tables_has_a_place_for_each_of_their_columns() -> None:
    union = table_schema("")
    assert len(set(union.names)) == len(union.names)
    for table in READ_TABLES:
        rest = rest_schema(table)
        assert bool(rest.fields) == (table not in WIDE_TABLES)
        for field in schema(COLUMNS[table]).fields:
            assert (rest if field.name in rest.names else union)[field.name] == field


def test_entries_of_the_journal_become_rows() -> None:
    entries = [
        {
            "group": "g",
            "topic": "t",
            "queueId": 3,
            "offset": 7,
            "leaseEpoch": 5,
            "timestamp": 9,
            "clientId": "c",
            "kind": "commit",
        },
        {"kind": "lease", "lease": {}},
        {"group": "g", "topic": "t", "queueId": 4, "offset": 0, "clientId": "", "kind": "reset"},
    ]
    origin = "cluster", "broker-a", 1
    rows = list(entries_of(JournalRecord(origin, 12, json.dumps(entries).encode())))
    assert rows == [
        ("cluster", "broker-a", 1, 12, 0, "g", "t", 3, 7, 5, 9, "c", "commit", None),
        ("cluster", "broker-a", 1, 12, 2, "g", "t", 4, 0, None, None, None, "reset", None),
    ]
    assert len(rows[0]) == len(schema(JOURNAL).names)
    assert not list(entries_of(JournalRecord(origin, 13, b"no journal")))
    assert not list(entries_of(JournalRecord(origin, 13, b'{"kind":"commit"}')))
