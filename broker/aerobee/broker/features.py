"""A feature of the broker: one shape for everything that stands on its log.

    at rest   which topics it has for itself; what it opens of a folder, and what it forgets with
              the log, on a thread
    in a run  what it does as master, what it keeps of the log, its tasks, figures and edges; what
              it saves at a stop

The composition root has one list of features, in order of dependence: a feature comes after those
it uses. A new feature is a folder and one entry of that list.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from aerobee.broker.replication.duties import Duty
from aerobee.broker.retention.holds import Hold
from aerobee.runtime.metrics.families import AnyFamily
from aerobee.store.engine.config import StoreConfig
from aerobee.store.engine.disk import Disk
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.tables.config_tables import PERM_READ, TopicConfig, TopicTable

Task = Callable[[], Coroutine[Any, Any, Any]]
P_contra = TypeVar("P_contra", contravariant=True)


class Edge(Protocol):
    """A protocol that the broker is reached by."""

    async def start(self) -> int:
        """Bind and answer, not yet as one that serves; returns the port.

        Raises:
            InvalidArgument: the address is in use or not of this machine.
        """
        ...

    async def set_serving(self, serving: bool) -> None:
        """What health checks are told."""
        ...

    def end_pulls(self) -> None:
        """Tell every puller to come back later."""
        ...

    async def stop(self, grace_s: float) -> None:
        """Refuse new calls, let running ones end for `grace_s` seconds, then cancel them."""
        ...


class Feature(Duty, Protocol):
    """A feature, and its duty as master. What a feature does not need, it leaves as it is here.

    Its class is what the composition root lists: the class methods are called between runs, on a
    thread, and may block. An instance lives for one run, on the loop.
    """

    @classmethod
    def own_topics(cls, config: StoreConfig) -> Mapping[str, int]:
        """The topics that the broker has for this feature, by name with their number of queues.
        Nameservers do not know them; clients can read them, but not send to them."""
        return {}

    @classmethod
    def open(cls, disk: Disk, store: MessageStore, config: StoreConfig) -> Any:
        """What the folder holds for this feature; an instance is made with it.

        Raises StoreUnusable, OSError.
        """
        return None

    @classmethod
    def forget(cls, disk: Disk, position: int) -> None:
        """The closed folder's log is about to restart at `position`: what is known is void, and
        comes back from the copied log. Raises StoreUnusable, OSError."""
        return

    @classmethod
    def forget_end(cls, disk: Disk) -> None:
        """The end of the closed folder's log is about to be cut. Raises StoreUnusable, OSError."""
        return

    journal: Duty | None = None
    """Its journal: takes entries until every feature has left its term."""
    holds: Sequence[Hold] = ()
    """What it keeps of the log, asked in this order."""
    edges: Sequence[Edge] = ()
    """The protocols that it adds to the broker's own."""

    def tasks(self) -> Mapping[str, Task]:
        """By name. They run from when all edges listen until the end; they raise StoreFailed."""
        return {}

    async def figures(self) -> Sequence[AnyFamily]:
        """For the broker's metrics. Unknown values are absent."""
        return ()

    async def save(self) -> None:
        """At a stop, once nothing changes any more. Raises StoreFailed."""
        return


class Kind(Protocol[P_contra]):
    """A class of features, each made from a broker's parts `P` and from what was opened."""

    def __call__(self, parts: P_contra, opened: Any, /) -> Feature: ...

    def own_topics(self, config: StoreConfig) -> Mapping[str, int]: ...

    def open(self, disk: Disk, store: MessageStore, config: StoreConfig) -> Any: ...

    def forget(self, disk: Disk, position: int) -> None: ...

    def forget_end(self, disk: Disk) -> None: ...


def duties_of(features: Sequence[Feature]) -> tuple[Duty, ...]:
    """In the order in which they are left: a feature first tells those it uses of its progress, and
    the journals come last."""
    journals = (feature.journal for feature in features if feature.journal is not None)
    return (*reversed(features), *journals)


def tasks_of(features: Sequence[Feature]) -> dict[str, Task]:
    """The tasks of all features, by name."""
    return {name: task for feature in features for name, task in feature.tasks().items()}


def own_topics_of(kinds: Sequence[Kind[Any]], config: StoreConfig) -> dict[str, int]:
    """The topics that the broker has for all of them, by name with their number of queues."""
    return {name: count for kind in kinds for name, count in kind.own_topics(config).items()}


def add_own_topics(topics: TopicTable, own: Mapping[str, int]) -> None:
    """A topic left by Apache's broker keeps what else it has."""
    for name, queues in own.items():
        known = topics.get(name) or TopicConfig(
            name=name, read_queue_count=0, write_queue_count=0, perm=PERM_READ
        )
        topics.put(
            replace(
                known,
                read_queue_count=max(known.read_queue_count, queues),
                write_queue_count=max(known.write_queue_count, queues),
            )
        )
