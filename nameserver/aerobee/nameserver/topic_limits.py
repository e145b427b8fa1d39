"""How many topics and queues a cluster may have, and how fast topics may be created automatically.

Owns: the count of creations in progress, and the token bucket of automatic ones. Each nameserver
counts for itself: together they may go slightly over a limit when many topics are created at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from aerobee.access.meter import about_to_create
from aerobee.access.quota import TOPICS_CREATED
from aerobee.nameserver.config import TopicPolicy
from aerobee.nameserver.route_table import RouteTable
from aerobee.nameserver.stored import Topic
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import Busy, LimitReached
from aerobee.runtime.token_bucket import TokenBucket


class TopicLimits:
    """The limits of one cluster; on the loop."""

    def __init__(self, policy: TopicPolicy, clock: Clock) -> None:
        self._policy = policy
        self._clock = clock
        self._under_way = 0
        self._automatic = TokenBucket(
            per_s=policy.auto_create_per_minute / 60,
            burst=policy.auto_create_burst,
            now_s=clock.monotonic_s(),
        )

    @contextmanager
    def creating(self, topic: Topic, table: RouteTable, *, automatic: bool) -> Iterator[None]:
        """A block that adds a topic to those of `table`. A topic that already exists meets no
        limit.

        Raises:
            LimitReached: it would exceed the limit of topics or of queues.
            Busy: too many topics were created automatically just now.
            QuotaExceeded: the caller has created too many.
        """
        if topic.name in table.topics:
            yield
            return
        self.check_room(topic, table, automatic=automatic)
        about_to_create(TOPICS_CREATED)
        if automatic:
            self._take_automatic()
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1

    def check_room(self, topic: Topic, table: RouteTable, *, automatic: bool) -> None:
        """Whether the cluster may have this topic too. Raises LimitReached."""
        count = len(table.topics) + self._under_way
        if automatic and count >= self._policy.auto_create_topics_max:
            raise LimitReached(
                f"the cluster has {count} topics, and no topic is created automatically once it "
                f"has {self._policy.auto_create_topics_max} (topics.auto_create_topics_max of the "
                "nameserver): create it with `aerobee topic create`, delete unused topics, or "
                "raise the limit"
            )
        if count >= self._policy.topics_max:
            raise LimitReached(
                f"the cluster has {count} topics and may have at most {self._policy.topics_max} "
                "(topics.topics_max of the nameserver): delete unused topics, or raise the limit"
            )
        self.check_queues(table, topic.queues_by_broker)

    def check_queues(self, table: RouteTable, added: Mapping[str, int]) -> None:
        """Whether replica sets may get these additional queues. Raises LimitReached."""
        for replica_set, more in sorted(added.items()):
            count = more + table.queue_counts.get(replica_set, 0)
            if more > 0 and count > self._policy.queues_per_group_max:
                raise LimitReached(
                    f"broker group {replica_set} would have {count} queues and may have at most "
                    f"{self._policy.queues_per_group_max} (topics.queues_per_group_max of the "
                    "nameserver): ask for fewer queues, add a broker group, delete unused "
                    "topics, or raise the limit"
                )

    def _take_automatic(self) -> None:
        wait_s = self._automatic.take(self._clock.monotonic_s())
        if wait_s > 0:
            wait_ms = math.ceil(wait_s * 1_000)
            raise Busy(
                f"topics are created automatically at most {self._policy.auto_create_per_minute} "
                f"times a minute (topics.auto_create_per_minute of the nameserver): try again in "
                f"{wait_ms} ms, or create the topic with `aerobee topic create`",
                retry_after_ms=wait_ms,
            )
