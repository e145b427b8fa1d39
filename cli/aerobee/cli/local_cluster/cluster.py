"""A running local cluster: all processes started at once, supervised, stopped in order.

Invariants: while the context is open each process runs or is being restarted, or the context ends
with the reason; when it has ended, in whatever way, no process is left. The order of the stop is
brokers, nameserver, etcd, so that each can still say goodbye to the one below it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections.abc import AsyncIterator, Callable, Sequence

from aerobee.cli.failures import EnvironmentFailure
from aerobee.cli.local_cluster.child import Child, ChildEnded
from aerobee.cli.local_cluster.folder import locked_folder
from aerobee.cli.local_cluster.plan import ClusterPlan
from aerobee.cli.local_cluster.ports import check_free
from aerobee.cli.local_cluster.programs import broker_child, etcd_child, nameserver_child
from aerobee.runtime.clock import Clock

START_TIMEOUT_S = 300.0
"""Generous: a broker may have to recover a large store first."""


class LocalCluster:
    """The processes of a plan. Made by `running_cluster`."""

    def __init__(self, plan: ClusterPlan, *, clock: Clock, chance: random.Random) -> None:
        self.plan = plan
        self.not_writable: dict[str, str] = {}
        """Broker groups that took no messages when the cluster began to serve, and why."""
        self.etcd = Child(etcd_child(plan), clock=clock, chance=chance)
        self.nameserver = Child(nameserver_child(plan), clock=clock, chance=chance)
        self.brokers = {
            replica: Child(broker_child(plan, replica), clock=clock, chance=chance)
            for replica in plan.brokers
        }

    @property
    def children(self) -> tuple[Child, ...]:
        """In the order of the stop."""
        return (*self.brokers.values(), self.nameserver, self.etcd)

    def pids(self) -> dict[str, int | None]:
        """Process ids by name; None for one that is not running at this moment."""
        return {child.name: child.pid for child in self.children}

    async def wait_serving(self) -> None:
        """Returns once clients can use the cluster.

        Raises:
            EnvironmentFailure: it does not serve within START_TIMEOUT_S.
        """
        # gRPC is loaded here, while the children start, and is told that this process forks only
        # to run other programs: its fork handlers would get in the way and complain.
        os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
        from aerobee.cli.local_cluster.readiness import wait_until_serving

        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                self.not_writable = await wait_until_serving(self.plan)
        except TimeoutError:
            raise EnvironmentFailure(
                f"the cluster did not serve within {START_TIMEOUT_S:g} s; "
                f"see the logs in {self.plan.logs}"
            ) from None
        for child in self.children:
            child.served()

    async def stop(self) -> list[str]:
        """Stop all processes in order; the names of those that had to be killed."""
        killed: list[str] = []
        try:
            for layer in (tuple(self.brokers.values()), (self.nameserver,), (self.etcd,)):
                killed += await _stop_together(layer)
        finally:
            # A second Ctrl-C lands here: leave nothing behind.
            for child in self.children:
                child.kill()
        return killed


@contextlib.asynccontextmanager
async def running_cluster(
    plan: ClusterPlan,
    *,
    clock: Clock,
    chance: random.Random,
    on_started: Callable[[Child], None],
    on_ended: Callable[[ChildEnded], None],
) -> AsyncIterator[LocalCluster]:
    """Lock the folder, start everything, yield at once (see `wait_serving`), stop at the end.

    Raises:
        EnvironmentFailure: folder or ports cannot be used.
        ExceptionGroup: of Failure when a process refused to start or died too often, or of what
            the body raised.
    """
    with locked_folder(plan.data):
        check_free(plan.ports)
        if plan.is_encrypted:
            from aerobee.cli.local_cluster.certificates import (
                make_certificates,
                make_etcd_certificates,
            )

            make_etcd_certificates(plan.etcd_tls, clock)
            make_certificates(
                plan.tls,
                clock,
                nodes=plan.node_uris(),
                operator=plan.operator_uri(),
                hosts=[name for name in (plan.host, plan.outside_host) if name],
            )
        cluster = LocalCluster(plan, clock=clock, chance=chance)
        try:
            async with asyncio.TaskGroup() as supervisors:
                tasks = [
                    supervisors.create_task(
                        child.supervise(on_started=on_started, on_ended=on_ended),
                        name=f"supervise:{child.name}",
                    )
                    for child in reversed(cluster.children)
                ]
                yield cluster
                for task in tasks:
                    task.cancel()
        finally:
            await cluster.stop()


async def _stop_together(children: Sequence[Child]) -> list[str]:
    async with asyncio.TaskGroup() as tasks:
        stops = {
            child.name: tasks.create_task(child.stop(), name=f"stop:{child.name}")
            for child in children
        }
    return [name for name, stop in stops.items() if not stop.result()]
