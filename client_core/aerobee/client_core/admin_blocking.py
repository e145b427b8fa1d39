"""Administration for code without an event loop: the parts of an `AdminClient`, blocking.

Each method is made from its asynchronous twin, so that arguments, result and documentation are the
same; a test holds that none is missing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Never, ParamSpec, TypeVar

from aerobee.access.credentials import Credentials
from aerobee.client_core.admin_access import PolicyAdmin, QuotaAdmin, UserAdmin
from aerobee.client_core.admin_brokers import BrokerAdmin
from aerobee.client_core.admin_client import AWAIT_CLUSTER_MS, TIMEOUT_S, AdminClient
from aerobee.client_core.admin_cluster import ClusterState
from aerobee.client_core.admin_groups import GroupAdmin
from aerobee.client_core.admin_topics import TopicAdmin
from aerobee.client_core.audit_logs import AuditLogAdmin
from aerobee.client_core.broker_groups import BrokerGroups
from aerobee.client_core.connected_clients import ClientAdmin
from aerobee.client_core.dead_letters import DeadLetters, FoundLetters, Letter, LetterFilter
from aerobee.client_core.loop_thread import BlockingClient, LoopThread
from aerobee.client_core.messages import Messages
from aerobee.client_core.offsets import Offsets
from aerobee.client_core.schedules import Schedules
from aerobee.client_core.transactions import Transactions
from aerobee.rpc.tls_config import TlsConfig

P = ParamSpec("P")
T = TypeVar("T")
Part = TypeVar("Part")


class BlockingPart(Generic[Part]):
    """One subject of a `BlockingAdminClient`."""

    def __init__(
        self, thread: LoopThread[AdminClient], part: Callable[[AdminClient], Part]
    ) -> None:
        self._thread = thread
        self._part = part


def _blocking(
    method: Callable[Concatenate[Part, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[BlockingPart[Part], P], T]:
    @wraps(method)
    def call(self: BlockingPart[Part], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._thread.call(lambda admin: method(self._part(admin), *args, **kwargs))

    return call


class BlockingFoundLetters:
    """`FoundLetters`, for one `for`."""

    def __init__(self, thread: LoopThread[AdminClient], found: FoundLetters) -> None:
        self._thread = thread
        self._found = found

    def __iter__(self) -> Iterator[Letter]:
        letters = aiter(self._found)
        while some := self._thread.call(lambda _: _next_of(letters)):
            yield from some

    @property
    def unanswered(self) -> tuple[str, ...]:
        """Broker groups that could not be asked so far; their letters, or the rest of them, are
        missing."""
        return self._found.unanswered


async def _next_of(letters: AsyncIterator[Letter]) -> list[Letter]:
    """Empty: there are no more."""
    async for letter in letters:
        return [letter]
    return []


class BlockingTopicAdmin(BlockingPart[TopicAdmin]):
    """`TopicAdmin`, blocking."""

    create = _blocking(TopicAdmin.create)
    update = _blocking(TopicAdmin.update)
    spread = _blocking(TopicAdmin.spread)
    remove_retired = _blocking(TopicAdmin.remove_retired)
    delete = _blocking(TopicAdmin.delete)
    get = _blocking(TopicAdmin.get)
    list = _blocking(TopicAdmin.list)
    describe = _blocking(TopicAdmin.describe)
    schema = _blocking(TopicAdmin.schema)
    set_schema = _blocking(TopicAdmin.set_schema)


class BlockingGroupAdmin(BlockingPart[GroupAdmin]):
    """`GroupAdmin`, blocking."""

    list = _blocking(GroupAdmin.list)
    summaries = _blocking(GroupAdmin.summaries)
    describe = _blocking(GroupAdmin.describe)
    describe_all = _blocking(GroupAdmin.describe_all)
    removed_unread = _blocking(GroupAdmin.removed_unread)
    configure = _blocking(GroupAdmin.configure)
    delete = _blocking(GroupAdmin.delete)
    committed_offsets = _blocking(GroupAdmin.committed_offsets)
    delete_offsets = _blocking(GroupAdmin.delete_offsets)


class BlockingOffsets(BlockingPart[Offsets]):
    """`Offsets`, blocking."""

    bounds = _blocking(Offsets.bounds)
    bounds_by_broker = _blocking(Offsets.bounds_by_broker)
    by_timestamp = _blocking(Offsets.by_timestamp)
    committed = _blocking(Offsets.committed)
    reset = _blocking(Offsets.reset)


class BlockingMessages(BlockingPart[Messages]):
    """`Messages`, blocking."""

    by_id = _blocking(Messages.by_id)
    by_key = _blocking(Messages.by_key)
    by_offset = _blocking(Messages.by_offset)
    by_unique_key = _blocking(Messages.by_unique_key)
    from_queue = _blocking(Messages.from_queue)
    send = _blocking(Messages.send)


class BlockingDeadLetters(BlockingPart[DeadLetters]):
    """`DeadLetters`, blocking."""

    def find(self, group: str, wanted: LetterFilter | None = None) -> BlockingFoundLetters:
        """A group's letters, broker by broker, oldest first.

        Raises:
            IllegalName; while they are read: Unreachable, DeadlineExceeded: no nameserver answers;
            NoBrokerAvailable: no broker does.
        """
        found = self._thread.do(lambda admin: admin.dead_letters.find(group, wanted))
        return BlockingFoundLetters(self._thread, found)

    resend = _blocking(DeadLetters.resend)
    drop = _blocking(DeadLetters.drop)


class BlockingSchedules(BlockingPart[Schedules]):
    """`Schedules`, blocking."""

    list = _blocking(Schedules.list)
    recall = _blocking(Schedules.recall)
    deliver_now = _blocking(Schedules.deliver_now)
    move = _blocking(Schedules.move)
    add = _blocking(Schedules.add)
    recurring = _blocking(Schedules.recurring)
    find = _blocking(Schedules.find)
    change = _blocking(Schedules.change)
    pause = _blocking(Schedules.pause)
    resume = _blocking(Schedules.resume)
    run_now = _blocking(Schedules.run_now)
    remove = _blocking(Schedules.remove)


class BlockingTransactions(BlockingPart[Transactions]):
    """`Transactions`, blocking."""

    list = _blocking(Transactions.list)
    message = _blocking(Transactions.message)
    check = _blocking(Transactions.check)
    commit = _blocking(Transactions.commit)
    rollback = _blocking(Transactions.rollback)


class BlockingBrokerAdmin(BlockingPart[BrokerAdmin]):
    """`BrokerAdmin`, blocking."""

    statistics = _blocking(BrokerAdmin.statistics)
    check_audit = _blocking(BrokerAdmin.check_audit)
    clean = _blocking(BrokerAdmin.clean)
    hand_over = _blocking(BrokerAdmin.hand_over)
    remove_replica = _blocking(BrokerAdmin.remove_replica)


class BlockingBrokerGroups(BlockingPart[BrokerGroups]):
    """`BrokerGroups`, blocking."""

    state = _blocking(BrokerGroups.state)
    open = _blocking(BrokerGroups.open)
    close = _blocking(BrokerGroups.close)
    remaining = _blocking(BrokerGroups.remaining)
    remove = _blocking(BrokerGroups.remove)


class BlockingClientAdmin(BlockingPart[ClientAdmin]):
    """`ClientAdmin`, blocking."""

    list = _blocking(ClientAdmin.list)


class BlockingUserAdmin(BlockingPart[UserAdmin]):
    """`UserAdmin`, blocking."""

    create = _blocking(UserAdmin.create)
    list = _blocking(UserAdmin.list)
    enable = _blocking(UserAdmin.enable)
    rotate = _blocking(UserAdmin.rotate)
    forget_former_secret = _blocking(UserAdmin.forget_former_secret)
    reseal = _blocking(UserAdmin.reseal)
    delete = _blocking(UserAdmin.delete)


class BlockingPolicyAdmin(BlockingPart[PolicyAdmin]):
    """`PolicyAdmin`, blocking."""

    list = _blocking(PolicyAdmin.list)
    put = _blocking(PolicyAdmin.put)
    remove = _blocking(PolicyAdmin.remove)
    test = _blocking(PolicyAdmin.test)


class BlockingQuotaAdmin(BlockingPart[QuotaAdmin]):
    """`QuotaAdmin`, blocking."""

    list = _blocking(QuotaAdmin.list)
    built_in = _blocking(QuotaAdmin.built_in)
    set = _blocking(QuotaAdmin.set)
    delete = _blocking(QuotaAdmin.delete)


class BlockingAuditLogAdmin(BlockingPart[AuditLogAdmin]):
    """`AuditLogAdmin`, blocking."""

    last = _blocking(AuditLogAdmin.last)


class BlockingAdminClient(BlockingClient[AdminClient]):
    """An `AdminClient` for code without an event loop: arguments and parts are the same.

    For example::

        with BlockingAdminClient("127.0.0.1:8081") as admin:
            topics = admin.topics.list()
    """

    def __init__(
        self,
        nameservers: str | Sequence[str] | None = None,
        cluster: str | None = None,
        *,
        timeout: float = TIMEOUT_S,
        await_cluster_ms: int = AWAIT_CLUSTER_MS,
        tls: bool | TlsConfig | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        thread = LoopThread(
            "admin client",
            lambda: AdminClient(
                nameservers,
                cluster,
                timeout=timeout,
                await_cluster_ms=await_cluster_ms,
                tls=tls,
                credentials=credentials,
            ),
        )
        super().__init__(thread)
        self.topics = BlockingTopicAdmin(thread, lambda admin: admin.topics)
        self.groups = BlockingGroupAdmin(thread, lambda admin: admin.groups)
        self.offsets = BlockingOffsets(thread, lambda admin: admin.offsets)
        self.messages = BlockingMessages(thread, lambda admin: admin.messages)
        self.dead_letters = BlockingDeadLetters(thread, lambda admin: admin.dead_letters)
        self.schedules = BlockingSchedules(thread, lambda admin: admin.schedules)
        self.transactions = BlockingTransactions(thread, lambda admin: admin.transactions)
        self.brokers = BlockingBrokerAdmin(thread, lambda admin: admin.brokers)
        self.broker_groups = BlockingBrokerGroups(thread, lambda admin: admin.broker_groups)
        self.clients = BlockingClientAdmin(thread, lambda admin: admin.clients)
        self.users = BlockingUserAdmin(thread, lambda admin: admin.users)
        self.policies = BlockingPolicyAdmin(thread, lambda admin: admin.policies)
        self.quotas = BlockingQuotaAdmin(thread, lambda admin: admin.quotas)
        self.audit_log = BlockingAuditLogAdmin(thread, lambda admin: admin.audit_log)

    def cluster(self) -> ClusterState:
        """Brokers and broker groups. Raises Unreachable, DeadlineExceeded, AccessDenied."""
        return self._thread.call(lambda admin: admin.cluster())

    def call(self, ask: Callable[[AdminClient], Coroutine[Any, Any, T]]) -> T:
        """Returns, or raises, what several calls of `AdminClient` in one coroutine do."""
        return self._thread.call(ask)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Never:
            raise AttributeError(f"no {name!r} here: say admin.call(lambda admin: admin.{name}...)")
