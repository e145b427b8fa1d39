"""A topic and a group of one test's own, in the cluster that the pytest plugin gives all tests.

Unlike the fake routes of tests/support/real_brokers.py, a whole nameserver knows the topic, and the
groups have their retry topics. So it is for tests that do nothing to brokers and routes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aerobee.cluster_view.channels import Channels
from aerobee.consumer_client import (
    ConsumerConfig,
    MessageQueue,
    PullConsumer,
    PushConsumer,
    StartFrom,
)
from aerobee.consumer_client.filters import Expression
from aerobee.consumer_client.listener import Listener
from aerobee.testing import RealCluster
from tests.support.broker_hand import BrokerHand


class OwnTopic(BrokerHand):
    """Consumers that it makes read the topic from its beginning, with short times."""

    def __init__(
        self, cluster: RealCluster, topic: str, group: str, config: ConsumerConfig
    ) -> None:
        self.topic = topic
        self.group_name = group
        self.channels = Channels()
        self._cluster = cluster
        self.config = config

    @property
    def nameservers(self) -> str:
        return self._cluster.nameservers

    def address_of(self, broker: str) -> str:
        return self._cluster.broker(broker or "broker-a").address

    def queue(self, queue_id: int = 0) -> MessageQueue:
        return MessageQueue(self.topic, "broker-a", queue_id)

    async def store(self, bodies: Sequence[bytes], queue_id: int = 0, **options: Any) -> int:
        """As `send`, to this topic."""
        return await self.send(self.topic, queue_id, bodies, **options)

    async def offsets(self) -> dict[int, int]:
        """What the group has committed, by queue id."""
        committed = await self.committed(self.group_name)
        return {
            queue_id: offset
            for (topic, queue_id), offset in committed.items()
            if topic == self.topic
        }

    def options(self, **options: Any) -> dict[str, Any]:
        """What each of its consumers is given, and `options`."""
        given = {"start_from": StartFrom.FIRST, "config": self.config}
        return {"nameservers": self.nameservers, **given, **options}

    def push(self, listener: Listener, tags: Expression = "*", **options: Any) -> PushConsumer:
        """A member of the group; plain listeners run on the loop."""
        options = self.options(**{"run_in_thread": False, **options})
        return PushConsumer(self.group_name, listener, **options).subscribe(self.topic, tags)

    def unsubscribed(self, **options: Any) -> PullConsumer:
        """One that is yet to be told what it reads."""
        return PullConsumer(self.group_name, **self.options(**options))

    def pull(self, tags: Expression = "*", **options: Any) -> PullConsumer:
        return self.unsubscribed(**options).subscribe(self.topic, tags)
