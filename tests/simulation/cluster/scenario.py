"""One seed: a cluster, its faults, and the check that it recovers once they are over."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

from aerobee.broker.groups.queue_leases import GroupQueue
from aerobee.broker.replication.master_term import TermPolicy
from aerobee.testing.power_failure import draw_fate
from tests.simulation.cluster.broker import Broker
from tests.simulation.cluster.checks import Figures
from tests.simulation.cluster.clients import Producer, Reader
from tests.simulation.cluster.failing import DelayingProducer, FailingMember
from tests.simulation.cluster.groups import queue_key
from tests.simulation.cluster.kernel import Place, Process
from tests.simulation.cluster.members import GroupMember
from tests.simulation.cluster.old_copies import OldCopies
from tests.simulation.cluster.pop_clients import ErrandProducer, PopClient
from tests.simulation.cluster.popping import ORDERED, PLAIN
from tests.simulation.cluster.stored_queues import EPOCH_MS
from tests.simulation.cluster.transaction_clients import TransactionClient
from tests.simulation.cluster.variant import Variant
from tests.simulation.cluster.world import Settings, Trace, World
from tests.simulation.judge import Violation

HEALED_WITHIN_S = 25.0
FIRST_HANG = 4_000
"""The first seed in which disks hang; mutants are searched for in earlier ones."""
_LOOK_S = 0.25


def draw_settings(chance: random.Random) -> Settings:
    return Settings(
        sync_master=chance.random() < 0.7,
        sync_flush=chance.random() < 0.4,
        unclean_election=chance.random() < 0.1,
        lease_ms=chance.choice((1_000, 2_000, 3_000)),
        idle_s=chance.choice((0.8, 1.5)),
        flush_ticks=chance.choice((1, 2, 8)),
        policy=TermPolicy(
            min_insync_replicas=chance.choice((1, 1, 2)),
            in_sync_lag_s=chance.choice((0.6, 1.0, 2.0)),
            proposal_pause_s=0.3,
        ),
    )


class Scenario:
    def __init__(self, seed: int, *, variant: Variant, trace: Trace | None = None) -> None:
        self._chance = chance = random.Random(seed)
        # In every other seed messages wait and fail; in a quarter of the rest POP hands them out,
        # and in a quarter of it they are of transactions.
        has_pops, has_transactions = seed % 8 == 0, seed % 8 == 4
        has_waiting = seed % 2 or has_pops or has_transactions
        waiting_chance = random.Random(f"waiting in {seed}") if has_waiting else None
        self.world = world = World(
            chance,
            draw_settings(chance),
            variant,
            trace,
            waiting_chance=waiting_chance,
            has_pops=has_pops,
            has_transactions=has_transactions,
        )
        world.note("%s", world.settings)
        world.start_etcd()
        for _ in range(chance.choice((1, 2))):
            world.add_nameserver()
        self._producers: list[Producer] = []
        count = chance.choice((2, 3, 3))
        for broker_id in range(count):
            if broker_id == 0 or chance.random() < 0.8:
                world.add_replica(broker_id)
            else:
                self._at(chance.random() * 5.0, partial(world.add_replica, broker_id))
        for number in range(chance.choice((1, 2))):
            place = world.new_place("producer")
            pause_s = chance.choice((0.05, 0.2))
            place.process = producer = Producer(world, place, number + 1, pause_s)
            self._producers.append(producer)
        for number in range(chance.choice((0, 2, 3))):
            place = world.new_place(f"member{number}")
            place.process = member = GroupMember(world, place, number)
            world.members.append(member)
        place = world.new_place("reader")
        place.process = Reader(world, place, 0.2)
        self._commits_before = -1
        self._has_deleted = False
        self._mishaps: list[tuple[Callable[[], None], int]] = [
            (self._kill, 4),
            (self._lose_power, 4),
            (self._pause, 4),
            (self._split, 5),
            (self._cut_streams, 4),
            (self._restart_etcd, 1),
            (self._restart_nameserver, 1),
            (self._hand_over, 2),
            (self._stop_cleanly, 2),
            (self._retain, 2),
            (self._lose_all_power, 1),
            (self._reset_offset, 1),
            (self._pause_member, 1),
        ]
        self._delaying: DelayingProducer | ErrandProducer | TransactionClient | None = None
        self._transacting: TransactionClient | None = None
        self._pop_clients: list[PopClient] = []
        if world.has_waiting:
            self._begin_waiting(world.waiting_chance)
        self._schedule_copies(random.Random(f"copies of {seed}"))
        self._schedule_deletions(random.Random(f"deletions of {seed}"))
        if seed >= FIRST_HANG and seed % 3 == 0:
            self._schedule_hangs(random.Random(f"hangs of {seed}"))

    def _begin_waiting(self, chance: random.Random) -> None:
        """Clocks that are set, full disks, and logs that must be removed while messages wait."""
        world = self.world
        world.full_share = chance.choice((0.0, 0.0, 0.1))
        if world.has_pops:
            self._begin_popping()
        elif world.has_transactions:
            place = world.producer_of_transactions = world.new_place("producer of transactions")
            place.process = self._delaying = self._transacting = TransactionClient(world, place)
            for _ in range(chance.choice((0, 2))):
                self._at(14.0 * chance.random(), self._hand_over_in_vain)
        else:
            place = world.new_place("delaying producer")
            place.process = self._delaying = DelayingProducer(world, place)
            place = world.new_place("failing member")
            place.process = FailingMember(world, place)
        for _ in range(chance.choice((0, 4))):
            self._at(14.0 * chance.random(), self._set_clock)
        for _ in range(chance.choice((0, 6))):
            self._at(5.0 + 9.0 * chance.random(), self._retain)

    def _begin_popping(self) -> None:
        world = self.world
        place = world.new_place("errand producer")
        place.process = self._delaying = ErrandProducer(world, place)
        for group in (PLAIN, PLAIN, ORDERED, ORDERED):
            place = world.new_place(f"client {len(self._pop_clients)} of {group}")
            place.process = client = PopClient(world, place, group)
            self._pop_clients.append(client)

    def _set_clock(self) -> None:
        chance = self.world.waiting_chance
        place = chance.choice(list(self.world.broker_places.values()))
        self._set_wall(place, chance.choice((-3.0, -0.3, 0.0, 0.3, 3.0)))

    def _set_wall(self, place: Place, ahead_s: float) -> None:
        """Not during a read: what was due when it was chosen would be in an intent with an earlier
        time, and a judge could not distinguish it from an early delivery."""
        broker = place.process
        if isinstance(broker, Broker) and broker.waiting is not None and broker.waiting.reads:
            self._soon(0.05, partial(self._set_wall, place, ahead_s))
            return
        world = self.world
        if ahead_s < place.wall_s:
            now_ms = EPOCH_MS + round((world.kernel.now_s + place.wall_s) * 1_000)
            world.set_back_ms = max(world.set_back_ms, now_ms)
        place.wall_s = ahead_s
        world.note("the clock of %s is %s s ahead", place, ahead_s)

    def _schedule_copies(self, chance: random.Random) -> None:
        """In every fifth seed folders are copied, and put back later."""
        copies = OldCopies(self.world, chance, self._start_later)
        if chance.random() < 0.2:
            for _ in range(3):
                self._at(1.0 + 3.0 * chance.random(), copies.take)
                self._at(3.0 + 3.0 * chance.random(), copies.put_back)

    def _schedule_deletions(self, chance: random.Random) -> None:
        """In every third seed an operator deletes an offset by force, with repeated attempts."""
        if chance.random() < 0.33:
            key, begin_s = queue_key(chance.randrange(2)), 1.0 + 3.0 * chance.random()
            for number in range(30):
                self._at(begin_s + 0.1 * number, lambda: self._delete_offset(key))
            # The next master then learns of leases only from members.
            self._at(begin_s + 0.05 + 0.3 * chance.random(), self._kill)

    def _schedule_hangs(self, chance: random.Random) -> None:
        """In every third seed from `FIRST_HANG` on, disks stop responding for a while."""
        for _ in range(chance.choice((1, 2, 4))):
            hang = partial(self._hang_disk, chance, chance.choice((0.5, 1.5, 3.0, 6.0)))
            self._at(1.0 + 8.0 * chance.random(), hang)

    def _hang_disk(self, chance: random.Random, duration_s: float) -> None:
        group = self.world.etcd_state.group
        broker_id = chance.choice(list(self.world.broker_places))
        if group is not None and group.master_id >= 0 and chance.random() < 0.6:
            broker_id = group.master_id
        folder = self.world.folders[broker_id]
        folder.hangs = True
        self.world.note("the disk of replica %s hangs for %s s", broker_id, duration_s)

        def answer() -> None:
            self.world.folders[broker_id].hangs = folder.hangs = False

        self._soon(duration_s, answer)

    def run(self) -> Figures:
        """Raises Violation; anything else raised is a defect as well."""
        world, chance = self.world, self._chance
        duration_s = chance.choice((6.0, 10.0, 14.0))
        mishaps, weights = zip(*self._mishaps, strict=True)
        count = chance.choice((2, 4, 8, 12))
        for mishap in chance.choices(mishaps, weights, k=count):
            self._at(1.0 + chance.random() * (duration_s - 1.0), mishap)
        kernel = world.kernel
        kernel.run(duration_s)
        self._heal()
        end_s = duration_s + HEALED_WITHIN_S
        sent = [producer.acknowledged for producer in self._producers]
        while trouble := self._trouble(sent):
            if kernel.now_s >= end_s:
                raise Violation(f"not well {HEALED_WITHIN_S} s after the last fault: {trouble}")
            kernel.run(kernel.now_s + _LOOK_S)
        figures = world.checks.figures
        figures.runs = 1
        figures.faults = count
        figures.steps = kernel.steps
        figures.virtual_s = kernel.now_s
        return figures

    # ------------------------------------------------------------------------------ the end

    def _heal(self) -> None:
        world = self.world
        world.note("all faults end")
        network = world.network
        network.lost_share = network.doubled_share = 0.0
        world.full_share = 0.0
        self._calm_down()
        for folder in world.folders.values():
            folder.hangs = False
        for link in sorted(network.blocked):
            network.unblock(link)
        members = [member.place for member in world.members]
        places = [world.etcd_place, *world.nameserver_places, *world.broker_places.values()]
        for place in [*places, *members]:
            if place.is_paused:
                world.kernel.resume(place)
        for place in world.broker_places.values():
            if place.wall_s:
                self._set_wall(place, 0.0)
        if world.etcd_place.process is None:
            world.start_etcd()
        for place in world.nameserver_places:
            if place.process is None:
                world.start_nameserver(place)
        for broker_id, place in world.broker_places.items():
            if place.process is None and place.opens_at == 0.0:
                world.start_broker(broker_id)

    def _calm_down(self) -> None:
        """Nothing new waits or fails."""
        if self._delaying is not None:
            self._delaying.is_over = True
        for client in self._pop_clients:
            client.is_calm = True

    def _trouble(self, sent: list[int]) -> str:
        """What is not in order yet; empty when everything is."""
        world = self.world
        group = world.etcd_state.group
        if group is None:
            return "no group"
        masters = [
            process
            for place in world.broker_places.values()
            if isinstance(process := place.process, Broker) and process.master is not None
        ]
        if len(masters) != 1:
            return f"masters {[one.instance for one in masters]}, record {group}"
        master = masters[0]
        if master.instance != group.master_instance or not master.may_act():
            return f"{master.instance} does not act, record {group}"
        in_sync = {name.broker_id for name in group.in_sync}
        if in_sync != set(world.broker_places):
            return f"in sync are only {sorted(in_sync)}, record {group}"
        for producer, before in zip(self._producers, sent, strict=True):
            if producer.acknowledged <= before:
                return "a producer has nothing acknowledged"
        commits = world.checks.figures.commits
        if world.members and self._commits_before < 0:
            self._commits_before = commits
        if world.members and commits <= self._commits_before:
            return "no commit was acknowledged"
        if self._transacting is not None and self._transacting.open_count:
            return f"{self._transacting.open_count} transactions were not answered"
        return world.checks.missing(master)

    # ------------------------------------------------------------------------------ faults

    def _at(self, time_s: float, act: Callable[[], None]) -> None:
        control = self.world.control
        self.world.kernel.push(time_s, control.place, control, lambda control: act())

    def _soon(self, delay_s: float, act: Callable[[], None]) -> None:
        self._at(self.world.kernel.now_s + delay_s, act)

    def _any_replica(self) -> int:
        """Usually the master, where it matters most."""
        chance, world = self._chance, self.world
        group = world.etcd_state.group
        if group is not None and group.master_id >= 0 and chance.random() < 0.5:
            return group.master_id
        return chance.choice(list(world.broker_places))

    def _start_later(self, broker_id: int) -> None:
        delay_s = self._chance.choice((0.05, 0.5, 2.0, 5.0))
        place = self.world.broker_places[broker_id]

        def start() -> None:
            if place.process is None and place.opens_at == 0.0:
                self.world.start_broker(broker_id)

        self._soon(delay_s, start)

    def _kill(self) -> None:
        broker_id = self._any_replica()
        self.world.note("replica %s is killed", broker_id)
        self.world.end_process(self.world.broker_places[broker_id])
        self._start_later(broker_id)

    def _lose_power(self, broker_id: int | None = None) -> None:
        world = self.world
        if broker_id is None:
            broker_id = self._any_replica()
        folder, place = world.folders[broker_id], world.broker_places[broker_id]
        world.end_process(place, is_heard=False)
        log = folder.log
        folder.lose_power(self._chance.randint(min(log.synced_end, log.end), log.end))
        if world.has_waiting:
            promised, end = folder.timer_disk.sequence_range
            fate = draw_fate(world.waiting_chance, promised=promised, end=end, has_journal=True)
            folder.timer_disk = folder.timer_disk.after_power_failure(fate)
        world.note("replica %s loses power, its log ends at %s", broker_id, log.end)
        self._start_later(broker_id)

    def _lose_all_power(self) -> None:
        for broker_id in list(self.world.broker_places):
            self._lose_power(broker_id)

    def _pause(self) -> None:
        world, chance = self.world, self._chance
        if chance.random() < 0.8:
            place = world.broker_places[self._any_replica()]
        else:
            place = chance.choice(world.nameserver_places)
        self._pause_place(place)

    def _pause_place(self, place: Place) -> None:
        world, chance = self.world, self._chance
        if place.is_paused:
            return
        duration_s = chance.choice((0.3, 1.0, 2.5, 5.0))
        world.note("%s is paused for %s s", place, duration_s)
        place.is_paused = True

        def resume() -> None:
            if place.is_paused:
                world.note("%s goes on", place)
                world.kernel.resume(place)

        self._soon(duration_s, resume)

    def _split(self) -> None:
        """One place and some of the others cannot reach each other, or only one way."""
        world, chance = self.world, self._chance
        one = world.broker_places[self._any_replica()]
        others: list[Place] = [
            place
            for place in (
                world.etcd_place,
                *world.nameserver_places,
                *world.broker_places.values(),
                *(producer.place for producer in self._producers),
                *(member.place for member in world.members),
            )
            if place is not one and chance.random() < 0.5
        ]
        if chance.random() < 0.1:
            one = chance.choice(world.nameserver_places)
        kind = chance.choice(("both", "in", "out"))
        links = []
        for other in others:
            if kind != "out":
                links.append((other.index, one.index))
            if kind != "in":
                links.append((one.index, other.index))
        duration_s = chance.choice((0.2, 1.0, 3.0, 6.0))
        world.note("%s and %s are split (%s) for %s s", one, others, kind, duration_s)
        for link in links:
            world.network.block(link)

        def unite() -> None:
            for link in links:
                world.network.unblock(link)

        self._soon(duration_s, unite)

    def _cut_streams(self) -> None:
        process = self.world.broker_places[self._any_replica()].process
        if process is not None:
            chance = self._chance
            for stream in process.streams:
                if chance.random() < 0.7:
                    stream.cut(chance.choice((0.0, 0.05, 1.0)), chance.choice((0.0, 0.05, 1.0)))

    def _restart_etcd(self) -> None:
        world = self.world
        world.note("etcd goes down")
        world.end_process(world.etcd_place)

        def start() -> None:
            if world.etcd_place.process is None:
                world.note("etcd is back")
                world.start_etcd()

        self._soon(self._chance.choice((0.1, 1.0, 4.0)), start)

    def _restart_nameserver(self) -> None:
        world = self.world
        place = self._chance.choice(world.nameserver_places)
        world.note("%s goes down", place)
        world.end_process(place)

        def start() -> None:
            if place.process is None:
                world.start_nameserver(place)

        self._soon(self._chance.choice((0.1, 1.0, 4.0)), start)

    def _running(self) -> Broker | None:
        process: Process | None = self.world.broker_places[self._any_replica()].process
        return process if isinstance(process, Broker) else None

    def _hand_over(self) -> None:
        broker = self._running()
        if broker is None or broker.place.is_paused:
            return
        others = [one for one in self.world.broker_places if one != broker.folder.broker_id]
        if others:
            self.world.note("%s is to hand over", broker.instance)
            if broker.master is not None:
                broker.master.hand_over(self._chance.choice(others))

    def _hand_over_in_vain(self) -> None:
        """The successor dies, and the term continues."""
        group = self.world.etcd_state.group
        if group is None or group.master_id < 0:
            return
        broker = self.world.broker_places[group.master_id].process
        others = [name.broker_id for name in group.in_sync if name.broker_id != group.master_id]
        if others and isinstance(broker, Broker) and broker.master is not None:
            successor_id = self.world.waiting_chance.choice(others)
            broker.master.hand_over(successor_id)
            self.world.note("replica %s is killed as it is to take over", successor_id)
            self.world.end_process(self.world.broker_places[successor_id])
            self._start_later(successor_id)

    def _stop_cleanly(self) -> None:
        broker = self._running()
        if broker is None or broker.place.is_paused:
            return

        def end() -> None:
            if broker.runs:
                self.world.end_process(broker.place)
                self._start_later(broker.folder.broker_id)

        broker.leave(end)

    def _retain(self) -> None:
        """Retention removes the oldest part of a replica's log, once the offsets in it are repeated
        later."""
        self._remove_oldest()
        self._soon(1.0, self._remove_oldest)

    def _remove_oldest(self) -> None:
        broker = self._running()
        if broker is None or broker.place.is_paused or broker.is_stopping:
            return
        log = broker.folder.log
        end = min(self.world.checks.end_before(4.0), broker.confirmed_end, log.synced_end)
        if end <= log.begin:
            return
        position = log.boundary(self._chance.randint(log.begin, end))
        image_position = broker.derived.journal.image_position
        if position > image_position:
            if broker.master is not None:
                broker.master.groups.write_image()
            position = log.boundary(image_position)
        if position <= log.begin:
            return

        def drop() -> None:
            broker.folder.drop_before(position)
            self.world.note("%s: the log begins at %s", broker.instance, position)

        if broker.waiting is None:
            drop()
        else:
            broker.waiting.remove(position, drop)

    def _reset_offset(self) -> None:
        broker = self._running()
        if broker is not None and broker.master is not None and not broker.place.is_paused:
            broker.master.groups.reset(queue_key(self._chance.randrange(2)), 1)

    def _delete_offset(self, key: GroupQueue) -> None:
        if self._has_deleted:
            return
        for place in self.world.broker_places.values():
            broker = place.process
            if not isinstance(broker, Broker) or broker.place.is_paused or broker.master is None:
                continue
            if broker.master.groups.delete(key):
                self._has_deleted = True
                self.world.checks.figures.deletions += 1
                self.world.note("the offset of %s is deleted", key)

    def _pause_member(self) -> None:
        if self.world.members:
            self._pause_place(self._chance.choice(self.world.members).place)


def run_seed(seed: int, *, variant: Variant | None = None, trace: Trace | None = None) -> Figures:
    """Raises what is wrong."""
    scenario = Scenario(seed, variant=variant or Variant(), trace=trace)
    try:
        return scenario.run()
    finally:
        for place in scenario.world.broker_places.values():
            scenario.world.end_process(place)
