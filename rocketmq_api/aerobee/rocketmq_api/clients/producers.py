"""Which clients can be asked how a transaction ends: those with a stream that have said, or shown,
that they send to its topic.

    1  who named the topic in its settings, each in its turn
    2  who sent the message: some name a topic minutes later, some never
    3  who sent another message of a transaction to the topic

A client's topics outlive its stream for a while: some open another one and send their settings
minutes later. Nothing here is stored. Clients are known by their keys (`table.client_key`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, KeysView, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from apache.rocketmq.v2 import definition_pb2 as v2
from apache.rocketmq.v2 import service_pb2

TOPICS_MAX: Final = 1_024
"""Topics kept for one client."""
AWAY_MAX: Final = 10_000
"""Clients without a stream."""
SENDERS_MAX: Final = 10_000
"""Messages whose senders are remembered."""
TRIES_MAX: Final = 8
"""Clients whose streams are full."""


class CommandStream(Protocol):
    """On which a client takes commands."""

    @property
    def may_send(self) -> Callable[[str], bool]:
        """Whether its user may send to a topic now. Only then may it see the topic's messages."""
        ...

    def offer(self, command: service_pb2.TelemetryCommand) -> bool:
        """Whether it accepts one now. Does not wait."""
        ...


@dataclass(slots=True)
class _Producer:
    needs_plain_body: bool = False
    named: dict[str, v2.Resource] = field(default_factory=dict)
    """As named by the client, by the name in the store."""
    shown: dict[str, v2.Resource] = field(default_factory=dict)


MakeCommand = Callable[[v2.Resource, bool], service_pb2.TelemetryCommand]
"""Makes the command from the topic as the client names it, and whether it needs a plain body."""

_Turns = dict[str, OrderedDict[str, None]]


class ProducerTable:
    """The producers of one node, on its loop."""

    def __init__(self, *, on_topics: Callable[[], None] = lambda: None) -> None:
        """`on_topics` is called when `topics` may have changed."""
        self.on_topics = on_topics
        self._streams: dict[str, CommandStream] = {}
        self._here: dict[str, _Producer] = {}
        """Those with a stream."""
        self._away: OrderedDict[str, _Producer] = OrderedDict()
        self._named: _Turns = {}
        """By topic, the producers with a stream; the next one first."""
        self._shown: _Turns = {}
        self._senders: OrderedDict[tuple[str, str], str] = OrderedDict()

    def __repr__(self) -> str:
        return (
            f"ProducerTable(here={sorted(self.clients)}, away={len(self._away)}, "
            f"senders={len(self._senders)})"
        )

    @property
    def clients(self) -> KeysView[str]:
        """Those with a stream."""
        return self._streams.keys()

    # ---------------------------------------------------------------------- what clients do

    def stream_began(self, client: str, stream: CommandStream) -> None:
        """The stream on which it accepts commands from now on."""
        self._streams[client] = stream
        if client not in self._here:
            producer = self._here[client] = self._away.pop(client, _Producer())
            self._enter(client, producer)

    def stream_ended(self, client: str, stream: CommandStream) -> None:
        """Another stream may have replaced it."""
        if self._streams.get(client) is not stream:
            return
        del self._streams[client]
        producer = self._here.pop(client)
        self._leave(client, producer)
        if producer.named or producer.shown:
            self._put_away(client, producer)

    def told(
        self, client: str, topics: Mapping[str, v2.Resource], *, needs_plain_body: bool
    ) -> None:
        """Its settings, which replace its earlier ones. A consumer names no topics."""
        producer = self._here.get(client)
        if producer is None:
            return  # its stream has just ended
        self._leave(client, producer)
        producer.needs_plain_body = needs_plain_body
        producer.named = dict(list(topics.items())[:TOPICS_MAX])
        self._enter(client, producer)

    def sent(self, client: str, topic: str, resource: v2.Resource, message_id: str) -> None:
        """It sent a message of a transaction."""
        self._senders[topic, message_id] = client
        if len(self._senders) > SENDERS_MAX:
            self._senders.popitem(last=False)
        producer = self._here.get(client) or self._away.get(client)
        if producer is None:
            producer = _Producer()
            self._put_away(client, producer)
        if topic in producer.shown or len(producer.shown) >= TOPICS_MAX:
            return
        kept = v2.Resource()
        kept.CopyFrom(resource)
        producer.shown[topic] = kept
        if client in self._here:
            self._enter(client, producer)

    def left(self, client: str) -> None:
        """It terminated."""
        self._away.pop(client, None)
        producer = self._here.get(client)
        if producer is not None:
            self._leave(client, producer)
            producer.named, producer.shown = {}, {}

    # ---------------------------------------------------------------------- asking

    @property
    def topics(self) -> set[str]:
        """The topics of everyone that can be asked."""
        return self._named.keys() | self._shown.keys()

    def ask(self, topic: str, transaction_id: str, make: MakeCommand) -> bool:
        """Whether a client accepts the command. Does not wait."""
        for tries, client in enumerate(self._candidates(topic, transaction_id)):
            if tries == TRIES_MAX:
                return False
            if not self._streams[client].may_send(topic):
                continue
            producer = self._here[client]
            resource = producer.named.get(topic) or producer.shown[topic]
            if self._streams[client].offer(make(resource, producer.needs_plain_body)):
                return True
        return False

    def _candidates(self, topic: str, transaction_id: str) -> Iterator[str]:
        yield from _in_turn(self._named.get(topic))
        sender = self._senders.get((topic, transaction_id), "")
        if sender in self._here and topic in self._here[sender].shown:
            yield sender
        yield from _in_turn(self._shown.get(topic))

    # ---------------------------------------------------------------------- inside

    def _enter(self, client: str, producer: _Producer) -> None:
        for turns, topics in ((self._named, producer.named), (self._shown, producer.shown)):
            for topic in topics:
                if topic not in turns:
                    turns[topic] = OrderedDict()
                    self.on_topics()
                turns[topic][client] = None

    def _leave(self, client: str, producer: _Producer) -> None:
        for turns, topics in ((self._named, producer.named), (self._shown, producer.shown)):
            for topic in topics:
                clients = turns[topic]
                clients.pop(client, None)
                if not clients:
                    del turns[topic]
                    self.on_topics()

    def _put_away(self, client: str, producer: _Producer) -> None:
        self._away[client] = producer
        self._away.move_to_end(client)
        if len(self._away) > AWAY_MAX:
            self._away.popitem(last=False)


def _in_turn(clients: OrderedDict[str, None] | None) -> Iterator[str]:
    if clients is None:
        return
    for _ in range(min(len(clients), TRIES_MAX)):
        client = next(iter(clients))
        clients.move_to_end(client)
        yield client
