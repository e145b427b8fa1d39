"""Which queues a member gets that asks the broker for them."""

from __future__ import annotations

import json

import pytest

from aerobee.cluster_view.route import MessageQueue
from aerobee.rocketmq_remoting.assignments import (
    AssignmentAsked,
    assignment_body,
    read_assignment_asked,
    share_of,
)
from aerobee.runtime.errors import InvalidArgument

QUEUES = [MessageQueue("t", "broker-a", number) for number in range(5)]


def test_members_share_the_queues_as_java_does() -> None:
    shares = [share_of(client, ["a", "b", "c"], QUEUES) for client in "abc"]
    assert [[queue.queue_id for queue in share] for share in shares] == [[0, 1], [2, 3], [4]]
    assert share_of("b", ["a", "b"], QUEUES[:1]) == []
    assert share_of("stranger", ["a"], QUEUES) == ()


def test_what_a_client_asks_and_is_told() -> None:
    asked = {"clientId": "c", "consumerGroup": "g", "topic": "t", "messageModel": "BROADCASTING"}
    found = read_assignment_asked(json.dumps(asked).encode())
    assert found == AssignmentAsked("c", "g", "t", True)
    assert json.loads(assignment_body(QUEUES[:1])) == {
        "messageQueueAssignments": [
            {"messageQueue": {"brokerName": "broker-a", "queueId": 0, "topic": "t"}, "mode": "PULL"}
        ]
    }
    with pytest.raises(InvalidArgument):
        read_assignment_asked(b'{"clientId":"c"}')
