"""The broker's place in the cluster: a stream of heartbeats out, directives in.

Owns: one Register stream to one of the nameservers. The broker's state comes from a callable and
directives go to a callback, so this file knows nothing of stores and topics.

Invariant: there is one stream, to one nameserver at a time; when it fails, the next nameserver is
tried, with back-off, without end. While no nameserver can be reached the broker continues with what
it knows. The only failure that ends `run` is another live broker with the same identity.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from grpc_health.v1 import health_pb2

from aerobee.access.credentials import Credentials
from aerobee.cluster_view.channels import Channels, Stream
from aerobee.cluster_view.methods import REGISTER, Method
from aerobee.rpc.client_channel import DialledTls
from aerobee.rpc.own_protocol import error_from_code
from aerobee.runtime import errors
from aerobee.runtime.call_context import RequestNames, request_scope
from aerobee.runtime.clock import Clock
from aerobee.runtime.config import require
from aerobee.runtime.log import log_event
from aerobee.runtime.retry import Backoff
from aerobee.runtime.task_groups import run_together
from aerobee.v1 import common_pb2, nameserver_pb2

log = logging.getLogger(__name__)

ANSWERED_WITHIN_S = 2.25
"""A nameserver answers within two seconds, even if etcd does not."""
LATE_S = 0.75
"""If an answer is later than this, the nameserver is asked whether it is alive at all: etcd may be
slow, or the nameserver's machine gone. That question needs no etcd, so its answer is fast."""
LEFT_IN_TIME = 0.75
"""After this part of a lease, a silent nameserver is abandoned."""

LEASES_OF_OTHERS = 2
"""An etcd restored from a snapshot brings back registrations of former processes, each with a new
lease, and an etcd that elects a leader meanwhile begins their leases once more."""

HeartbeatSource = Callable[[], nameserver_pb2.BrokerHeartbeat]
"""The broker as it is now: identity, address, role, epoch, log bounds, metadata revision."""

DirectiveHandler = Callable[[nameserver_pb2.BrokerDirective], Awaitable[None]]
"""Applies a directive; when it returns, the next heartbeat may report its metadata revision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrationConfig:
    """Where and how a broker registers."""

    nameservers: tuple[str, ...] = ("127.0.0.1:8081",)
    """host:port of each; one is used at a time."""
    lease_duration_ms: int = 10_000
    """How long routes show this broker after its last heartbeat."""
    answer_timeout_ms: int = 3_000
    """A nameserver that leaves a first heartbeat unanswered for this long is abandoned."""
    duplicate_wait_ms: int = 30_000
    """How long a registration waits for another owner of the same identity to go, at least: a
    broker that was registered before waits for `LEASES_OF_OTHERS` leases if that is longer."""
    backoff: Backoff = field(default_factory=lambda: Backoff(base_ms=100, max_ms=2_000))

    def __post_init__(self) -> None:
        require(len(self.nameservers) > 0, "nameservers must name at least one", self.nameservers)
        lease_ms = self.lease_duration_ms
        require(lease_ms >= 1_000, "lease_duration_ms must be >= 1000", lease_ms)
        require(self.answer_timeout_ms > 0, "answer_timeout_ms must be > 0", self.answer_timeout_ms)
        wait_ms = self.duplicate_wait_ms
        require(wait_ms >= 0, "duplicate_wait_ms must be >= 0", wait_ms)


@dataclass(frozen=True, slots=True)
class RegistrationStatistics:
    nameserver: str
    """The one in use or being tried."""
    registered: bool
    """The nameserver answered on the present stream."""
    stale: bool
    """It answered, but etcd is away: the registration was not renewed."""
    last_renewed_age_ms: int
    """Since the last answer that was not stale; -1 before the first."""
    failures: int
    """Streams lost and attempts failed since the last answer."""


class Registration:
    """Keeps one broker registered; `run` it as a task, `leave` it before the broker stops."""

    def __init__(
        self,
        config: RegistrationConfig,
        *,
        clock: Clock,
        chance: random.Random,
        heartbeat: HeartbeatSource,
        on_directive: DirectiveHandler,
        due: asyncio.Event,
        on_sending: Callable[[int], None] = lambda _: None,
        on_incomplete: Callable[[errors.ReplicaIncomplete], None] = lambda _: None,
        credentials: Credentials | None = None,
        tls: DialledTls | None = None,
    ) -> None:
        """`due` is set to send a heartbeat early: something that routes show has changed.
        `on_sending` gets each heartbeat's sequence right before it is sent; `on_incomplete` is
        called when no nameserver will register this log under its incarnation."""
        self._config = config
        self._on_sending = on_sending
        self._on_incomplete = on_incomplete
        self._sequence = 0
        self._clock = clock
        self._chance = chance
        self._heartbeat = heartbeat
        self._on_directive = on_directive
        self._wake = due
        self._ended = asyncio.Event()
        self._leaving = False
        self._position = chance.randrange(len(config.nameservers))
        self._names = RequestNames.of_chance(chance)
        # An abandoned stream is retried on a new connection.
        self._channels = Channels(chance=chance, credentials=credentials, tls=tls)
        self._registered = False
        self._registered_once = False
        self._stale = False
        self._renewed_s: float | None = None
        self._failures = 0
        self._revision_sent = 0
        self._duplicate_since_s: float | None = None
        self._told_of_another = False
        self._heartbeat_interval_s = config.lease_duration_ms / 3_000
        self._answer_due_s = 0.0

    def __repr__(self) -> str:
        return f"<Registration at {self._nameserver} registered={self._registered}>"

    @property
    def _nameserver(self) -> str:
        return self._config.nameservers[self._position]

    def statistics(self) -> RegistrationStatistics:
        age_ms = -1
        if self._renewed_s is not None:
            age_ms = int((self._clock.monotonic_s() - self._renewed_s) * 1_000)
        return RegistrationStatistics(
            self._nameserver, self._registered, self._stale, age_ms, self._failures
        )

    def why_not_live(self) -> str:
        """Why clients may not find this broker now; empty while it is registered."""
        if self._renewed_s is None:
            asked = ", ".join(self._config.nameservers)
            return f"not registered yet: none of the nameservers {asked} has confirmed it"
        age_s = self._clock.monotonic_s() - self._renewed_s
        lease_s = 3 * self._heartbeat_interval_s
        if age_s <= lease_s:
            return ""
        return (
            f"the registration has not been renewed for {age_s:.1f} s, its lease is "
            f"{lease_s:.1f} s: nameservers or etcd do not answer"
        )

    async def run(self) -> None:
        """Stay registered until `leave` or cancellation.

        Raises:
            DuplicateBroker: another live broker has this identity and does not go.
        """
        try:
            while not self._leaving:
                with request_scope(self._names.next()):
                    await self._attempt()
        finally:
            self._registered = False
            await self._channels.close()
            self._ended.set()

    async def leave(self, timeout_s: float) -> None:
        """End the registration now, so that clients switch to other brokers at once, and end `run`.

        Bounded by `timeout_s`; if no nameserver is reached, the lease ends the registration.
        """
        self._leaving = True
        self._wake.set()
        try:
            async with asyncio.timeout(timeout_s):
                await self._ended.wait()
        except TimeoutError:
            log_event(
                log,
                "stopped without deregistering: no nameserver confirmed it in time",
                level=logging.WARNING,
            )

    async def _attempt(self) -> None:
        """One stream to one nameserver, and the pause after it failed."""
        address = self._nameserver
        try:
            await self._hold_stream(address)
            if self._leaving:
                return
            failure: errors.AerobeeError = errors.Unreachable(
                f"{address} ended the registration stream"
            )
        except errors.AerobeeError as error:
            failure = error
        self._note_failure(address, failure)
        self._position = (self._position + 1) % len(self._config.nameservers)
        await self._pause(self._config.backoff.delay_s(self._failures, self._chance))

    def _note_failure(self, address: str, failure: errors.AerobeeError) -> None:
        """Count it; raises DuplicateBroker when further waiting is pointless."""
        was_registered, self._registered = self._registered, False
        self._failures += 1
        if isinstance(failure, errors.DuplicateBroker):
            now_s = self._clock.monotonic_s()
            if self._duplicate_since_s is None:
                self._duplicate_since_s = now_s
            if now_s - self._duplicate_since_s >= self._duplicate_wait_s():
                raise failure
            if not self._told_of_another:
                self._told_of_another = True
                log_event(
                    log,
                    "another process holds the registration; asking again until it must be gone",
                    level=logging.WARNING,
                    nameserver=address,
                    wait_s=self._duplicate_wait_s(),
                    reason=failure,
                )
                return
        else:
            self._duplicate_since_s = None
        if isinstance(failure, errors.ReplicaIncomplete):
            self._on_incomplete(failure)
            return
        if was_registered or self._failures == 1:
            log_event(
                log,
                "registration interrupted; continuing with the last known state",
                level=logging.WARNING,
                nameserver=address,
                reason=failure,
            )

    def _duplicate_wait_s(self) -> float:
        """How long the other owner may be one that is already gone."""
        wait_s = self._config.duplicate_wait_ms / 1_000
        if not self._registered_once:
            return wait_s
        return max(wait_s, LEASES_OF_OTHERS * 3 * self._heartbeat_interval_s)

    async def _pause(self, delay_s: float) -> None:
        """Wait; ends at once when the broker leaves."""
        if self._leaving:
            return
        self._wake.clear()
        try:
            async with asyncio.timeout(delay_s):
                while not self._leaving:
                    await self._wake.wait()
                    self._wake.clear()
        except TimeoutError:
            pass

    async def _hold_stream(self, address: str) -> None:
        """Heartbeats and directives on one stream, until it ends."""
        try:
            stream = self._channels.open_stream(address, REGISTER)
            await run_together(
                self._receive(stream),
                heartbeats=self._send(stream),
                there=self._ask_the_silent(address),
            )
        finally:
            self._channels.disconnect(address)

    async def _send(self, stream: _RegisterStream) -> None:
        """A heartbeat at once, then every third of the lease and whenever woken."""
        while True:
            self._wake.clear()
            heartbeat = self._heartbeat()
            heartbeat.lease_duration_ms = self._config.lease_duration_ms
            heartbeat.leaving = self._leaving
            self._sequence += 1
            heartbeat.sequence = self._sequence
            self._on_sending(self._sequence)
            self._revision_sent = heartbeat.metadata_revision
            try:
                await stream.write(heartbeat)
                if heartbeat.leaving:
                    stream.done_writing()
                    return
            except errors.AerobeeError:
                return  # the receiver sees the stream's end too, with its reason
            try:
                async with asyncio.timeout(self._heartbeat_interval_s):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _receive(self, stream: _RegisterStream) -> None:
        timeout_s = self._config.answer_timeout_ms / 1_000
        while True:
            try:
                async with asyncio.timeout(timeout_s) as scope:
                    directive = await stream.read()
            except TimeoutError:
                if not scope.expired():
                    raise
                raise errors.Unreachable(
                    f"{stream.address} did not answer heartbeats for {timeout_s:g} s"
                ) from None
            if directive is None:
                return  # the end of the stream
            if directive.status.code not in (common_pb2.OK, common_pb2.CODE_UNSPECIFIED):
                raise error_from_code(directive.status.code, directive.status.message)
            await self._follow(directive, stream.address)
            self._answer_due_s = self._clock.monotonic_s() + self._heartbeat_interval_s
            timeout_s = self._silence_max_s()

    async def _ask_the_silent(self, address: str) -> None:
        """Raises Unreachable if the nameserver is late and does not even say that it is alive: the
        next one is then tried while there is ample time."""
        self._answer_due_s = self._clock.monotonic_s()
        while True:
            wait_s = self._answer_due_s + LATE_S - self._clock.monotonic_s()
            if wait_s <= 0:
                await self._ask_whether_there(address)
                wait_s = LATE_S
            await asyncio.sleep(wait_s)

    async def _ask_whether_there(self, address: str) -> None:
        """Raises Unreachable if it does not answer in time."""
        try:
            await self._channels.call(address, _CHECK, _ANYTHING, timeout_ms=int(LATE_S * 1_000))
        except (errors.DeadlineExceeded, errors.Unreachable):
            raise errors.Unreachable(f"{address} answers neither heartbeats nor a probe") from None
        except errors.AerobeeError:
            return  # it answered: it is alive

    def _silence_max_s(self) -> float:
        """A heartbeat goes out every third of the lease; two lost answers are one too many. A
        silent nameserver is abandoned while another one can still renew the lease."""
        interval_s = self._heartbeat_interval_s
        in_time_s = max(LEFT_IN_TIME * 3 * interval_s, interval_s + ANSWERED_WITHIN_S)
        return min(2 * interval_s + self._config.answer_timeout_ms / 1_000, in_time_s)

    async def _follow(self, directive: nameserver_pb2.BrokerDirective, address: str) -> None:
        if not self._registered or directive.stale != self._stale:
            event = "registered" if not directive.stale else "registered, but etcd does not answer"
            log_event(log, event, nameserver=address, epoch=directive.epoch)
        self._registered = True
        self._stale = directive.stale
        self._failures = 0
        if not directive.stale:
            self._registered_once = True
            self._duplicate_since_s = None
            self._told_of_another = False
            self._renewed_s = self._clock.monotonic_s()
        lease_ms = directive.lease_duration_ms or self._config.lease_duration_ms
        self._heartbeat_interval_s = lease_ms / 3_000
        await self._on_directive(directive)
        told_of_topics = directive.topics or directive.topics_complete
        if told_of_topics and self._heartbeat().metadata_revision != self._revision_sent:
            # Acknowledge at once: a topic's creator may be waiting to use it.
            self._wake.set()


_CHECK: Final = Method(
    "/grpc.health.v1.Health/Check", health_pb2.HealthCheckRequest, health_pb2.HealthCheckResponse
)
_ANYTHING: Final = health_pb2.HealthCheckRequest()

_RegisterStream = Stream[nameserver_pb2.BrokerHeartbeat, nameserver_pb2.BrokerDirective]
