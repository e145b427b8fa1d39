"""One member's session with one broker group: join, heartbeats, leases, and recovery after a break
or a change of master.

Owns: the Membership stream to the group's master and its lease table. The stream may break and be
reopened, to the current master, any number of times; what counts is the deadline of the table,
which only acknowledged heartbeats move. When it passes, everything held here is reported lost at
once, before any network call, and the next stream starts without it.
Invariants: `on_lost` follows each `on_granted` at most once, and none follows after a release;
events are reported in the order in which they happened, from the loop, synchronously.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Awaitable, Sequence
from typing import TypeVar

from aerobee.cluster_view.channels import Channels, Stream
from aerobee.cluster_view.methods import MEMBERSHIP
from aerobee.cluster_view.route import Endpoint, MessageQueue
from aerobee.consumer_client.background_tasks import wait_event
from aerobee.consumer_client.group_route import GroupRoute
from aerobee.consumer_client.lease_table import HeldQueue, LeaseTable, QueueKey
from aerobee.consumer_client.membership import (
    Grant,
    Identity,
    SessionEvents,
    clustering_members,
)
from aerobee.rpc.own_protocol import error_from_code
from aerobee.runtime import errors
from aerobee.runtime.clock import Clock
from aerobee.runtime.log import log_event
from aerobee.runtime.retry import Backoff
from aerobee.runtime.task_groups import run_together
from aerobee.v1 import broker_pb2

log = logging.getLogger(__name__)

MembershipStream = Stream[broker_pb2.MemberEvent, broker_pb2.GroupEvent]

JOIN_TIMEOUT_S = 5.0
FIND_TIMEOUT_MS = 5_000
MASTERLESS_CHECK_S = 0.5
"""How often a member checks whether its group has a master."""

PATIENCE_SESSIONS = 1.5
"""A broker reserves the name of a dead member for one session; a process that has it longer is
alive."""

T = TypeVar("T")


class GroupSession:
    """The session; `run` keeps it until `leave` or a failure that waiting cannot fix."""

    def __init__(
        self,
        route: GroupRoute,
        identity: Identity,
        events: SessionEvents,
        *,
        channels: Channels,
        clock: Clock,
        chance: random.Random,
        backoff: Backoff,
    ) -> None:
        self.broker_name = route.broker_name
        self.table = LeaseTable()
        self._identity = identity
        self._events = events
        self._channels = channels
        self._route = route
        self._clock = clock
        self._chance = chance
        self._backoff = backoff
        self._wake = asyncio.Event()
        self._outbox: deque[broker_pb2.MemberEvent] = deque()
        """Events for the broker, in order, until the stream's writer sends them."""
        self._tried: Endpoint | None = None
        self._stream: MembershipStream | None = None
        self._is_joined = False
        self._is_leaving = False
        self._interval_s = identity.heartbeat_interval_s(identity.session_timeout_ms)
        self._name_patience_end_s: float | None = None
        """While another process has our client id: the time from which it must be alive."""

    def __repr__(self) -> str:
        return f"GroupSession({self.broker_name}, joined={self._is_joined}, {self.table!r})"

    @property
    def is_joined(self) -> bool:
        """Whether the broker counts this member in and its view of the group can be used."""
        return self._is_joined and self.table.is_trusted(self._clock.monotonic_s())

    @property
    def is_confirmed(self) -> bool:
        """Whether the master knows the leases that are held."""
        return self._is_joined

    @property
    def deadline_s(self) -> float:
        """Until when the leases of this session may be trusted."""
        return self.table.deadline_s

    # ------------------------------------------------------------------------------ queues

    def acquire(self, key: QueueKey) -> None:
        """Request a queue; `on_granted` follows once it is free."""
        if self.table.want(key) and self._is_joined:
            self._tell_acquire(key)

    def release(self, key: QueueKey) -> None:
        """Give a queue back, or withdraw the request for it. Commit first."""
        epoch = self.table.unwant(key)
        if epoch is not None and self._is_joined:
            self._tell_release(key, epoch)

    def check_deadline(self) -> bool:
        """True while leases may be trusted; otherwise everything held is given up."""
        now_s = self._clock.monotonic_s()
        if self.table.is_trusted(now_s):
            return True
        if self._is_joined and self._stream is not None:
            # The next stream starts without the leases of this one.
            self._stream.cancel()
        self._is_joined = False
        self._report_lost(
            self.table.lose_all(), "no heartbeat was acknowledged in time: stopped by itself"
        )
        return False

    def on_refused(self, queue: MessageQueue, lease_epoch: int, reason: str) -> None:
        """The broker refused a pull or a commit under this lease.

        Usually its revocation has already arrived over this stream. If not, a restarted broker has
        not been shown our leases yet, and would confirm them: join again to find out. Until then
        only the deadline decides; no broker gives the queue away before it.
        """
        key = QueueKey(queue.topic, queue.queue_id)
        if self.table.epoch_of(key) != lease_epoch or not self._is_joined:
            return
        log_event(
            log,
            "lease refused, joining again",
            group=self._identity.group,
            queue=queue,
            lease_epoch=lease_epoch,
            reason=reason,
        )
        self._is_joined = False
        if self._stream is not None:
            self._stream.cancel()

    def leave(self) -> None:
        """End the session at once, on the broker too if it can be reached."""
        self._is_leaving = True
        self.table.lose_all()
        if self._is_joined:
            self._outbox.append(broker_pb2.MemberEvent(leave=broker_pb2.Leave()))
        elif self._stream is not None:
            self._stream.cancel()
        self._wake.set()

    def _tell_acquire(self, key: QueueKey) -> None:
        acquire = broker_pb2.AcquireLease(topic=key.topic, queue_id=key.queue_id)
        self._outbox.append(broker_pb2.MemberEvent(acquire=acquire))
        self._wake.set()

    def _tell_release(self, key: QueueKey, epoch: int) -> None:
        release = broker_pb2.ReleaseLease(topic=key.topic, queue_id=key.queue_id, epoch=epoch)
        self._outbox.append(broker_pb2.MemberEvent(release=release))
        self._wake.set()

    # ------------------------------------------------------------------------------ streams

    async def run(self) -> None:
        """Keep the session; returns after `leave`.

        Raises:
            DuplicateClient: another live process has the same client id, for longer than its
                death would explain.
            IllegalName, InvalidArgument: the broker will never take this member.
            AccessDenied, Unauthenticated: it may not be a member, or no longer.
        """
        failures = 0
        with self._route.telling(self._wake.set):
            while not self._is_leaving:
                try:
                    await self._one_stream()
                    failures = 0
                    self._name_patience_end_s = None
                except (
                    errors.InvalidArgument,
                    errors.AccessDenied,
                    errors.Unauthenticated,
                ):
                    raise
                except errors.DuplicateClient as error:
                    self._on_name_in_use(error)
                    self._note_break(error)
                except errors.AerobeeError as error:
                    if self._is_joined:
                        failures = 0
                    self._note_break(error)
                self._is_joined = False
                if self._is_leaving:
                    return
                await self._pause(self._backoff.delay_s(failures, self._chance))
                failures += 1

    def _on_name_in_use(self, error: errors.DuplicateClient) -> None:
        """Dead without having left, or alive? Raises the error once it must be alive."""
        now_s = self._clock.monotonic_s()
        if self._name_patience_end_s is None:
            patience_s = self._identity.session_timeout_ms * PATIENCE_SESSIONS / 1_000
            self._name_patience_end_s = now_s + patience_s
            log_event(
                log,
                "another live member has this client id, trying again in case it is dead",
                level=logging.WARNING,
                group=self._identity.group,
                client_id=self._identity.client_id,
                broker=self.broker_name,
                gives_up_in_s=patience_s,
            )
        if now_s > self._name_patience_end_s:
            raise error

    def _note_break(self, error: errors.AerobeeError) -> None:
        self._route.note_failure(str(error))
        if isinstance(error, errors.UnknownMember):
            self._report_lost(self.table.lose_all(), "the broker ended the session")
        if isinstance(error, errors.GroupDeleted):
            self._events.on_group_deleted(self.broker_name)
        if not self._is_leaving:
            log_event(
                log,
                "group session broke, joining again",
                level=logging.WARNING if self._is_joined else logging.DEBUG,
                group=self._identity.group,
                broker=self.broker_name,
                queues_kept_for_s=round(max(self.deadline_s - self._clock.monotonic_s(), 0.0), 1),
                reason=error,
            )

    async def _pause(self, delay_s: float) -> None:
        """Wait before the next attempt; the deadline keeps running, and `leave` ends the wait. So
        does a new master."""
        end_s = self._clock.monotonic_s() + delay_s
        while (
            not self._is_leaving
            and not self._route.has_other_master(self._tried)
            and (left_s := end_s - self._clock.monotonic_s()) > 0
        ):
            self.check_deadline()
            until_deadline_s = self.table.deadline_s - self._clock.monotonic_s()
            wait_s = min(left_s, until_deadline_s) if until_deadline_s > 0 else left_s
            await wait_event(self._wake, wait_s)
            self._wake.clear()

    async def _one_stream(self) -> None:
        self._tried = None
        master = self._tried = await self._find_master()
        async with self._route.while_master(master):
            await self._stay_with(master)

    async def _find_master(self) -> Endpoint:
        """The master, as soon as there is one. The deadline of what is held keeps running even if a
        nameserver knows no master: a master that has not heard yet that other replicas registered
        acts without a lease, and gives queues away."""
        find = self._route.find_master(FIND_TIMEOUT_MS)
        return await run_together(find, trust=self._watch_trust())

    async def _watch_trust(self) -> None:
        while not self._is_leaving:
            wait_s = MASTERLESS_CHECK_S
            if self.check_deadline():
                left_s = self.table.deadline_s - self._clock.monotonic_s()
                wait_s = max(min(wait_s, left_s / 2), 0.01)
            await wait_event(self._wake, wait_s)
            self._wake.clear()
        raise errors.ShuttingDown("this member leaves")

    async def _stay_with(self, master: Endpoint) -> None:
        """One stream to one master, from the join to its end."""
        stream = self._channels.open_stream(master.address, MEMBERSHIP)
        self._stream = stream
        self._outbox.clear()
        try:
            self.check_deadline()
            await self._within_deadline(self._join(stream))
            await run_together(
                self._read(stream), write=self._write(stream), deadline=self._watch_deadline()
            )
        finally:
            self._stream = None
            stream.cancel()

    async def _read(self, stream: MembershipStream) -> None:
        while (event := await stream.read()) is not None:
            self._on_event(event)

    async def _within_deadline(self, step: Awaitable[T]) -> T:
        """A step of joining: it leaves time for another attempt before the leases that are still
        held must be given up."""
        now_s = self._clock.monotonic_s()
        left_s = JOIN_TIMEOUT_S
        if self.table.is_trusted(now_s):
            left_s = min(left_s, max((self.table.deadline_s - now_s) / 2, 0.01))
        try:
            async with asyncio.timeout(left_s) as scope:
                return await step
        except TimeoutError:
            if not scope.expired():
                raise
            raise errors.DeadlineExceeded(
                f"broker {self.broker_name} did not answer the join in time"
            ) from None

    async def _join(self, stream: MembershipStream) -> None:
        sent_s = self._clock.monotonic_s()
        join = self._identity.join(self.table.held())
        await stream.write(broker_pb2.MemberEvent(join=join))
        while True:
            event = await stream.read()
            if event is None:
                raise errors.Unreachable(f"broker {self.broker_name} ended the session at once")
            if event.WhichOneof("event") == "joined":
                self._on_joined(event.joined, sent_s)
                return
            self._on_event(event)

    def _on_joined(self, joined: broker_pb2.Joined, sent_s: float) -> None:
        confirmed = [
            HeldQueue(QueueKey(held.topic, held.queue_id), held.epoch) for held in joined.confirmed
        ]
        lost = self.table.on_joined(joined.session_timeout_ms, confirmed, sent_s=sent_s)
        self._interval_s = self._identity.heartbeat_interval_s(joined.session_timeout_ms)
        self._is_joined = True
        self._report_lost(lost, "the broker did not confirm the lease")
        self._events.on_joined(self.broker_name)
        for held in confirmed:
            if self.table.epoch_of(held.key) != held.epoch:
                self._tell_release(held.key, held.epoch)
        for key in self.table.wishes():
            self._tell_acquire(key)
        log_event(
            log,
            "joined group",
            level=logging.INFO,
            group=self._identity.group,
            broker=self.broker_name,
            kept=len(confirmed),
        )

    async def _write(self, stream: MembershipStream) -> None:
        """The stream's only writer: sends heartbeats on time, and the outbox."""
        next_beat_s = self._clock.monotonic_s() + self._interval_s
        while True:
            self._wake.clear()
            while self._outbox:
                await stream.write(self._outbox.popleft())
            if self._is_leaving:
                stream.done_writing()
                return
            now_s = self._clock.monotonic_s()
            if now_s >= next_beat_s:
                sequence = self.table.on_heartbeat_sent(now_s)
                beat = broker_pb2.Heartbeat(sequence=sequence)
                await stream.write(broker_pb2.MemberEvent(heartbeat=beat))
                next_beat_s = now_s + self._interval_s
            if not self._outbox:
                await wait_event(self._wake, next_beat_s - self._clock.monotonic_s())

    async def _watch_deadline(self) -> None:
        """Raises NoBrokerAvailable when the group no longer has a master: a process that still
        answers is deposed and grants nothing."""
        while self.check_deadline():
            if self._route.is_masterless():
                raise errors.NoBrokerAvailable(f"broker group {self.broker_name} has no master now")
            left_s = self.table.deadline_s - self._clock.monotonic_s()
            await asyncio.sleep(max(min(left_s, MASTERLESS_CHECK_S), 0.0))

    def _on_event(self, event: broker_pb2.GroupEvent) -> None:
        kind = event.WhichOneof("event")
        if kind == "heartbeat":
            self.table.on_heartbeat_ack(event.heartbeat.sequence)
        elif kind == "members":
            self._events.on_members(self.broker_name, clustering_members(event.members))
        elif kind == "granted":
            self._on_granted(event.granted)
        elif kind == "revoked":
            held = HeldQueue(
                QueueKey(event.revoked.topic, event.revoked.queue_id), event.revoked.epoch
            )
            self._lose_one(held, event.revoked.reason or "revoked by the broker")
        elif kind == "failed":
            raise error_from_code(event.failed.code, event.failed.message)

    def _on_granted(self, granted: broker_pb2.LeaseGranted) -> None:
        key = QueueKey(granted.topic, granted.queue_id)
        if not self.check_deadline():
            return
        if self.table.epoch_of(key) == granted.epoch:
            return
        if not self.table.on_granted(key, granted.epoch, self._clock.monotonic_s()):
            self._tell_release(key, granted.epoch)
            return
        committed = None if granted.never_committed else granted.committed_offset
        grant = Grant(key, granted.epoch, committed, granted.tried_offset, granted.attempts)
        self._events.on_granted(self.broker_name, grant)

    def _lose_one(self, held: HeldQueue, reason: str) -> None:
        if not self.table.on_revoked(held.key, held.epoch):
            return
        self._report_lost([held], reason)
        if self._is_joined and self.table.is_wanted(held.key):
            # Queue up again.
            self._tell_acquire(held.key)

    def _report_lost(self, lost: Sequence[HeldQueue], reason: str) -> None:
        for held in lost:
            self._events.on_lost(self.broker_name, held, reason)
