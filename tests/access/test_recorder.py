"""What is recorded of calls: acts and refusals, who, from where, what; and no secret."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message_factory import GetMessageClass

from aerobee.access.guard import CallGuard, MethodGuard
from aerobee.access.needs import Who
from aerobee.access.nodes import BROKER, OPERATOR
from aerobee.access.recorder import NotAnAct, RecordedAct, Recorder, is_administrative
from aerobee.access.request_text import is_private, request_text
from aerobee.access.signature import sign
from aerobee.runtime.audit_log.reading import LogPart, WantedLines
from aerobee.runtime.errors import AccessDenied, NotWritable, TopicNotFound, Unauthenticated
from aerobee.runtime.metrics.families import AnyFamily
from aerobee.v1 import access_pb2, broker_pb2, common_pb2, nameserver_pb2
from tests.access.test_doors import TEXTS
from tests.access.test_gate import (
    REGISTER,
    SECRET,
    SEND,
    SEND_STREAM,
    SIGNED,
    Call,
    Scene,
    allow,
    shop,
)
from tests.access.test_needs import TABLE, methods
from tests.support.plain_requests import plain_request

CREATE_TOPIC = "/aerobee.v1.NameserverService/CreateTopic"
CREATE_USER = "/aerobee.v1.AccessService/CreateUser"
END_TRANSACTION = "/aerobee.v1.TransactionService/EndTransaction"
NEW = nameserver_pb2.CreateTopicRequest(name="orders-1", queues=8)


@dataclass
class Kept:
    """Lines of an audit log, in memory."""

    is_strict: bool = False
    is_full: bool = False
    is_flood: bool = False
    lines: list[dict[str, Any]] = field(default_factory=list)
    awaited: list[Mapping[str, Any]] = field(default_factory=list)

    def takes_refusal(self, who: str, *, is_known: bool) -> bool:
        return not self.is_flood

    def note(self, content: Mapping[str, Any]) -> None:
        if not self.is_full:
            self.lines.append(dict(content))

    async def record(self, content: Mapping[str, Any]) -> bool:
        self.note(content)
        self.awaited.append(content)
        return not self.is_full

    async def read_back(self, before: str, wanted: WantedLines, lines_max: int) -> LogPart:
        raise NotImplementedError

    def families(self) -> list[AnyFamily]:
        return []


@pytest.fixture
def kept() -> Kept:
    return Kept()


@pytest.fixture
def scene(kept: Kept) -> Scene:
    scene = Scene(recorder=Recorder(kept))
    scene.know(shop(), allow("Topic:orders*", "Pub,Create"), allow("Group:g", "Update"))
    return scene


async def done(
    method: MethodGuard, call: Call, request: Any, *, error: Exception | None = None
) -> None:
    visit = method.admit(call)
    visit.check(request)
    async with visit.act(request):
        if error is not None:
            raise error


async def test_an_act_is_one_line_with_its_result(scene: Scene, kept: Kept) -> None:
    call = Call((*SIGNED.metadata, ("aerobee-request-id", "5f3a-17")))
    await done(scene.at(CREATE_TOPIC), call, NEW)
    assert kept.lines == [
        {
            "event": "act",
            "caller": "user shop",
            "from": "10.0.0.7:5000",
            "tls": False,
            "method": CREATE_TOPIC,
            "request_id": "5f3a-17",
            "needs": ["Create on Topic:orders-1"],
            "request": {"name": "orders-1", "queues": 8},
            "result": "ok",
        }
    ]
    with pytest.raises(TopicNotFound):
        await done(scene.at(CREATE_TOPIC), SIGNED, NEW, error=TopicNotFound("gone"))
    with pytest.raises(KeyError):
        await done(scene.at(CREATE_TOPIC), SIGNED, NEW, error=KeyError("a bug"))
    assert [line["result"] for line in kept.lines] == ["ok", "topic_not_found", "internal"]


async def test_acts_of_nodes_and_operators_are_lines_as_well(scene: Scene, kept: Kept) -> None:
    for number, role in enumerate((BROKER, OPERATOR)):
        await done(scene.at(CREATE_TOPIC), scene.node(role, CREATE_TOPIC, process=number), NEW)
    visit = scene.at(REGISTER).admit(scene.node(BROKER, REGISTER, process=2))
    awaited = len(kept.awaited)
    async with visit.act(None):
        assert kept.lines[-1]["result"] == "begun"
    # A change of master waits for no disk of the audit log.
    assert len(kept.awaited) == awaited == 2
    assert [line["caller"] for line in kept.lines] == [
        "broker:hive/someone",
        "operator:hive/someone",
        "broker:hive/someone",
        "broker:hive/someone",
    ]


def test_what_clients_do_is_no_act(scene: Scene, kept: Kept) -> None:
    end = broker_pb2.EndTransactionRequest(topic="orders")
    visit = scene.at(END_TRANSACTION).admit(SIGNED)
    visit.check(end)
    assert isinstance(visit.act(end), NotAnAct)
    assert not scene.at(SEND).is_act
    operator = scene.at(END_TRANSACTION).admit(scene.node(OPERATOR, END_TRANSACTION))
    end.by_operator = True
    operator.check(end)
    assert isinstance(operator.act(end), RecordedAct)
    assert kept.lines == []


def test_every_request_that_needs_an_administrator_is_an_act() -> None:
    for path, method in methods().items():
        needs = TABLE[path]
        if needs.who is Who.SUPER_USERS:
            assert needs.is_act, path
        elif needs.who is Who.BROKERS:
            # These have a say in who is master.
            assert needs.is_act == path.endswith(("/Register", "/AlterInSyncSet")), path
        elif needs.who is Who.USERS:
            request = plain_request(method.input_type, TEXTS, otherwise="bank")
            if hasattr(request, "by_operator"):
                request.by_operator = True
            of = list(needs.of(request, ""))
            assert any(map(is_administrative, of)) == needs.is_act, path


async def test_an_answer_about_many_things_tells_how_many_it_refused(
    scene: Scene, kept: Kept
) -> None:
    path = "/aerobee.v1.OffsetService/ResetOffsets"
    request = broker_pb2.ResetOffsetsRequest(group="g")
    visit = scene.at(path).admit(SIGNED)
    visit.check(request)
    async with visit.act(request) as act:
        ok, held = (
            common_pb2.Status(code=common_pb2.OK),
            common_pb2.Status(code=common_pb2.LEASE_HELD),
        )
        act.answered(broker_pb2.ResetOffsetsResponse(results=[ok, held, held]))
    assert (kept.lines[0]["result"], kept.lines[0]["refused_parts"]) == ("ok", "2 of 3")


async def test_a_strict_log_that_is_full_lets_nothing_begin(scene: Scene, kept: Kept) -> None:
    kept.is_strict = True
    await done(scene.at(CREATE_TOPIC), SIGNED, NEW)
    assert [line["result"] for line in kept.lines] == ["begun", "ok"]
    kept.is_full = True
    visit = scene.at(CREATE_TOPIC).admit(SIGNED)
    visit.check(NEW)
    with pytest.raises(NotWritable, match="nothing was done"):
        async with visit.act(NEW):
            pytest.fail("it was begun")
    kept.is_full = False
    with pytest.raises(NotWritable, match="it was done"):
        async with visit.act(NEW):
            kept.is_full = True
    kept.is_strict = False
    await done(scene.at(CREATE_TOPIC), SIGNED, NEW)


async def test_a_refusal_names_who_and_what_was_missing_and_the_rule(
    scene: Scene, kept: Kept
) -> None:
    stream = scene.at(SEND_STREAM).admit(SIGNED)
    stream.check(broker_pb2.SendFrame(batches=[broker_pb2.RecordBatch(topic="orders")]))
    with pytest.raises(AccessDenied):
        stream.check(broker_pb2.SendFrame(batches=[broker_pb2.RecordBatch(topic="other")]))
    with pytest.raises(AccessDenied):
        scene.at(CREATE_USER).admit(SIGNED)
    scene.know(shop(), allow("Topic:new", "Pub"))
    with pytest.raises(AccessDenied):
        stream.check_again()
    frame, admin, again = kept.lines
    assert (frame["event"], frame["result"]) == ("refusal", "access_denied")
    assert (frame["caller"], frame["from"]) == ("user shop", "10.0.0.7:5000")
    assert frame["needs"] == ["Pub on Topic:other"]
    assert "no policy allows it" in frame["why"]
    assert "super user" in admin["why"]
    assert again["needs"] == ["Pub on Topic:orders"]
    gathered = await scene.recorder.gather("hive", "broker")
    assert dict(gathered.families[0].rows) == {
        ("SendStream", "access_denied"): 2,
        ("CreateUser", "access_denied"): 1,
    }


def test_strangers_are_told_by_their_address_and_by_true_names_alone(
    scene: Scene, kept: Kept
) -> None:
    swapped = sign("my-secret-in-the-wrong-field", b"shop", "20240101T000000Z")
    for call in (
        Call(),
        Call(sign("shop", b"another-secret-12345", "20240101T000000Z")),
        Call(swapped),
        Call((("aerobee-node", f"broker:a 1 2 3 {'0' * 64}"),)),
        Call((("aerobee-request-id", "x" * 500),)),
    ):
        with pytest.raises(Unauthenticated):
            scene.at(SEND).admit(call)
    assert {(line["caller"], line["from"]) for line in kept.lines} == {
        ("anonymous", "10.0.0.7:5000")
    }
    nothing, wrong, unknown, node, _ = (line["why"] for line in kept.lines)
    assert "does not say who makes it" in nothing
    assert "not that of an enabled user 'shop'" in wrong
    assert unknown == "its access key is that of no user"
    assert "another cluster secret" in node
    text = json.dumps(kept.lines)
    assert "wrong-field" not in text
    assert "xxx" not in text


def test_addresses_of_both_families_are_shown_as_people_write_them(
    scene: Scene, kept: Kept
) -> None:
    for address in ("ipv6:%5B2001:db8::1%5D:4711", "unix:"):
        with pytest.raises(Unauthenticated):
            scene.at(SEND).admit(Call(address=address))
    assert [line["from"] for line in kept.lines] == ["[2001:db8::1]:4711", "unix:"]


def test_a_call_that_another_node_passes_on_tells_both(scene: Scene, kept: Kept) -> None:
    forged = Call((*SIGNED.metadata, ("x-mq-forwarded", "ipv4:10.0.0.1:1")))
    with pytest.raises(AccessDenied):
        scene.at(SEND).admit(forged)
    assert kept.lines[0]["forwarded_for"] == "ipv4:10.0.0.1:1"


async def test_without_access_control_acts_are_lines_of_whoever_proves_it(
    scene: Scene, kept: Kept
) -> None:
    guard = CallGuard(scene.table, scene.callers, scene.recorder, is_checked=False)
    assert guard.method(SEND) is None
    for path, call, request in (
        (CREATE_TOPIC, Call(), NEW),
        (CREATE_TOPIC, SIGNED, NEW),
        (
            CREATE_USER,
            Call(sign("shop", b"wrong", "1")),
            access_pb2.CreateUserRequest(name="x", secret=SECRET),
        ),
        (CREATE_TOPIC, Call(), nameserver_pb2.CreateTopicRequest()),
    ):
        method = guard.method(path)
        assert method is not None
        visit = method.admit(call)
        visit.check(request)
        async with visit.act(request):
            pass
    assert [line["caller"] for line in kept.lines] == [
        "anonymous",
        "user shop",
        "anonymous",
        "anonymous",
    ]
    assert kept.lines[2]["request"] == {"name": "x", "secret": "(not shown)"}


def test_of_requests_nothing_is_shown_that_could_be_secret() -> None:
    """All fields of all requests of acts: which of them are left out is decided here."""
    hidden, found = set(), 0
    for path, method in methods().items():
        if TABLE[path].is_act and "rocketmq" not in path and not path.endswith("/Register"):
            for field_ in fields_of(method.input_type):
                found += 1
                is_text = field_.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_MESSAGE)
                if field_.type == FieldDescriptor.TYPE_BYTES or (
                    is_text and is_private(field_.name)
                ):
                    hidden.add(field_.name)
    assert found > 40
    assert hidden == {"secret", "body", "keys", "properties"}


def fields_of(descriptor: Any) -> Iterator[FieldDescriptor]:
    for each in descriptor.fields:
        yield each
        if each.type == FieldDescriptor.TYPE_MESSAGE:
            yield from fields_of(each.message_type)


def test_what_is_long_or_deep_is_cut() -> None:
    request = nameserver_pb2.UpdateTopicRequest(name="n" * 1_000, perm=6)
    for number in range(100):
        request.attributes[f"key-{number}"] = "v" * 1_000
    text = request_text(request)
    assert text["name"] == f"{'n' * 300}... (1000 characters)"
    assert len(text["attributes"]) == 10
    offsets = [broker_pb2.QueueOffset(topic=f"t{n}", queue_id=n, offset=n) for n in range(10_000)]
    many = request_text(broker_pb2.ResetOffsetsRequest(group="g", offsets=offsets))
    assert len(many["offsets"]) == 10
    assert many["offsets"][3] == {"topic": "t3", "queue_id": 3, "offset": 3}
    for method in methods().values():
        json.dumps(request_text(plain_request(method.input_type, TEXTS, otherwise="bank")))
        assert request_text(GetMessageClass(method.input_type)()) == {}


def test_a_refusal_that_gets_no_line_costs_little(scene: Scene, kept: Kept) -> None:
    """Less than 50 us, the refusal itself included."""
    kept.is_flood = True
    method = scene.at(SEND)
    best = float("inf")
    for _ in range(200):
        began = time.perf_counter()
        for _ in range(10):
            with pytest.raises(Unauthenticated):
                method.admit(Call())
        best = min(best, time.perf_counter() - began)
    print(f"{best / 10 * 1e6:.1f} us")
    assert best / 10 * 1e6 < 50
