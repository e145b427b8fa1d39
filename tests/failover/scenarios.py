"""What is done to a cluster, one function each. All leave healing and judging to `Trial.judged`."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

from tests.failover.network import CLIENTS
from tests.failover.trial import Trial
from tests.failover.world import NAMESERVERS, broker_node, nameserver_node

NAMESERVER_NODES = [nameserver_node(number) for number in NAMESERVERS]


async def kill_master(trial: Trial) -> float:
    """kill -9, and no return before another leads; the pause in seconds."""
    master = await trial.world.master()
    fault_s = time.monotonic()
    await trial.world.brokers[master].kill()
    if await _was_alone(trial, master):
        await trial.world.brokers[master].start()
        return await trial.paused("master killed, alone in sync", fault_s)
    pause_s = await trial.paused("master killed", fault_s)
    await trial.world.master(not_id=master)
    trial.figures.fail_overs += 1
    return pause_s


async def _was_alone(trial: Trial, master: int) -> bool:
    """Whether the machine stood still just before, so that the master had lost its replicas when it
    was hit: nobody can follow it then, and it must come back itself."""
    in_sync = [one.broker_id for one in (await trial.world.record()).in_sync]
    return in_sync == [master]


async def _parted_alone(trial: Trial, master: int, what: str, fault_s: float) -> bool:
    """Whether the same is so of a master that was parted; then the wires are mended and it goes
    on. What it said just before may still be on its way to a nameserver."""
    await asyncio.sleep(0.2)
    if not await _was_alone(trial, master):
        return False
    trial.world.network.heal()
    await trial.paused(f"{what}, alone in sync", fault_s)
    return True


async def kill_slave(trial: Trial) -> float:
    slave = (await trial.world.slaves())[0]
    fault_s = time.monotonic()
    await trial.world.brokers[slave].kill()
    return await trial.paused("slave killed", fault_s)


async def pause_master(trial: Trial) -> None:
    """SIGSTOP beyond the lease, then SIGCONT while another leads: it acknowledges nothing more and
    comes back as a slave."""
    world = trial.world
    stale = await world.master()
    fault_s = time.monotonic()
    world.brokers[stale].stand_still()
    if await _was_alone(trial, stale):
        world.brokers[stale].go_on()
        await world.in_sync(*world.settings.replicas)
        return
    await trial.paused("master stands still", fault_s)
    await world.master(not_id=stale)
    trial.figures.fail_overs += 1
    epoch = (await world.record()).epoch
    world.brokers[stale].go_on()
    # It opens its folder again as a slave, and answers nobody meanwhile.
    assert not (await world.stats_once_open(stale)).writable
    record = await world.record()
    assert record.master_id != stale
    assert record.epoch == epoch


async def part_master_from_slaves(trial: Trial) -> None:
    """The master keeps its lease: it goes on with fewer replicas in sync."""
    world = trial.world
    master = await world.master()
    epoch = (await world.record()).epoch
    others = [broker_node(one) for one in await world.slaves()]
    fault_s = time.monotonic()
    world.network.part(broker_node(master), others)
    await trial.paused("master parted from slaves", fault_s)
    await world.in_sync(master)
    assert (await world.record()).epoch == epoch
    world.network.heal()
    await world.in_sync(*world.settings.replicas)


async def part_master_from_nameservers(trial: Trial) -> None:
    """The master cannot renew its lease: another is elected, while slaves and clients still reach
    the old one."""
    world = trial.world
    stale = await world.master()
    fault_s = time.monotonic()
    world.network.part(broker_node(stale), NAMESERVER_NODES)
    if await _parted_alone(trial, stale, "master parted from nameservers", fault_s):
        return
    await world.master(not_id=stale)
    await trial.clients.acknowledged_after(time.monotonic())
    trial.stood_still("master parted from nameservers", fault_s)
    trial.figures.fail_overs += 1


async def part_master_from_all(trial: Trial) -> None:
    """Slaves, nameservers and clients: nobody reaches it, and it lives."""
    world = trial.world
    stale = await world.master()
    others = [broker_node(one) for one in await world.slaves()]
    fault_s = time.monotonic()
    world.network.part(broker_node(stale), [*others, *NAMESERVER_NODES, CLIENTS])
    if await _parted_alone(trial, stale, "master parted from all", fault_s):
        return
    await trial.paused("master parted from all", fault_s)
    await world.master(not_id=stale)
    trial.figures.fail_overs += 1


async def deafen_master(trial: Trial) -> None:
    """One way: slaves hear the master, their acknowledgements do not arrive."""
    world = trial.world
    master = await world.master()
    fault_s = time.monotonic()
    for slave in await world.slaves():
        world.network.block(broker_node(slave), broker_node(master))
    await trial.paused("acknowledgements do not arrive", fault_s)


async def mute_master(trial: Trial) -> None:
    """One way: nothing of the master reaches slaves or nameservers, and it hears everybody."""
    world = trial.world
    stale = await world.master()
    fault_s = time.monotonic()
    for node in [*(broker_node(one) for one in await world.slaves()), *NAMESERVER_NODES]:
        world.network.block(broker_node(stale), node)
    if await _parted_alone(trial, stale, "master unheard", fault_s):
        return
    await world.master(not_id=stale)
    await trial.clients.acknowledged_after(time.monotonic())
    trial.stood_still("master unheard", fault_s)
    trial.figures.fail_overs += 1


async def restart_etcd(trial: Trial, away_s: float = 0.3) -> None:
    """kill -9, back on its data before any lease ends."""
    fault_s = time.monotonic()
    await trial.world.etcd.kill()
    await asyncio.sleep(away_s)
    await trial.world.etcd.start()
    await trial.paused(f"etcd away for {away_s} s", fault_s)


async def kill_nameserver(trial: Trial) -> None:
    """The other one serves all."""
    nameserver = trial.world.nameservers[0]
    fault_s = time.monotonic()
    await nameserver.kill()
    await trial.paused("nameserver killed", fault_s)
    # Longer than a lease: brokers renew at the other one.
    await asyncio.sleep(trial.world.settings.lease_ms / 1_000 + 0.5)
    await trial.paused("nameserver away for a lease", time.monotonic())
    await nameserver.start()


async def slow_slave(trial: Trial) -> None:
    """A late and narrow wire: it leaves the in-sync set, catches up, and comes back."""
    world = trial.world
    master = await world.master()
    slave = (await world.slaves())[0]
    fault_s = time.monotonic()
    for ends in ((master, slave), (slave, master)):
        world.network.slow(*map(broker_node, ends), delay_s=0.3, bytes_per_s=8_000)
    await trial.paused("slow slave", fault_s)
    rest = [one for one in world.settings.replicas if one != slave]
    await world.in_sync(*rest)
    world.network.heal()
    await world.in_sync(*world.settings.replicas)


async def flapping_link(trial: Trial, times: int = 12) -> None:
    """The wire between master and a slave is reset, blocked and freed again and again."""
    world = trial.world
    master = broker_node(await world.master())
    slave = broker_node((await world.slaves())[0])
    for turn in range(times):
        if turn % 3 == 0:
            world.network.part(master, [slave])
        else:
            world.network.heal()
            world.network.reset(master, slave)
        await asyncio.sleep(trial.chance.uniform(0.05, 0.4))
    world.network.heal()


async def rolling_restart(trial: Trial) -> None:
    """SIGTERM one after the other, each back in sync before the next."""
    world = trial.world
    for broker_id in world.settings.replicas:
        was_master = await world.master() == broker_id
        fault_s = time.monotonic()
        assert await world.brokers[broker_id].stop() == 0
        await trial.paused("master restarted" if was_master else "slave restarted", fault_s)
        await world.brokers[broker_id].start()
        await world.in_sync(*world.settings.replicas)
        trial.figures.fail_overs += was_master


async def planned_hand_over(trial: Trial) -> float:
    """The longest time without an acknowledgement around it, in seconds."""
    world = trial.world
    await world.in_sync(*world.settings.replicas)
    master = await world.master()
    successor = (await world.slaves())[-1]
    fault_s = time.monotonic()
    answer = await world.hand_over(master, successor)
    assert answer.master_id == successor
    await trial.clients.acknowledged_after(time.monotonic())
    trial.figures.fail_overs += 1
    return trial.stood_still("planned hand-over", fault_s)


async def strand_master(trial: Trial) -> None:
    """Only clients reach the master: with asynchronous replication it acknowledges, until its
    lease ends, what no replica will have. When it comes back it cuts that."""
    world = trial.world
    stale = await world.master()
    others = [broker_node(one) for one in await world.slaves()]
    fault_s = time.monotonic()
    world.network.part(broker_node(stale), [*others, *NAMESERVER_NODES])
    if await _parted_alone(trial, stale, "master stranded", fault_s):
        return
    await world.master(not_id=stale)
    trial.figures.fail_overs += 1
    # Acknowledgements and bytes that were under way when the wires were cut.
    trial.may_lose.append((fault_s - 0.3, time.monotonic()))
    await trial.clients.acknowledged_after(time.monotonic())
    trial.stood_still("master stranded", fault_s)


async def fill_disk_of_slave(trial: Trial, slave: int, ballast_bytes: int) -> None:
    """Its folder lies on a small disk. It leaves the in-sync set, lives, and is back by itself
    once there is room."""
    world = trial.world
    if await world.master() == slave:
        await planned_hand_over(trial)
    ballast = world.folder(slave) / "ballast"
    fault_s = time.monotonic()
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        for _ in range(ballast_bytes >> 12):
            file.write(bytes(4_096))
    await world.in_sync(*(one for one in world.settings.replicas if one != slave))
    await trial.clients.acknowledged_after(time.monotonic())
    trial.stood_still("disk of a slave full", fault_s)
    assert world.brokers[slave].is_running
    ballast.unlink()
    await world.in_sync(*world.settings.replicas)
    assert "Traceback" not in world.brokers[slave].log
