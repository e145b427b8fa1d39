from aerobee.v1 import nameserver_pb2 as _nameserver_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FrameHeader(_message.Message):
    __slots__ = ("cluster", "broker_name", "epoch", "checksum")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    BROKER_NAME_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    broker_name: str
    epoch: int
    checksum: int
    def __init__(self, cluster: _Optional[str] = ..., broker_name: _Optional[str] = ..., epoch: _Optional[int] = ..., checksum: _Optional[int] = ...) -> None: ...

class EpochStart(_message.Message):
    __slots__ = ("epoch", "start")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    start: int
    def __init__(self, epoch: _Optional[int] = ..., start: _Optional[int] = ...) -> None: ...

class ReplicaEvent(_message.Message):
    __slots__ = ("header", "hello", "ack")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    HELLO_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    header: FrameHeader
    hello: ReplicaHello
    ack: ReplicaAck
    def __init__(self, header: _Optional[_Union[FrameHeader, _Mapping]] = ..., hello: _Optional[_Union[ReplicaHello, _Mapping]] = ..., ack: _Optional[_Union[ReplicaAck, _Mapping]] = ...) -> None: ...

class ReplicaHello(_message.Message):
    __slots__ = ("replica", "instance", "log_begin", "log_end", "epochs", "segment_bytes", "window_bytes", "confirmed_end", "tables")
    class TablesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    LOG_BEGIN_FIELD_NUMBER: _ClassVar[int]
    LOG_END_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    WINDOW_BYTES_FIELD_NUMBER: _ClassVar[int]
    CONFIRMED_END_FIELD_NUMBER: _ClassVar[int]
    TABLES_FIELD_NUMBER: _ClassVar[int]
    replica: _nameserver_pb2.ReplicaName
    instance: str
    log_begin: int
    log_end: int
    epochs: _containers.RepeatedCompositeFieldContainer[EpochStart]
    segment_bytes: int
    window_bytes: int
    confirmed_end: int
    tables: _containers.ScalarMap[str, int]
    def __init__(self, replica: _Optional[_Union[_nameserver_pb2.ReplicaName, _Mapping]] = ..., instance: _Optional[str] = ..., log_begin: _Optional[int] = ..., log_end: _Optional[int] = ..., epochs: _Optional[_Iterable[_Union[EpochStart, _Mapping]]] = ..., segment_bytes: _Optional[int] = ..., window_bytes: _Optional[int] = ..., confirmed_end: _Optional[int] = ..., tables: _Optional[_Mapping[str, int]] = ...) -> None: ...

class ReplicaAck(_message.Message):
    __slots__ = ("stored_end", "flushed_end")
    STORED_END_FIELD_NUMBER: _ClassVar[int]
    FLUSHED_END_FIELD_NUMBER: _ClassVar[int]
    stored_end: int
    flushed_end: int
    def __init__(self, stored_end: _Optional[int] = ..., flushed_end: _Optional[int] = ...) -> None: ...

class MasterEvent(_message.Message):
    __slots__ = ("header", "agreement", "bytes", "table", "heartbeat")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    AGREEMENT_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    header: FrameHeader
    agreement: Agreement
    bytes: LogBytes
    table: TableFile
    heartbeat: MasterHeartbeat
    def __init__(self, header: _Optional[_Union[FrameHeader, _Mapping]] = ..., agreement: _Optional[_Union[Agreement, _Mapping]] = ..., bytes: _Optional[_Union[LogBytes, _Mapping]] = ..., table: _Optional[_Union[TableFile, _Mapping]] = ..., heartbeat: _Optional[_Union[MasterHeartbeat, _Mapping]] = ...) -> None: ...

class Agreement(_message.Message):
    __slots__ = ("log_begin", "log_end", "epochs", "start", "confirmed_end", "unclean_epochs", "tail_bytes", "tail_checksum")
    LOG_BEGIN_FIELD_NUMBER: _ClassVar[int]
    LOG_END_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    CONFIRMED_END_FIELD_NUMBER: _ClassVar[int]
    UNCLEAN_EPOCHS_FIELD_NUMBER: _ClassVar[int]
    TAIL_BYTES_FIELD_NUMBER: _ClassVar[int]
    TAIL_CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    log_begin: int
    log_end: int
    epochs: _containers.RepeatedCompositeFieldContainer[EpochStart]
    start: int
    confirmed_end: int
    unclean_epochs: _containers.RepeatedScalarFieldContainer[int]
    tail_bytes: int
    tail_checksum: int
    def __init__(self, log_begin: _Optional[int] = ..., log_end: _Optional[int] = ..., epochs: _Optional[_Iterable[_Union[EpochStart, _Mapping]]] = ..., start: _Optional[int] = ..., confirmed_end: _Optional[int] = ..., unclean_epochs: _Optional[_Iterable[int]] = ..., tail_bytes: _Optional[int] = ..., tail_checksum: _Optional[int] = ...) -> None: ...

class LogBytes(_message.Message):
    __slots__ = ("position", "data", "confirmed_end", "log_end")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    CONFIRMED_END_FIELD_NUMBER: _ClassVar[int]
    LOG_END_FIELD_NUMBER: _ClassVar[int]
    position: int
    data: bytes
    confirmed_end: int
    log_end: int
    def __init__(self, position: _Optional[int] = ..., data: _Optional[bytes] = ..., confirmed_end: _Optional[int] = ..., log_end: _Optional[int] = ...) -> None: ...

class TableFile(_message.Message):
    __slots__ = ("path", "content")
    PATH_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    path: str
    content: bytes
    def __init__(self, path: _Optional[str] = ..., content: _Optional[bytes] = ...) -> None: ...

class MasterHeartbeat(_message.Message):
    __slots__ = ("confirmed_end", "log_end")
    CONFIRMED_END_FIELD_NUMBER: _ClassVar[int]
    LOG_END_FIELD_NUMBER: _ClassVar[int]
    confirmed_end: int
    log_end: int
    def __init__(self, confirmed_end: _Optional[int] = ..., log_end: _Optional[int] = ...) -> None: ...
