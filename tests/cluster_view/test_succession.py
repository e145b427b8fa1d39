"""A group begins with a queue once it has finished the retired one whose keys it took over."""

from __future__ import annotations

from typing import Any

import pytest

from aerobee.cluster_view.methods import QUERY_BOUNDS
from aerobee.cluster_view.route import Endpoint, MessageQueue, TopicRoute
from aerobee.cluster_view.succession import Succession
from aerobee.runtime.clock import ManualClock
from aerobee.runtime.errors import Unreachable
from aerobee.v1 import broker_pb2, common_pb2

OLD = [MessageQueue("t", "a", 0), MessageQueue("t", "a", 1)]
NEW = [MessageQueue("t", "b", 0), MessageQueue("t", "b", 1)]
EVERYTHING = dict(zip(NEW, OLD, strict=True))


def route(*, attributes: dict[str, str] | None = None, is_ordered: bool = True) -> TopicRoute:
    return TopicRoute(
        topic="t",
        perm=6,
        is_ordered=is_ordered,
        attributes=attributes or {},
        queues_by_broker={"a": 2, "b": 2},
        endpoints=(Endpoint("a", 0, "a:1", is_master=True), Endpoint("b", 0, "b:1", True)),
        closed=frozenset({"a"}),
        key_order=tuple(NEW),
        successors=dict(zip(OLD, NEW, strict=True)),
    )


class Broker:
    """Broker group a; each of its queues has the messages 3 to 9."""

    def __init__(self) -> None:
        self.committed: dict[int, int] = {}
        self.is_sealed = True
        self.is_away = False
        self.calls = 0

    async def call(self, address: str, method: Any, request: Any, *, timeout_ms: int = 0) -> Any:
        assert address == "a:1"
        self.calls += 1
        if self.is_away:
            raise Unreachable("away")
        if method is QUERY_BOUNDS:
            found = [
                broker_pb2.QueueBounds(
                    status=common_pb2.Status(code=common_pb2.OK),
                    topic="t",
                    queue_id=each.queue_id,
                    min_offset=3,
                    max_offset=10,
                    retired=self.is_sealed,
                )
                for each in request.queues
            ]
            return broker_pb2.QueryBoundsResponse(bounds=found)
        assert request.group == "g"
        return broker_pb2.QueryOffsetsResponse(
            offsets=[
                broker_pb2.CommittedOffset(topic="t", queue_id=n, code=common_pb2.OK, offset=at)
                for n, at in self.committed.items()
            ]
        )


@pytest.fixture
def broker() -> Broker:
    return Broker()


async def test_a_queue_waits_until_the_old_one_is_finished_and_takes_nothing_more(
    broker: Broker,
) -> None:
    clock = ManualClock()
    succession = Succession(broker, clock)
    assert await succession.waiting(route(), "g") == EVERYTHING
    broker.committed, broker.is_sealed = {0: 10, 1: 9}, False
    clock.advance_ms(1_000)
    assert await succession.waiting(route(), "g") == EVERYTHING
    broker.is_sealed = True
    assert await succession.waiting(route(), "g") == EVERYTHING  # asked once a second
    clock.advance_ms(1_000)
    assert await succession.waiting(route(), "g") == {NEW[1]: OLD[1]}
    # What is finished stays so.
    broker.committed, broker.is_sealed = {}, False
    clock.advance_ms(1_000)
    assert await succession.waiting(route(), "g") == {NEW[1]: OLD[1]}


async def test_a_broker_that_does_not_answer_has_finished_nothing(broker: Broker) -> None:
    broker.committed, broker.is_away = {0: 10, 1: 10}, True
    clock = ManualClock()
    succession = Succession(broker, clock)
    assert await succession.waiting(route(), "g") == EVERYTHING
    broker.is_away = False
    clock.advance_ms(1_000)
    assert await succession.waiting(route(), "g") == {}


@pytest.mark.parametrize(
    ("attributes", "is_ordered", "waits"),
    [({}, False, False), ({"message.type": "FIFO"}, False, True), ({}, True, True)],
)
async def test_only_topics_whose_order_matters_wait(
    attributes: dict[str, str], is_ordered: bool, waits: bool, broker: Broker
) -> None:
    shown = route(attributes=attributes, is_ordered=is_ordered)
    assert bool(await Succession(broker, ManualClock()).waiting(shown, "g")) is waits
    assert bool(broker.calls) is waits
