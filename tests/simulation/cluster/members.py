"""Members of a consumer group: they hold leases on queues, commit offsets, and give queues back.

What a member believes that it holds is the real client's LeaseTable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.broker.groups.queue_leases import GroupQueue, Lease
from aerobee.consumer_client.lease_table import HeldQueue, LeaseTable
from aerobee.consumer_client.lease_table import QueueKey as ClientKey
from tests.simulation.cluster.broker import Broker
from tests.simulation.cluster.groups import SESSION_S, Joining, queue_key
from tests.simulation.cluster.kernel import Place, Process
from tests.simulation.cluster.network import Stream

if TYPE_CHECKING:
    from tests.simulation.cluster.world import World

QUEUES = 2
TICK_S = 0.3


class GroupMember(Process):
    """One client."""

    __slots__ = (
        "_client_id",
        "_heard_s",
        "_is_joined",
        "_offsets",
        "_pending",
        "_sent",
        "_stream",
        "_target",
        "_world",
        "table",
    )

    def __init__(self, world: World, place: Place, number: int) -> None:
        super().__init__(place)
        self._world = world
        self._client_id = f"member{number}"
        self.table = LeaseTable()
        self._stream: Stream | None = None
        self._sent: dict[int, float] = {}
        self._offsets: dict[GroupQueue, int] = {}
        self._pending: dict[GroupQueue, tuple[int, int]] = {}
        """An unanswered commit: it is repeated, also to the next master."""
        self._heard_s = 0.0
        self._is_joined = False
        """Joined on the present stream; before that it carries only the join."""
        self._target = 0
        world.kernel.after(world.chance.random() * TICK_S, self, GroupMember._tick)

    @property
    def client_id(self) -> str:
        return self._client_id

    def believes(self, key: GroupQueue) -> int | None:
        """The epoch under which it believes that it holds the queue now."""
        if not self.table.is_trusted(self._clock_s()):
            return None
        return self.table.epoch_of(ClientKey(key.topic, key.queue_id))

    def _clock_s(self) -> float:
        return self._world.kernel.clock_s(self.place)

    # ------------------------------------------------------------------------------ time

    def _tick(self) -> None:
        world, now_s = self._world, self._clock_s()
        self._check_deadline()
        if self._stream is not None and now_s - self._heard_s > 0.8:
            self._break()
        if self._stream is None:
            self._join(now_s)
        elif self._is_joined:
            sequence = self.table.on_heartbeat_sent(now_s)
            self._stream.send(self, world.on_member_heartbeat, sequence)
            self._commit()
        self._change_mind()
        world.kernel.after(TICK_S, self, GroupMember._tick)

    def _check_deadline(self) -> bool:
        """Whether leases may be trusted; otherwise all are given up, and their stream."""
        if self.table.is_trusted(self._clock_s()):
            return True
        self.table.lose_all()
        self._pending.clear()
        if self._is_joined:
            self._break()
        return False

    def _break(self) -> None:
        stream, self._stream = self._stream, None
        self._is_joined = False
        if stream is not None:
            stream.close(self)

    def _join(self, now_s: float) -> None:
        world = self._world
        places = list(world.broker_places.values())
        self._target = (self._target + 1) % len(places)
        process = places[self._target].process
        if not isinstance(process, Broker):
            return
        self._stream = Stream(world.network, self, process)
        self._heard_s = now_s
        held = tuple((queue_key(one.key.queue_id), one.epoch) for one in self.table.held())
        sequence = len(self._sent)
        self._sent[sequence] = now_s
        self._stream.send(self, world.on_join, Joining(self._client_id, held, sequence))

    def _change_mind(self) -> None:
        """Sometimes another queue is wanted, as after a rebalance."""
        chance = self._world.chance
        if chance.random() < 0.2:
            key = ClientKey("T", chance.randrange(QUEUES))
            if self.table.is_wanted(key):
                epoch = self.table.unwant(key)
                if epoch is not None:
                    self._send_release(key, epoch)
            elif self.table.want(key):
                self._send_acquire(key)

    def _commit(self) -> None:
        assert self._stream is not None
        for held in self.table.held():
            key = queue_key(held.key.queue_id)
            pending = self._pending.get(key)
            if pending is None or pending[0] != held.epoch:
                offset = self._offsets.get(key, 0) + self._world.chance.randint(0, 3)
                self._offsets[key] = offset
                pending = self._pending[key] = held.epoch, offset
            self._stream.send(self, self._world.on_commit, key, *pending)

    def _send_acquire(self, key: ClientKey) -> None:
        if self._stream is not None and self._is_joined:
            self._stream.send(self, self._world.on_acquire, queue_key(key.queue_id))

    def _send_release(self, key: ClientKey, epoch: int) -> None:
        if self._stream is not None and self._is_joined:
            self._stream.send(self, self._world.on_release, queue_key(key.queue_id), epoch)

    # ------------------------------------------------------------------------------ answers

    def joined(self, stream: Stream, sequence: int, confirmed: tuple[Lease, ...]) -> None:
        if stream is not self._stream:
            return
        now_s = self._heard_s = self._clock_s()
        kept = [HeldQueue(ClientKey("T", one.key.queue_id), one.epoch) for one in confirmed]
        if not self.table.is_trusted(now_s):
            self.table.lose_all()
        self.table.on_joined(
            round(SESSION_S * 1_000), kept, sent_s=self._sent.get(sequence, float("-inf"))
        )
        self._is_joined = True
        for lease in confirmed:
            key = ClientKey("T", lease.key.queue_id)
            if self.table.epoch_of(key) is None:
                self._send_release(key, lease.epoch)
        for wish in self.table.wishes():
            self._send_acquire(wish)

    def heartbeat_acked(self, stream: Stream, sequence: int) -> None:
        if stream is self._stream:
            self._heard_s = self._clock_s()
            self.table.on_heartbeat_ack(sequence)

    def granted(self, stream: Stream, lease: Lease, offset: int) -> None:
        if stream is not self._stream:
            return
        key = ClientKey("T", lease.key.queue_id)
        if not self._check_deadline() or self.table.epoch_of(key) == lease.epoch:
            return
        if self.table.on_granted(key, lease.epoch, self._clock_s()):
            self._offsets[lease.key] = offset
            self._pending.pop(lease.key, None)
        else:
            self._send_release(key, lease.epoch)

    def revoked(self, stream: Stream, lease: Lease) -> None:
        if stream is self._stream:
            key = ClientKey("T", lease.key.queue_id)
            if self.table.on_revoked(key, lease.epoch):
                self._send_acquire(key)

    def committed(
        self, stream: Stream, key: GroupQueue, epoch: int, offset: int, done: bool
    ) -> None:
        if stream is self._stream and self._pending.get(key) == (epoch, offset):
            del self._pending[key]

    def stream_ended(self, stream: object) -> None:
        if stream is self._stream:
            self._stream = None
            self._is_joined = False
