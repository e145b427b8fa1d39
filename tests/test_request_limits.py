"""Every field of every request has a limit: what reaches it is read, what goes beyond refused."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from aerobee.broker.edge.own.request_limits import broker_request_limits
from aerobee.cluster_view import audit_log_service
from aerobee.nameserver.request_limits import access_request_limits, nameserver_request_limits
from aerobee.rocketmq_api.request_limits import messaging_request_limits
from aerobee.rpc.request_limits import COUNTED_FROM, Limit, RequestLimits, RequestReader
from aerobee.runtime.errors import InvalidArgument
from aerobee.v1 import (
    access_pb2,
    audit_log_pb2,
    audit_pb2,
    broker_pb2,
    nameserver_pb2,
    replication_pb2,
)
from apache.rocketmq.v2 import definition_pb2 as v2
from apache.rocketmq.v2 import service_pb2
from tests.support.costly_requests import Place, delimited, methods_of, places
from tests.support.refusals import looked_into_from

MIB = 1024 * 1024
FAR_BYTES = 8 * MIB
REFUSAL_S_MAX = 0.1
"""CPU time of one refusal."""


BROKER = broker_request_limits()
NAMESERVER = nameserver_request_limits()
ACCESS = access_request_limits()
AUDIT_LOG = audit_log_service.request_limits()
MESSAGING = messaging_request_limits()
SERVED = [
    (limits, place)
    for limits, files in (
        (BROKER, (broker_pb2.DESCRIPTOR, audit_pb2.DESCRIPTOR, replication_pb2.DESCRIPTOR)),
        (NAMESERVER, (nameserver_pb2.DESCRIPTOR,)),
        (ACCESS, (access_pb2.DESCRIPTOR,)),
        (AUDIT_LOG, (audit_log_pb2.DESCRIPTOR,)),
        (MESSAGING, (service_pb2.DESCRIPTOR,)),
    )
    for place in places(methods_of(*files))
]
each_place = pytest.mark.parametrize(
    ("limits", "place"), SERVED, ids=[str(place) for _, place in SERVED]
)


def reader_of(limits: RequestLimits, place: Place) -> RequestReader:
    reader = limits.reader(place.path)
    assert reader is not None, f"{place.path} has no limits"
    return reader


READERS = {place.path: reader_of(limits, place) for limits, place in SERVED}


def limit_of(limits: RequestLimits, place: Place) -> Limit:
    limit = limits.fields.get(place.field.full_name)
    assert limit is not None, f"{place.field.full_name} has no limit"
    return replace(limit, looked_into_from=looked_into_from(limits, place))


@each_place
def test_what_reaches_a_limit_is_read(limits: RequestLimits, place: Place) -> None:
    reader = reader_of(limits, place)
    found = list(place.at(limit_of(limits, place), 0))
    assert found, f"{place} has a limit of no use"
    for request in found:
        reader.read(request)


@each_place
def test_what_goes_beyond_a_limit_is_refused_with_the_name_of_the_field(
    limits: RequestLimits, place: Place
) -> None:
    reader = reader_of(limits, place)
    short_name = ".".join(place.field.full_name.split(".")[-2:]) + " has "
    for request in place.at(limit_of(limits, place), 1):
        with pytest.raises(InvalidArgument) as refused:
            reader.read(request)
        told = str(refused.value)
        assert short_name in told or f"{reader.name} has {len(request)} bytes" in told
        assert "at most" in told


@each_place
def test_a_request_far_beyond_is_refused_at_a_bounded_price(
    limits: RequestLimits, place: Place
) -> None:
    """Nothing is made of the elements: 8 MiB of them took seconds and a GiB."""
    reader = reader_of(limits, place)
    for request in place.far_above(FAR_BYTES):
        if place.field.type == place.field.TYPE_BYTES:
            continue  # bytes cost what they weigh; SendRequest.body and RecordBatch.records may
        began_s = time.thread_time()
        with pytest.raises(InvalidArgument):
            reader.read(request)
        assert time.thread_time() - began_s < REFUSAL_S_MAX


def test_a_frame_of_many_batches_has_no_more_records_than_fit_it() -> None:
    """Each batch keeps its own limit, and all of them together would be worked on for seconds."""
    reader = BROKER.reader("/aerobee.v1.SendService/SendStream")
    assert reader is not None
    count_max = BROKER.fields["aerobee.v1.RecordBatch.record_sizes"].count
    assert count_max is not None
    half = delimited(1, delimited(5, bytes(4 * (count_max // 2))))
    reader.read(half * 2)
    with pytest.raises(InvalidArgument, match=r"RecordBatch\.record_sizes has .* in all"):
        reader.read(half * 3)


def test_messages_have_no_more_keys_together_than_a_request_may_cost() -> None:
    """In a request of less than 64 KiB they cost no more than its bytes."""
    reader = MESSAGING.reader("/apache.rocketmq.v2.MessagingService/SendMessage")
    assert reader is not None
    limit = MESSAGING.fields["apache.rocketmq.v2.SystemProperties.keys"]
    assert limit.count is not None
    assert limit.total is not None
    system = v2.SystemProperties(keys=[""] * limit.count)
    message = v2.Message(system_properties=system, body=bytes(COUNTED_FROM))
    enough = limit.total // limit.count
    reader.read(service_pb2.SendMessageRequest(messages=[message] * enough).SerializeToString())
    request = service_pb2.SendMessageRequest(messages=[message] * (enough + 1))
    with pytest.raises(InvalidArgument, match=r"SystemProperties\.keys has .* at most"):
        reader.read(request.SerializeToString())


def test_unknown_fields_cannot_make_the_counting_long() -> None:
    for path, reader in READERS.items():
        if reader.bytes_max < MIB:
            continue
        request = b"\xf8\x01\x00" * (min(FAR_BYTES, reader.bytes_max) // 3)
        began_s = time.thread_time()
        with pytest.raises(InvalidArgument, match="fields"):
            reader.read(request)
        assert time.thread_time() - began_s < REFUSAL_S_MAX, path


def test_bytes_that_are_no_message_are_refused() -> None:
    for reader in READERS.values():
        for garbage in (b"\xff" * 10, b"\x0a\x05x", b"\x0b" * 7, b"\xff" * (reader.bytes_max // 2)):
            with pytest.raises(InvalidArgument):
                reader.read(garbage)


def test_a_field_without_a_limit_stops_the_server() -> None:
    service = nameserver_pb2.DESCRIPTOR.services_by_name["NameserverService"]
    requests = {method.input_type.name: MIB for method in service.methods}
    fields = {name.removeprefix("aerobee.v1."): limit for name, limit in NAMESERVER.fields.items()}
    RequestLimits([service], requests, fields, package="aerobee.v1")
    for left_out in fields:
        rest = {name: limit for name, limit in fields.items() if name != left_out}
        with pytest.raises(ValueError, match=f"{left_out} has no limit"):
            RequestLimits([service], requests, rest, package="aerobee.v1")
    requests.pop("RemoveReplicaRequest")
    with pytest.raises(ValueError, match="RemoveReplicaRequest has no limit of its bytes"):
        RequestLimits([service], requests, fields, package="aerobee.v1")
