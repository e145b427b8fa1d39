from aerobee.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class BrokerGroupState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BROKER_GROUP_OPEN: _ClassVar[BrokerGroupState]
    BROKER_GROUP_CLOSED: _ClassVar[BrokerGroupState]
    BROKER_GROUP_REMOVED: _ClassVar[BrokerGroupState]

class BrokerCondition(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BROKER_WELL: _ClassVar[BrokerCondition]
    BROKER_SLOW: _ClassVar[BrokerCondition]
    BROKER_DISK_HUNG: _ClassVar[BrokerCondition]
BROKER_GROUP_OPEN: BrokerGroupState
BROKER_GROUP_CLOSED: BrokerGroupState
BROKER_GROUP_REMOVED: BrokerGroupState
BROKER_WELL: BrokerCondition
BROKER_SLOW: BrokerCondition
BROKER_DISK_HUNG: BrokerCondition

class ReplicaName(_message.Message):
    __slots__ = ("broker_id", "incarnation")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    incarnation: str
    def __init__(self, broker_id: _Optional[int] = ..., incarnation: _Optional[str] = ...) -> None: ...

class GroupRecord(_message.Message):
    __slots__ = ("broker_name", "epoch", "master_id", "master_instance", "in_sync", "replicas", "revision", "unclean_epochs", "state")
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    MASTER_ID_FIELD_NUMBER: _ClassVar[int]
    MASTER_INSTANCE_FIELD_NUMBER: _ClassVar[int]
    IN_SYNC_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    UNCLEAN_EPOCHS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    broker_name: str
    epoch: int
    master_id: int
    master_instance: str
    in_sync: _containers.RepeatedCompositeFieldContainer[ReplicaName]
    replicas: _containers.RepeatedScalarFieldContainer[int]
    revision: int
    unclean_epochs: _containers.RepeatedScalarFieldContainer[int]
    state: BrokerGroupState
    def __init__(self, broker_name: _Optional[str] = ..., epoch: _Optional[int] = ..., master_id: _Optional[int] = ..., master_instance: _Optional[str] = ..., in_sync: _Optional[_Iterable[_Union[ReplicaName, _Mapping]]] = ..., replicas: _Optional[_Iterable[int]] = ..., revision: _Optional[int] = ..., unclean_epochs: _Optional[_Iterable[int]] = ..., state: _Optional[_Union[BrokerGroupState, str]] = ...) -> None: ...

class AlterInSyncSetRequest(_message.Message):
    __slots__ = ("cluster", "broker_name", "master_id", "master_instance", "epoch", "expected_revision", "in_sync")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    MASTER_ID_FIELD_NUMBER: _ClassVar[int]
    MASTER_INSTANCE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_REVISION_FIELD_NUMBER: _ClassVar[int]
    IN_SYNC_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    broker_name: str
    master_id: int
    master_instance: str
    epoch: int
    expected_revision: int
    in_sync: _containers.RepeatedCompositeFieldContainer[ReplicaName]
    def __init__(self, cluster: _Optional[str] = ..., broker_name: _Optional[str] = ..., master_id: _Optional[int] = ..., master_instance: _Optional[str] = ..., epoch: _Optional[int] = ..., expected_revision: _Optional[int] = ..., in_sync: _Optional[_Iterable[_Union[ReplicaName, _Mapping]]] = ...) -> None: ...

class RemoveReplicaRequest(_message.Message):
    __slots__ = ("cluster", "broker_name", "broker_id")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    broker_name: str
    broker_id: int
    def __init__(self, cluster: _Optional[str] = ..., broker_name: _Optional[str] = ..., broker_id: _Optional[int] = ...) -> None: ...

class CloseBrokerGroupRequest(_message.Message):
    __slots__ = ("cluster", "broker_name")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    broker_name: str
    def __init__(self, cluster: _Optional[str] = ..., broker_name: _Optional[str] = ...) -> None: ...

class OpenBrokerGroupRequest(_message.Message):
    __slots__ = ("cluster", "broker_name")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    broker_name: str
    def __init__(self, cluster: _Optional[str] = ..., broker_name: _Optional[str] = ...) -> None: ...

class RemoveBrokerGroupRequest(_message.Message):
    __slots__ = ("cluster", "broker_name")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    broker_name: str
    def __init__(self, cluster: _Optional[str] = ..., broker_name: _Optional[str] = ...) -> None: ...

class RemoveBrokerGroupResponse(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: int
    def __init__(self, topics: _Optional[int] = ...) -> None: ...

class BrokerHeartbeat(_message.Message):
    __slots__ = ("identity", "address", "lease_duration_ms", "role", "epoch", "log_begin", "log_end", "metadata_revision", "metadata_history", "store_host_ipv6", "writable", "sequence", "incarnation", "predecessor", "log_epoch", "confirmed_end", "resigned_epoch", "successor_id", "replication_trouble", "durable_end", "opened_end", "access_version", "condition", "outside_address", "zone", "in_sync_min", "log_kept_hours", "leaving")
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    LEASE_DURATION_MS_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LOG_BEGIN_FIELD_NUMBER: _ClassVar[int]
    LOG_END_FIELD_NUMBER: _ClassVar[int]
    METADATA_REVISION_FIELD_NUMBER: _ClassVar[int]
    METADATA_HISTORY_FIELD_NUMBER: _ClassVar[int]
    STORE_HOST_IPV6_FIELD_NUMBER: _ClassVar[int]
    WRITABLE_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    PREDECESSOR_FIELD_NUMBER: _ClassVar[int]
    LOG_EPOCH_FIELD_NUMBER: _ClassVar[int]
    CONFIRMED_END_FIELD_NUMBER: _ClassVar[int]
    RESIGNED_EPOCH_FIELD_NUMBER: _ClassVar[int]
    SUCCESSOR_ID_FIELD_NUMBER: _ClassVar[int]
    REPLICATION_TROUBLE_FIELD_NUMBER: _ClassVar[int]
    DURABLE_END_FIELD_NUMBER: _ClassVar[int]
    OPENED_END_FIELD_NUMBER: _ClassVar[int]
    ACCESS_VERSION_FIELD_NUMBER: _ClassVar[int]
    CONDITION_FIELD_NUMBER: _ClassVar[int]
    OUTSIDE_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    IN_SYNC_MIN_FIELD_NUMBER: _ClassVar[int]
    LOG_KEPT_HOURS_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    identity: _common_pb2.BrokerIdentity
    address: str
    lease_duration_ms: int
    role: _common_pb2.BrokerRole
    epoch: int
    log_begin: int
    log_end: int
    metadata_revision: int
    metadata_history: str
    store_host_ipv6: bool
    writable: bool
    sequence: int
    incarnation: str
    predecessor: str
    log_epoch: int
    confirmed_end: int
    resigned_epoch: int
    successor_id: int
    replication_trouble: str
    durable_end: int
    opened_end: int
    access_version: str
    condition: BrokerCondition
    outside_address: str
    zone: str
    in_sync_min: int
    log_kept_hours: int
    leaving: bool
    def __init__(self, identity: _Optional[_Union[_common_pb2.BrokerIdentity, _Mapping]] = ..., address: _Optional[str] = ..., lease_duration_ms: _Optional[int] = ..., role: _Optional[_Union[_common_pb2.BrokerRole, str]] = ..., epoch: _Optional[int] = ..., log_begin: _Optional[int] = ..., log_end: _Optional[int] = ..., metadata_revision: _Optional[int] = ..., metadata_history: _Optional[str] = ..., store_host_ipv6: _Optional[bool] = ..., writable: _Optional[bool] = ..., sequence: _Optional[int] = ..., incarnation: _Optional[str] = ..., predecessor: _Optional[str] = ..., log_epoch: _Optional[int] = ..., confirmed_end: _Optional[int] = ..., resigned_epoch: _Optional[int] = ..., successor_id: _Optional[int] = ..., replication_trouble: _Optional[str] = ..., durable_end: _Optional[int] = ..., opened_end: _Optional[int] = ..., access_version: _Optional[str] = ..., condition: _Optional[_Union[BrokerCondition, str]] = ..., outside_address: _Optional[str] = ..., zone: _Optional[str] = ..., in_sync_min: _Optional[int] = ..., log_kept_hours: _Optional[int] = ..., leaving: _Optional[bool] = ...) -> None: ...

class BrokerDirective(_message.Message):
    __slots__ = ("status", "role", "epoch", "lease_duration_ms", "stale", "renewed_sequence", "group", "replicas", "topics", "metadata_revision", "metadata_history", "access", "topics_complete")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LEASE_DURATION_MS_FIELD_NUMBER: _ClassVar[int]
    STALE_FIELD_NUMBER: _ClassVar[int]
    RENEWED_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    METADATA_REVISION_FIELD_NUMBER: _ClassVar[int]
    METADATA_HISTORY_FIELD_NUMBER: _ClassVar[int]
    ACCESS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_COMPLETE_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    role: _common_pb2.BrokerRole
    epoch: int
    lease_duration_ms: int
    stale: bool
    renewed_sequence: int
    group: GroupRecord
    replicas: _containers.RepeatedCompositeFieldContainer[BrokerEndpoint]
    topics: _containers.RepeatedCompositeFieldContainer[_common_pb2.TopicConfig]
    metadata_revision: int
    metadata_history: str
    access: AccessRecords
    topics_complete: bool
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., role: _Optional[_Union[_common_pb2.BrokerRole, str]] = ..., epoch: _Optional[int] = ..., lease_duration_ms: _Optional[int] = ..., stale: _Optional[bool] = ..., renewed_sequence: _Optional[int] = ..., group: _Optional[_Union[GroupRecord, _Mapping]] = ..., replicas: _Optional[_Iterable[_Union[BrokerEndpoint, _Mapping]]] = ..., topics: _Optional[_Iterable[_Union[_common_pb2.TopicConfig, _Mapping]]] = ..., metadata_revision: _Optional[int] = ..., metadata_history: _Optional[str] = ..., access: _Optional[_Union[AccessRecords, _Mapping]] = ..., topics_complete: _Optional[bool] = ...) -> None: ...

class AccessRecords(_message.Message):
    __slots__ = ("version", "users", "policies", "quotas")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    USERS_FIELD_NUMBER: _ClassVar[int]
    POLICIES_FIELD_NUMBER: _ClassVar[int]
    QUOTAS_FIELD_NUMBER: _ClassVar[int]
    version: str
    users: _containers.RepeatedCompositeFieldContainer[AccessRecord]
    policies: _containers.RepeatedCompositeFieldContainer[AccessRecord]
    quotas: _containers.RepeatedCompositeFieldContainer[AccessRecord]
    def __init__(self, version: _Optional[str] = ..., users: _Optional[_Iterable[_Union[AccessRecord, _Mapping]]] = ..., policies: _Optional[_Iterable[_Union[AccessRecord, _Mapping]]] = ..., quotas: _Optional[_Iterable[_Union[AccessRecord, _Mapping]]] = ...) -> None: ...

class AccessRecord(_message.Message):
    __slots__ = ("user", "value")
    USER_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    user: str
    value: bytes
    def __init__(self, user: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...

class BrokerEndpoint(_message.Message):
    __slots__ = ("identity", "address", "role", "epoch", "store_host_ipv6", "writable", "condition", "outside_address", "zone")
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    STORE_HOST_IPV6_FIELD_NUMBER: _ClassVar[int]
    WRITABLE_FIELD_NUMBER: _ClassVar[int]
    CONDITION_FIELD_NUMBER: _ClassVar[int]
    OUTSIDE_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    identity: _common_pb2.BrokerIdentity
    address: str
    role: _common_pb2.BrokerRole
    epoch: int
    store_host_ipv6: bool
    writable: bool
    condition: BrokerCondition
    outside_address: str
    zone: str
    def __init__(self, identity: _Optional[_Union[_common_pb2.BrokerIdentity, _Mapping]] = ..., address: _Optional[str] = ..., role: _Optional[_Union[_common_pb2.BrokerRole, str]] = ..., epoch: _Optional[int] = ..., store_host_ipv6: _Optional[bool] = ..., writable: _Optional[bool] = ..., condition: _Optional[_Union[BrokerCondition, str]] = ..., outside_address: _Optional[str] = ..., zone: _Optional[str] = ...) -> None: ...

class TopicRoute(_message.Message):
    __slots__ = ("status", "topic", "brokers", "closed")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    BROKERS_FIELD_NUMBER: _ClassVar[int]
    CLOSED_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    topic: _common_pb2.TopicConfig
    brokers: _containers.RepeatedCompositeFieldContainer[BrokerEndpoint]
    closed: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., topic: _Optional[_Union[_common_pb2.TopicConfig, _Mapping]] = ..., brokers: _Optional[_Iterable[_Union[BrokerEndpoint, _Mapping]]] = ..., closed: _Optional[_Iterable[str]] = ...) -> None: ...

class QueryRouteRequest(_message.Message):
    __slots__ = ("cluster", "topics", "create_missing", "plan_missing")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    CREATE_MISSING_FIELD_NUMBER: _ClassVar[int]
    PLAN_MISSING_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    topics: _containers.RepeatedScalarFieldContainer[str]
    create_missing: bool
    plan_missing: bool
    def __init__(self, cluster: _Optional[str] = ..., topics: _Optional[_Iterable[str]] = ..., create_missing: _Optional[bool] = ..., plan_missing: _Optional[bool] = ...) -> None: ...

class QueryRouteResponse(_message.Message):
    __slots__ = ("version", "stale", "routes")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    STALE_FIELD_NUMBER: _ClassVar[int]
    ROUTES_FIELD_NUMBER: _ClassVar[int]
    version: int
    stale: bool
    routes: _containers.RepeatedCompositeFieldContainer[TopicRoute]
    def __init__(self, version: _Optional[int] = ..., stale: _Optional[bool] = ..., routes: _Optional[_Iterable[_Union[TopicRoute, _Mapping]]] = ...) -> None: ...

class WatchRoutesRequest(_message.Message):
    __slots__ = ("cluster", "topics")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    topics: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, cluster: _Optional[str] = ..., topics: _Optional[_Iterable[str]] = ...) -> None: ...

class CreateTopicRequest(_message.Message):
    __slots__ = ("cluster", "name", "queues", "perm", "order", "attributes", "queues_by_broker")
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
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    PERM_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    QUEUES_BY_BROKER_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    name: str
    queues: int
    perm: int
    order: bool
    attributes: _containers.ScalarMap[str, str]
    queues_by_broker: _containers.ScalarMap[str, int]
    def __init__(self, cluster: _Optional[str] = ..., name: _Optional[str] = ..., queues: _Optional[int] = ..., perm: _Optional[int] = ..., order: _Optional[bool] = ..., attributes: _Optional[_Mapping[str, str]] = ..., queues_by_broker: _Optional[_Mapping[str, int]] = ...) -> None: ...

class UpdateTopicRequest(_message.Message):
    __slots__ = ("cluster", "name", "queues", "perm", "order", "attributes", "queues_by_broker")
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
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    PERM_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    QUEUES_BY_BROKER_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    name: str
    queues: int
    perm: int
    order: bool
    attributes: _containers.ScalarMap[str, str]
    queues_by_broker: _containers.ScalarMap[str, int]
    def __init__(self, cluster: _Optional[str] = ..., name: _Optional[str] = ..., queues: _Optional[int] = ..., perm: _Optional[int] = ..., order: _Optional[bool] = ..., attributes: _Optional[_Mapping[str, str]] = ..., queues_by_broker: _Optional[_Mapping[str, int]] = ...) -> None: ...

class SpreadTopicRequest(_message.Message):
    __slots__ = ("cluster", "name", "retire", "preview")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    RETIRE_FIELD_NUMBER: _ClassVar[int]
    PREVIEW_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    name: str
    retire: _containers.RepeatedScalarFieldContainer[str]
    preview: bool
    def __init__(self, cluster: _Optional[str] = ..., name: _Optional[str] = ..., retire: _Optional[_Iterable[str]] = ..., preview: _Optional[bool] = ...) -> None: ...

class SpreadTopicResponse(_message.Message):
    __slots__ = ("before", "after")
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    before: _common_pb2.TopicConfig
    after: _common_pb2.TopicConfig
    def __init__(self, before: _Optional[_Union[_common_pb2.TopicConfig, _Mapping]] = ..., after: _Optional[_Union[_common_pb2.TopicConfig, _Mapping]] = ...) -> None: ...

class RemoveRetiredRequest(_message.Message):
    __slots__ = ("cluster", "name", "broker_name")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    name: str
    broker_name: str
    def __init__(self, cluster: _Optional[str] = ..., name: _Optional[str] = ..., broker_name: _Optional[str] = ...) -> None: ...

class DeleteTopicRequest(_message.Message):
    __slots__ = ("cluster", "name")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    name: str
    def __init__(self, cluster: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class DeleteTopicResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListTopicsRequest(_message.Message):
    __slots__ = ("cluster",)
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    def __init__(self, cluster: _Optional[str] = ...) -> None: ...

class ListTopicsResponse(_message.Message):
    __slots__ = ("version", "stale", "topics")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    STALE_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    version: int
    stale: bool
    topics: _containers.RepeatedCompositeFieldContainer[_common_pb2.TopicConfig]
    def __init__(self, version: _Optional[int] = ..., stale: _Optional[bool] = ..., topics: _Optional[_Iterable[_Union[_common_pb2.TopicConfig, _Mapping]]] = ...) -> None: ...

class DescribeClusterRequest(_message.Message):
    __slots__ = ("cluster",)
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    def __init__(self, cluster: _Optional[str] = ...) -> None: ...

class ClusterDescription(_message.Message):
    __slots__ = ("cluster", "version", "stale", "brokers", "heartbeat_age_ms", "last_heartbeats", "groups", "etcd_trouble")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    STALE_FIELD_NUMBER: _ClassVar[int]
    BROKERS_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_HEARTBEATS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    ETCD_TROUBLE_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    version: int
    stale: bool
    brokers: _containers.RepeatedCompositeFieldContainer[BrokerEndpoint]
    heartbeat_age_ms: _containers.RepeatedScalarFieldContainer[int]
    last_heartbeats: _containers.RepeatedCompositeFieldContainer[BrokerHeartbeat]
    groups: _containers.RepeatedCompositeFieldContainer[GroupRecord]
    etcd_trouble: str
    def __init__(self, cluster: _Optional[str] = ..., version: _Optional[int] = ..., stale: _Optional[bool] = ..., brokers: _Optional[_Iterable[_Union[BrokerEndpoint, _Mapping]]] = ..., heartbeat_age_ms: _Optional[_Iterable[int]] = ..., last_heartbeats: _Optional[_Iterable[_Union[BrokerHeartbeat, _Mapping]]] = ..., groups: _Optional[_Iterable[_Union[GroupRecord, _Mapping]]] = ..., etcd_trouble: _Optional[str] = ...) -> None: ...
