"""What a broker knows of groups, and of topics when there is no nameserver."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from aerobee.broker.cluster.own_address import OwnAddress
from aerobee.broker.retries.policy import RetryPolicy
from aerobee.cluster_view.route import Endpoint, TopicRoute
from aerobee.rocketmq_api.rules.group_rules import APACHES, GroupRules
from aerobee.runtime.errors import TopicNotFound
from aerobee.store.engine.tables.config_tables import SubscriptionGroupTable, TopicTable


class OwnGroups:
    """The delivery rules of each group, as configured here."""

    def __init__(self, groups: SubscriptionGroupTable) -> None:
        self._groups = groups

    async def rules(self, group: str) -> GroupRules:
        policy = RetryPolicy.of(self._groups.get(group))
        return GroupRules(
            is_ordered=policy.is_ordered,
            retries_max=policy.limit,
            # Clients are told the whole list; the broker itself leaves out its first two.
            delays=policy.back_off or APACHES,
        )


class OwnTopics:
    """Routes of a broker that is a cluster by itself."""

    def __init__(
        self,
        topics: TopicTable,
        address: OwnAddress,
        *,
        broker_name: str,
        broker_id: int,
        is_master: Callable[[], bool],
    ) -> None:
        self._topics = topics
        self._address = address
        self._broker_name = broker_name
        self._broker_id = broker_id
        self._is_master = is_master

    async def route(self, topic: str) -> TopicRoute:
        route = self.known(topic)
        if route is None:
            raise TopicNotFound(f"topic {topic} is not known to broker {self._broker_name}")
        return route

    def known(self, topic: str) -> TopicRoute | None:
        config = self._topics.get(topic)
        if config is None:
            return None
        here = Endpoint(
            self._broker_name,
            self._broker_id,
            self._address.text,
            is_master=self._is_master(),
            outside_address=self._address.outside,
        )
        return TopicRoute(
            topic=topic,
            perm=config.perm,
            is_ordered=config.order,
            attributes=config.attributes,
            queues_by_broker={self._broker_name: config.write_queue_count},
            endpoints=(here,),
        )

    def invalidate(self, topic: str) -> None:
        """The table is never behind."""

    def telling(self, callback: Callable[[str], None]) -> AbstractContextManager[None]:
        """No other broker ever has a queue."""
        return nullcontext()
