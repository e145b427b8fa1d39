"""The numbers of requests and answers, and the one table from errors to answers."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from aerobee.remoting_core.command import Command
from aerobee.runtime import errors


class Ask(IntEnum):
    """What a request asks for, by Apache's names."""

    SEND_MESSAGE = 10
    PULL_MESSAGE = 11
    QUERY_MESSAGE = 12
    QUERY_CONSUMER_OFFSET = 14
    UPDATE_CONSUMER_OFFSET = 15
    UPDATE_AND_CREATE_TOPIC = 17
    GET_ALL_TOPIC_CONFIG = 21
    GET_BROKER_CONFIG = 26
    GET_BROKER_RUNTIME_INFO = 28
    SEARCH_OFFSET_BY_TIMESTAMP = 29
    GET_MAX_OFFSET = 30
    GET_MIN_OFFSET = 31
    GET_EARLIEST_MSG_STORETIME = 32
    VIEW_MESSAGE_BY_ID = 33
    HEART_BEAT = 34
    UNREGISTER_CLIENT = 35
    CONSUMER_SEND_MSG_BACK = 36
    END_TRANSACTION = 37
    GET_CONSUMER_LIST_BY_GROUP = 38
    CHECK_TRANSACTION_STATE = 39
    NOTIFY_CONSUMER_IDS_CHANGED = 40
    LOCK_BATCH_MQ = 41
    UNLOCK_BATCH_MQ = 42
    CHECK_CLIENT_CONFIG = 46
    DELETE_KV_CONFIG = 102
    GET_ROUTEINFO_BY_TOPIC = 105
    GET_BROKER_CLUSTER_INFO = 106
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP = 200
    GET_ALL_SUBSCRIPTIONGROUP_CONFIG = 201
    GET_TOPIC_STATS_INFO = 202
    GET_CONSUMER_CONNECTION_LIST = 203
    GET_PRODUCER_CONNECTION_LIST = 204
    WIPE_WRITE_PERM_OF_BROKER = 205
    GET_ALL_TOPIC_LIST_FROM_NAMESERVER = 206
    DELETE_SUBSCRIPTIONGROUP = 207
    GET_CONSUME_STATS = 208
    DELETE_TOPIC_IN_BROKER = 215
    DELETE_TOPIC_IN_NAMESRV = 216
    RESET_CONSUMER_CLIENT_OFFSET = 220
    GET_CONSUMER_STATUS_FROM_CLIENT = 221
    INVOKE_BROKER_TO_RESET_OFFSET = 222
    INVOKE_BROKER_TO_GET_CONSUMER_STATUS = 223
    GET_TOPICS_BY_CLUSTER = 224
    QUERY_TOPIC_CONSUME_BY_WHO = 300
    QUERY_CONSUME_TIME_SPAN = 303
    GET_SYSTEM_TOPIC_LIST_FROM_NS = 304
    GET_SYSTEM_TOPIC_LIST_FROM_BROKER = 305
    GET_CONSUMER_RUNNING_INFO = 307
    CONSUME_MESSAGE_DIRECTLY = 309
    SEND_MESSAGE_V2 = 310
    CLONE_GROUP_OFFSET = 314
    VIEW_BROKER_STATS_DATA = 315
    SEND_BATCH_MESSAGE = 320
    SEND_REPLY_MESSAGE = 324
    SEND_REPLY_MESSAGE_V2 = 325
    PUSH_REPLY_MESSAGE_TO_CLIENT = 326
    ADD_WRITE_PERM_OF_BROKER = 327
    GET_ALL_PRODUCER_INFO = 328
    QUERY_TOPICS_BY_CONSUMER = 343
    QUERY_SUBSCRIPTION_BY_CONSUMER = 345
    GET_TOPIC_CONFIG = 351
    GET_SUBSCRIPTIONGROUP_CONFIG = 352
    LITE_PULL_MESSAGE = 361
    RECALL_MESSAGE = 370
    AUTH_CREATE_USER = 3001
    AUTH_UPDATE_USER = 3002
    AUTH_DELETE_USER = 3003
    AUTH_GET_USER = 3004
    AUTH_LIST_USER = 3005
    AUTH_CREATE_ACL = 3006
    AUTH_UPDATE_ACL = 3007
    AUTH_DELETE_ACL = 3008
    AUTH_GET_ACL = 3009
    AUTH_LIST_ACL = 3010
    QUERY_ASSIGNMENT = 400
    SET_MESSAGE_REQUEST_MODE = 401
    POP_MESSAGE = 200050
    ACK_MESSAGE = 200051
    CHANGE_MESSAGE_INVISIBLETIME = 200053
    NOTIFICATION = 200054
    POLLING_INFO = 200055
    BATCH_ACK_MESSAGE = 200151


class Code(IntEnum):
    """How a request ended, by Apache's names."""

    SUCCESS = 0
    SYSTEM_ERROR = 1
    SYSTEM_BUSY = 2
    REQUEST_CODE_NOT_SUPPORTED = 3
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12
    MESSAGE_ILLEGAL = 13
    SERVICE_NOT_AVAILABLE = 14
    NO_PERMISSION = 16
    TOPIC_NOT_EXIST = 17
    PULL_NOT_FOUND = 19
    PULL_RETRY_IMMEDIATELY = 20
    PULL_OFFSET_MOVED = 21
    QUERY_NOT_FOUND = 22
    SUBSCRIPTION_PARSE_FAILED = 23
    SUBSCRIPTION_NOT_EXIST = 24
    SUBSCRIPTION_NOT_LATEST = 25
    SUBSCRIPTION_GROUP_NOT_EXIST = 26
    INVALID_PARAMETER = 29
    CONSUMER_NOT_ONLINE = 206
    CONSUME_MSG_TIMEOUT = 207
    NO_MESSAGE = 208
    POLLING_FULL = 209
    POLLING_TIMEOUT = 210
    FLOW_CONTROL = 215


# Synchronous producers try another broker after 1, 2, 14, 16 and 17, but not after 13, 26, 29 and
# 215; consumers try again a second later, whatever it is.
CODES: Final[dict[type[errors.AerobeeError], Code]] = {
    errors.AerobeeError: Code.SYSTEM_ERROR,
    errors.InvalidArgument: Code.INVALID_PARAMETER,
    errors.TopicNotFound: Code.TOPIC_NOT_EXIST,
    errors.QueueNotFound: Code.SYSTEM_ERROR,
    errors.GroupNotFound: Code.SUBSCRIPTION_GROUP_NOT_EXIST,
    errors.MessageNotFound: Code.QUERY_NOT_FOUND,
    errors.StaleHandle: Code.NO_MESSAGE,
    errors.MessageIllegal: Code.MESSAGE_ILLEGAL,
    errors.FilterIllegal: Code.SUBSCRIPTION_PARSE_FAILED,
    errors.NotWritableTopic: Code.NO_PERMISSION,
    errors.NotReadableTopic: Code.NO_PERMISSION,
    errors.Unauthenticated: Code.NO_PERMISSION,
    errors.AccessDenied: Code.NO_PERMISSION,
    errors.LeaseHeld: Code.SYSTEM_BUSY,
    errors.LeaseExpired: Code.SYSTEM_BUSY,
    errors.Busy: Code.SYSTEM_BUSY,
    errors.QuotaExceeded: Code.FLOW_CONTROL,
    errors.LimitReached: Code.SYSTEM_ERROR,
    errors.NotMaster: Code.SERVICE_NOT_AVAILABLE,
    errors.StaleEpoch: Code.SERVICE_NOT_AVAILABLE,
    errors.ShuttingDown: Code.SERVICE_NOT_AVAILABLE,
    errors.NotWritable: Code.SERVICE_NOT_AVAILABLE,
    errors.NotEnoughReplicas: Code.SERVICE_NOT_AVAILABLE,
    errors.StoreFailed: Code.SERVICE_NOT_AVAILABLE,
    errors.ReplicaBehind: Code.SERVICE_NOT_AVAILABLE,
    errors.RegistryUnavailable: Code.SERVICE_NOT_AVAILABLE,
    errors.NoBrokerAvailable: Code.SERVICE_NOT_AVAILABLE,
    errors.Unreachable: Code.SERVICE_NOT_AVAILABLE,
    errors.DeadlineExceeded: Code.SERVICE_NOT_AVAILABLE,
}


def code_of(error: errors.AerobeeError) -> Code:
    """The code for a typed error; one that is in no row has that of its class."""
    return CODES[next(kind for kind in type(error).__mro__ if kind in CODES)]


def refusal(request: Command, error: errors.AerobeeError) -> Command:
    """The answer that reports an error."""
    return request.answer(code_of(error), remark=str(error))
