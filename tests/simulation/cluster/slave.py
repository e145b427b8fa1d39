"""A slave's part: one stream to its master."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from aerobee.broker.replication.joining import (
    BeginAnew,
    Cut,
    GoOn,
    LogState,
    check_bytes,
)
from aerobee.runtime.errors import AerobeeError
from tests.simulation.cluster.log import QueueId
from tests.simulation.cluster.master import Frame, Hello
from tests.simulation.cluster.network import Stream

if TYPE_CHECKING:
    from tests.simulation.cluster.broker import Broker


class SlavePart:
    """From the dial to the end of the stream."""

    __slots__ = ("_broker", "_early", "_follows", "_heard_s", "epoch", "master_id", "stream")

    def __init__(self, broker: Broker, master: Broker, epoch: int) -> None:
        self._broker = broker
        self.epoch = epoch
        self.master_id = master.folder.broker_id
        self.stream = Stream(broker.world.network, broker, master)
        self._early: list[Frame] = []
        self._follows = False
        self._heard_s = broker.clock_s()
        if broker.world.settings.sync_flush and broker.world.variant.syncs_before_hello:
            # The master counts what the log has from the hello on.
            log = broker.folder.log
            log.synced_end = log.end
            if broker.waiting is not None:
                broker.waiting.on_flushed()
        self.stream.send(broker, broker.world.on_hello, Hello(broker.name, broker.log_state, epoch))

    def end(self) -> None:
        self.stream.close(self._broker)
        self._broker.slave = None

    def tick(self) -> None:
        broker = self._broker
        if broker.clock_s() - self._heard_s > broker.world.settings.idle_s:
            self.end()
        elif self._follows and broker.ticks % 2:
            self.acknowledge()

    def on_agreement(
        self, master: LogState, unclean: Collection[int], queue_bases: dict[QueueId, int]
    ) -> None:
        """Derive the same result as the master, and carry it out."""
        broker = self._broker
        world = broker.world
        self._heard_s = broker.clock_s()
        try:
            start = world.variant.where_to_start(broker.log_state, master, unclean_epochs=unclean)
        except AerobeeError as error:
            world.note("%s cannot follow: %s", broker.instance, error)
            self.end()
            return
        match start:
            case GoOn():
                broker.adopt_history(master.epochs, self)
            case Cut(end=end, is_unclean=is_unclean):
                world.note("%s cuts from %s on", broker.instance, end)
                self.end()
                world.reopen(broker, cut_end=end, is_cut_unclean=is_unclean)
            case BeginAnew(position=position):
                world.note("%s begins anew at %s", broker.instance, position)
                self.end()
                world.reopen(broker, begin_at=position, queue_bases=queue_bases)

    def begin(self) -> None:
        """The history is durable: now the bytes."""
        self._follows = True
        early, self._early = self._early, []
        self.acknowledge()
        for frame in early:
            self.on_frame(frame)

    def on_frame(self, frame: Frame) -> None:
        broker = self._broker
        self._heard_s = broker.clock_s()
        if frame.epoch != self.epoch:
            self.end()
            return
        if not self._follows:
            self._early.append(frame)
            return
        log = broker.folder.log
        if frame.records:
            check_bytes(log.end, frame.position)
            for record in frame.records:
                broker.appended(record, log.append(record))
            if broker.world.settings.sync_flush:
                broker.flush()
            else:
                self.acknowledge()
        confirmed_end = min(frame.confirmed_end, log.end)
        if confirmed_end > broker.confirmed_end:
            broker.confirmed(confirmed_end)
            broker.world.checks.slave_confirmed(broker)
            for _ in broker.derived.apply(confirmed_end):
                pass

    def acknowledge(self) -> None:
        """Report what is stored; also the slave's heartbeat."""
        broker = self._broker
        if self._follows:
            self.stream.send(broker, broker.world.on_ack, self.epoch, broker.safe_end())
