from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ReadAuditLogRequest(_message.Message):
    __slots__ = ("before", "lines_max", "begin_ms", "end_ms", "caller", "method", "about", "only_refusals")
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    LINES_MAX_FIELD_NUMBER: _ClassVar[int]
    BEGIN_MS_FIELD_NUMBER: _ClassVar[int]
    END_MS_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    ABOUT_FIELD_NUMBER: _ClassVar[int]
    ONLY_REFUSALS_FIELD_NUMBER: _ClassVar[int]
    before: str
    lines_max: int
    begin_ms: int
    end_ms: int
    caller: str
    method: str
    about: str
    only_refusals: bool
    def __init__(self, before: _Optional[str] = ..., lines_max: _Optional[int] = ..., begin_ms: _Optional[int] = ..., end_ms: _Optional[int] = ..., caller: _Optional[str] = ..., method: _Optional[str] = ..., about: _Optional[str] = ..., only_refusals: _Optional[bool] = ...) -> None: ...

class AuditLogLine(_message.Message):
    __slots__ = ("json", "place")
    JSON_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    json: bytes
    place: str
    def __init__(self, json: _Optional[bytes] = ..., place: _Optional[str] = ...) -> None: ...

class AuditLogPage(_message.Message):
    __slots__ = ("node", "is_kept", "lines", "next", "read_to", "damaged")
    NODE_FIELD_NUMBER: _ClassVar[int]
    IS_KEPT_FIELD_NUMBER: _ClassVar[int]
    LINES_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    READ_TO_FIELD_NUMBER: _ClassVar[int]
    DAMAGED_FIELD_NUMBER: _ClassVar[int]
    node: str
    is_kept: bool
    lines: _containers.RepeatedCompositeFieldContainer[AuditLogLine]
    next: str
    read_to: str
    damaged: int
    def __init__(self, node: _Optional[str] = ..., is_kept: _Optional[bool] = ..., lines: _Optional[_Iterable[_Union[AuditLogLine, _Mapping]]] = ..., next: _Optional[str] = ..., read_to: _Optional[str] = ..., damaged: _Optional[int] = ...) -> None: ...
