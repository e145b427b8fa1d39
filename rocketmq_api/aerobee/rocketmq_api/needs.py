"""What calls of Apache's API need, under the names that topics and groups have in the store."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from aerobee.access.needs import SUPER_USERS, MethodNeeds, NeedsTable, Resources, needing
from aerobee.access.resources import Action, Need
from aerobee.rocketmq_api.resources import stored_group, stored_topic

_ADMIN = (
    "ChangeLogLevel", "DescribeTopicStatus", "ListSubscription", "DescribeSubscription",
    "DeleteSubscription", "DescribeGroupAccumulation", "ListConsumerConnection",
    "ResetGroupOffset", "QueryMessage", "PrintThreadStackTrace", "VerifyMessage",
    "AdminSendMessage", "GetConsumerRunningInfo", "GetTopicRoute", "QueryTimeSpan",
    "GetProxyRuntimeStats",
)  # fmt: skip


class MessagingNeeds:
    """How requests name what they apply to. Raises Refused for illegal names."""

    def __init__(self, resources: Resources) -> None:
        self._of = resources

    def _topic(self, resource: Any, namespace: str, actions: Action) -> Need:
        return self._of.topic(stored_topic(resource, namespace), actions)

    def _group(self, resource: Any, namespace: str) -> Need:
        return self._of.group(stored_group(resource, namespace), Action.SUB)

    def route(self, request: Any, namespace: str) -> Iterable[Need]:
        return (self._topic(request.topic, namespace, Action.PUB | Action.SUB),)

    def sent(self, request: Any, namespace: str) -> Iterable[Need]:
        return {self._topic(each.topic, namespace, Action.PUB) for each in request.messages}

    def topic_sent_to(self, request: Any, namespace: str) -> Iterable[Need]:
        return (self._topic(request.topic, namespace, Action.PUB),)

    def group_if_named(self, request: Any, namespace: str) -> Iterable[Need]:
        if request.HasField("group") and request.group.name:
            return (self._group(request.group, namespace),)
        return ()

    def group_and_topic(self, request: Any, namespace: str) -> Iterable[Need]:
        return (
            self._group(request.group, namespace),
            self._topic(request.topic, namespace, Action.SUB),
        )

    def group_and_queue(self, request: Any, namespace: str) -> Iterable[Need]:
        return (
            self._group(request.group, namespace),
            self._topic(request.message_queue.topic, namespace, Action.SUB),
        )

    def group_and_any_topic(self, request: Any, namespace: str) -> Iterable[Need]:
        """Apache checks only the group; a handle of another topic is refused because of its
        content."""
        return (self._group(request.group, namespace),)

    def queue(self, request: Any, namespace: str) -> Iterable[Need]:
        return (self._topic(request.message_queue.topic, namespace, Action.SUB),)

    def told(self, command: Any, namespace: str) -> Iterable[Need]:
        """The needs of a telemetry stream: a producer's topics, a consumer's group and topics."""
        if not command.HasField("settings"):
            return ()
        settings = command.settings
        needs = {self._topic(topic, namespace, Action.PUB) for topic in settings.publishing.topics}
        subscription = settings.subscription
        if subscription.HasField("group") and subscription.group.name:
            needs.add(self._group(subscription.group, namespace))
        for entry in subscription.subscriptions:
            needs.add(self._topic(entry.topic, namespace, Action.SUB))
        return needs


def messaging_needs(cluster: str) -> NeedsTable:
    """The needs by path."""
    of = MessagingNeeds(Resources(cluster))
    methods: dict[str, MethodNeeds] = {
        "QueryRoute": needing(of.route),
        "Heartbeat": needing(of.group_if_named),
        "SendMessage": needing(of.sent),
        "QueryAssignment": needing(of.group_and_topic),
        "ReceiveMessage": needing(of.group_and_queue),
        "AckMessage": needing(of.group_and_topic),
        "ForwardMessageToDeadLetterQueue": needing(of.group_and_topic),
        "PullMessage": needing(of.group_and_queue),
        "UpdateOffset": needing(of.group_and_queue),
        "GetOffset": needing(of.group_and_queue),
        "QueryOffset": needing(of.queue),
        "EndTransaction": needing(of.topic_sent_to),
        "Telemetry": needing(of.told),
        "NotifyClientTermination": needing(of.group_if_named),
        "ChangeInvisibleDuration": needing(of.group_and_any_topic),
        "RecallMessage": needing(of.topic_sent_to),
        "SyncLiteSubscription": needing(of.group_and_topic),
    }
    return {
        **{f"/apache.rocketmq.v2.MessagingService/{name}": each for name, each in methods.items()},
        **{f"/apache.rocketmq.v2.Admin/{name}": SUPER_USERS for name in _ADMIN},
    }
