"""No request to a nameserver costs the others more than its limits: the loop's time, and memory."""

from __future__ import annotations

from typing import Any

import pytest

from aerobee.nameserver.request_limits import nameserver_request_limits
from aerobee.rocketmq_api.request_limits import messaging_request_limits
from aerobee.runtime.errors import InvalidArgument
from aerobee.v1 import nameserver_pb2
from apache.rocketmq.v2 import service_pb2
from tests.support.costly_requests import methods_of, places
from tests.support.etcd import EtcdProcess
from tests.support.refusals import assert_all_refused, refusal_of

PLACES = places(methods_of(nameserver_pb2.DESCRIPTOR))


@pytest.mark.thorough
async def test_what_goes_beyond_a_limit_is_refused_and_nobody_waits(
    shared_etcd: EtcdProcess, start_nameserver: Any
) -> None:
    server = await start_nameserver(shared_etcd.endpoint)
    await assert_all_refused(server.channel, nameserver_request_limits(), PLACES)
    found = places(methods_of(service_pb2.DESCRIPTOR))
    await assert_all_refused(server.channel, messaging_request_limits(), found)
    await server.stub.ListTopics(nameserver_pb2.ListTopicsRequest())


async def test_bytes_that_are_no_request_are_the_client_s_mistake(
    shared_etcd: EtcdProcess, start_nameserver: Any
) -> None:
    server = await start_nameserver(shared_etcd.endpoint)
    for place in PLACES:
        error = await refusal_of(server.channel, place, b"\xff" * 10)
        assert type(error) is InvalidArgument, f"{place}: {error!r}"
