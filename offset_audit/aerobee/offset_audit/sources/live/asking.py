"""Asks a cluster: who its brokers are, and each broker for one reading.

Runs in Spark's Python workers, in an event loop of its own for each question, because a process
that has used gRPC must not be forked.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field

from aerobee.client_core.audit import Audit
from aerobee.cluster_view.channels import Channels
from aerobee.cluster_view.methods import DESCRIBE_CLUSTER, LIST_TOPICS
from aerobee.cluster_view.nameservers import Nameservers
from aerobee.offset_audit.rules.names import BUSY
from aerobee.offset_audit.sources.live.options import LiveOptions
from aerobee.offset_audit.tables import LOG_RANGE_BYTES, LOG_STEP_BYTES
from aerobee.rpc.tls import dialled_tls
from aerobee.runtime import errors
from aerobee.runtime.clock import Clock, SystemClock, system_random
from aerobee.v1 import audit_pb2, common_pb2, nameserver_pb2

RANGE_TIMEOUT_MS = 300_000
"""A busy broker takes a while to read 64 MiB of its log."""
BUSY_PAUSE_S = 0.5
REFUSED_S = 3.0
"""A broker that hands its mastership over reopens its folder, and is away for this long."""
VIEWS_MAX = 5
"""How often the registry is asked to get two answers of the same version."""


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """A broker to ask; its name and id are known if the registry named it."""

    address: str
    cluster: str
    broker_name: str | None = None
    broker_id: int | None = None


@dataclass(slots=True)
class BrokerAnswer:
    """One complete reading, or the reason why there is none. Times are those of the asking
    clock."""

    asked: BrokerAddress
    asked_at_ms: int
    answered_at_ms: int = 0
    """When the first part came: by then everything had been read."""
    # Excluded from `repr`, because asyncio makes one of each result.
    parts: list[audit_pb2.SnapshotPart] = field(default_factory=list, repr=False)
    error: str = ""
    is_busy: bool = False
    is_refused: bool = False
    """There was no connection: perhaps it is starting."""

    @property
    def broker(self) -> audit_pb2.SnapshotBroker:
        return self.parts[0].broker


@dataclass(slots=True)
class LogAnswer:
    """The ranges of one broker's log; if `error` is not empty, not all of them."""

    identity: common_pb2.BrokerIdentity
    ranges: list[audit_pb2.LogChecksum] = field(default_factory=list, repr=False)
    error: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class RegistryView:
    """What a nameserver knows, of one version."""

    description: nameserver_pb2.ClusterDescription
    topics: nameserver_pb2.ListTopicsResponse


def find_brokers(options: LiveOptions) -> list[BrokerAddress]:
    """Whom to ask: the brokers that were named, or all that are registered.

    Raises:
        Unreachable, DeadlineExceeded: no nameserver answers.
    """
    if options.brokers:
        return [BrokerAddress(address, options.cluster) for address in options.brokers]
    return asyncio.run(_registered(options))


def registered_brokers(
    description: nameserver_pb2.ClusterDescription, options: LiveOptions
) -> list[BrokerAddress]:
    """The addresses of the brokers that a nameserver named."""
    return [_address(broker, options) for broker in description.brokers]


def find_journals(options: LiveOptions) -> list[BrokerAddress]:
    """For each broker group one broker whose journal is the group's: the master, or another replica
    if there is none. Raises as `find_brokers`."""
    if options.brokers:
        return find_brokers(options)
    description = view_registry(options, with_topics=False).description
    chosen: dict[str, BrokerAddress] = {}
    for broker in description.brokers:
        name = broker.identity.broker_name
        if name not in chosen or broker.role == common_pb2.MASTER:
            chosen[name] = _address(broker, options)
    return list(chosen.values())


def ask_broker(asked: BrokerAddress, options: LiveOptions, tables: list[int]) -> BrokerAnswer:
    """One reading of one broker; never raises because of the broker."""
    request = snapshot_request(options, tables)
    return asyncio.run(_ask(asked, request, options.timeout_ms, SystemClock()))


def snapshot_request(options: LiveOptions, tables: Sequence[int]) -> audit_pb2.SnapshotRequest:
    """What each broker is asked for."""
    return audit_pb2.SnapshotRequest(
        tables=[audit_pb2.SnapshotTable.Name(number) for number in tables],
        topics=options.topics,
        groups=options.groups,
        with_first_unread=options.first_unread,
        with_matching_unread=options.matching_unread,
    )


def ask_checksums(asked: BrokerAddress, options: LiveOptions) -> LogAnswer:
    """Checksums of one broker's log, as far as it gives them; never raises because of the
    broker."""
    return asyncio.run(_ask_checksums(asked, options))


def view_registry(options: LiveOptions, *, with_topics: bool = True) -> RegistryView:
    """Raises Unreachable, DeadlineExceeded: no nameserver answers."""
    return asyncio.run(_view(options, with_topics=with_topics))


# ---------------------------------------------------------------------- inside


def _channels() -> Channels:
    """With the TLS settings of the environment."""
    return Channels(tls=dialled_tls(None))


@asynccontextmanager
async def nameservers_of(options: LiveOptions) -> AsyncIterator[Nameservers]:
    """The access point, for as long as the context lasts."""
    channels = _channels()
    try:
        yield Nameservers(
            channels, options.nameservers, clock=SystemClock(), chance=system_random()
        )
    finally:
        await channels.close()


async def _describe(
    nameservers: Nameservers, options: LiveOptions
) -> nameserver_pb2.ClusterDescription:
    """All registered brokers and the broker groups."""
    return await nameservers.call(
        DESCRIBE_CLUSTER,
        nameserver_pb2.DescribeClusterRequest(cluster=options.cluster),
        timeout_ms=options.nameserver_timeout_ms,
    )


async def list_topics(
    nameservers: Nameservers, options: LiveOptions
) -> nameserver_pb2.ListTopicsResponse:
    return await nameservers.call(
        LIST_TOPICS,
        nameserver_pb2.ListTopicsRequest(cluster=options.cluster),
        timeout_ms=options.nameserver_timeout_ms,
    )


async def _registered(options: LiveOptions) -> list[BrokerAddress]:
    async with nameservers_of(options) as nameservers:
        return registered_brokers(await _describe(nameservers, options), options)


def _address(broker: nameserver_pb2.BrokerEndpoint, options: LiveOptions) -> BrokerAddress:
    identity = broker.identity
    return BrokerAddress(
        broker.address,
        identity.cluster or options.cluster,
        identity.broker_name,
        identity.broker_id,
    )


async def view_of(
    nameservers: Nameservers, options: LiveOptions, *, with_topics: bool = True
) -> RegistryView:
    """What one of these knows, of one version if that can be had."""
    topics = nameserver_pb2.ListTopicsResponse()
    description = await _describe(nameservers, options)
    for _ in range(VIEWS_MAX if with_topics else 0):
        topics = await list_topics(nameservers, options)
        if topics.version == description.version:
            break
        description = await _describe(nameservers, options)
    return RegistryView(description, topics)


async def _view(options: LiveOptions, *, with_topics: bool) -> RegistryView:
    async with nameservers_of(options) as nameservers:
        return await view_of(nameservers, options, with_topics=with_topics)


async def _ask(
    asked: BrokerAddress, request: audit_pb2.SnapshotRequest, timeout_ms: int, clock: Clock
) -> BrokerAnswer:
    channels = _channels()
    begun_s = clock.monotonic_s()
    deadline_s = begun_s + timeout_ms / 1_000
    refused_s = min(deadline_s, begun_s + REFUSED_S)
    try:
        while True:
            answer = await ask_once(channels, asked, request, timeout_ms, clock)
            if answer.is_busy:
                until_s = deadline_s
            elif answer.is_refused:
                until_s = refused_s
            else:
                return answer
            if clock.monotonic_s() + BUSY_PAUSE_S > until_s:
                return answer
            if answer.is_refused:
                await channels.close()  # a new connection does not wait for the old one's turn
                channels = _channels()
            await asyncio.sleep(BUSY_PAUSE_S)
    finally:
        await channels.close()


async def ask_once(
    channels: Channels,
    asked: BrokerAddress,
    request: audit_pb2.SnapshotRequest,
    timeout_ms: int,
    clock: Clock,
) -> BrokerAnswer:
    """One reading, or why there is none; never raises because of the broker."""
    answer = BrokerAnswer(asked, clock.now_ms())
    audit = Audit(channels, timeout_ms=timeout_ms)
    try:
        async with aclosing(audit.snapshot(asked.address, request)) as parts:
            async for part in parts:
                if not answer.parts:
                    answer.answered_at_ms = clock.now_ms()
                answer.parts.append(part)
    except errors.AerobeeError as error:
        return BrokerAnswer(
            asked,
            answer.asked_at_ms,
            clock.now_ms(),
            error=BUSY + str(error) if isinstance(error, errors.Busy) else str(error),
            is_busy=isinstance(error, errors.Busy),
            is_refused=isinstance(error, errors.Unreachable) and not answer.parts,
        )
    return answer


def stretches(begin: int, end: int) -> Iterator[tuple[int, int, int]]:
    """[begin, end) and the width of the ranges there, as for the files of stores."""
    whole_begin = min(end, -(-begin // LOG_RANGE_BYTES) * LOG_RANGE_BYTES)
    whole_end = max(whole_begin, end // LOG_RANGE_BYTES * LOG_RANGE_BYTES)
    for first, last, width in (
        (begin, whole_begin, LOG_STEP_BYTES),
        (whole_begin, whole_end, LOG_RANGE_BYTES),
        (whole_end, end, LOG_STEP_BYTES),
    ):
        if first < last:
            yield first, last, width


async def _ask_checksums(asked: BrokerAddress, options: LiveOptions) -> LogAnswer:
    only_itself = audit_pb2.SnapshotRequest(tables=[audit_pb2.SNAPSHOT_BROKER])
    answer = await _ask(asked, only_itself, options.timeout_ms, SystemClock())
    if answer.error:
        return LogAnswer(common_pb2.BrokerIdentity(), error=answer.error)
    stats = answer.broker.stats
    found = LogAnswer(stats.identity)
    channels = _channels()
    audit = Audit(channels, timeout_ms=max(options.timeout_ms, RANGE_TIMEOUT_MS))
    try:
        for begin, end, width in stretches(stats.log_min_offset, stats.log_confirmed_end):
            ranges = audit.checksums(asked.address, begin, end, range_bytes=width)
            async with aclosing(ranges):
                async for each in ranges:
                    found.ranges.append(each)
    except errors.AerobeeError as error:
        found.error = str(error)
    finally:
        await channels.close()
    return found
