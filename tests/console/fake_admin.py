"""An `AdminClient` for pages: it answers from memory, counts what it is asked, and refuses what a
test says."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from aerobee import (
    Broker,
    BrokerGroup,
    ClusterState,
    DeletedGroup,
    Group,
    GroupQueueState,
    GroupSummary,
    Member,
    MessageQueue,
    QueueBounds,
    ReceivedMessage,
)
from aerobee.access.credentials import Anonymous, Credentials, user_credentials
from aerobee.client_core.admin_access import AccessAnswer, NewSecret, Policy, User
from aerobee.client_core.admin_topics import Topic, TopicDescription, TopicQueue
from aerobee.client_core.audit_logs import AuditLine, AuditLines
from aerobee.client_core.broker_groups import BrokerGroupState
from aerobee.client_core.connected_clients import ConnectedClient, ConnectedClients
from aerobee.client_core.dead_letters import Letter, LetterFilter
from aerobee.client_core.group_summaries import GroupSummaries
from aerobee.client_core.master_search import AnswerList
from aerobee.client_core.message import Message
from aerobee.client_core.messages import FoundMessages, QueueMessages, SentMessage
from aerobee.client_core.recurring import RecurringSchedule
from aerobee.client_core.schedules import WaitingMessage, WaitingMessages
from aerobee.client_core.transactions import OpenTransaction, OpenTransactions
from aerobee.runtime import errors
from aerobee.store.format.dead_letter_fields import read_dead_letter
from aerobee.store.format.properties import encode_properties
from aerobee.store.format.record import HostAddress, Record, encode_record

NASTY = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>\u202e"
"""What an attacker would like to see in a page as it is."""
NO_LINES = AuditLines((), {}, "", {}, (), {})
HOST = HostAddress.parse("127.0.0.1:1")
A_SECRET = NewSecret(User("grace", False, True, 1, ()), "the-new-secret")


def summary(name: str, unread: int | None = 0, **others: Any) -> GroupSummary:
    values: dict[str, Any] = {
        "members": 0,
        "topics": 1,
        "unread_min": unread or 0,
        "in_flight": 0,
        "oldest_age_ms": 0,
        "dead_letters": 0,
    }
    return GroupSummary(name=name, unread=unread, **(values | others))


def message(
    topic: str = "orders",
    body: bytes = b"{}",
    offset: int = 0,
    more: Mapping[str, str] | None = None,
    **properties: str,
) -> ReceivedMessage:
    record = bytearray(
        encode_record(
            topic=topic.encode(),
            body=body,
            properties=encode_properties({"UNIQ_KEY": "ID-1", **properties, **(more or {})}),
            born_timestamp_ms=1_700_000_000_000,
            born_host=HOST,
        )
    )
    record[20:28] = offset.to_bytes(8, "big")
    return ReceivedMessage(Record(bytes(record)), MessageQueue(topic, "broker-a", 0))


def letter(offset: int, **properties: str) -> Letter:
    dead = message("%DLQ%g", b"dead", offset, properties)
    return Letter(dead, read_dead_letter(dead.record))


class FoundLetters:
    """As the real one."""

    def __init__(self, letters: Iterable[Letter], unanswered: tuple[str, ...]) -> None:
        self._letters = letters
        self.unanswered = unanswered

    async def __aiter__(self) -> AsyncIterator[Letter]:
        for each in self._letters:
            yield each


@dataclass
class Cluster:
    """What all clients of a test see."""

    users: dict[str, str] = field(default_factory=dict)
    """Secrets by access key; none: no access control."""
    summaries: tuple[GroupSummary, ...] = ()
    groups: dict[str, Group] = field(default_factory=dict)
    topics: dict[str, Topic] = field(default_factory=dict)
    bounds: dict[MessageQueue, QueueBounds] = field(default_factory=dict)
    messages: list[ReceivedMessage] = field(default_factory=list)
    letters: list[Letter] = field(default_factory=list)
    waiting: tuple[WaitingMessage, ...] = ()
    open: tuple[OpenTransaction, ...] = ()
    recurring: tuple[RecurringSchedule, ...] = ()
    clients: tuple[ConnectedClient, ...] = ()
    people: tuple[User, ...] = ()
    """Users, as the page of users shows them."""
    policies: tuple[Policy, ...] = ()
    audit: AuditLines = NO_LINES
    committed: dict[MessageQueue, int | None] = field(default_factory=dict)
    unanswered: tuple[str, ...] = ()
    refused: dict[str, errors.AerobeeError] = field(default_factory=dict)
    """By the name of a call."""
    asked: list[str] = field(default_factory=list)
    changes: list[tuple[str, Any]] = field(default_factory=list)
    wanted: list[dict[str, Any]] = field(default_factory=list)
    """What was asked of the audit log."""
    opened: int = 0

    def client(self, credentials: Credentials) -> Any:
        return FakeAdmin(self, credentials)


def a_schedule(name: str, **others: Any) -> RecurringSchedule:
    values: dict[str, Any] = {
        "message": Message("orders", b"tick"),
        "broker_name": "broker-a",
        "cron": "",
        "zone": "UTC",
        "every_ms": 60_000,
        "from_ms": 0,
        "until_ms": 0,
        "max_runs": 0,
        "missed": "skip",
        "is_paused": False,
        "next_ms": 1_900_000_000_000,
        "runs": 3,
        "missed_runs": 0,
        "last_ms": 1_700_000_000_000,
        "trouble": "",
        "created_ms": 1_600_000_000_000,
        "revision": 1,
    }
    return RecurringSchedule(name=name, **(values | others))


def an_audit_line(**others: Any) -> AuditLine:
    values: dict[str, Any] = {
        "time": "2026-11-26T22:42:35.702Z",
        "node": "nameserver:10.0.3.2:8081",
        "event": "act",
        "caller": "user ada",
        "method": "CreateTopic",
        "result": "ok",
        "content": {"from": "10.0.0.7:1", "needs": ["Create on Topic:orders"]},
        "text": "{}",
    }
    return AuditLine(**(values | others))


def a_client(client_id: str, **others: Any) -> ConnectedClient:
    values: dict[str, Any] = {
        "group": "g",
        "protocol": "aerobee",
        "kind": "consumer",
        "language": "PYTHON",
        "version": "0.2.0",
        "addresses": ("10.0.0.7:4711",),
        "last_heard_age_ms": 900,
        "topics": ("orders",),
        "topics_count": 1,
        "queues_held": 2,
        "user": "",
    }
    return ConnectedClient(client_id=client_id, **(values | others))


def a_group(name: str, *, lag: int = 3, members: Sequence[Member] = ()) -> Group:
    state = GroupQueueState(MessageQueue("orders", "broker-a", 0), None, 0, 5, 0, 5 + lag)
    return Group(name, tuple(members), (state,), {})


class Part:
    """One subject; each call is counted, and refused if the test says so."""

    def __init__(self, admin: FakeAdmin, calls: Mapping[str, Callable[..., Any]]) -> None:
        self._admin = admin
        self._calls = calls

    def __getattr__(self, name: str) -> Callable[..., Any]:
        call = self._calls[name]

        async def asked(*args: Any, **kwargs: Any) -> Any:
            self._admin.check(name)
            return call(*args, **kwargs)

        return asked


class Letters:
    """`find` is no coroutine."""

    def __init__(self, admin: FakeAdmin) -> None:
        self._admin = admin
        cluster = admin.seen
        self._settle = Part(
            admin,
            {
                "resend": lambda group, letters, to_all_groups=False: self._done(
                    "resend", [*letters, to_all_groups]
                )[:-1],
                "drop": lambda group, letters: self._done("drop", letters),
            },
        )
        self._cluster = cluster

    def find(self, group: str, wanted: LetterFilter | None = None) -> FoundLetters:
        self._admin.check("find")
        wanted = wanted or LetterFilter()
        found = [each for each in self._cluster.letters if wanted.selects(each)]
        return FoundLetters(found, self._cluster.unanswered)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._settle, name)

    def _done(self, act: str, letters: Sequence[Any]) -> list[Any]:
        self._cluster.changes.append((act, list(letters)))
        return [None for _ in letters]


class FakeAdmin:
    """One client."""

    def __init__(self, seen: Cluster, credentials: Credentials) -> None:
        self.seen = seen
        self._credentials = credentials
        self.groups = Part(
            self,
            {
                "summaries": self._summaries,
                "describe": self._describe,
                "delete": lambda name, force=False: self._changed(
                    "delete group", (name, force), DeletedGroup(4, 1)
                ),
                "configure": lambda name, **wanted: self._changed("configure", (name, wanted), {}),
            },
        )
        self.topics = Part(
            self,
            {
                "list": lambda: AnswerList(seen.topics.values()),
                "describe": self._topic,
                "create": self._created,
                "delete": lambda name: self._changed("delete topic", name, None),
                "update": lambda name, **wanted: self._changed("update", (name, wanted), None),
            },
        )
        self.clients = Part(self, {"list": self._clients})
        self.users = Part(
            self,
            {
                "list": lambda: list(seen.people),
                "create": lambda name, **_: self._changed("create user", name, A_SECRET),
                "enable": lambda name, on=True: self._changed("enable", (name, on), None),
                "rotate": lambda name: self._changed("rotate", name, A_SECRET),
                "forget_former_secret": lambda name: self._changed("forget", name, None),
                "delete": lambda name: self._changed("delete user", name, None),
            },
        )
        self.policies = Part(
            self,
            {
                "list": lambda user="": [each for each in seen.policies if each.user == user],
                "put": lambda policy: self._changed("put", policy, None),
                "remove": lambda user, resource, is_default=False: self._changed(
                    "remove policy", (user, resource), None
                ),
                "test": lambda user, resource, actions, source="": AccessAnswer(
                    False, f"no policy of {user} allows {actions} on {resource}"
                ),
            },
        )
        self.offsets = Part(
            self,
            {
                "bounds": lambda queues, of_master=False: {
                    each: seen.bounds[each] for each in queues
                },
                "bounds_by_broker": self._bounds,
                "committed": lambda group, queues: {
                    each: seen.committed.get(each) for each in queues
                },
                "reset": lambda group, offsets: seen.changes.append(("reset", dict(offsets))),
            },
        )
        self.messages = Part(
            self,
            {
                "by_key": self._found,
                "by_unique_key": self._found,
                "from_queue": self._from_queue,
                "send": lambda message: self._changed(
                    "send", message, SentMessage("ID-9", MessageQueue(message.topic, "b", 0), 4)
                ),
            },
        )
        self.dead_letters = Letters(self)
        self.schedules = Part(
            self,
            {
                "list": lambda topic="", **_: WaitingMessages(seen.waiting, False, seen.unanswered),
                "recall": lambda handle: seen.changes.append(("recall", handle)),
                "deliver_now": lambda handle: seen.changes.append(("now", handle)),
                "move": lambda handle, at: seen.changes.append(("move", (handle, at))),
                "recurring": lambda topic="", name="": AnswerList(
                    [each for each in seen.recurring if name in ("", each.name)], seen.unanswered
                ),
                "find": self._schedule,
                "add": lambda name, message, **_: self._changed(
                    "add", name, a_schedule(name, message=message)
                ),
                "change": lambda name, **_: self._changed("change", name, a_schedule(name)),
                "pause": lambda name: self._changed("pause", name, None),
                "resume": lambda name: self._changed("resume", name, None),
                "run_now": lambda name: self._changed("run", name, None),
                "remove": lambda name: self._changed("remove", name, None),
            },
        )
        self.transactions = Part(
            self,
            {
                "list": lambda topic="", **_: OpenTransactions(seen.open, False, seen.unanswered),
                "check": lambda topic, name: self._changed("check", name, True),
                "commit": lambda topic, name: seen.changes.append(("commit", name)),
                "rollback": lambda topic, name: seen.changes.append(("rollback", name)),
            },
        )
        self.audit_log = Part(self, {"last": self._audit_lines})
        self.brokers = Part(
            self, {"statistics": self._no_statistics, "check_audit": lambda address: None}
        )

    def _audit_lines(self, **wanted: Any) -> AuditLines:
        self.seen.wanted.append(wanted)
        return self.seen.audit

    def check(self, name: str) -> None:
        """Raises what the test wants."""
        self.seen.asked.append(name)
        if self.seen.users:
            if isinstance(self._credentials, Anonymous):
                raise errors.Unauthenticated("the call does not say who makes it")
            if not self._is_known():
                raise errors.Unauthenticated("unknown user")
        if name in self.seen.refused:
            raise self.seen.refused[name]

    def _is_known(self) -> bool:
        """Whether the signature is one of a user's, made now."""
        for pair in self.seen.users.items():
            known = user_credentials(*pair)
            possible = [known.metadata("/")]
            given = self._credentials.metadata("/")
            possible.append(known.metadata("/"))  # the second may have changed
            if given in possible:
                return True
        return False

    async def cluster(self) -> ClusterState:
        self.check("cluster")
        broker = Broker(
            "broker-a", 0, "127.0.0.1:1", True, True, "well", 1, None, True, "", "", "", ""
        )
        group = BrokerGroup("broker-a", BrokerGroupState.OPEN, 1, 0, (0,), (0, 1), ())
        return ClusterState("aerobee", (broker,), (group,), "", False)

    async def __aenter__(self) -> Self:
        self.seen.opened += 1
        return self

    async def __aexit__(self, *_: object) -> None:
        self.seen.opened -= 1

    def _changed(self, act: str, what: Any, answer: Any) -> Any:
        self.seen.changes.append((act, what))
        return answer

    def _created(self, name: str, **wanted: Any) -> Topic:
        self.seen.changes.append(("create", (name, wanted)))
        return Topic(name, {"broker-a": wanted["queues"] or 4}, "rw", False, {})

    def _schedule(self, name: str) -> RecurringSchedule:
        for each in self.seen.recurring:
            if each.name == name:
                return each
        raise errors.ScheduleNotFound(f"there is no schedule {name!r}")

    def _clients(
        self, search: str, *, after: tuple[str, str] | None, max_clients: int
    ) -> ConnectedClients:
        found = [each for each in self.seen.clients if after is None or each.place > after]
        found = [each for each in found if search in each.client_id]
        some = tuple(found[:max_clients])
        return ConnectedClients(some, len(some) < len(found), self.seen.unanswered)

    def _summaries(
        self, *, topic: str = "", group: str = "", with_own: bool = False
    ) -> GroupSummaries:
        found = tuple(each for each in self.seen.summaries if group in ("", each.name))
        return GroupSummaries(found, self.seen.unanswered, 1_500)

    def _describe(self, name: str) -> Group:
        if name not in self.seen.groups:
            raise errors.GroupNotFound(f"no broker knows group {name!r}")
        return self.seen.groups[name]

    def _topic(self, name: str) -> TopicDescription:
        if name not in self.seen.topics:
            raise errors.TopicNotFound(f"there is no topic {name!r}")
        queues = tuple(TopicQueue(each, "127.0.0.1:1") for each in sorted(self.seen.bounds))
        return TopicDescription(name, "rw", False, {"note": NASTY}, queues)

    def _bounds(self, queues: Sequence[MessageQueue]) -> Any:
        found = {each: self.seen.bounds[each] for each in queues if each in self.seen.bounds}
        return found, self.seen.unanswered

    def _found(self, topic: str, key: str, **_: Any) -> FoundMessages:
        found = tuple(each for each in self.seen.messages if each.topic == topic)
        return FoundMessages(found, False, self.seen.unanswered)

    def _from_queue(self, queue: MessageQueue, offset: int, **_: Any) -> QueueMessages:
        found = [
            each
            for each in self.seen.messages
            if each.queue == queue and each.queue_offset >= offset
        ]
        return QueueMessages(tuple(found), offset + len(found), 100)

    def _no_statistics(self, address: str) -> Any:
        raise errors.Unreachable(f"{address} does not answer")
