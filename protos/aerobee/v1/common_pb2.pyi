from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Code(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CODE_UNSPECIFIED: _ClassVar[Code]
    OK: _ClassVar[Code]
    FLUSH_DISK_TIMEOUT: _ClassVar[Code]
    FLUSH_SLAVE_TIMEOUT: _ClassVar[Code]
    SLAVE_NOT_AVAILABLE: _ClassVar[Code]
    NO_NEW_MESSAGE: _ClassVar[Code]
    OFFSET_TOO_SMALL: _ClassVar[Code]
    OFFSET_TOO_LARGE: _ClassVar[Code]
    OFFSET_NOT_FOUND: _ClassVar[Code]
    MESSAGE_REMOVED: _ClassVar[Code]
    INVALID_ARGUMENT: _ClassVar[Code]
    ILLEGAL_NAME: _ClassVar[Code]
    TOPIC_NOT_FOUND: _ClassVar[Code]
    QUEUE_NOT_FOUND: _ClassVar[Code]
    GROUP_NOT_FOUND: _ClassVar[Code]
    MESSAGE_ILLEGAL: _ClassVar[Code]
    MESSAGE_TOO_LARGE: _ClassVar[Code]
    PROPERTIES_TOO_LARGE: _ClassVar[Code]
    CORRUPT_BODY: _ClassVar[Code]
    TOPIC_EXISTS: _ClassVar[Code]
    FILTER_ILLEGAL: _ClassVar[Code]
    NOT_WRITABLE_TOPIC: _ClassVar[Code]
    NOT_READABLE_TOPIC: _ClassVar[Code]
    NO_BROKER_AVAILABLE: _ClassVar[Code]
    MESSAGE_NOT_FOUND: _ClassVar[Code]
    OUT_OF_SEQUENCE: _ClassVar[Code]
    LIMIT_REACHED: _ClassVar[Code]
    UNAUTHENTICATED: _ClassVar[Code]
    ACCESS_DENIED: _ClassVar[Code]
    FOREIGN_CLUSTER: _ClassVar[Code]
    REPLICA_DIVERGED: _ClassVar[Code]
    REPLICATION_GAP: _ClassVar[Code]
    CORRUPT_FRAME: _ClassVar[Code]
    REPLICA_INCOMPLETE: _ClassVar[Code]
    SCHEDULE_EXISTS: _ClassVar[Code]
    SCHEDULE_NOT_FOUND: _ClassVar[Code]
    NOT_MASTER: _ClassVar[Code]
    STALE_EPOCH: _ClassVar[Code]
    LEASE_HELD: _ClassVar[Code]
    LEASE_EXPIRED: _ClassVar[Code]
    DUPLICATE_CLIENT: _ClassVar[Code]
    DUPLICATE_BROKER: _ClassVar[Code]
    UNKNOWN_MEMBER: _ClassVar[Code]
    GROUP_IN_USE: _ClassVar[Code]
    GROUP_DELETED: _ClassVar[Code]
    STALE_HANDLE: _ClassVar[Code]
    SCHEDULE_CHANGED: _ClassVar[Code]
    SHUTTING_DOWN: _ClassVar[Code]
    NOT_WRITABLE: _ClassVar[Code]
    BUSY: _ClassVar[Code]
    STORE_FAILED: _ClassVar[Code]
    REGISTRY_UNAVAILABLE: _ClassVar[Code]
    DEADLINE_EXCEEDED: _ClassVar[Code]
    NOT_ENOUGH_REPLICAS: _ClassVar[Code]
    REPLICA_BEHIND: _ClassVar[Code]
    QUOTA_EXCEEDED: _ClassVar[Code]
    TIER_UNAVAILABLE: _ClassVar[Code]
    TIER_DAMAGED: _ClassVar[Code]
    INTERNAL: _ClassVar[Code]

class BrokerRole(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BROKER_ROLE_UNSPECIFIED: _ClassVar[BrokerRole]
    MASTER: _ClassVar[BrokerRole]
    SLAVE: _ClassVar[BrokerRole]
CODE_UNSPECIFIED: Code
OK: Code
FLUSH_DISK_TIMEOUT: Code
FLUSH_SLAVE_TIMEOUT: Code
SLAVE_NOT_AVAILABLE: Code
NO_NEW_MESSAGE: Code
OFFSET_TOO_SMALL: Code
OFFSET_TOO_LARGE: Code
OFFSET_NOT_FOUND: Code
MESSAGE_REMOVED: Code
INVALID_ARGUMENT: Code
ILLEGAL_NAME: Code
TOPIC_NOT_FOUND: Code
QUEUE_NOT_FOUND: Code
GROUP_NOT_FOUND: Code
MESSAGE_ILLEGAL: Code
MESSAGE_TOO_LARGE: Code
PROPERTIES_TOO_LARGE: Code
CORRUPT_BODY: Code
TOPIC_EXISTS: Code
FILTER_ILLEGAL: Code
NOT_WRITABLE_TOPIC: Code
NOT_READABLE_TOPIC: Code
NO_BROKER_AVAILABLE: Code
MESSAGE_NOT_FOUND: Code
OUT_OF_SEQUENCE: Code
LIMIT_REACHED: Code
UNAUTHENTICATED: Code
ACCESS_DENIED: Code
FOREIGN_CLUSTER: Code
REPLICA_DIVERGED: Code
REPLICATION_GAP: Code
CORRUPT_FRAME: Code
REPLICA_INCOMPLETE: Code
SCHEDULE_EXISTS: Code
SCHEDULE_NOT_FOUND: Code
NOT_MASTER: Code
STALE_EPOCH: Code
LEASE_HELD: Code
LEASE_EXPIRED: Code
DUPLICATE_CLIENT: Code
DUPLICATE_BROKER: Code
UNKNOWN_MEMBER: Code
GROUP_IN_USE: Code
GROUP_DELETED: Code
STALE_HANDLE: Code
SCHEDULE_CHANGED: Code
SHUTTING_DOWN: Code
NOT_WRITABLE: Code
BUSY: Code
STORE_FAILED: Code
REGISTRY_UNAVAILABLE: Code
DEADLINE_EXCEEDED: Code
NOT_ENOUGH_REPLICAS: Code
REPLICA_BEHIND: Code
QUOTA_EXCEEDED: Code
TIER_UNAVAILABLE: Code
TIER_DAMAGED: Code
INTERNAL: Code
BROKER_ROLE_UNSPECIFIED: BrokerRole
MASTER: BrokerRole
SLAVE: BrokerRole

class Status(_message.Message):
    __slots__ = ("code", "message", "retry_after_ms")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    code: Code
    message: str
    retry_after_ms: int
    def __init__(self, code: _Optional[_Union[Code, str]] = ..., message: _Optional[str] = ..., retry_after_ms: _Optional[int] = ...) -> None: ...

class QueueName(_message.Message):
    __slots__ = ("topic", "broker_name", "queue_id")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    topic: str
    broker_name: str
    queue_id: int
    def __init__(self, topic: _Optional[str] = ..., broker_name: _Optional[str] = ..., queue_id: _Optional[int] = ...) -> None: ...

class TopicConfig(_message.Message):
    __slots__ = ("name", "perm", "order", "attributes", "queues_by_broker", "revision", "deleted", "deleted_at", "key_order", "retired")
    class AttributesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class QueuesByBrokerEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    PERM_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    QUEUES_BY_BROKER_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    DELETED_AT_FIELD_NUMBER: _ClassVar[int]
    KEY_ORDER_FIELD_NUMBER: _ClassVar[int]
    RETIRED_FIELD_NUMBER: _ClassVar[int]
    name: str
    perm: int
    order: bool
    attributes: _containers.ScalarMap[str, str]
    queues_by_broker: _containers.ScalarMap[str, int]
    revision: int
    deleted: bool
    deleted_at: int
    key_order: _containers.RepeatedCompositeFieldContainer[QueueRun]
    retired: _containers.RepeatedCompositeFieldContainer[RetiredQueues]
    def __init__(self, name: _Optional[str] = ..., perm: _Optional[int] = ..., order: _Optional[bool] = ..., attributes: _Optional[_Mapping[str, str]] = ..., queues_by_broker: _Optional[_Mapping[str, int]] = ..., revision: _Optional[int] = ..., deleted: _Optional[bool] = ..., deleted_at: _Optional[int] = ..., key_order: _Optional[_Iterable[_Union[QueueRun, _Mapping]]] = ..., retired: _Optional[_Iterable[_Union[RetiredQueues, _Mapping]]] = ...) -> None: ...

class QueueRun(_message.Message):
    __slots__ = ("broker_name", "first", "count")
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    broker_name: str
    first: int
    count: int
    def __init__(self, broker_name: _Optional[str] = ..., first: _Optional[int] = ..., count: _Optional[int] = ...) -> None: ...

class RetiredQueues(_message.Message):
    __slots__ = ("broker_name", "successors")
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    SUCCESSORS_FIELD_NUMBER: _ClassVar[int]
    broker_name: str
    successors: _containers.RepeatedCompositeFieldContainer[QueueRun]
    def __init__(self, broker_name: _Optional[str] = ..., successors: _Optional[_Iterable[_Union[QueueRun, _Mapping]]] = ...) -> None: ...

class BrokerIdentity(_message.Message):
    __slots__ = ("cluster", "broker_name", "broker_id", "instance")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    broker_name: str
    broker_id: int
    instance: str
    def __init__(self, cluster: _Optional[str] = ..., broker_name: _Optional[str] = ..., broker_id: _Optional[int] = ..., instance: _Optional[str] = ...) -> None: ...
