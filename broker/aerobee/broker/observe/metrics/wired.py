"""The metrics of a broker, put together from its parts: a piece of the composition root."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.broker.observe.metrics.delays import DelayFigures
from aerobee.broker.observe.metrics.figures import BrokerFigures
from aerobee.broker.observe.metrics.lag import LagReading
from aerobee.broker.observe.metrics.store_times import StoreTimes
from aerobee.broker.observe.metrics.transactions import TransactionFigures
from aerobee.broker.reading.unread import Readers, UnreadCounts

if TYPE_CHECKING:
    from aerobee.broker.wiring import Wiring


def unread_counts(wiring: Wiring) -> UnreadCounts:
    """For all groups."""
    folder, coordinator = wiring.folder, wiring.coordinator
    return UnreadCounts(
        Readers(wiring.store, folder.topics, folder.offsets, coordinator.members),
        coordinator.ownership.leases,
        wiring.pull_service.sessions,
        wiring.popping.queue,
    )


def make_figures(wiring: Wiring) -> BrokerFigures:
    """Everything that a broker's parts report."""
    folder = wiring.folder
    times = StoreTimes(wiring.store, wiring.reads)
    return BrokerFigures(
        wiring.config,
        wiring.clock,
        wiring.address,
        statistics=wiring.state.now,
        registration=wiring.registration,
        roles=wiring.roles,
        guard=wiring.guard,
        topics=folder.topics,
        coordinator=wiring.coordinator,
        offsets=wiring.offsets,
        expiry=wiring.expiry,
        counters=wiring.counters,
        traffic=wiring.traffic,
        latencies=wiring.latencies,
        peer_limits=wiring.peer_limits,
        memory=wiring.memory,
        quotas=wiring.access.quotas,
        loop_delay=wiring.loop_delay,
        times=times,
        lag=LagReading(unread_counts(wiring), times),
        delays=DelayFigures(
            wiring.delays,
            wiring.clock,
            topics_max=wiring.config.metrics.topics_max,
        ),
        transactions=TransactionFigures(
            wiring.transactions,
            wiring.clock,
            topics_max=wiring.config.metrics.topics_max,
        ),
        sessions=wiring.pull_service.sessions,
        watch=wiring.watch,
    )
