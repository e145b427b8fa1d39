"""The official clients known to a node, by user and client id.

Every call says something about its client, including calls that another node passed on. Nothing
here is stored: a node that restarts, or becomes master, hears of all living clients within a
minute.

Owns: which clients there are, which of them are in a group, and how long a message stays with its
client. Invariants: a living client is never taken for gone because this node has not heard of it
yet, or because the wall clock was set; two users with one client id are two clients, and neither
moves or hides the other's; the number of clients and what is kept about each are bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from aerobee.domain.sql_filter.expression import SqlExpression
from aerobee.domain.sql_filter.wish import Wish
from aerobee.rocketmq_api.clients.settings import Registration
from aerobee.rocketmq_api.rules.renewal import Holder, RenewalRules, visible_ms
from aerobee.runtime.clock import Clock
from apache.rocketmq.v2 import definition_pb2 as v2

SILENCE_S_MAX: Final = 120
"""After this a client is forgotten; its messages were redelivered before."""
CLIENTS_MAX: Final = 20_000
SUBSCRIBED_LENGTH_MAX: Final = 4_096
"""Characters of topics and filters that are kept for one client."""
BROKERS_MAX: Final = 64
"""Brokers to which one client's calls were passed on."""

_WORD_LENGTH_MAX: Final = 64
_HEARD_S_STEP: Final = 1
_TELL_S: Final = 10

Subscriptions = Mapping[str, tuple[str, ...] | str | None]
"""What is wanted from each topic: one of some tags, what an SQL expression is true for, or all."""


def client_key(user: str, client_id: str) -> str:
    """The key of a client in all tables: clients choose their ids, and nothing stops two users from
    choosing the same. Without access control, everyone that uses an id is that client."""
    # No user's name contains a slash.
    return f"{user}/{client_id}" if user else client_id


@dataclass(slots=True)
class PassedTo:
    """A broker that has received calls of a client of this node."""

    topic: str
    """A topic with queues there: its route says where the broker is now."""
    told_s: float
    """When this node last told it about the client, on the monotonic clock."""


@dataclass(slots=True)
class Client:
    """What is known about one client. Read-only for callers."""

    client_id: str
    language: str
    version: str
    peer: str
    """Its address in gRPC's notation."""
    heard_s: float
    """On the monotonic clock, at most a second too early."""
    kind: v2.ClientType = v2.CLIENT_TYPE_UNSPECIFIED
    group: str = ""
    """As in the store; empty: none is known."""
    subscriptions: Subscriptions = field(default_factory=dict)
    """As much as is kept."""
    gone_s: float | None = None
    has_left: bool = False
    """It terminated, so late answers do not bring it back."""
    passed_to: dict[str, PassedTo] = field(default_factory=dict)
    """By broker name."""
    user: str = ""
    """Empty without access control."""

    @property
    def key(self) -> str:
        return client_key(self.user, self.client_id)

    @property
    def kind_name(self) -> str:
        """For display, such as `push consumer`."""
        kind = v2.ClientType.Name(self.kind) if self.kind else "client"
        return kind.replace("_", " ").lower()

    @property
    def title(self) -> str:
        """For display, such as `push consumer, JAVA 5.0.8`."""
        said = (self.kind_name, f"{self.language} {self.version}".strip())
        return ", ".join(part for part in said if part)


class ClientTable:
    """The clients of one node, on its loop."""

    def __init__(
        self,
        clock: Clock,
        *,
        rules: RenewalRules | None = None,
        clients_max: int = CLIENTS_MAX,
        on_gone: Callable[[str], None] = lambda client: None,
    ) -> None:
        """`on_gone` is called with the key of each client that leaves before its time is over. This
        makes `held_until_ms` of its messages earlier."""
        self._clock = clock
        self._rules = rules or RenewalRules()
        self._clients_max = clients_max
        self.on_gone = on_gone
        self._clients: dict[str, Client] = {}
        """By key. The one silent for longest comes first."""
        self._of_users: dict[str, dict[str, None]] = {}
        """The keys of each user's clients, in the same order."""
        self._groups: dict[str, dict[str, None]] = {}
        self._streams: dict[str, object] = {}
        self._began_s = clock.monotonic_s()

    def __len__(self) -> int:
        return len(self._clients)

    def begin(self) -> None:
        """This node becomes master: until now clients may have called other nodes."""
        self._began_s = self._clock.monotonic_s()

    # ---------------------------------------------------------------------- what clients do

    def heard(
        self, client_id: str, language: str, version: str, peer: str, user: str = ""
    ) -> Client:
        """Any call."""
        now_s = self._clock.monotonic_s()
        key = client_key(user, client_id)
        client = self._clients.get(key)
        if client is None:
            self._make_room(now_s)
            client = Client(
                client_id,
                language[:_WORD_LENGTH_MAX],
                version[:_WORD_LENGTH_MAX],
                peer[:_WORD_LENGTH_MAX],
                now_s,
                user=user,
            )
            self._clients[key] = client
            self._of_users.setdefault(user, {})[key] = None
            return client
        if not client.has_left:
            client.gone_s = None
        if now_s - client.heard_s >= _HEARD_S_STEP:
            client.heard_s = now_s
            client.peer = peer[:_WORD_LENGTH_MAX]
            self._clients[key] = self._clients.pop(key)
            mine = self._of_users[user]
            mine[key] = mine.pop(key)
            self._expire(now_s)
        return client

    def registered(self, client: Client, registration: Registration) -> None:
        """Its settings, which replace what was known."""
        self._returned(client)
        client.kind = registration.client_type
        client.subscriptions = _kept(registration.subscriptions)
        self._join(client, registration.group)

    def takes_part(self, client: Client, kind: v2.ClientType, group: str) -> None:
        """A call that says less than settings do, such as a heartbeat. Settings take precedence; an
        unknown kind counts as none."""
        self._returned(client)
        if client.kind == v2.CLIENT_TYPE_UNSPECIFIED and kind in v2.ClientType.values():
            client.kind = kind
        if not client.group:
            self._join(client, group)

    def left(self, client: Client) -> None:
        """It terminated."""
        client.has_left = True
        self._leave_group(client)
        client.group = ""
        client.kind = v2.CLIENT_TYPE_UNSPECIFIED
        client.subscriptions = {}
        self._went(client)

    def stream_began(self, key: str, stream: object) -> None:
        """The stream on which it accepts commands from now on."""
        self._streams[key] = stream

    def stream_ended(self, key: str, stream: object, *, by_client: bool) -> None:
        """`by_client`: the client closed it, or its connection broke, as happens when a client is
        killed. Its next call brings it back."""
        if self._streams.get(key) is not stream:
            return
        del self._streams[key]
        client = self._clients.get(key)
        if by_client and client is not None:
            self._went(client)

    # ---------------------------------------------------------------------- who is known

    def get(self, key: str) -> Client | None:
        """None: it is not known any more, or not yet."""
        self._expire(self._clock.monotonic_s())
        return self._clients.get(key)

    def groups(self) -> list[str]:
        """Those that have members."""
        self._expire(self._clock.monotonic_s())
        return [
            group
            for group, members in self._groups.items()
            if any(self._clients[each].gone_s is None for each in members)
        ]

    def present(self) -> list[Client]:
        """All, without those that have left."""
        self._expire(self._clock.monotonic_s())
        return [client for client in self._clients.values() if client.gone_s is None]

    def members(self, group: str) -> list[Client]:
        """By key, without those that have left."""
        self._expire(self._clock.monotonic_s())
        found = (self._clients[each] for each in sorted(self._groups.get(group, ())))
        return [client for client in found if client.gone_s is None]

    def held_until_ms(self, key: str, taken_ms: int) -> int:
        """Until when, in Unix ms, a message stays with the client that took it, as far as is known
        now.

        Moves later when the client is heard again: ask again then. Moves earlier only if it leaves,
        which `on_gone` reports.
        """
        # On the scale of `taken_ms`, but unaffected when that clock is set.
        offset_ms = self._clock.now_ms() - self._clock.monotonic_s() * 1_000
        began_ms = int(self._began_s * 1_000 + offset_ms)
        client = self._clients.get(key)
        holder: Holder | None = None
        if client is not None:
            heard_ms = int(client.heard_s * 1_000 + offset_ms)
            gone_s = client.gone_s
            gone_ms = None if gone_s is None else int(gone_s * 1_000 + offset_ms)
            holder = Holder(max(heard_ms, began_ms), gone_ms)
        elif self._clock.now_ms() < began_ms + self._rules.silence_ms_max:
            holder = Holder(began_ms)
        return visible_ms(taken_ms, holder, self._rules)

    # ---------------------------------------------------------------------- other nodes

    def passed_on(self, client: Client, broker_name: str, topic: str) -> None:
        """A call of the client goes to another broker, which thereby hears of the client."""
        now_s = self._clock.monotonic_s()
        known = client.passed_to.get(broker_name)
        if known is not None:
            known.told_s = now_s
        elif len(client.passed_to) < BROKERS_MAX:
            client.passed_to[broker_name] = PassedTo(topic, now_s)

    def to_tell(self, client: Client) -> list[tuple[str, str]]:
        """Brokers, with a topic of each, that have not been told about the client by this node for
        10 s. They then count as told."""
        now_s = self._clock.monotonic_s()
        due: list[tuple[str, str]] = []
        for broker_name, passed in client.passed_to.items():
            if now_s - passed.told_s >= _TELL_S:
                passed.told_s = now_s
                due.append((broker_name, passed.topic))
        return due

    # ---------------------------------------------------------------------- inside

    def _returned(self, client: Client) -> None:
        client.has_left = False
        client.gone_s = None

    def _went(self, client: Client) -> None:
        client.gone_s = self._clock.monotonic_s()
        self.on_gone(client.key)

    def _join(self, client: Client, group: str) -> None:
        if client.group != group:
            self._leave_group(client)
            client.group = group
            if group:
                self._groups.setdefault(group, {})[client.key] = None

    def _leave_group(self, client: Client) -> None:
        members = self._groups.get(client.group)
        if members is not None:
            members.pop(client.key, None)
            if not members:
                del self._groups[client.group]

    def _make_room(self, now_s: float) -> None:
        self._expire(now_s)
        if len(self._clients) >= self._clients_max:
            # Those who invent clients lose their own.
            most = max(self._of_users.values(), key=len)
            self._forget(next(iter(most)))

    def _expire(self, now_s: float) -> None:
        while self._clients:
            key, client = next(iter(self._clients.items()))
            if client.heard_s > now_s - SILENCE_S_MAX:
                return
            self._forget(key)

    def _forget(self, key: str) -> None:
        client = self._clients.pop(key)
        self._leave_group(client)
        of_user = self._of_users[client.user]
        del of_user[key]
        if not of_user:
            del self._of_users[client.user]


def _kept(subscriptions: Mapping[str, Wish]) -> Subscriptions:
    """Only the text of an expression: compiled ones of many clients would take much memory."""
    kept: dict[str, tuple[str, ...] | str | None] = {}
    length = 0
    for topic, wish in subscriptions.items():
        said = wish.text if isinstance(wish, SqlExpression) else wish
        length += len(topic) + sum(map(len, said or ()))
        if length > SUBSCRIBED_LENGTH_MAX:
            break
        kept[topic] = said
    return kept
