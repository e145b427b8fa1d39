"""A message's broker may be changing its master while another node passes the message on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest

from aerobee.cluster_view.route import Endpoint, TopicRoute
from aerobee.rocketmq_api.codes import OK, status_of
from aerobee.rocketmq_api.ports import OwnQueues
from aerobee.rocketmq_api.rules.message_checks import SendLimits
from aerobee.rocketmq_api.services.caller import Caller
from aerobee.rocketmq_api.services.masters import Masters
from aerobee.rocketmq_api.services.questions import Questions
from aerobee.rocketmq_api.services.sends import Sends
from aerobee.runtime.clock import SystemClock
from aerobee.runtime.errors import AerobeeError, NoBrokerAvailable, NotMaster, Unreachable
from apache.rocketmq.v2 import service_pb2
from tests.support.v2_calls import sent_message

REQUEST = service_pb2.SendMessageRequest(messages=[sent_message("t", message_id="ID-1")])


class Routes:
    """Where the one broker is: another address each time that a node contradicts it."""

    def __init__(self) -> None:
        self.contradicted = 0
        self.has_master = True

    async def route(self, topic: str) -> TopicRoute:
        here = Endpoint("a", 0, f"a-{self.contradicted}:1", is_master=self.has_master, epoch=1)
        return TopicRoute(topic, 6, False, {}, {"a": 4}, (here,))

    def known(self, topic: str) -> None: ...

    def invalidate(self, topic: str) -> None:
        self.contradicted += 1
        self.has_master = True

    def telling(self, callback: Callable[[str], None]) -> AbstractContextManager[None]:
        return nullcontext()


class Peers:
    """Another node; `fails` says how it does at an address."""

    def __init__(self, fails: Callable[[str], AerobeeError | None]) -> None:
        self.fails = fails
        self.calls: list[tuple[str, dict[str, str]]] = []

    async def call(self, address: str, method: Any, request: Any, **options: Any) -> Any:
        self.calls.append((address, dict(options["metadata"])))
        error = self.fails(address)
        if isinstance(error, Unreachable):
            raise error
        if error is not None:
            return service_pb2.SendMessageResponse(status=status_of(error))
        entries = [
            service_pb2.SendResultEntry(status=OK, message_id=each.system_properties.message_id)
            for each in request.messages
        ]
        return service_pb2.SendMessageResponse(status=OK, entries=entries)

    def open_stream(self, address: str, method: Any, **options: Any) -> Any:
        raise AssertionError("a send is one call")

    def open_server_stream(self, address: str, method: Any, request: Any, **options: Any) -> Any:
        raise AssertionError("a send is one call")


def caller(remaining_ms: int = 3_000, *, was_forwarded: bool = False) -> Caller:
    return Caller("id", "JAVA", "5.0.8", "", "ipv4:10.0.0.7:5", remaining_ms, was_forwarded)


def sends(routes: Routes, peers: Peers) -> Sends:
    masters: Masters[OwnQueues] = Masters(routes, peers)
    return Sends(masters, SystemClock(), SendLimits(), Questions())


@pytest.mark.parametrize("error", [NotMaster("b is"), Unreachable("gone")])
async def test_a_message_follows_its_broker_to_the_new_master(error: AerobeeError) -> None:
    routes, peers = Routes(), Peers(lambda address: error if address == "a-0:1" else None)
    answer = await sends(routes, peers).send(REQUEST, caller())
    assert answer.status == OK
    assert [address for address, _ in peers.calls] == ["a-0:1", "a-1:1"]
    assert peers.calls[0][1] == {
        "x-mq-client-id": "id",
        "x-mq-language": "JAVA",
        "x-mq-client-version": "5.0.8",
        "x-mq-forwarded": "ipv4:10.0.0.7:5",
    }


async def test_a_message_of_a_group_waits_while_there_is_no_master() -> None:
    routes, peers = Routes(), Peers(lambda address: None)
    routes.has_master = False
    message = sent_message("t", message_id="ID-1", message_group="g")
    request = service_pb2.SendMessageRequest(messages=[message])
    assert (await sends(routes, peers).send(request, caller())).status == OK


async def test_it_waits_no_longer_than_its_sender() -> None:
    peers = Peers(lambda address: NotMaster("never is"))
    with pytest.raises(NotMaster):
        await sends(Routes(), peers).send(REQUEST, caller(remaining_ms=400))
    assert 1 <= len(peers.calls) <= 3


async def test_other_errors_are_told_at_once() -> None:
    peers = Peers(lambda address: AerobeeError("a bug"))
    with pytest.raises(AerobeeError, match="a bug"):
        await sends(Routes(), peers).send(REQUEST, caller())
    assert len(peers.calls) == 1


async def test_a_node_without_a_store_passes_nothing_on_that_was_passed_on_to_it() -> None:
    peers = Peers(lambda address: None)
    with pytest.raises(NotMaster):
        await sends(Routes(), peers).send(REQUEST, caller(was_forwarded=True))
    assert peers.calls == []


async def test_messages_of_no_group_are_refused_where_no_broker_takes_any() -> None:
    routes = Routes()
    routes.has_master = False
    with pytest.raises(NoBrokerAvailable):
        await sends(routes, Peers(lambda address: None)).send(REQUEST, caller())
