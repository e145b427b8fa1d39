"""What a heartbeat may say of its broker, before anybody is shown it."""

from __future__ import annotations

from typing import Any

import pytest

from aerobee.nameserver.broker_session import check_heartbeat
from aerobee.runtime.errors import InvalidArgument
from aerobee.v1 import common_pb2
from aerobee.v1 import nameserver_pb2 as pb


def heartbeat(**fields: Any) -> pb.BrokerHeartbeat:
    made = pb.BrokerHeartbeat(
        identity=common_pb2.BrokerIdentity(broker_name="g", instance="i"), address="host:1"
    )
    made.MergeFrom(pb.BrokerHeartbeat(**fields))
    return made


@pytest.mark.parametrize(
    "fields",
    [
        {"address": "evil\x1b[2Jhost:1"},
        {"address": "host:1 master"},
        {"address": "h" * 301},
        {"incarnation": "a\nb"},
        {"predecessor": "p" * 101},
        {"log_end": -1},
        {"confirmed_end": 2**60},
        {"epoch": -3},
        {"successor_id": -2},
    ],
)
def test_what_makes_no_sense_is_refused_with_its_name(fields: dict[str, Any]) -> None:
    (name,) = fields
    with pytest.raises(InvalidArgument, match=name.replace("_", "[_ ]")) as refused:
        check_heartbeat(heartbeat(**fields))
    assert str(refused.value).isprintable()


def test_free_words_are_shortened_and_without_control_characters() -> None:
    beat = heartbeat(replication_trouble="\x1b[31mFAKE\nERROR forged line " + "x" * 10_000)
    check_heartbeat(beat)
    assert beat.replication_trouble.startswith(" [31mFAKE ERROR forged line x")
    assert beat.replication_trouble.isprintable()
    assert len(beat.replication_trouble) <= 1_003
    ordinary = "cannot reach 10.0.0.7:10911: connection refused"
    beat = heartbeat(replication_trouble=ordinary)
    check_heartbeat(beat)
    assert beat.replication_trouble == ordinary
