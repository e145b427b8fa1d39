from aerobee.v1 import broker_pb2 as _broker_pb2
from aerobee.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SnapshotTable(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SNAPSHOT_BROKER: _ClassVar[SnapshotTable]
    SNAPSHOT_TOPICS: _ClassVar[SnapshotTable]
    SNAPSHOT_QUEUES: _ClassVar[SnapshotTable]
    SNAPSHOT_COMMITS: _ClassVar[SnapshotTable]
    SNAPSHOT_LEASES: _ClassVar[SnapshotTable]
    SNAPSHOT_MEMBERS: _ClassVar[SnapshotTable]
    SNAPSHOT_EPOCHS: _ClassVar[SnapshotTable]
    SNAPSHOT_SEGMENTS: _ClassVar[SnapshotTable]
    SNAPSHOT_MINUTES: _ClassVar[SnapshotTable]
    SNAPSHOT_WAITING: _ClassVar[SnapshotTable]
SNAPSHOT_BROKER: SnapshotTable
SNAPSHOT_TOPICS: SnapshotTable
SNAPSHOT_QUEUES: SnapshotTable
SNAPSHOT_COMMITS: SnapshotTable
SNAPSHOT_LEASES: SnapshotTable
SNAPSHOT_MEMBERS: SnapshotTable
SNAPSHOT_EPOCHS: SnapshotTable
SNAPSHOT_SEGMENTS: SnapshotTable
SNAPSHOT_MINUTES: SnapshotTable
SNAPSHOT_WAITING: SnapshotTable

class SnapshotRequest(_message.Message):
    __slots__ = ("tables", "topics", "groups", "with_first_unread", "with_matching_unread")
    TABLES_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    WITH_FIRST_UNREAD_FIELD_NUMBER: _ClassVar[int]
    WITH_MATCHING_UNREAD_FIELD_NUMBER: _ClassVar[int]
    tables: _containers.RepeatedScalarFieldContainer[SnapshotTable]
    topics: _containers.RepeatedScalarFieldContainer[str]
    groups: _containers.RepeatedScalarFieldContainer[str]
    with_first_unread: bool
    with_matching_unread: bool
    def __init__(self, tables: _Optional[_Iterable[_Union[SnapshotTable, str]]] = ..., topics: _Optional[_Iterable[str]] = ..., groups: _Optional[_Iterable[str]] = ..., with_first_unread: _Optional[bool] = ..., with_matching_unread: _Optional[bool] = ...) -> None: ...

class SnapshotPart(_message.Message):
    __slots__ = ("broker", "topics", "queues", "commits", "leases", "members", "epochs", "segments", "minutes", "waiting", "end")
    BROKER_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    COMMITS_FIELD_NUMBER: _ClassVar[int]
    LEASES_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    MINUTES_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    broker: SnapshotBroker
    topics: TopicRows
    queues: QueueRows
    commits: CommitRows
    leases: LeaseRows
    members: MemberRows
    epochs: EpochRows
    segments: SegmentRows
    minutes: MinuteRows
    waiting: WaitingRows
    end: SnapshotEnd
    def __init__(self, broker: _Optional[_Union[SnapshotBroker, _Mapping]] = ..., topics: _Optional[_Union[TopicRows, _Mapping]] = ..., queues: _Optional[_Union[QueueRows, _Mapping]] = ..., commits: _Optional[_Union[CommitRows, _Mapping]] = ..., leases: _Optional[_Union[LeaseRows, _Mapping]] = ..., members: _Optional[_Union[MemberRows, _Mapping]] = ..., epochs: _Optional[_Union[EpochRows, _Mapping]] = ..., segments: _Optional[_Union[SegmentRows, _Mapping]] = ..., minutes: _Optional[_Union[MinuteRows, _Mapping]] = ..., waiting: _Optional[_Union[WaitingRows, _Mapping]] = ..., end: _Optional[_Union[SnapshotEnd, _Mapping]] = ...) -> None: ...

class SnapshotBroker(_message.Message):
    __slots__ = ("stats", "instance", "incarnation", "commits_read_at_ms", "ends_read_at_ms", "in_sync", "master_id")
    STATS_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    COMMITS_READ_AT_MS_FIELD_NUMBER: _ClassVar[int]
    ENDS_READ_AT_MS_FIELD_NUMBER: _ClassVar[int]
    IN_SYNC_FIELD_NUMBER: _ClassVar[int]
    MASTER_ID_FIELD_NUMBER: _ClassVar[int]
    stats: _broker_pb2.BrokerStats
    instance: str
    incarnation: str
    commits_read_at_ms: int
    ends_read_at_ms: int
    in_sync: _containers.RepeatedScalarFieldContainer[int]
    master_id: int
    def __init__(self, stats: _Optional[_Union[_broker_pb2.BrokerStats, _Mapping]] = ..., instance: _Optional[str] = ..., incarnation: _Optional[str] = ..., commits_read_at_ms: _Optional[int] = ..., ends_read_at_ms: _Optional[int] = ..., in_sync: _Optional[_Iterable[int]] = ..., master_id: _Optional[int] = ...) -> None: ...

class TopicRows(_message.Message):
    __slots__ = ("topics", "read_queue_counts", "write_queue_counts", "perms", "revisions")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    READ_QUEUE_COUNTS_FIELD_NUMBER: _ClassVar[int]
    WRITE_QUEUE_COUNTS_FIELD_NUMBER: _ClassVar[int]
    PERMS_FIELD_NUMBER: _ClassVar[int]
    REVISIONS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedScalarFieldContainer[str]
    read_queue_counts: _containers.RepeatedScalarFieldContainer[int]
    write_queue_counts: _containers.RepeatedScalarFieldContainer[int]
    perms: _containers.RepeatedScalarFieldContainer[int]
    revisions: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topics: _Optional[_Iterable[str]] = ..., read_queue_counts: _Optional[_Iterable[int]] = ..., write_queue_counts: _Optional[_Iterable[int]] = ..., perms: _Optional[_Iterable[int]] = ..., revisions: _Optional[_Iterable[int]] = ...) -> None: ...

class QueueRows(_message.Message):
    __slots__ = ("topics", "topic_codes", "queue_ids", "min_offsets", "max_offsets", "last_store_ms")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_CODES_FIELD_NUMBER: _ClassVar[int]
    QUEUE_IDS_FIELD_NUMBER: _ClassVar[int]
    MIN_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    MAX_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    LAST_STORE_MS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedScalarFieldContainer[str]
    topic_codes: _containers.RepeatedScalarFieldContainer[int]
    queue_ids: _containers.RepeatedScalarFieldContainer[int]
    min_offsets: _containers.RepeatedScalarFieldContainer[int]
    max_offsets: _containers.RepeatedScalarFieldContainer[int]
    last_store_ms: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topics: _Optional[_Iterable[str]] = ..., topic_codes: _Optional[_Iterable[int]] = ..., queue_ids: _Optional[_Iterable[int]] = ..., min_offsets: _Optional[_Iterable[int]] = ..., max_offsets: _Optional[_Iterable[int]] = ..., last_store_ms: _Optional[_Iterable[int]] = ...) -> None: ...

class CommitRows(_message.Message):
    __slots__ = ("groups", "topics", "clients", "group_codes", "topic_codes", "queue_ids", "offsets", "lease_epochs", "committed_at_ms", "client_codes", "resets", "first_unread_ms", "matching_unread")
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    CLIENTS_FIELD_NUMBER: _ClassVar[int]
    GROUP_CODES_FIELD_NUMBER: _ClassVar[int]
    TOPIC_CODES_FIELD_NUMBER: _ClassVar[int]
    QUEUE_IDS_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    LEASE_EPOCHS_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    CLIENT_CODES_FIELD_NUMBER: _ClassVar[int]
    RESETS_FIELD_NUMBER: _ClassVar[int]
    FIRST_UNREAD_MS_FIELD_NUMBER: _ClassVar[int]
    MATCHING_UNREAD_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedScalarFieldContainer[str]
    topics: _containers.RepeatedScalarFieldContainer[str]
    clients: _containers.RepeatedScalarFieldContainer[str]
    group_codes: _containers.RepeatedScalarFieldContainer[int]
    topic_codes: _containers.RepeatedScalarFieldContainer[int]
    queue_ids: _containers.RepeatedScalarFieldContainer[int]
    offsets: _containers.RepeatedScalarFieldContainer[int]
    lease_epochs: _containers.RepeatedScalarFieldContainer[int]
    committed_at_ms: _containers.RepeatedScalarFieldContainer[int]
    client_codes: _containers.RepeatedScalarFieldContainer[int]
    resets: _containers.RepeatedScalarFieldContainer[bool]
    first_unread_ms: _containers.RepeatedScalarFieldContainer[int]
    matching_unread: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, groups: _Optional[_Iterable[str]] = ..., topics: _Optional[_Iterable[str]] = ..., clients: _Optional[_Iterable[str]] = ..., group_codes: _Optional[_Iterable[int]] = ..., topic_codes: _Optional[_Iterable[int]] = ..., queue_ids: _Optional[_Iterable[int]] = ..., offsets: _Optional[_Iterable[int]] = ..., lease_epochs: _Optional[_Iterable[int]] = ..., committed_at_ms: _Optional[_Iterable[int]] = ..., client_codes: _Optional[_Iterable[int]] = ..., resets: _Optional[_Iterable[bool]] = ..., first_unread_ms: _Optional[_Iterable[int]] = ..., matching_unread: _Optional[_Iterable[int]] = ...) -> None: ...

class LeaseRows(_message.Message):
    __slots__ = ("groups", "topics", "clients", "group_codes", "topic_codes", "queue_ids", "lease_epochs", "client_codes")
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    CLIENTS_FIELD_NUMBER: _ClassVar[int]
    GROUP_CODES_FIELD_NUMBER: _ClassVar[int]
    TOPIC_CODES_FIELD_NUMBER: _ClassVar[int]
    QUEUE_IDS_FIELD_NUMBER: _ClassVar[int]
    LEASE_EPOCHS_FIELD_NUMBER: _ClassVar[int]
    CLIENT_CODES_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedScalarFieldContainer[str]
    topics: _containers.RepeatedScalarFieldContainer[str]
    clients: _containers.RepeatedScalarFieldContainer[str]
    group_codes: _containers.RepeatedScalarFieldContainer[int]
    topic_codes: _containers.RepeatedScalarFieldContainer[int]
    queue_ids: _containers.RepeatedScalarFieldContainer[int]
    lease_epochs: _containers.RepeatedScalarFieldContainer[int]
    client_codes: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, groups: _Optional[_Iterable[str]] = ..., topics: _Optional[_Iterable[str]] = ..., clients: _Optional[_Iterable[str]] = ..., group_codes: _Optional[_Iterable[int]] = ..., topic_codes: _Optional[_Iterable[int]] = ..., queue_ids: _Optional[_Iterable[int]] = ..., lease_epochs: _Optional[_Iterable[int]] = ..., client_codes: _Optional[_Iterable[int]] = ...) -> None: ...

class MemberRows(_message.Message):
    __slots__ = ("groups", "members", "group_codes")
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    GROUP_CODES_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedScalarFieldContainer[str]
    members: _containers.RepeatedCompositeFieldContainer[_broker_pb2.GroupMember]
    group_codes: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, groups: _Optional[_Iterable[str]] = ..., members: _Optional[_Iterable[_Union[_broker_pb2.GroupMember, _Mapping]]] = ..., group_codes: _Optional[_Iterable[int]] = ...) -> None: ...

class EpochRows(_message.Message):
    __slots__ = ("epochs", "start_offsets")
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    START_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    epochs: _containers.RepeatedScalarFieldContainer[int]
    start_offsets: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, epochs: _Optional[_Iterable[int]] = ..., start_offsets: _Optional[_Iterable[int]] = ...) -> None: ...

class SegmentRows(_message.Message):
    __slots__ = ("positions", "sizes", "first_store_ms")
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    SIZES_FIELD_NUMBER: _ClassVar[int]
    FIRST_STORE_MS_FIELD_NUMBER: _ClassVar[int]
    positions: _containers.RepeatedScalarFieldContainer[int]
    sizes: _containers.RepeatedScalarFieldContainer[int]
    first_store_ms: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, positions: _Optional[_Iterable[int]] = ..., sizes: _Optional[_Iterable[int]] = ..., first_store_ms: _Optional[_Iterable[int]] = ...) -> None: ...

class MinuteRows(_message.Message):
    __slots__ = ("topics", "topic_codes", "minutes", "acknowledged", "first_whole_minute")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_CODES_FIELD_NUMBER: _ClassVar[int]
    MINUTES_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    FIRST_WHOLE_MINUTE_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedScalarFieldContainer[str]
    topic_codes: _containers.RepeatedScalarFieldContainer[int]
    minutes: _containers.RepeatedScalarFieldContainer[int]
    acknowledged: _containers.RepeatedScalarFieldContainer[int]
    first_whole_minute: int
    def __init__(self, topics: _Optional[_Iterable[str]] = ..., topic_codes: _Optional[_Iterable[int]] = ..., minutes: _Optional[_Iterable[int]] = ..., acknowledged: _Optional[_Iterable[int]] = ..., first_whole_minute: _Optional[int] = ...) -> None: ...

class WaitingRows(_message.Message):
    __slots__ = ("topics", "timers", "messages", "first_due_ms")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    TIMERS_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    FIRST_DUE_MS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedScalarFieldContainer[str]
    timers: _containers.RepeatedScalarFieldContainer[bool]
    messages: _containers.RepeatedScalarFieldContainer[int]
    first_due_ms: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topics: _Optional[_Iterable[str]] = ..., timers: _Optional[_Iterable[bool]] = ..., messages: _Optional[_Iterable[int]] = ..., first_due_ms: _Optional[_Iterable[int]] = ...) -> None: ...

class SnapshotEnd(_message.Message):
    __slots__ = ("row_counts",)
    ROW_COUNTS_FIELD_NUMBER: _ClassVar[int]
    row_counts: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, row_counts: _Optional[_Iterable[int]] = ...) -> None: ...

class ChecksumLogRequest(_message.Message):
    __slots__ = ("begin", "end", "range_bytes")
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    RANGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    begin: int
    end: int
    range_bytes: int
    def __init__(self, begin: _Optional[int] = ..., end: _Optional[int] = ..., range_bytes: _Optional[int] = ...) -> None: ...

class LogChecksum(_message.Message):
    __slots__ = ("begin", "end", "checksum", "fault")
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    FAULT_FIELD_NUMBER: _ClassVar[int]
    begin: int
    end: int
    checksum: int
    fault: _common_pb2.Status
    def __init__(self, begin: _Optional[int] = ..., end: _Optional[int] = ..., checksum: _Optional[int] = ..., fault: _Optional[_Union[_common_pb2.Status, _Mapping]] = ...) -> None: ...
