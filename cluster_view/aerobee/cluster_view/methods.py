"""The RPC methods of aerobee.v1 as typed values: path, request and answer.

Generated stubs carry no types; these do, so that the type checker finds a wrong request. A test
compares every entry with the descriptors of the .proto files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from google.protobuf.message import Message

from aerobee.v1 import access_pb2, audit_log_pb2, audit_pb2, broker_pb2, common_pb2, nameserver_pb2

Q = TypeVar("Q", bound=Message | bytes)
R = TypeVar("R", bound=Message | bytes)


@dataclass(frozen=True, slots=True)
class Method(Generic[Q, R]):
    """One RPC: its path on the wire, its request and its answer; `bytes` if the caller encodes and
    decodes them."""

    path: str
    request: type[Q]
    answer: type[R]


_NAMESERVER = "/aerobee.v1.NameserverService/"
QUERY_ROUTE = Method(
    _NAMESERVER + "QueryRoute", nameserver_pb2.QueryRouteRequest, nameserver_pb2.QueryRouteResponse
)
WATCH_ROUTES = Method(
    _NAMESERVER + "WatchRoutes",
    nameserver_pb2.WatchRoutesRequest,
    nameserver_pb2.QueryRouteResponse,
)
CREATE_TOPIC = Method(
    _NAMESERVER + "CreateTopic", nameserver_pb2.CreateTopicRequest, common_pb2.TopicConfig
)
UPDATE_TOPIC = Method(
    _NAMESERVER + "UpdateTopic", nameserver_pb2.UpdateTopicRequest, common_pb2.TopicConfig
)
SPREAD_TOPIC = Method(
    _NAMESERVER + "SpreadTopic",
    nameserver_pb2.SpreadTopicRequest,
    nameserver_pb2.SpreadTopicResponse,
)
REMOVE_RETIRED = Method(
    _NAMESERVER + "RemoveRetired", nameserver_pb2.RemoveRetiredRequest, common_pb2.TopicConfig
)
DELETE_TOPIC = Method(
    _NAMESERVER + "DeleteTopic",
    nameserver_pb2.DeleteTopicRequest,
    nameserver_pb2.DeleteTopicResponse,
)
LIST_TOPICS = Method(
    _NAMESERVER + "ListTopics", nameserver_pb2.ListTopicsRequest, nameserver_pb2.ListTopicsResponse
)
DESCRIBE_CLUSTER = Method(
    _NAMESERVER + "DescribeCluster",
    nameserver_pb2.DescribeClusterRequest,
    nameserver_pb2.ClusterDescription,
)
REMOVE_REPLICA = Method(
    _NAMESERVER + "RemoveReplica", nameserver_pb2.RemoveReplicaRequest, nameserver_pb2.GroupRecord
)
CLOSE_BROKER_GROUP = Method(
    _NAMESERVER + "CloseBrokerGroup",
    nameserver_pb2.CloseBrokerGroupRequest,
    nameserver_pb2.GroupRecord,
)
OPEN_BROKER_GROUP = Method(
    _NAMESERVER + "OpenBrokerGroup",
    nameserver_pb2.OpenBrokerGroupRequest,
    nameserver_pb2.GroupRecord,
)
REMOVE_BROKER_GROUP = Method(
    _NAMESERVER + "RemoveBrokerGroup",
    nameserver_pb2.RemoveBrokerGroupRequest,
    nameserver_pb2.RemoveBrokerGroupResponse,
)
REGISTER = Method(
    _NAMESERVER + "Register", nameserver_pb2.BrokerHeartbeat, nameserver_pb2.BrokerDirective
)
ALTER_IN_SYNC_SET = Method(
    _NAMESERVER + "AlterInSyncSet", nameserver_pb2.AlterInSyncSetRequest, nameserver_pb2.GroupRecord
)

_SEND = "/aerobee.v1.SendService/"
SEND_STREAM = Method(_SEND + "SendStream", broker_pb2.SendFrame, broker_pb2.SendAckFrame)
SEND = Method(_SEND + "Send", broker_pb2.SendRequest, broker_pb2.SendResponse)

_POP = "/aerobee.v1.PopService/"
POP = Method(_POP + "Pop", broker_pb2.PopRequest, broker_pb2.PopResponse)
ACKNOWLEDGE = Method(
    _POP + "Acknowledge", broker_pb2.AcknowledgeRequest, broker_pb2.AcknowledgeResponse
)
CHANGE_INVISIBLE = Method(
    _POP + "ChangeInvisible",
    broker_pb2.ChangeInvisibleRequest,
    broker_pb2.ChangeInvisibleResponse,
)
REJECT = Method(_POP + "Reject", broker_pb2.RejectRequest, broker_pb2.AcknowledgeResponse)

_SCHEDULE = "/aerobee.v1.ScheduleService/"
LIST_SCHEDULED = Method(
    _SCHEDULE + "ListScheduled", broker_pb2.ListScheduledRequest, broker_pb2.ListScheduledResponse
)
RECALL_SCHEDULED = Method(
    _SCHEDULE + "RecallScheduled",
    broker_pb2.RecallScheduledRequest,
    broker_pb2.RecallScheduledResponse,
)
DELIVER_SCHEDULED_NOW = Method(
    _SCHEDULE + "DeliverScheduledNow",
    broker_pb2.DeliverScheduledNowRequest,
    broker_pb2.DeliverScheduledNowResponse,
)
RESCHEDULE = Method(
    _SCHEDULE + "Reschedule", broker_pb2.RescheduleRequest, broker_pb2.RescheduleResponse
)

_RECURRING = "/aerobee.v1.RecurringService/"
LIST_SCHEDULES = Method(
    _RECURRING + "ListSchedules", broker_pb2.ListSchedulesRequest, broker_pb2.ListSchedulesResponse
)
PUT_SCHEDULE = Method(
    _RECURRING + "PutSchedule", broker_pb2.PutScheduleRequest, broker_pb2.PutScheduleResponse
)
ACT_ON_SCHEDULE = Method(
    _RECURRING + "ActOnSchedule", broker_pb2.ActOnScheduleRequest, broker_pb2.ActOnScheduleResponse
)

_TRANSACTION = "/aerobee.v1.TransactionService/"
END_TRANSACTION = Method(
    _TRANSACTION + "EndTransaction",
    broker_pb2.EndTransactionRequest,
    broker_pb2.EndTransactionResponse,
)
CHECK_TRANSACTION = Method(
    _TRANSACTION + "CheckTransaction",
    broker_pb2.CheckTransactionRequest,
    broker_pb2.CheckTransactionResponse,
)
END_TRANSACTIONS = Method(
    _TRANSACTION + "EndTransactions",
    broker_pb2.EndTransactionsRequest,
    broker_pb2.EndTransactionsResponse,
)
LIST_TRANSACTIONS = Method(
    _TRANSACTION + "ListTransactions",
    broker_pb2.ListTransactionsRequest,
    broker_pb2.ListTransactionsResponse,
)
WATCH_CHECKS = Method(
    _TRANSACTION + "WatchChecks", broker_pb2.WatchChecksRequest, broker_pb2.TransactionCheck
)

_PULL = "/aerobee.v1.PullService/"
PULL_STREAM = Method(_PULL + "PullStream", broker_pb2.PullCommand, broker_pb2.PullFrame)
PULL = Method(_PULL + "Pull", broker_pb2.PullRequest, broker_pb2.PullResult)

RINGS = Method("/aerobee.v1.RingService/Rings", broker_pb2.RingWishes, broker_pb2.Rung)

_OFFSET = "/aerobee.v1.OffsetService/"
COMMIT_OFFSETS = Method(
    _OFFSET + "CommitOffsets", broker_pb2.CommitOffsetsRequest, broker_pb2.CommitOffsetsResponse
)
SEND_BACK = Method(_OFFSET + "SendBack", broker_pb2.SendBackRequest, broker_pb2.SendBackResponse)
SETTLE_DEAD_LETTERS = Method(
    _OFFSET + "SettleDeadLetters",
    broker_pb2.SettleDeadLettersRequest,
    broker_pb2.SendBackResponse,
)
QUERY_OFFSETS = Method(
    _OFFSET + "QueryOffsets", broker_pb2.QueryOffsetsRequest, broker_pb2.QueryOffsetsResponse
)
QUERY_BOUNDS = Method(
    _OFFSET + "QueryBounds", broker_pb2.QueryBoundsRequest, broker_pb2.QueryBoundsResponse
)
SEARCH_BY_TIMESTAMP = Method(
    _OFFSET + "SearchByTimestamp",
    broker_pb2.SearchByTimestampRequest,
    broker_pb2.SearchByTimestampResponse,
)
RESET_OFFSETS = Method(
    _OFFSET + "ResetOffsets", broker_pb2.ResetOffsetsRequest, broker_pb2.ResetOffsetsResponse
)
DELETE_OFFSETS = Method(
    _OFFSET + "DeleteOffsets", broker_pb2.DeleteOffsetsRequest, broker_pb2.DeleteOffsetsResponse
)

_GROUP = "/aerobee.v1.GroupService/"
MEMBERSHIP = Method(_GROUP + "Membership", broker_pb2.MemberEvent, broker_pb2.GroupEvent)
LIST_GROUPS = Method(
    _GROUP + "ListGroups", broker_pb2.ListGroupsRequest, broker_pb2.ListGroupsResponse
)
LIST_CLIENTS = Method(
    _GROUP + "ListClients", broker_pb2.ListClientsRequest, broker_pb2.ListClientsResponse
)
LIST_GROUP_LAGS = Method(
    _GROUP + "ListGroupLags", broker_pb2.ListGroupLagsRequest, broker_pb2.GroupLagRows
)
CONFIGURE_GROUP = Method(
    _GROUP + "ConfigureGroup", broker_pb2.ConfigureGroupRequest, broker_pb2.RetrySettings
)
DESCRIBE_GROUP = Method(
    _GROUP + "DescribeGroup", broker_pb2.DescribeGroupRequest, broker_pb2.GroupDescription
)
DELETE_GROUP = Method(
    _GROUP + "DeleteGroup", broker_pb2.DeleteGroupRequest, broker_pb2.DeleteGroupResponse
)

_ADMIN = "/aerobee.v1.AdminService/"
GET_STATS = Method(_ADMIN + "GetStats", broker_pb2.GetStatsRequest, broker_pb2.BrokerStats)
GET_MESSAGE = Method(_ADMIN + "GetMessage", broker_pb2.GetMessageRequest, broker_pb2.StoredMessage)
QUERY_MESSAGES = Method(
    _ADMIN + "QueryMessages", broker_pb2.QueryMessagesRequest, broker_pb2.QueryMessagesResponse
)
CLEAN_STORE = Method(
    _ADMIN + "CleanStore", broker_pb2.CleanStoreRequest, broker_pb2.CleanStoreResponse
)
HAND_OVER = Method(_ADMIN + "HandOver", broker_pb2.HandOverRequest, broker_pb2.HandOverResponse)
DESCRIBE_REMAINING = Method(
    _ADMIN + "DescribeRemaining",
    broker_pb2.DescribeRemainingRequest,
    broker_pb2.RemainingDescription,
)

_AUDIT = "/aerobee.v1.AuditService/"
SNAPSHOT = Method(_AUDIT + "Snapshot", audit_pb2.SnapshotRequest, audit_pb2.SnapshotPart)
CHECKSUM_LOG = Method(_AUDIT + "ChecksumLog", audit_pb2.ChecksumLogRequest, audit_pb2.LogChecksum)

READ_AUDIT_LOG = Method(
    "/aerobee.v1.AuditLogService/ReadAuditLog",
    audit_log_pb2.ReadAuditLogRequest,
    audit_log_pb2.AuditLogPage,
)

REPLICATE = Method("/aerobee.v1.ReplicationService/Replicate", bytes, bytes)

_ACCESS = "/aerobee.v1.AccessService/"
CREATE_USER = Method(_ACCESS + "CreateUser", access_pb2.CreateUserRequest, access_pb2.UserSecret)
UPDATE_USER = Method(
    _ACCESS + "UpdateUser", access_pb2.UpdateUserRequest, access_pb2.UserDescription
)
ROTATE_USER = Method(_ACCESS + "RotateUser", access_pb2.RotateUserRequest, access_pb2.UserSecret)
DELETE_USER = Method(
    _ACCESS + "DeleteUser", access_pb2.DeleteUserRequest, access_pb2.DeleteUserResponse
)
LIST_USERS = Method(
    _ACCESS + "ListUsers", access_pb2.ListUsersRequest, access_pb2.ListUsersResponse
)
PUT_POLICY = Method(
    _ACCESS + "PutPolicy", access_pb2.PutPolicyRequest, access_pb2.PutPolicyResponse
)
REMOVE_POLICY = Method(
    _ACCESS + "RemovePolicy", access_pb2.RemovePolicyRequest, access_pb2.RemovePolicyResponse
)
LIST_POLICIES = Method(
    _ACCESS + "ListPolicies", access_pb2.ListPoliciesRequest, access_pb2.ListPoliciesResponse
)
TEST_ACCESS = Method(
    _ACCESS + "TestAccess", access_pb2.TestAccessRequest, access_pb2.TestAccessResponse
)
SET_QUOTA = Method(_ACCESS + "SetQuota", access_pb2.SetQuotaRequest, access_pb2.Quota)
DELETE_QUOTA = Method(
    _ACCESS + "DeleteQuota", access_pb2.DeleteQuotaRequest, access_pb2.DeleteQuotaResponse
)
LIST_QUOTAS = Method(
    _ACCESS + "ListQuotas", access_pb2.ListQuotasRequest, access_pb2.ListQuotasResponse
)
