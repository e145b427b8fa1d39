"""Whether this broker may serve a request: role, state, topic, permission, queue.

Owns: the checks before every append and every read, each with its typed error, and whether the
broker is stopping or has failed. The roles own the role, and the table owns the topics.
"""

from __future__ import annotations

from typing import Protocol

from aerobee.domain import names
from aerobee.runtime.errors import (
    AerobeeError,
    Busy,
    NotReadableTopic,
    NotWritableTopic,
    QueueNotFound,
    ShuttingDown,
    StoreFailed,
    TopicNotFound,
)
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.engine.statistics import StoreState
from aerobee.store.engine.tables.config_tables import TopicConfig, TopicTable
from aerobee.store.flush.disk_watch import DiskWatch

PERM_WRITE = 2
PERM_READ = 4


class Authority(Protocol):
    """What this replica may do in its group; implemented by
    aerobee.broker.replication.roles.Roles."""

    def check_may_act(self) -> None:
        """Raises NotMaster."""
        ...

    def check_enough(self) -> None:
        """Raises NotMaster, NotEnoughReplicas."""
        ...

    def check_reads(self) -> None:
        """Raises ReplicaBehind."""
        ...


class Closed(Protocol):
    """Whether the group is closed; implemented by aerobee.broker.cluster.closing.Closing."""

    def check(self) -> None:
        """Raises NotWritable."""
        ...


class Retired(Protocol):
    """Which topics are retired; implemented by
    aerobee.broker.cluster.retired_topics.RetiredTopics."""

    def check(self, topic: str) -> None:
        """Raises NotWritable."""
        ...


class Guard:
    """The broker's state and the checks derived from it."""

    __slots__ = (
        "_authority",
        "_broker_name",
        "_closed",
        "_failure",
        "_retired",
        "_stopping",
        "_topics",
    )

    def __init__(
        self,
        topics: TopicTable,
        *,
        broker_name: str,
        authority: Authority | None = None,
        closed: Closed | None = None,
        retired: Retired | None = None,
    ) -> None:
        """Without `authority`: a master without slaves."""
        self._retired = retired
        self._authority = authority
        self._closed = closed
        self._topics = topics
        self._broker_name = broker_name
        self._stopping = False
        self._failure: str | None = None

    def begin_stopping(self) -> None:
        """Refuse every new send from now on."""
        self._stopping = True

    def begin_failing(self, reason: str) -> None:
        """The store can no longer keep its promises: refuse everything from now on."""
        self._failure = reason

    @property
    def broker_name(self) -> str:
        return self._broker_name

    @property
    def is_stopping(self) -> bool:
        return self._stopping

    def check_available(self) -> None:
        """Raises StoreFailed or ShuttingDown while nothing new may begin."""
        if self._failure is not None:
            raise StoreFailed(f"broker {self._broker_name} is stopping: {self._failure}")
        if self._stopping:
            raise ShuttingDown(
                f"broker {self._broker_name} is shutting down; send to another broker"
            )

    def check_master(self) -> None:
        """Check that something may be stored now, as far as the broker as a whole is concerned.

        Raises as `check_available`; NotMaster if this replica may not act as master now;
        NotEnoughReplicas.
        """
        self.check_acting()
        if self._authority is not None:
            self._authority.check_enough()

    def check_acting(self) -> None:
        """Raises as `check_available`, and NotMaster."""
        self.check_available()
        self.check_may_act()

    def check_may_act(self) -> None:
        """Raises NotMaster if this replica may not act as master now."""
        if self._authority is not None:
            self._authority.check_may_act()

    def check_confirmed(self) -> None:
        """Raises ReplicaBehind while this replica does not know what consumers may see."""
        if self._authority is not None:
            self._authority.check_reads()

    def check_send(self, topic: str, queue_id: int) -> None:
        """Check that a client's new message may be appended to this queue.

        Raises:
            NotWritable: the broker group is closed, or the topic retired from it. IllegalName,
                TopicNotFound, NotWritableTopic, QueueNotFound: see aerobee.runtime.errors.
        """
        if self._closed is not None:
            self._closed.check()
        if names.is_retry_topic(topic):
            # What has no origin would not be a message that the group has failed with.
            raise NotWritableTopic(names.NO_TARGET.format(topic))
        self._check_append(topic, queue_id, is_new=True)

    def check_append(self, topic: str, queue_id: int) -> None:
        """Check that this queue may take a message, including one that the broker already has.

        Raises:
            IllegalName, TopicNotFound, NotWritableTopic, QueueNotFound: see aerobee.runtime.errors.
        """
        self._check_append(topic, queue_id, is_new=False)

    def _check_append(self, topic: str, queue_id: int, *, is_new: bool) -> None:
        entry = self._topics.get(topic)
        if entry is None:
            self._refuse_unknown(topic)
        elif topic in self._topics.ending:
            raise _being_emptied(topic)
        elif names.is_system_topic(topic):
            raise NotWritableTopic(
                f"topic {topic} is reserved for the system, and clients cannot send to it: "
                "choose another one"
            )
        elif entry.has_batch_queues:
            raise NotWritableTopic(
                f"topic {topic} keeps batches as one message each (queue.type BatchCQ), which this "
                "broker reads and keeps but does not write; send to another topic"
            )
        elif not entry.perm & PERM_WRITE:
            raise NotWritableTopic(
                f"topic {topic} is not writable (perm {entry.perm}); update the topic to allow it"
            )
        elif not 0 <= queue_id < entry.write_queue_count:
            queues = self.write_queues(topic)
            if not 0 <= queue_id < queues:
                raise self._queue_not_found(topic, queue_id, queues)
            if is_new and self._retired is not None:
                self._retired.check(topic)

    def check_read(self, topic: str, queue_id: int) -> None:
        """Check that a client may read this queue.

        Raises:
            ReplicaBehind, IllegalName, TopicNotFound, NotReadableTopic, QueueNotFound: see
                aerobee.runtime.errors.
        """
        self.check_confirmed()
        entry = self._topics.get(topic)
        if entry is None:
            self._refuse_unknown(topic)
        elif topic in self._topics.ending:
            raise _being_emptied(topic)
        elif not entry.perm & PERM_READ:
            raise NotReadableTopic(
                f"topic {topic} is not readable (perm {entry.perm}); update the topic to allow it"
            )
        elif not 0 <= queue_id < entry.read_queue_count:
            raise self._queue_not_found(topic, queue_id, entry.read_queue_count)

    def check_queue(self, topic: str, queue_id: int) -> None:
        """Check that the queue exists here, whatever its permissions, with known bounds.

        Raises:
            ReplicaBehind, IllegalName, TopicNotFound, QueueNotFound: see aerobee.runtime.errors.
        """
        self.check_confirmed()
        entry = self._topics.get(topic)
        if entry is None:
            self._refuse_unknown(topic)
        elif topic in self._topics.ending:
            raise _being_emptied(topic)
        else:
            queues = max(entry.read_queue_count, entry.write_queue_count)
            if not 0 <= queue_id < queues:
                raise self._queue_not_found(topic, queue_id, queues)

    def knows(self, topic: str) -> bool:
        """Whether the topic is known here."""
        return topic in self._topics

    def check_topic(self, topic: str) -> None:
        """Check that the topic is known here, whatever its permissions.
        Raises IllegalName, TopicNotFound."""
        if self._topics.get(topic) is None:
            self._refuse_unknown(topic)

    def topic(self, topic: str) -> TopicConfig:
        """The topic as it is known here, whatever its permissions.
        Raises IllegalName, TopicNotFound."""
        self.check_topic(topic)
        entry = self._topics.get(topic)
        assert entry is not None, "it was checked"
        return entry

    def write_queues(self, topic: str) -> int:
        """The number of queues of the topic that take messages here, at least those that the broker
        already has; 0 if it is unknown."""
        entry = self._topics.get(topic)
        if entry is None:
            return 0
        return entry.read_queue_count if entry.is_retired else entry.write_queue_count

    def has_batch_queues(self, topic: str) -> bool:
        """Whether its messages are in batch consume queues, which are kept but not served."""
        entry = self._topics.get(topic)
        return entry is not None and entry.has_batch_queues

    def _refuse_unknown(self, topic: str) -> None:
        names.check_topic_name(topic)
        raise TopicNotFound(
            f"topic {topic} is not known to broker {self._broker_name}; create it, or ask the "
            "route again if it was just created"
        )

    def _queue_not_found(self, topic: str, queue_id: int, queues: int) -> QueueNotFound:
        if queues == 0:
            return QueueNotFound(f"topic {topic} has no queues on broker {self._broker_name}")
        return QueueNotFound(
            f"queue {queue_id} of topic {topic} is out of range: broker {self._broker_name} has "
            f"queues 0 to {queues - 1}"
        )


def _being_emptied(topic: str) -> Busy:
    return Busy(
        f"topic {topic} was deleted and created again, and its former messages are still being "
        "removed; try again in a moment"
    )


class Writability:
    """Whether messages are taken."""

    def __init__(self, guard: Guard, store: MessageStore, watch: DiskWatch) -> None:
        self._guard = guard
        self._store = store
        self.watch = watch

    @property
    def is_stopping(self) -> bool:
        return self._guard.is_stopping

    def not_writable_reason(self) -> str:
        """Why no messages are taken; empty if they are."""
        try:
            self._guard.check_master()
        except AerobeeError as error:
            return str(error)
        return self.no_room_reason()

    def no_room_reason(self) -> str:
        """Why this replica could take no messages if it were master; empty if it could."""
        try:
            self._guard.check_available()
        except AerobeeError as error:
            return str(error)
        state = self._store.state
        if state is StoreState.WRITABLE:
            return ""
        if state is StoreState.DISK_HUNG:
            return self.watch.why
        return f"the store is {state}: {self._store.retention.why_full}".rstrip(": ")
