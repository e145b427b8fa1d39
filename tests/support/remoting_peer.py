"""A remoting client as Apache's are: what it says on the wire, in a few words."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from aerobee.remoting_core.client import RemotingClient
from aerobee.remoting_core.command import OWN_LANGUAGE, Command
from aerobee.store.format.record import Record, iterate_records

SHORT = {"producerGroup": "a", "topic": "b", "queueId": "e", "sysFlag": "f", "bornTimestamp": "g",
         "flag": "h", "properties": "i"}  # fmt: skip


class Peer:
    """One client with one connection."""

    def __init__(
        self, client: RemotingClient, client_id: str, key: tuple[str, bytes] | None = None
    ) -> None:
        """`key`: user and secret that sign each request, as `AclClientRPCHook` does."""
        self.client = client
        self.client_id = client_id
        self.key = key
        self.language = OWN_LANGUAGE
        self.told: list[Command] = []
        """What the broker has asked."""
        self.answers: dict[int, Callable[[Command], Command]] = {}
        """How it answers what the broker asks, by code; to the rest it says nothing."""

    async def ask(self, code: int, body: bytes = b"", **fields: Any) -> Command:
        text = {name: _text(value) for name, value in fields.items()}
        return await self.client.ask(self.signed(Command(code, text, body, language=self.language)))

    def signed(self, request: Command) -> Command:
        if self.key is not None:
            user, secret = self.key
            fields = {**request.fields, "AccessKey": user}
            content = "".join(value for _, value in sorted(fields.items())).encode() + request.body
            digest = hmac.digest(secret, content, "sha1")
            request.fields = {**fields, "Signature": base64.b64encode(digest).decode()}
        return request

    async def done(self, code: int, body: bytes = b"", **fields: Any) -> Command:
        """The answer of what succeeds."""
        answer = await self.ask(code, body, **fields)
        assert answer.code == 0, answer
        return answer

    async def send(
        self, topic: str, body: bytes, queue_id: int = 0, properties: str = "", **fields: Any
    ) -> Command:
        said = {"producerGroup": "PG", "topic": topic, "queueId": queue_id, "sysFlag": 0,
                "bornTimestamp": 17, "flag": 0, "properties": properties, **fields}  # fmt: skip
        return await self.ask(310, body, **{SHORT.get(name, name): v for name, v in said.items()})

    async def beat(
        self,
        group: str,
        *topics: str,
        tags: str = "*",
        version: int = 1,
        broadcasting: bool = False,
        producers: Sequence[str] = (),
    ) -> Command:
        consumer = {
            "groupName": group,
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "BROADCASTING" if broadcasting else "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            "subscriptionDataSet": [
                {"topic": topic, "subString": tags, "expressionType": "TAG", "subVersion": version}
                for topic in topics
            ],
        }
        body = {
            "clientID": self.client_id,
            "producerDataSet": [{"groupName": name} for name in producers],
            "consumerDataSet": [consumer] if group else [],
        }
        return await self.done(34, json.dumps(body).encode())

    async def pull(
        self,
        group: str,
        topic: str,
        offset: int = 0,
        queue_id: int = 0,
        *,
        wait_ms: int = 0,
        **more: Any,
    ) -> Command:
        fields = {"consumerGroup": group, "topic": topic, "queueId": queue_id,
                  "queueOffset": offset, "maxMsgNums": 32, "sysFlag": 2 if wait_ms else 0,
                  "commitOffset": 0, "suspendTimeoutMillis": wait_ms, "subVersion": 0}  # fmt: skip
        return await self.ask(11, **{**fields, **more})

    async def offset(self, group: str, topic: str, queue_id: int = 0) -> int | None:
        answer = await self.ask(
            14, consumerGroup=group, topic=topic, queueId=queue_id, setZeroIfNotFound=False
        )
        if answer.code == 22:
            return None
        assert answer.code == 0, answer
        return int(answer.fields["offset"])

    async def commit(self, group: str, topic: str, offset: int, queue_id: int = 0) -> Command:
        return await self.ask(
            15, consumerGroup=group, topic=topic, queueId=queue_id, commitOffset=offset
        )


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@asynccontextmanager
async def peer_at(
    port: int, client_id: str = "c1", *, key: tuple[str, bytes] | None = None
) -> AsyncIterator[Peer]:
    peers: list[Peer] = []

    def serve(request: Command) -> Command | None:
        (peer,) = peers
        peer.told.append(request)
        answer = peer.answers.get(request.code)
        return None if answer is None else answer(request)

    async with await RemotingClient.connect(
        "127.0.0.1", port, now=asyncio.get_running_loop().time, serve=serve
    ) as client:
        peer = Peer(client, client_id, key)
        peers.append(peer)
        yield peer


def records_of(answer: Command) -> list[Record]:
    return list(iterate_records(answer.body))


def bodies_of(answer: Command) -> list[bytes]:
    assert answer.code == 0, answer
    return [bytes(record.body) for record in records_of(answer)]


def object_of(answer: Command) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(answer.body)
    return found


# ------------------------------------------------------------------------------ POP


class Popped(NamedTuple):
    """A message of a poll, with the handle that a client makes for it."""

    record: Record
    handle: str

    @property
    def body(self) -> bytes:
        return bytes(self.record.body)

    def named(self, group: str, topic: str) -> dict[str, Any]:
        """The fields of a request about it."""
        return {
            "consumerGroup": group,
            "topic": topic,
            "queueId": self.record.queue_id,
            "extraInfo": self.handle,
            "offset": self.record.queue_offset,
        }


def popped_of(answer: Command, broker_name: str = "broker-a") -> list[Popped]:
    """As Apache's clients read an answer."""
    if answer.code == 210:
        return []
    assert answer.code == 0, answer
    fields = answer.fields
    starts = {tuple(each.split(" ")[:2]): each.split(" ")[2]
              for each in fields["startOffsetInfo"].split(";")}  # fmt: skip
    offsets = {tuple(each.split(" ")[:2]): each.split(" ")[2].split(",")
               for each in fields["msgOffsetInfo"].split(";")}  # fmt: skip
    found = []
    for record in records_of(answer):
        mark = "1" if record.topic.startswith("%RETRY%") else "0"
        queue = mark, str(record.queue_id)
        offset = offsets[queue].pop(0)
        assert offset == str(record.queue_offset)
        times = " ".join(fields[name] for name in ("popTime", "invisibleTime", "reviveQid"))
        handle = f"{starts[queue]} {times} {mark} {broker_name} {record.queue_id} {offset}"
        found.append(Popped(record, handle))
    return found


async def pop(
    peer: Peer,
    group: str,
    topic: str,
    *,
    count: int = 32,
    queue_id: int = -1,
    invisible_ms: int = 30_000,
    wait_ms: int = 0,
    **more: Any,
) -> list[Popped]:
    fields = {"consumerGroup": group, "topic": topic, "queueId": queue_id, "maxMsgNums": count,
              "invisibleTime": invisible_ms, "pollTime": wait_ms, "bornTime": 17,
              "initMode": 0, **more}  # fmt: skip
    return popped_of(await peer.ask(200050, **fields))


async def acknowledge(peer: Peer, group: str, topic: str, *popped: Popped) -> list[int]:
    """The code for each."""
    return [(await peer.ask(200051, **each.named(group, topic))).code for each in popped]
