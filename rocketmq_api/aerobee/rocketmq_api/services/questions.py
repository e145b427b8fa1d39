"""RecoverOrphanedTransactionCommand: a producer is asked how its transaction ends, on its stream at
any node.

A client has streams at the brokers of its topics, and at the node whose address it was given. A
broker that stores a message asks on its own streams. So each node with producers of a topic opens a
client-like stream to the other brokers of the topic, names the topic there, and passes the
questions on. It does not answer itself: the client ends the transaction at any node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from aerobee.rocketmq_api.clients.producers import ProducerTable
from aerobee.rocketmq_api.ports import RouteSource
from aerobee.rocketmq_api.receiving.messages import MessageWriter, digest
from aerobee.rocketmq_api.request_limits import KEPT_NAMES_MAX
from aerobee.rocketmq_api.resources import stored_topic
from aerobee.rocketmq_api.rules.message_types import MessageType, accepted_types
from aerobee.rocketmq_api.rules.refusals import Refused
from aerobee.rocketmq_api.services.caller import Caller, passed_on_by
from aerobee.rocketmq_api.services.methods import TELEMETRY
from aerobee.rocketmq_api.services.peers import PeerStream, StreamingPeers
from aerobee.runtime.errors import AerobeeError
from aerobee.store.format.compression import BodyCorrupt, decompress
from aerobee.store.format.record import SYSFLAG_COMPRESSED
from aerobee.store.format.record_view import Record
from apache.rocketmq.v2 import definition_pb2 as v2
from apache.rocketmq.v2 import service_pb2

LOOK_S: Final = 5.0
"""How often the brokers of all topics are looked up; immediately when a topic is new here."""
LOOKS_PER_TURN: Final = 20
SETTLE_S: Final = 0.2
"""Producers often come many at a time."""
RETRY_S: Final = 1.0

Command = service_pb2.TelemetryCommand


class Questions:
    """For one node: who can be asked here, on its loop."""

    def __init__(self) -> None:
        self.clients = ProducerTable()
        self.nodes = ProducerTable()
        """Nodes that pass questions on. They are not asked for each other."""

    def table_of(self, caller: Caller) -> ProducerTable:
        """The table for the caller's stream: one opened by a node is marked as passed on."""
        return self.nodes if caller.was_forwarded else self.clients

    def sent(self, caller: Caller, topic: str, messages: Sequence[v2.Message]) -> None:
        """Messages of one topic, perhaps from transactions."""
        for message in messages:
            system = message.system_properties
            if system.message_type == v2.TRANSACTION:
                self.clients.sent(caller.client, topic, message.topic, system.message_id)

    def ask(self, topic: str, transaction_id: str, queue_id: int, record: Record) -> bool:
        """Whether a client is being asked about a half message stored here; `queue_id` is its
        target queue. Does not wait. Raises RecordCorrupt."""

        def make(resource: v2.Resource, needs_plain_body: bool) -> Command:
            command = Command()
            recover = command.recover_orphaned_transaction_command
            recover.transaction_id = transaction_id
            writer = MessageWriter(resource, needs_plain_body=needs_plain_body)
            writer.write(recover.message, record, attempt=1)
            recover.message.system_properties.queue_id = queue_id
            return command

        return self.clients.ask(topic, transaction_id, make) or self.nodes.ask(
            topic, transaction_id, make
        )

    def pass_on(self, command: Command) -> bool:
        """The same for another node's question, which names the topic as in the store. Raises
        Refused."""
        asked = command.recover_orphaned_transaction_command

        def make(resource: v2.Resource, needs_plain_body: bool) -> Command:
            made = Command()
            made.CopyFrom(command)
            message = made.recover_orphaned_transaction_command.message
            message.topic.CopyFrom(resource)
            if needs_plain_body and message.system_properties.body_encoding == v2.GZIP:
                _make_plain(message)
            return made

        topic = stored_topic(asked.message.topic)
        return self.clients.ask(topic, asked.transaction_id, make)


def _make_plain(message: v2.Message) -> None:
    with suppress(BodyCorrupt):
        message.body = decompress(message.body, SYSFLAG_COMPRESSED)
        message.system_properties.body_encoding = v2.IDENTITY
        message.system_properties.body_digest.checksum = digest(message.body)


class QuestionStreams:
    """The streams of one node to the brokers of its producers' topics, while `run` runs."""

    def __init__(
        self,
        node: str,
        questions: Questions,
        routes: RouteSource,
        here: Callable[[], str],
        peers: StreamingPeers,
    ) -> None:
        """`node`: a unique name among the nodes; `here`: the broker whose master this node is; "":
        of none."""
        self._node = node
        self._questions = questions
        self._routes = routes
        self._here = here
        self._peers = peers
        self._due = asyncio.Event()
        self._streams: dict[str, _QuestionStream] = {}
        """By address."""
        questions.clients.on_topics = self._due.set

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_S):
                        await self._due.wait()
                await asyncio.sleep(SETTLE_S)
                self._due.clear()
                wanted = await self._wanted()
                for address in self._streams.keys() - wanted.keys():
                    self._streams.pop(address).end()
                for address, topics in wanted.items():
                    stream = self._streams.get(address)
                    if stream is None:
                        stream = _QuestionStream(self._peers, address, self._node, self._asked)
                        stream.task = tasks.create_task(stream.run(), name=f"questions:{address}")
                        self._streams[address] = stream
                    stream.name(topics)

    async def _wanted(self) -> Mapping[str, frozenset[str]]:
        """By address, the topics of the broker there that have producers here."""
        found: dict[str, set[str]] = {}
        here = self._here()
        for number, topic in enumerate(sorted(self._questions.clients.topics), 1):
            if number % LOOKS_PER_TURN == 0:
                await asyncio.sleep(0)
            try:
                route = await self._routes.route(topic)
            except AerobeeError:
                continue
            if MessageType.TRANSACTION in accepted_types(route.attributes):
                for name, master in route.masters.items():
                    topics = found.setdefault(master.address, set())
                    if name != here and len(topics) < KEPT_NAMES_MAX:
                        topics.add(topic)
        return {address: frozenset(topics) for address, topics in found.items() if topics}

    def _asked(self, command: Command) -> None:
        # If nobody is left, the broker asks again.
        with suppress(Refused):
            self._questions.pass_on(command)


class _QuestionStream:
    """A stream to one broker, reopened when it breaks."""

    def __init__(
        self,
        peers: StreamingPeers,
        address: str,
        node: str,
        on_asked: Callable[[Command], None],
    ) -> None:
        self._peers = peers
        self._address = address
        self._metadata = passed_on_by(node)
        self._on_asked = on_asked
        self._topics: frozenset[str] = frozenset()
        self._changed = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    def name(self, topics: frozenset[str]) -> None:
        """The topics that have producers here."""
        if topics != self._topics:
            self._topics = topics
            self._changed.set()

    def end(self) -> None:
        """For good."""
        assert self.task is not None, "it runs"
        self.task.cancel()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._serve()  # a broker that is away asks nobody
            await asyncio.sleep(RETRY_S)

    async def _serve(self) -> None:
        stream = self._peers.open_stream(self._address, TELEMETRY, metadata=self._metadata)
        try:
            async with asyncio.TaskGroup() as tasks:
                naming = tasks.create_task(self._keep_naming(stream), name="question-topics")
                # A task group that fails forgets that it was cancelled.
                with suppress(AerobeeError):
                    await self._read(stream)
                naming.cancel()
        finally:
            stream.cancel()

    async def _keep_naming(self, stream: PeerStream[Command, Command]) -> None:
        with suppress(AerobeeError):  # the reader gets the same error
            while True:
                self._changed.clear()
                await stream.write(_naming(self._topics))
                await self._changed.wait()

    async def _read(self, stream: PeerStream[Command, Command]) -> None:
        while (command := await stream.read()) is not None:
            if command.WhichOneof("command") == "recover_orphaned_transaction_command":
                self._on_asked(command)
            del command


def _naming(topics: frozenset[str]) -> Command:
    command = Command()
    command.settings.client_type = v2.PRODUCER
    command.settings.publishing.topics.extend(v2.Resource(name=each) for each in sorted(topics))
    return command
