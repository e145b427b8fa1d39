"""What each request of remoting needs, by its code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from aerobee.access.needs import SUPER_USERS, MethodNeeds, Resources, administering, needing
from aerobee.access.resources import SEEING, Action, Need
from aerobee.remoting_core.command import Command
from aerobee.rocketmq_remoting import fields as read
from aerobee.rocketmq_remoting.admin_bodies import group_name_in
from aerobee.rocketmq_remoting.assignments import read_assignment_asked, read_mode
from aerobee.rocketmq_remoting.codes import Ask
from aerobee.rocketmq_remoting.heartbeats import read_heartbeat
from aerobee.rocketmq_remoting.json_bodies import read_object
from aerobee.rocketmq_remoting.pops import origin_of, read_acks
from aerobee.rocketmq_remoting.queues import read_queues
from aerobee.rocketmq_remoting.routes import DEFAULT_TOPIC
from aerobee.rocketmq_remoting.sends import send_fields
from aerobee.runtime.errors import InvalidArgument
from aerobee.store.format.dead_letter_fields import RETRY_PREFIX
from aerobee.store.format.recall_handle import RecallHandle, RecallHandleIllegal

AUTH: Final = tuple(code for code in Ask if code.name.startswith("AUTH_"))
"""What applies to users and policies."""


class RemotingNeeds:
    """How requests name what they apply to. Each raises InvalidArgument if it is not named."""

    def __init__(self, resources: Resources) -> None:
        self._of = resources

    def _group(self, request: Command, name: str) -> Need:
        return self._of.group(read.text(request.fields, name), Action.SUB)

    def _topic(self, request: Command, actions: Action) -> Need:
        return self._of.topic(read.text(request.fields, "topic"), actions)

    def route(self, request: Command, _: str) -> Iterable[Need]:
        """The name by which producers ask whether topics may be created is no topic."""
        if request.fields.get("topic") == DEFAULT_TOPIC:
            return ()
        return (self._topic(request, Action.PUB | Action.SUB),)

    def sent(self, request: Command, _: str) -> Iterable[Need]:
        """A consumer gives a message up by sending it to its group's retry topic."""
        topic = read.text(send_fields(request), "topic")
        is_given_up = topic.startswith(RETRY_PREFIX)
        return (self._of.topic(topic, Action.SUB if is_given_up else Action.PUB),)

    def recalled(self, request: Command, _: str) -> Iterable[Need]:
        try:
            handle = RecallHandle.decode(read.text(request.fields, "recallHandle"))
        except RecallHandleIllegal as error:
            raise InvalidArgument(str(error)) from None
        return (self._of.topic(handle.topic, Action.PUB),)

    def queue_of_group(self, request: Command, _: str) -> Iterable[Need]:
        return (self._group(request, "consumerGroup"), self._topic(request, Action.SUB))

    def queue(self, request: Command, _: str) -> Iterable[Need]:
        return (self._topic(request, SEEING | Action.PUB),)

    def members(self, request: Command, _: str) -> Iterable[Need]:
        return (self._group(request, "consumerGroup"),)

    def heart_beat(self, request: Command, _: str) -> Iterable[Need]:
        """Producer groups are names without rights: whether a producer is asked about a message
        depends on its right to send to the message's topic."""
        needs = set()
        for each in read_heartbeat(request.body).consumers:
            needs.add(self._of.group(each.group, Action.SUB))
            needs |= {self._of.topic(topic, Action.SUB) for topic in each.subscriptions}
        return needs

    def left(self, request: Command, _: str) -> Iterable[Need]:
        if request.fields.get("consumerGroup"):
            return (self._group(request, "consumerGroup"),)
        return ()

    def checked(self, request: Command, _: str) -> Iterable[Need]:
        group = read_object(request.body).get("group")
        if not isinstance(group, str) or not group:
            raise InvalidArgument("the body names no group")
        return (self._of.group(group, Action.SUB),)

    def assigned(self, request: Command, _: str) -> Iterable[Need]:
        asked = read_assignment_asked(request.body)
        topic = self._of.topic(asked.topic, Action.SUB)
        return (self._of.group(asked.group, Action.SUB), topic)

    def popped(self, request: Command, _: str) -> Iterable[Need]:
        """Clients name a retry topic made of the topic if the message came from one."""
        group = read.text(request.fields, "consumerGroup")
        topic = origin_of(group, read.text(request.fields, "topic"))
        return (self._of.group(group, Action.SUB), self._of.topic(topic, Action.SUB))

    def all_popped(self, request: Command, _: str) -> Iterable[Need]:
        needs = set()
        for each in read_acks(request.body):
            needs.add(self._of.group(each.group, Action.SUB))
            needs.add(self._of.topic(each.topic, Action.SUB))
        return needs

    def mode_put(self, request: Command, _: str) -> Iterable[Need]:
        wanted = read_mode(request.body)
        return (self._of.group(wanted.group, Action.UPDATE), self._of.topic(wanted.topic, SEEING))

    def locks(self, request: Command, _: str) -> Iterable[Need]:
        asked = read_queues(request.body)
        if not asked.group:
            raise InvalidArgument("the body names no group")
        topics = self._of.topics((queue.topic for queue in asked.queues), Action.SUB)
        return (self._of.group(asked.group, Action.SUB), *topics)

    def sent_back(self, request: Command, _: str) -> Iterable[Need]:
        """The message's topic is judged once it is found: clients name another."""
        return (self._group(request, "group"),)

    def ended(self, request: Command, _: str) -> Iterable[Need]:
        """As in `sent_back`: old clients name no topic."""
        return ()

    def seen(self, request: Command, _: str) -> Iterable[Need]:
        return (self._topic(request, SEEING),)

    def group_seen(self, request: Command, _: str) -> Iterable[Need]:
        return (self._of.group(read.text(request.fields, "consumerGroup"), SEEING),)

    def cluster(self, request: Command, _: str) -> Iterable[Need]:
        return (self._of.cluster(Action.GET),)

    def all_topics(self, request: Command, _: str) -> Iterable[Need]:
        return (self._of.all_topics(Action.LIST),)

    def all_groups(self, request: Command, _: str) -> Iterable[Need]:
        return (self._of.all_groups(Action.LIST),)

    def cluster_changed(self, request: Command, _: str) -> Iterable[Need]:
        return (self._of.cluster(Action.UPDATE),)

    def topic_put(self, request: Command, _: str) -> Iterable[Need]:
        """Whether it exists must not show in what is refused."""
        return (self._topic(request, Action.CREATE), self._topic(request, Action.UPDATE))

    def topic_deleted(self, request: Command, _: str) -> Iterable[Need]:
        return (self._topic(request, Action.DELETE),)

    def setting_deleted(self, request: Command, _: str) -> Iterable[Need]:
        """Tools name topics by it."""
        return (self._of.topic(read.text(request.fields, "key"), Action.DELETE),)

    def group_put(self, request: Command, _: str) -> Iterable[Need]:
        return (self._of.group(group_name_in(request.body), Action.UPDATE),)

    def group_deleted(self, request: Command, _: str) -> Iterable[Need]:
        return (self._of.group(read.text(request.fields, "groupName"), Action.DELETE),)

    def named_group_seen(self, request: Command, _: str) -> Iterable[Need]:
        return (self._of.group(read.text(request.fields, "group"), SEEING),)

    def group_and_topic_seen(self, request: Command, _: str) -> Iterable[Need]:
        group = self._of.group(read.text(request.fields, "group"), SEEING)
        return (group, self._topic(request, SEEING))

    def reset(self, request: Command, _: str) -> Iterable[Need]:
        group = self._of.group(read.text(request.fields, "group"), Action.UPDATE)
        return (group, self._topic(request, SEEING))

    def cloned(self, request: Command, _: str) -> Iterable[Need]:
        """Topics that the caller may not see are left out."""
        source = self._of.group(read.text(request.fields, "srcGroup"), SEEING)
        return (source, self._of.group(read.text(request.fields, "destGroup"), Action.UPDATE))

    def made_to_consume(self, request: Command, _: str) -> Iterable[Need]:
        """The message's topic is judged once it is found."""
        group = read.text(request.fields, "consumerGroup")
        return (self._of.group(group, Action.UPDATE),)

    def seen_later(self, request: Command, _: str) -> Iterable[Need]:
        """As in `ended`."""
        return ()


def remoting_needs(cluster: str) -> Mapping[int, MethodNeeds]:
    """By the code of requests."""
    of = RemotingNeeds(Resources(cluster))
    sends, pulls = needing(of.sent), needing(of.queue_of_group, judged_again=True)
    progress, bounds, locks = needing(of.queue_of_group), needing(of.queue), needing(of.locks)
    return {
        **_pop_needs(of),
        Ask.GET_ROUTEINFO_BY_TOPIC: needing(of.route),
        Ask.SEND_MESSAGE: sends,
        Ask.SEND_MESSAGE_V2: sends,
        Ask.SEND_BATCH_MESSAGE: sends,
        Ask.SEND_REPLY_MESSAGE: sends,
        Ask.SEND_REPLY_MESSAGE_V2: sends,
        Ask.RECALL_MESSAGE: needing(of.recalled),
        Ask.PULL_MESSAGE: pulls,
        Ask.LITE_PULL_MESSAGE: pulls,
        Ask.HEART_BEAT: needing(of.heart_beat),
        Ask.UNREGISTER_CLIENT: needing(of.left),
        Ask.GET_CONSUMER_LIST_BY_GROUP: needing(of.members),
        Ask.CHECK_CLIENT_CONFIG: needing(of.checked),
        Ask.QUERY_ASSIGNMENT: needing(of.assigned),
        Ask.LOCK_BATCH_MQ: locks,
        Ask.UNLOCK_BATCH_MQ: locks,
        Ask.QUERY_CONSUMER_OFFSET: progress,
        Ask.UPDATE_CONSUMER_OFFSET: progress,
        Ask.GET_MAX_OFFSET: bounds,
        Ask.GET_MIN_OFFSET: bounds,
        Ask.GET_EARLIEST_MSG_STORETIME: bounds,
        Ask.SEARCH_OFFSET_BY_TIMESTAMP: bounds,
        Ask.CONSUMER_SEND_MSG_BACK: needing(of.sent_back),
        Ask.END_TRANSACTION: needing(of.ended),
        Ask.VIEW_MESSAGE_BY_ID: needing(of.seen_later),
        Ask.QUERY_MESSAGE: needing(of.seen),
        Ask.GET_BROKER_CLUSTER_INFO: needing(of.cluster),
        Ask.GET_BROKER_RUNTIME_INFO: needing(of.cluster),
        Ask.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: needing(of.all_topics),
        Ask.GET_TOPIC_STATS_INFO: needing(of.seen),
        Ask.GET_TOPIC_CONFIG: needing(of.seen),
        Ask.GET_CONSUME_STATS: needing(of.group_seen),
        Ask.UPDATE_AND_CREATE_TOPIC: administering(of.topic_put),
        Ask.DELETE_TOPIC_IN_BROKER: administering(of.topic_deleted),
        Ask.DELETE_TOPIC_IN_NAMESRV: administering(of.topic_deleted),
        Ask.DELETE_KV_CONFIG: needing(of.setting_deleted),
        Ask.GET_ALL_TOPIC_CONFIG: needing(of.all_topics),
        Ask.GET_TOPICS_BY_CLUSTER: needing(of.all_topics),
        Ask.GET_SYSTEM_TOPIC_LIST_FROM_NS: needing(of.all_topics),
        Ask.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: needing(of.all_topics),
        Ask.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: administering(of.group_put),
        Ask.DELETE_SUBSCRIPTIONGROUP: administering(of.group_deleted),
        Ask.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: needing(of.all_groups),
        Ask.GET_SUBSCRIPTIONGROUP_CONFIG: needing(of.named_group_seen),
        Ask.GET_BROKER_CONFIG: needing(of.cluster),
        Ask.VIEW_BROKER_STATS_DATA: needing(of.cluster),
        Ask.WIPE_WRITE_PERM_OF_BROKER: administering(of.cluster_changed),
        Ask.ADD_WRITE_PERM_OF_BROKER: administering(of.cluster_changed),
        Ask.GET_CONSUMER_CONNECTION_LIST: needing(of.group_seen),
        Ask.GET_PRODUCER_CONNECTION_LIST: needing(of.cluster),
        Ask.GET_ALL_PRODUCER_INFO: needing(of.cluster),
        Ask.QUERY_TOPIC_CONSUME_BY_WHO: needing(of.seen),
        Ask.QUERY_TOPICS_BY_CONSUMER: needing(of.named_group_seen),
        Ask.QUERY_SUBSCRIPTION_BY_CONSUMER: needing(of.group_and_topic_seen),
        Ask.GET_CONSUMER_RUNNING_INFO: needing(of.group_seen),
        Ask.CONSUME_MESSAGE_DIRECTLY: administering(of.made_to_consume),
        Ask.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: needing(of.group_and_topic_seen),
        Ask.INVOKE_BROKER_TO_RESET_OFFSET: administering(of.reset),
        Ask.CLONE_GROUP_OFFSET: administering(of.cloned),
        Ask.QUERY_CONSUME_TIME_SPAN: needing(of.group_and_topic_seen),
        **dict.fromkeys(AUTH, SUPER_USERS),
    }


def _pop_needs(of: RemotingNeeds) -> dict[int, MethodNeeds]:
    polls = needing(of.queue_of_group, judged_again=True)
    return {
        Ask.POP_MESSAGE: polls,
        Ask.NOTIFICATION: polls,
        Ask.POLLING_INFO: needing(of.queue_of_group),
        Ask.ACK_MESSAGE: needing(of.popped),
        Ask.CHANGE_MESSAGE_INVISIBLETIME: needing(of.popped),
        Ask.BATCH_ACK_MESSAGE: needing(of.all_popped),
        Ask.SET_MESSAGE_REQUEST_MODE: administering(of.mode_put),
    }
