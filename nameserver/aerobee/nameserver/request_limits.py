"""The limits of requests to a nameserver: a table of all their fields.

The limit of a name here is what its own rule (`runtime.names`) can check cheaply; that rule then
says what a name may be. Stored values have narrower limits.
"""

from __future__ import annotations

from aerobee.access.policies import SOURCES_MAX
from aerobee.access.quota import QUOTA_FIELDS
from aerobee.access.users import PEER_LENGTH_MAX, PEERS_MAX
from aerobee.rpc.request_limits import Limit, RequestLimits
from aerobee.v1 import access_pb2, nameserver_pb2

KIB = 1024

TOPICS_PER_REQUEST_MAX = 1_000
REPLICAS_MAX = 256

RETIRED_MAX = 64
"""Broker groups from which one request retires a topic."""
_NAME = Limit(length=1_024)
_KEPT_NAME = Limit(length=255)
_ATTRIBUTES = Limit(count=128, length=1_024)
_BROKER_GROUPS = Limit(count=256, length=255)

_REQUEST_BYTES_MAX = {
    "BrokerHeartbeat": 32 * KIB,
    "QueryRouteRequest": 1024 * KIB,
    "WatchRoutesRequest": 1024 * KIB,
    "CreateTopicRequest": 16 * KIB,
    "UpdateTopicRequest": 16 * KIB,
    "SpreadTopicRequest": 32 * KIB,
    "RemoveRetiredRequest": 8 * KIB,
    "DeleteTopicRequest": 8 * KIB,
    "ListTopicsRequest": 8 * KIB,
    "DescribeClusterRequest": 8 * KIB,
    "AlterInSyncSetRequest": 128 * KIB,
    "RemoveReplicaRequest": 8 * KIB,
    "CloseBrokerGroupRequest": 8 * KIB,
    "OpenBrokerGroupRequest": 8 * KIB,
    "RemoveBrokerGroupRequest": 8 * KIB,
}

_FIELDS = {
    "BrokerIdentity.cluster": _NAME,
    "BrokerIdentity.broker_name": _KEPT_NAME,
    "BrokerIdentity.instance": _KEPT_NAME,
    "BrokerHeartbeat.address": Limit(length=512),
    "BrokerHeartbeat.outside_address": Limit(length=512),
    "BrokerHeartbeat.zone": Limit(length=256),
    "BrokerHeartbeat.incarnation": _KEPT_NAME,
    "BrokerHeartbeat.predecessor": _KEPT_NAME,
    "BrokerHeartbeat.metadata_history": _KEPT_NAME,
    "BrokerHeartbeat.replication_trouble": Limit(length=4_096),
    "BrokerHeartbeat.access_version": _KEPT_NAME,
    "QueryRouteRequest.cluster": _NAME,
    "QueryRouteRequest.topics": Limit(count=TOPICS_PER_REQUEST_MAX, length=1_024),
    "WatchRoutesRequest.cluster": _NAME,
    "WatchRoutesRequest.topics": Limit(count=TOPICS_PER_REQUEST_MAX, length=1_024),
    "CreateTopicRequest.cluster": _NAME,
    "CreateTopicRequest.name": _NAME,
    "CreateTopicRequest.attributes": _ATTRIBUTES,
    "CreateTopicRequest.queues_by_broker": _BROKER_GROUPS,
    "UpdateTopicRequest.cluster": _NAME,
    "UpdateTopicRequest.name": _NAME,
    "UpdateTopicRequest.attributes": _ATTRIBUTES,
    "UpdateTopicRequest.queues_by_broker": _BROKER_GROUPS,
    "SpreadTopicRequest.cluster": _NAME,
    "SpreadTopicRequest.name": _NAME,
    "SpreadTopicRequest.retire": Limit(count=RETIRED_MAX, length=255),
    "RemoveRetiredRequest.cluster": _NAME,
    "RemoveRetiredRequest.name": _NAME,
    "RemoveRetiredRequest.broker_name": _NAME,
    "DeleteTopicRequest.cluster": _NAME,
    "DeleteTopicRequest.name": _NAME,
    "ListTopicsRequest.cluster": _NAME,
    "DescribeClusterRequest.cluster": _NAME,
    "AlterInSyncSetRequest.cluster": _NAME,
    "AlterInSyncSetRequest.broker_name": _NAME,
    "AlterInSyncSetRequest.master_instance": _NAME,
    "AlterInSyncSetRequest.in_sync": Limit(count=REPLICAS_MAX),
    "ReplicaName.incarnation": _KEPT_NAME,
    "RemoveReplicaRequest.cluster": _NAME,
    "RemoveReplicaRequest.broker_name": _NAME,
    "CloseBrokerGroupRequest.cluster": _NAME,
    "CloseBrokerGroupRequest.broker_name": _NAME,
    "OpenBrokerGroupRequest.cluster": _NAME,
    "OpenBrokerGroupRequest.broker_name": _NAME,
    "RemoveBrokerGroupRequest.cluster": _NAME,
    "RemoveBrokerGroupRequest.broker_name": _NAME,
}

_ACCESS_BYTES_MAX = {
    "CreateUserRequest": 16 * KIB,
    "UpdateUserRequest": 16 * KIB,
    "RotateUserRequest": 8 * KIB,
    "DeleteUserRequest": 8 * KIB,
    "ListUsersRequest": 8 * KIB,
    "PutPolicyRequest": 16 * KIB,
    "RemovePolicyRequest": 8 * KIB,
    "ListPoliciesRequest": 8 * KIB,
    "TestAccessRequest": 8 * KIB,
    "SetQuotaRequest": 8 * KIB,
    "DeleteQuotaRequest": 8 * KIB,
    "ListQuotasRequest": 8 * KIB,
}

_CERTIFICATE_NAMES = Limit(count=PEERS_MAX, length=PEER_LENGTH_MAX)
_SECRET = Limit(length=1_024)

_ACCESS_FIELDS = {
    "CreateUserRequest.name": _NAME,
    "CreateUserRequest.certificate_names": _CERTIFICATE_NAMES,
    "CreateUserRequest.secret": _SECRET,
    "UpdateUserRequest.name": _NAME,
    "UpdateUserRequest.certificate_names": _CERTIFICATE_NAMES,
    "RotateUserRequest.name": _NAME,
    "RotateUserRequest.secret": _SECRET,
    "DeleteUserRequest.name": _NAME,
    "AccessPolicy.user": _NAME,
    "AccessPolicy.resource": _NAME,
    "AccessPolicy.actions": _NAME,
    "AccessPolicy.decision": _NAME,
    "AccessPolicy.sources": Limit(count=SOURCES_MAX, length=64),
    "RemovePolicyRequest.user": _NAME,
    "RemovePolicyRequest.resource": _NAME,
    "ListPoliciesRequest.user": _NAME,
    "TestAccessRequest.user": _NAME,
    "TestAccessRequest.resource": _NAME,
    "TestAccessRequest.actions": _NAME,
    "TestAccessRequest.source": _NAME,
    "Quota.kind": _NAME,
    "Quota.name": _NAME,
    "Quota.limits": Limit(count=len(QUOTA_FIELDS), length=64),
    "SetQuotaRequest.to_default": Limit(count=len(QUOTA_FIELDS), length=64),
    "DeleteQuotaRequest.kind": _NAME,
    "DeleteQuotaRequest.name": _NAME,
}


def nameserver_request_limits() -> RequestLimits:
    return RequestLimits(
        nameserver_pb2.DESCRIPTOR.services_by_name.values(),
        _REQUEST_BYTES_MAX,
        _FIELDS,
        package="aerobee.v1",
    )


def access_request_limits() -> RequestLimits:
    return RequestLimits(
        access_pb2.DESCRIPTOR.services_by_name.values(),
        _ACCESS_BYTES_MAX,
        _ACCESS_FIELDS,
        package="aerobee.v1",
    )
