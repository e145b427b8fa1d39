from aerobee.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Durability(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DURABILITY_UNSPECIFIED: _ClassVar[Durability]
    PAGE_CACHE: _ClassVar[Durability]
    FSYNCED: _ClassVar[Durability]
    REPLICATED: _ClassVar[Durability]
    REPLICATED_FSYNCED: _ClassVar[Durability]

class MissedRuns(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MISSED_RUNS_UNSPECIFIED: _ClassVar[MissedRuns]
    SKIP_MISSED: _ClassVar[MissedRuns]
    SEND_ONE_MISSED: _ClassVar[MissedRuns]
    SEND_ALL_MISSED: _ClassVar[MissedRuns]

class ScheduleAct(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SCHEDULE_ACT_UNSPECIFIED: _ClassVar[ScheduleAct]
    PAUSE_SCHEDULE: _ClassVar[ScheduleAct]
    RESUME_SCHEDULE: _ClassVar[ScheduleAct]
    REMOVE_SCHEDULE: _ClassVar[ScheduleAct]
    RUN_SCHEDULE: _ClassVar[ScheduleAct]

class TransactionOutcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TRANSACTION_OUTCOME_UNSPECIFIED: _ClassVar[TransactionOutcome]
    COMMITTED: _ClassVar[TransactionOutcome]
    ROLLED_BACK: _ClassVar[TransactionOutcome]
    SET_ASIDE: _ClassVar[TransactionOutcome]
    OPEN: _ClassVar[TransactionOutcome]

class FilterType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TAG: _ClassVar[FilterType]
    SQL92: _ClassVar[FilterType]

class Boundary(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LOWER: _ClassVar[Boundary]
    UPPER: _ClassVar[Boundary]
DURABILITY_UNSPECIFIED: Durability
PAGE_CACHE: Durability
FSYNCED: Durability
REPLICATED: Durability
REPLICATED_FSYNCED: Durability
MISSED_RUNS_UNSPECIFIED: MissedRuns
SKIP_MISSED: MissedRuns
SEND_ONE_MISSED: MissedRuns
SEND_ALL_MISSED: MissedRuns
SCHEDULE_ACT_UNSPECIFIED: ScheduleAct
PAUSE_SCHEDULE: ScheduleAct
RESUME_SCHEDULE: ScheduleAct
REMOVE_SCHEDULE: ScheduleAct
RUN_SCHEDULE: ScheduleAct
TRANSACTION_OUTCOME_UNSPECIFIED: TransactionOutcome
COMMITTED: TransactionOutcome
ROLLED_BACK: TransactionOutcome
SET_ASIDE: TransactionOutcome
OPEN: TransactionOutcome
TAG: FilterType
SQL92: FilterType
LOWER: Boundary
UPPER: Boundary

class SendFrame(_message.Message):
    __slots__ = ("batches",)
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    batches: _containers.RepeatedCompositeFieldContainer[RecordBatch]
    def __init__(self, batches: _Optional[_Iterable[_Union[RecordBatch, _Mapping]]] = ...) -> None: ...

class RecordBatch(_message.Message):
    __slots__ = ("sequence", "topic", "queue_id", "records", "record_sizes", "timeout_ms", "skip_wait", "producer_id", "producer_sequence", "is_half")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    RECORD_SIZES_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    SKIP_WAIT_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    IS_HALF_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    topic: str
    queue_id: int
    records: bytes
    record_sizes: _containers.RepeatedScalarFieldContainer[int]
    timeout_ms: int
    skip_wait: bool
    producer_id: int
    producer_sequence: int
    is_half: bool
    def __init__(self, sequence: _Optional[int] = ..., topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., records: _Optional[bytes] = ..., record_sizes: _Optional[_Iterable[int]] = ..., timeout_ms: _Optional[int] = ..., skip_wait: _Optional[bool] = ..., producer_id: _Optional[int] = ..., producer_sequence: _Optional[int] = ..., is_half: _Optional[bool] = ...) -> None: ...

class SendAckFrame(_message.Message):
    __slots__ = ("acks",)
    ACKS_FIELD_NUMBER: _ClassVar[int]
    acks: _containers.RepeatedCompositeFieldContainer[SendAck]
    def __init__(self, acks: _Optional[_Iterable[_Union[SendAck, _Mapping]]] = ...) -> None: ...

class SendAck(_message.Message):
    __slots__ = ("sequence", "code", "message", "base_queue_offset", "base_physical_offset", "store_timestamp_ms", "durability", "retry_after_ms", "stored_count", "transaction_id")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    BASE_QUEUE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    BASE_PHYSICAL_OFFSET_FIELD_NUMBER: _ClassVar[int]
    STORE_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    STORED_COUNT_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    code: _common_pb2.Code
    message: str
    base_queue_offset: int
    base_physical_offset: int
    store_timestamp_ms: int
    durability: Durability
    retry_after_ms: int
    stored_count: int
    transaction_id: str
    def __init__(self, sequence: _Optional[int] = ..., code: _Optional[_Union[_common_pb2.Code, str]] = ..., message: _Optional[str] = ..., base_queue_offset: _Optional[int] = ..., base_physical_offset: _Optional[int] = ..., store_timestamp_ms: _Optional[int] = ..., durability: _Optional[_Union[Durability, str]] = ..., retry_after_ms: _Optional[int] = ..., stored_count: _Optional[int] = ..., transaction_id: _Optional[str] = ...) -> None: ...

class SendRequest(_message.Message):
    __slots__ = ("topic", "queue_id", "body", "tag", "keys", "properties", "flag", "timeout_ms")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    TAG_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    FLAG_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    body: bytes
    tag: str
    keys: _containers.RepeatedScalarFieldContainer[str]
    properties: _containers.ScalarMap[str, str]
    flag: int
    timeout_ms: int
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., body: _Optional[bytes] = ..., tag: _Optional[str] = ..., keys: _Optional[_Iterable[str]] = ..., properties: _Optional[_Mapping[str, str]] = ..., flag: _Optional[int] = ..., timeout_ms: _Optional[int] = ...) -> None: ...

class SendResponse(_message.Message):
    __slots__ = ("message_id", "offset_message_id", "queue_id", "ack", "recall_handle")
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    RECALL_HANDLE_FIELD_NUMBER: _ClassVar[int]
    message_id: str
    offset_message_id: str
    queue_id: int
    ack: SendAck
    recall_handle: str
    def __init__(self, message_id: _Optional[str] = ..., offset_message_id: _Optional[str] = ..., queue_id: _Optional[int] = ..., ack: _Optional[_Union[SendAck, _Mapping]] = ..., recall_handle: _Optional[str] = ...) -> None: ...

class ListScheduledRequest(_message.Message):
    __slots__ = ("topic", "begin_ms", "end_ms", "key", "messages_max", "after")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    BEGIN_MS_FIELD_NUMBER: _ClassVar[int]
    END_MS_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_MAX_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    topic: str
    begin_ms: int
    end_ms: int
    key: str
    messages_max: int
    after: str
    def __init__(self, topic: _Optional[str] = ..., begin_ms: _Optional[int] = ..., end_ms: _Optional[int] = ..., key: _Optional[str] = ..., messages_max: _Optional[int] = ..., after: _Optional[str] = ...) -> None: ...

class ListScheduledResponse(_message.Message):
    __slots__ = ("messages", "after")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[ScheduledMessage]
    after: str
    def __init__(self, messages: _Optional[_Iterable[_Union[ScheduledMessage, _Mapping]]] = ..., after: _Optional[str] = ...) -> None: ...

class ScheduledMessage(_message.Message):
    __slots__ = ("topic", "queue_id", "deliver_ms", "delay_level", "recall_handle", "message_id", "keys", "tag", "body_bytes", "born_timestamp_ms", "store_timestamp_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    DELIVER_MS_FIELD_NUMBER: _ClassVar[int]
    DELAY_LEVEL_FIELD_NUMBER: _ClassVar[int]
    RECALL_HANDLE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    TAG_FIELD_NUMBER: _ClassVar[int]
    BODY_BYTES_FIELD_NUMBER: _ClassVar[int]
    BORN_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    STORE_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    deliver_ms: int
    delay_level: int
    recall_handle: str
    message_id: str
    keys: _containers.RepeatedScalarFieldContainer[str]
    tag: str
    body_bytes: int
    born_timestamp_ms: int
    store_timestamp_ms: int
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., deliver_ms: _Optional[int] = ..., delay_level: _Optional[int] = ..., recall_handle: _Optional[str] = ..., message_id: _Optional[str] = ..., keys: _Optional[_Iterable[str]] = ..., tag: _Optional[str] = ..., body_bytes: _Optional[int] = ..., born_timestamp_ms: _Optional[int] = ..., store_timestamp_ms: _Optional[int] = ...) -> None: ...

class RecallScheduledRequest(_message.Message):
    __slots__ = ("recall_handle",)
    RECALL_HANDLE_FIELD_NUMBER: _ClassVar[int]
    recall_handle: str
    def __init__(self, recall_handle: _Optional[str] = ...) -> None: ...

class RecallScheduledResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DeliverScheduledNowRequest(_message.Message):
    __slots__ = ("recall_handle",)
    RECALL_HANDLE_FIELD_NUMBER: _ClassVar[int]
    recall_handle: str
    def __init__(self, recall_handle: _Optional[str] = ...) -> None: ...

class DeliverScheduledNowResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RescheduleRequest(_message.Message):
    __slots__ = ("recall_handle", "deliver_ms")
    RECALL_HANDLE_FIELD_NUMBER: _ClassVar[int]
    DELIVER_MS_FIELD_NUMBER: _ClassVar[int]
    recall_handle: str
    deliver_ms: int
    def __init__(self, recall_handle: _Optional[str] = ..., deliver_ms: _Optional[int] = ...) -> None: ...

class RescheduleResponse(_message.Message):
    __slots__ = ("recall_handle",)
    RECALL_HANDLE_FIELD_NUMBER: _ClassVar[int]
    recall_handle: str
    def __init__(self, recall_handle: _Optional[str] = ...) -> None: ...

class ScheduleDefinition(_message.Message):
    __slots__ = ("name", "topic", "body", "tag", "keys", "properties", "cron", "zone", "every_ms", "from_ms", "until_ms", "runs_max", "missed")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    TAG_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    CRON_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    EVERY_MS_FIELD_NUMBER: _ClassVar[int]
    FROM_MS_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    RUNS_MAX_FIELD_NUMBER: _ClassVar[int]
    MISSED_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic: str
    body: bytes
    tag: str
    keys: _containers.RepeatedScalarFieldContainer[str]
    properties: _containers.ScalarMap[str, str]
    cron: str
    zone: str
    every_ms: int
    from_ms: int
    until_ms: int
    runs_max: int
    missed: MissedRuns
    def __init__(self, name: _Optional[str] = ..., topic: _Optional[str] = ..., body: _Optional[bytes] = ..., tag: _Optional[str] = ..., keys: _Optional[_Iterable[str]] = ..., properties: _Optional[_Mapping[str, str]] = ..., cron: _Optional[str] = ..., zone: _Optional[str] = ..., every_ms: _Optional[int] = ..., from_ms: _Optional[int] = ..., until_ms: _Optional[int] = ..., runs_max: _Optional[int] = ..., missed: _Optional[_Union[MissedRuns, str]] = ...) -> None: ...

class ScheduleState(_message.Message):
    __slots__ = ("definition", "created_ms", "revision", "paused", "next_ms", "runs", "missed_runs", "last_ms", "trouble")
    DEFINITION_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    NEXT_MS_FIELD_NUMBER: _ClassVar[int]
    RUNS_FIELD_NUMBER: _ClassVar[int]
    MISSED_RUNS_FIELD_NUMBER: _ClassVar[int]
    LAST_MS_FIELD_NUMBER: _ClassVar[int]
    TROUBLE_FIELD_NUMBER: _ClassVar[int]
    definition: ScheduleDefinition
    created_ms: int
    revision: int
    paused: bool
    next_ms: int
    runs: int
    missed_runs: int
    last_ms: int
    trouble: str
    def __init__(self, definition: _Optional[_Union[ScheduleDefinition, _Mapping]] = ..., created_ms: _Optional[int] = ..., revision: _Optional[int] = ..., paused: _Optional[bool] = ..., next_ms: _Optional[int] = ..., runs: _Optional[int] = ..., missed_runs: _Optional[int] = ..., last_ms: _Optional[int] = ..., trouble: _Optional[str] = ...) -> None: ...

class ListSchedulesRequest(_message.Message):
    __slots__ = ("topic", "name")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    topic: str
    name: str
    def __init__(self, topic: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class ListSchedulesResponse(_message.Message):
    __slots__ = ("schedules",)
    SCHEDULES_FIELD_NUMBER: _ClassVar[int]
    schedules: _containers.RepeatedCompositeFieldContainer[ScheduleState]
    def __init__(self, schedules: _Optional[_Iterable[_Union[ScheduleState, _Mapping]]] = ...) -> None: ...

class PutScheduleRequest(_message.Message):
    __slots__ = ("definition", "revision")
    DEFINITION_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    definition: ScheduleDefinition
    revision: int
    def __init__(self, definition: _Optional[_Union[ScheduleDefinition, _Mapping]] = ..., revision: _Optional[int] = ...) -> None: ...

class PutScheduleResponse(_message.Message):
    __slots__ = ("schedule",)
    SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    schedule: ScheduleState
    def __init__(self, schedule: _Optional[_Union[ScheduleState, _Mapping]] = ...) -> None: ...

class ActOnScheduleRequest(_message.Message):
    __slots__ = ("name", "topic", "act", "time_ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    ACT_FIELD_NUMBER: _ClassVar[int]
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic: str
    act: ScheduleAct
    time_ms: int
    def __init__(self, name: _Optional[str] = ..., topic: _Optional[str] = ..., act: _Optional[_Union[ScheduleAct, str]] = ..., time_ms: _Optional[int] = ...) -> None: ...

class ActOnScheduleResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class EndTransactionRequest(_message.Message):
    __slots__ = ("topic", "transaction_id", "outcome", "timeout_ms", "by_operator", "only_ask")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    BY_OPERATOR_FIELD_NUMBER: _ClassVar[int]
    ONLY_ASK_FIELD_NUMBER: _ClassVar[int]
    topic: str
    transaction_id: str
    outcome: TransactionOutcome
    timeout_ms: int
    by_operator: bool
    only_ask: bool
    def __init__(self, topic: _Optional[str] = ..., transaction_id: _Optional[str] = ..., outcome: _Optional[_Union[TransactionOutcome, str]] = ..., timeout_ms: _Optional[int] = ..., by_operator: _Optional[bool] = ..., only_ask: _Optional[bool] = ...) -> None: ...

class EndTransactionResponse(_message.Message):
    __slots__ = ("outcome",)
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    outcome: TransactionOutcome
    def __init__(self, outcome: _Optional[_Union[TransactionOutcome, str]] = ...) -> None: ...

class CheckTransactionRequest(_message.Message):
    __slots__ = ("topic", "transaction_id")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    topic: str
    transaction_id: str
    def __init__(self, topic: _Optional[str] = ..., transaction_id: _Optional[str] = ...) -> None: ...

class CheckTransactionResponse(_message.Message):
    __slots__ = ("asked",)
    ASKED_FIELD_NUMBER: _ClassVar[int]
    asked: bool
    def __init__(self, asked: _Optional[bool] = ...) -> None: ...

class EndTransactionsRequest(_message.Message):
    __slots__ = ("topic", "committed", "rolled_back", "timeout_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    ROLLED_BACK_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    committed: _containers.RepeatedScalarFieldContainer[str]
    rolled_back: _containers.RepeatedScalarFieldContainer[str]
    timeout_ms: int
    def __init__(self, topic: _Optional[str] = ..., committed: _Optional[_Iterable[str]] = ..., rolled_back: _Optional[_Iterable[str]] = ..., timeout_ms: _Optional[int] = ...) -> None: ...

class EndTransactionsResponse(_message.Message):
    __slots__ = ("outcomes",)
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    outcomes: _containers.RepeatedScalarFieldContainer[TransactionOutcome]
    def __init__(self, outcomes: _Optional[_Iterable[_Union[TransactionOutcome, str]]] = ...) -> None: ...

class WatchChecksRequest(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, topics: _Optional[_Iterable[str]] = ...) -> None: ...

class TransactionCheck(_message.Message):
    __slots__ = ("topic", "transaction_id", "record", "checks")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    CHECKS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    transaction_id: str
    record: bytes
    checks: int
    def __init__(self, topic: _Optional[str] = ..., transaction_id: _Optional[str] = ..., record: _Optional[bytes] = ..., checks: _Optional[int] = ...) -> None: ...

class ListTransactionsRequest(_message.Message):
    __slots__ = ("topic", "transaction_id", "begin_ms", "end_ms", "transactions_max", "after", "set_aside")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    BEGIN_MS_FIELD_NUMBER: _ClassVar[int]
    END_MS_FIELD_NUMBER: _ClassVar[int]
    TRANSACTIONS_MAX_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    SET_ASIDE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    transaction_id: str
    begin_ms: int
    end_ms: int
    transactions_max: int
    after: int
    set_aside: bool
    def __init__(self, topic: _Optional[str] = ..., transaction_id: _Optional[str] = ..., begin_ms: _Optional[int] = ..., end_ms: _Optional[int] = ..., transactions_max: _Optional[int] = ..., after: _Optional[int] = ..., set_aside: _Optional[bool] = ...) -> None: ...

class ListTransactionsResponse(_message.Message):
    __slots__ = ("transactions", "after")
    TRANSACTIONS_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    transactions: _containers.RepeatedCompositeFieldContainer[OpenTransaction]
    after: int
    def __init__(self, transactions: _Optional[_Iterable[_Union[OpenTransaction, _Mapping]]] = ..., after: _Optional[int] = ...) -> None: ...

class OpenTransaction(_message.Message):
    __slots__ = ("topic", "queue_id", "transaction_id", "producer_group", "born_timestamp_ms", "store_timestamp_ms", "checks", "physical_offset", "record_bytes")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_GROUP_FIELD_NUMBER: _ClassVar[int]
    BORN_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    STORE_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    CHECKS_FIELD_NUMBER: _ClassVar[int]
    PHYSICAL_OFFSET_FIELD_NUMBER: _ClassVar[int]
    RECORD_BYTES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    transaction_id: str
    producer_group: str
    born_timestamp_ms: int
    store_timestamp_ms: int
    checks: int
    physical_offset: int
    record_bytes: int
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., transaction_id: _Optional[str] = ..., producer_group: _Optional[str] = ..., born_timestamp_ms: _Optional[int] = ..., store_timestamp_ms: _Optional[int] = ..., checks: _Optional[int] = ..., physical_offset: _Optional[int] = ..., record_bytes: _Optional[int] = ...) -> None: ...

class PopRequest(_message.Message):
    __slots__ = ("group", "topic", "client_id", "filter", "messages_max", "invisible_ms", "wait_ms", "attempt_id")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_MAX_FIELD_NUMBER: _ClassVar[int]
    INVISIBLE_MS_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_ID_FIELD_NUMBER: _ClassVar[int]
    group: str
    topic: str
    client_id: str
    filter: Filter
    messages_max: int
    invisible_ms: int
    wait_ms: int
    attempt_id: str
    def __init__(self, group: _Optional[str] = ..., topic: _Optional[str] = ..., client_id: _Optional[str] = ..., filter: _Optional[_Union[Filter, _Mapping]] = ..., messages_max: _Optional[int] = ..., invisible_ms: _Optional[int] = ..., wait_ms: _Optional[int] = ..., attempt_id: _Optional[str] = ...) -> None: ...

class PopResponse(_message.Message):
    __slots__ = ("records", "messages", "attempts_max")
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_MAX_FIELD_NUMBER: _ClassVar[int]
    records: bytes
    messages: _containers.RepeatedCompositeFieldContainer[Popped]
    attempts_max: int
    def __init__(self, records: _Optional[bytes] = ..., messages: _Optional[_Iterable[_Union[Popped, _Mapping]]] = ..., attempts_max: _Optional[int] = ...) -> None: ...

class Popped(_message.Message):
    __slots__ = ("topic", "queue_id", "offset", "serial", "visible_ms", "attempt")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    SERIAL_FIELD_NUMBER: _ClassVar[int]
    VISIBLE_MS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    offset: int
    serial: int
    visible_ms: int
    attempt: int
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., offset: _Optional[int] = ..., serial: _Optional[int] = ..., visible_ms: _Optional[int] = ..., attempt: _Optional[int] = ...) -> None: ...

class AcknowledgeRequest(_message.Message):
    __slots__ = ("group", "topic", "messages")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    group: str
    topic: str
    messages: _containers.RepeatedCompositeFieldContainer[Popped]
    def __init__(self, group: _Optional[str] = ..., topic: _Optional[str] = ..., messages: _Optional[_Iterable[_Union[Popped, _Mapping]]] = ...) -> None: ...

class AcknowledgeResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[_common_pb2.Status]
    def __init__(self, results: _Optional[_Iterable[_Union[_common_pb2.Status, _Mapping]]] = ...) -> None: ...

class ChangeInvisibleRequest(_message.Message):
    __slots__ = ("group", "topic", "messages", "invisible_ms")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    INVISIBLE_MS_FIELD_NUMBER: _ClassVar[int]
    group: str
    topic: str
    messages: _containers.RepeatedCompositeFieldContainer[Popped]
    invisible_ms: int
    def __init__(self, group: _Optional[str] = ..., topic: _Optional[str] = ..., messages: _Optional[_Iterable[_Union[Popped, _Mapping]]] = ..., invisible_ms: _Optional[int] = ...) -> None: ...

class ChangeInvisibleResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[ChangedPopped]
    def __init__(self, results: _Optional[_Iterable[_Union[ChangedPopped, _Mapping]]] = ...) -> None: ...

class ChangedPopped(_message.Message):
    __slots__ = ("status", "serial", "visible_ms")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    SERIAL_FIELD_NUMBER: _ClassVar[int]
    VISIBLE_MS_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    serial: int
    visible_ms: int
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., serial: _Optional[int] = ..., visible_ms: _Optional[int] = ...) -> None: ...

class RejectRequest(_message.Message):
    __slots__ = ("group", "topic", "client_id", "messages", "reason_class", "reason")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    REASON_CLASS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    group: str
    topic: str
    client_id: str
    messages: _containers.RepeatedCompositeFieldContainer[Popped]
    reason_class: str
    reason: str
    def __init__(self, group: _Optional[str] = ..., topic: _Optional[str] = ..., client_id: _Optional[str] = ..., messages: _Optional[_Iterable[_Union[Popped, _Mapping]]] = ..., reason_class: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class Filter(_message.Message):
    __slots__ = ("type", "expression")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    EXPRESSION_FIELD_NUMBER: _ClassVar[int]
    type: FilterType
    expression: str
    def __init__(self, type: _Optional[_Union[FilterType, str]] = ..., expression: _Optional[str] = ...) -> None: ...

class PullRequest(_message.Message):
    __slots__ = ("topic", "queue_id", "offset", "group", "filter", "max_bytes", "max_messages", "wait_ms", "lease_epoch", "client_id")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    LEASE_EPOCH_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    offset: int
    group: str
    filter: Filter
    max_bytes: int
    max_messages: int
    wait_ms: int
    lease_epoch: int
    client_id: str
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., offset: _Optional[int] = ..., group: _Optional[str] = ..., filter: _Optional[_Union[Filter, _Mapping]] = ..., max_bytes: _Optional[int] = ..., max_messages: _Optional[int] = ..., wait_ms: _Optional[int] = ..., lease_epoch: _Optional[int] = ..., client_id: _Optional[str] = ...) -> None: ...

class PullResult(_message.Message):
    __slots__ = ("code", "message", "next_offset", "min_offset", "max_offset", "records", "record_count", "suggested_broker_id")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_OFFSET_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    RECORD_COUNT_FIELD_NUMBER: _ClassVar[int]
    SUGGESTED_BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    code: _common_pb2.Code
    message: str
    next_offset: int
    min_offset: int
    max_offset: int
    records: bytes
    record_count: int
    suggested_broker_id: int
    def __init__(self, code: _Optional[_Union[_common_pb2.Code, str]] = ..., message: _Optional[str] = ..., next_offset: _Optional[int] = ..., min_offset: _Optional[int] = ..., max_offset: _Optional[int] = ..., records: _Optional[bytes] = ..., record_count: _Optional[int] = ..., suggested_broker_id: _Optional[int] = ...) -> None: ...

class PullCommand(_message.Message):
    __slots__ = ("subscribe", "credit", "unsubscribe")
    SUBSCRIBE_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    UNSUBSCRIBE_FIELD_NUMBER: _ClassVar[int]
    subscribe: SubscribeQueue
    credit: GrantCredit
    unsubscribe: UnsubscribeQueue
    def __init__(self, subscribe: _Optional[_Union[SubscribeQueue, _Mapping]] = ..., credit: _Optional[_Union[GrantCredit, _Mapping]] = ..., unsubscribe: _Optional[_Union[UnsubscribeQueue, _Mapping]] = ...) -> None: ...

class SubscribeQueue(_message.Message):
    __slots__ = ("handle", "request", "credit_bytes")
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    CREDIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    handle: int
    request: PullRequest
    credit_bytes: int
    def __init__(self, handle: _Optional[int] = ..., request: _Optional[_Union[PullRequest, _Mapping]] = ..., credit_bytes: _Optional[int] = ...) -> None: ...

class GrantCredit(_message.Message):
    __slots__ = ("handle", "bytes")
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    handle: int
    bytes: int
    def __init__(self, handle: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...

class UnsubscribeQueue(_message.Message):
    __slots__ = ("handle",)
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    handle: int
    def __init__(self, handle: _Optional[int] = ...) -> None: ...

class PullFrame(_message.Message):
    __slots__ = ("handle", "result")
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    handle: int
    result: PullResult
    def __init__(self, handle: _Optional[int] = ..., result: _Optional[_Union[PullResult, _Mapping]] = ...) -> None: ...

class RingWishes(_message.Message):
    __slots__ = ("wishes",)
    WISHES_FIELD_NUMBER: _ClassVar[int]
    wishes: _containers.RepeatedCompositeFieldContainer[RingWish]
    def __init__(self, wishes: _Optional[_Iterable[_Union[RingWish, _Mapping]]] = ...) -> None: ...

class RingWish(_message.Message):
    __slots__ = ("id", "kind", "topic", "group")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        RING_UNSPECIFIED: _ClassVar[RingWish.Kind]
        PASS_ON: _ClassVar[RingWish.Kind]
        END: _ClassVar[RingWish.Kind]
    RING_UNSPECIFIED: RingWish.Kind
    PASS_ON: RingWish.Kind
    END: RingWish.Kind
    ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    id: int
    kind: RingWish.Kind
    topic: str
    group: str
    def __init__(self, id: _Optional[int] = ..., kind: _Optional[_Union[RingWish.Kind, str]] = ..., topic: _Optional[str] = ..., group: _Optional[str] = ...) -> None: ...

class Rung(_message.Message):
    __slots__ = ("ids", "refused")
    IDS_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[int]
    refused: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, ids: _Optional[_Iterable[int]] = ..., refused: _Optional[_Iterable[int]] = ...) -> None: ...

class QueueOffset(_message.Message):
    __slots__ = ("topic", "queue_id", "offset", "lease_epoch")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    LEASE_EPOCH_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    offset: int
    lease_epoch: int
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., offset: _Optional[int] = ..., lease_epoch: _Optional[int] = ...) -> None: ...

class CommitOffsetsRequest(_message.Message):
    __slots__ = ("group", "client_id", "offsets", "begins")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    BEGINS_FIELD_NUMBER: _ClassVar[int]
    group: str
    client_id: str
    offsets: _containers.RepeatedCompositeFieldContainer[QueueOffset]
    begins: bool
    def __init__(self, group: _Optional[str] = ..., client_id: _Optional[str] = ..., offsets: _Optional[_Iterable[_Union[QueueOffset, _Mapping]]] = ..., begins: _Optional[bool] = ...) -> None: ...

class CommitOffsetsResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[_common_pb2.Status]
    def __init__(self, results: _Optional[_Iterable[_Union[_common_pb2.Status, _Mapping]]] = ...) -> None: ...

class TopicQueue(_message.Message):
    __slots__ = ("topic", "queue_id")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ...) -> None: ...

class SendBackRequest(_message.Message):
    __slots__ = ("group", "client_id", "topic", "queue_id", "lease_epoch", "messages", "retries_max", "attempts")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_EPOCH_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    RETRIES_MAX_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    group: str
    client_id: str
    topic: str
    queue_id: int
    lease_epoch: int
    messages: _containers.RepeatedCompositeFieldContainer[FailedMessage]
    retries_max: int
    attempts: int
    def __init__(self, group: _Optional[str] = ..., client_id: _Optional[str] = ..., topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., lease_epoch: _Optional[int] = ..., messages: _Optional[_Iterable[_Union[FailedMessage, _Mapping]]] = ..., retries_max: _Optional[int] = ..., attempts: _Optional[int] = ...) -> None: ...

class FailedMessage(_message.Message):
    __slots__ = ("offset", "level", "reason_class", "reason", "after_ms")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    REASON_CLASS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    offset: int
    level: int
    reason_class: str
    reason: str
    after_ms: int
    def __init__(self, offset: _Optional[int] = ..., level: _Optional[int] = ..., reason_class: _Optional[str] = ..., reason: _Optional[str] = ..., after_ms: _Optional[int] = ...) -> None: ...

class SendBackResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[SentBackMessage]
    def __init__(self, results: _Optional[_Iterable[_Union[SentBackMessage, _Mapping]]] = ...) -> None: ...

class SentBackMessage(_message.Message):
    __slots__ = ("status", "dead_letter", "level", "deliver_ms", "stays", "attempts_max", "delay_ms")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTER_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    DELIVER_MS_FIELD_NUMBER: _ClassVar[int]
    STAYS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_MAX_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    dead_letter: bool
    level: int
    deliver_ms: int
    stays: bool
    attempts_max: int
    delay_ms: int
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., dead_letter: _Optional[bool] = ..., level: _Optional[int] = ..., deliver_ms: _Optional[int] = ..., stays: _Optional[bool] = ..., attempts_max: _Optional[int] = ..., delay_ms: _Optional[int] = ...) -> None: ...

class SettleDeadLettersRequest(_message.Message):
    __slots__ = ("group", "offsets", "resend")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    RESEND_FIELD_NUMBER: _ClassVar[int]
    group: str
    offsets: _containers.RepeatedScalarFieldContainer[int]
    resend: Resend
    def __init__(self, group: _Optional[str] = ..., offsets: _Optional[_Iterable[int]] = ..., resend: _Optional[_Union[Resend, _Mapping]] = ...) -> None: ...

class Resend(_message.Message):
    __slots__ = ("topic", "resends_max")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    RESENDS_MAX_FIELD_NUMBER: _ClassVar[int]
    topic: str
    resends_max: int
    def __init__(self, topic: _Optional[str] = ..., resends_max: _Optional[int] = ...) -> None: ...

class QueryOffsetsRequest(_message.Message):
    __slots__ = ("group", "queues")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    group: str
    queues: _containers.RepeatedCompositeFieldContainer[TopicQueue]
    def __init__(self, group: _Optional[str] = ..., queues: _Optional[_Iterable[_Union[TopicQueue, _Mapping]]] = ...) -> None: ...

class QueryOffsetsResponse(_message.Message):
    __slots__ = ("offsets",)
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    offsets: _containers.RepeatedCompositeFieldContainer[CommittedOffset]
    def __init__(self, offsets: _Optional[_Iterable[_Union[CommittedOffset, _Mapping]]] = ...) -> None: ...

class CommittedOffset(_message.Message):
    __slots__ = ("topic", "queue_id", "code", "offset")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    code: _common_pb2.Code
    offset: int
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., code: _Optional[_Union[_common_pb2.Code, str]] = ..., offset: _Optional[int] = ...) -> None: ...

class QueryBoundsRequest(_message.Message):
    __slots__ = ("queues",)
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    queues: _containers.RepeatedCompositeFieldContainer[TopicQueue]
    def __init__(self, queues: _Optional[_Iterable[_Union[TopicQueue, _Mapping]]] = ...) -> None: ...

class QueryBoundsResponse(_message.Message):
    __slots__ = ("bounds",)
    BOUNDS_FIELD_NUMBER: _ClassVar[int]
    bounds: _containers.RepeatedCompositeFieldContainer[QueueBounds]
    def __init__(self, bounds: _Optional[_Iterable[_Union[QueueBounds, _Mapping]]] = ...) -> None: ...

class QueueBounds(_message.Message):
    __slots__ = ("status", "topic", "queue_id", "min_offset", "max_offset", "last_store_timestamp_ms", "retired")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    MIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAST_STORE_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    RETIRED_FIELD_NUMBER: _ClassVar[int]
    status: _common_pb2.Status
    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    last_store_timestamp_ms: int
    retired: bool
    def __init__(self, status: _Optional[_Union[_common_pb2.Status, _Mapping]] = ..., topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., min_offset: _Optional[int] = ..., max_offset: _Optional[int] = ..., last_store_timestamp_ms: _Optional[int] = ..., retired: _Optional[bool] = ...) -> None: ...

class SearchByTimestampRequest(_message.Message):
    __slots__ = ("queues", "timestamp_ms", "boundary")
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    BOUNDARY_FIELD_NUMBER: _ClassVar[int]
    queues: _containers.RepeatedCompositeFieldContainer[TopicQueue]
    timestamp_ms: int
    boundary: Boundary
    def __init__(self, queues: _Optional[_Iterable[_Union[TopicQueue, _Mapping]]] = ..., timestamp_ms: _Optional[int] = ..., boundary: _Optional[_Union[Boundary, str]] = ...) -> None: ...

class SearchByTimestampResponse(_message.Message):
    __slots__ = ("offsets",)
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    offsets: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, offsets: _Optional[_Iterable[int]] = ...) -> None: ...

class ResetOffsetsRequest(_message.Message):
    __slots__ = ("group", "offsets")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    group: str
    offsets: _containers.RepeatedCompositeFieldContainer[QueueOffset]
    def __init__(self, group: _Optional[str] = ..., offsets: _Optional[_Iterable[_Union[QueueOffset, _Mapping]]] = ...) -> None: ...

class ResetOffsetsResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[_common_pb2.Status]
    def __init__(self, results: _Optional[_Iterable[_Union[_common_pb2.Status, _Mapping]]] = ...) -> None: ...

class DeleteOffsetsRequest(_message.Message):
    __slots__ = ("group", "topic", "queue_ids")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_IDS_FIELD_NUMBER: _ClassVar[int]
    group: str
    topic: str
    queue_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, group: _Optional[str] = ..., topic: _Optional[str] = ..., queue_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class DeleteOffsetsResponse(_message.Message):
    __slots__ = ("removed_count", "removed")
    REMOVED_COUNT_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    removed_count: int
    removed: _containers.RepeatedCompositeFieldContainer[CommittedOffset]
    def __init__(self, removed_count: _Optional[int] = ..., removed: _Optional[_Iterable[_Union[CommittedOffset, _Mapping]]] = ...) -> None: ...

class MemberEvent(_message.Message):
    __slots__ = ("join", "heartbeat", "acquire", "release", "leave")
    JOIN_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    ACQUIRE_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    LEAVE_FIELD_NUMBER: _ClassVar[int]
    join: Join
    heartbeat: Heartbeat
    acquire: AcquireLease
    release: ReleaseLease
    leave: Leave
    def __init__(self, join: _Optional[_Union[Join, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., acquire: _Optional[_Union[AcquireLease, _Mapping]] = ..., release: _Optional[_Union[ReleaseLease, _Mapping]] = ..., leave: _Optional[_Union[Leave, _Mapping]] = ...) -> None: ...

class Subscription(_message.Message):
    __slots__ = ("topic", "filter")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    topic: str
    filter: Filter
    def __init__(self, topic: _Optional[str] = ..., filter: _Optional[_Union[Filter, _Mapping]] = ...) -> None: ...

class Join(_message.Message):
    __slots__ = ("group", "client_id", "instance", "subscriptions", "session_timeout_ms", "broadcasting", "held", "version")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    SESSION_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    BROADCASTING_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    group: str
    client_id: str
    instance: str
    subscriptions: _containers.RepeatedCompositeFieldContainer[Subscription]
    session_timeout_ms: int
    broadcasting: bool
    held: _containers.RepeatedCompositeFieldContainer[HeldLease]
    version: str
    def __init__(self, group: _Optional[str] = ..., client_id: _Optional[str] = ..., instance: _Optional[str] = ..., subscriptions: _Optional[_Iterable[_Union[Subscription, _Mapping]]] = ..., session_timeout_ms: _Optional[int] = ..., broadcasting: _Optional[bool] = ..., held: _Optional[_Iterable[_Union[HeldLease, _Mapping]]] = ..., version: _Optional[str] = ...) -> None: ...

class HeldLease(_message.Message):
    __slots__ = ("topic", "queue_id", "epoch")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    epoch: int
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("sequence", "subscriptions", "subscriptions_changed")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTIONS_CHANGED_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    subscriptions: _containers.RepeatedCompositeFieldContainer[Subscription]
    subscriptions_changed: bool
    def __init__(self, sequence: _Optional[int] = ..., subscriptions: _Optional[_Iterable[_Union[Subscription, _Mapping]]] = ..., subscriptions_changed: _Optional[bool] = ...) -> None: ...

class AcquireLease(_message.Message):
    __slots__ = ("topic", "queue_id")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ...) -> None: ...

class ReleaseLease(_message.Message):
    __slots__ = ("topic", "queue_id", "epoch")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    epoch: int
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...

class Leave(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GroupEvent(_message.Message):
    __slots__ = ("joined", "members", "granted", "revoked", "heartbeat", "failed")
    JOINED_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    GRANTED_FIELD_NUMBER: _ClassVar[int]
    REVOKED_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    joined: Joined
    members: MembersChanged
    granted: LeaseGranted
    revoked: LeaseRevoked
    heartbeat: HeartbeatAck
    failed: _common_pb2.Status
    def __init__(self, joined: _Optional[_Union[Joined, _Mapping]] = ..., members: _Optional[_Union[MembersChanged, _Mapping]] = ..., granted: _Optional[_Union[LeaseGranted, _Mapping]] = ..., revoked: _Optional[_Union[LeaseRevoked, _Mapping]] = ..., heartbeat: _Optional[_Union[HeartbeatAck, _Mapping]] = ..., failed: _Optional[_Union[_common_pb2.Status, _Mapping]] = ...) -> None: ...

class Joined(_message.Message):
    __slots__ = ("session_timeout_ms", "confirmed")
    SESSION_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    CONFIRMED_FIELD_NUMBER: _ClassVar[int]
    session_timeout_ms: int
    confirmed: _containers.RepeatedCompositeFieldContainer[HeldLease]
    def __init__(self, session_timeout_ms: _Optional[int] = ..., confirmed: _Optional[_Iterable[_Union[HeldLease, _Mapping]]] = ...) -> None: ...

class MembersChanged(_message.Message):
    __slots__ = ("members", "generation")
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    members: _containers.RepeatedCompositeFieldContainer[GroupMember]
    generation: int
    def __init__(self, members: _Optional[_Iterable[_Union[GroupMember, _Mapping]]] = ..., generation: _Optional[int] = ...) -> None: ...

class GroupMember(_message.Message):
    __slots__ = ("client_id", "subscriptions", "broadcasting", "last_heartbeat_age_ms", "official")
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    BROADCASTING_FIELD_NUMBER: _ClassVar[int]
    LAST_HEARTBEAT_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    OFFICIAL_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    subscriptions: _containers.RepeatedCompositeFieldContainer[Subscription]
    broadcasting: bool
    last_heartbeat_age_ms: int
    official: str
    def __init__(self, client_id: _Optional[str] = ..., subscriptions: _Optional[_Iterable[_Union[Subscription, _Mapping]]] = ..., broadcasting: _Optional[bool] = ..., last_heartbeat_age_ms: _Optional[int] = ..., official: _Optional[str] = ...) -> None: ...

class LeaseGranted(_message.Message):
    __slots__ = ("topic", "queue_id", "epoch", "committed_offset", "never_committed", "tried_offset", "attempts")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    NEVER_COMMITTED_FIELD_NUMBER: _ClassVar[int]
    TRIED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    epoch: int
    committed_offset: int
    never_committed: bool
    tried_offset: int
    attempts: int
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., epoch: _Optional[int] = ..., committed_offset: _Optional[int] = ..., never_committed: _Optional[bool] = ..., tried_offset: _Optional[int] = ..., attempts: _Optional[int] = ...) -> None: ...

class LeaseRevoked(_message.Message):
    __slots__ = ("topic", "queue_id", "epoch", "reason")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    epoch: int
    reason: str
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., epoch: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class HeartbeatAck(_message.Message):
    __slots__ = ("sequence", "generation")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    generation: int
    def __init__(self, sequence: _Optional[int] = ..., generation: _Optional[int] = ...) -> None: ...

class ListGroupsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListGroupsResponse(_message.Message):
    __slots__ = ("groups",)
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, groups: _Optional[_Iterable[str]] = ...) -> None: ...

class ListClientsRequest(_message.Message):
    __slots__ = ("search", "after", "clients_max")
    SEARCH_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    CLIENTS_MAX_FIELD_NUMBER: _ClassVar[int]
    search: str
    after: ClientPlace
    clients_max: int
    def __init__(self, search: _Optional[str] = ..., after: _Optional[_Union[ClientPlace, _Mapping]] = ..., clients_max: _Optional[int] = ...) -> None: ...

class ClientPlace(_message.Message):
    __slots__ = ("client_id", "group")
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    group: str
    def __init__(self, client_id: _Optional[str] = ..., group: _Optional[str] = ...) -> None: ...

class ListClientsResponse(_message.Message):
    __slots__ = ("clients", "more")
    CLIENTS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    clients: _containers.RepeatedCompositeFieldContainer[ConnectedClient]
    more: bool
    def __init__(self, clients: _Optional[_Iterable[_Union[ConnectedClient, _Mapping]]] = ..., more: _Optional[bool] = ...) -> None: ...

class ConnectedClient(_message.Message):
    __slots__ = ("client_id", "group", "protocol", "kind", "language", "version", "address", "heard_age_ms", "topics", "topics_count", "queues_held", "user")
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    HEARD_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_COUNT_FIELD_NUMBER: _ClassVar[int]
    QUEUES_HELD_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    group: str
    protocol: str
    kind: str
    language: str
    version: str
    address: str
    heard_age_ms: int
    topics: _containers.RepeatedScalarFieldContainer[str]
    topics_count: int
    queues_held: int
    user: str
    def __init__(self, client_id: _Optional[str] = ..., group: _Optional[str] = ..., protocol: _Optional[str] = ..., kind: _Optional[str] = ..., language: _Optional[str] = ..., version: _Optional[str] = ..., address: _Optional[str] = ..., heard_age_ms: _Optional[int] = ..., topics: _Optional[_Iterable[str]] = ..., topics_count: _Optional[int] = ..., queues_held: _Optional[int] = ..., user: _Optional[str] = ...) -> None: ...

class ListGroupLagsRequest(_message.Message):
    __slots__ = ("topic", "group")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ...) -> None: ...

class GroupLagRows(_message.Message):
    __slots__ = ("age_ms", "groups", "member_counts", "member_codes", "topic_counts", "unread", "in_flight", "oldest_ages_ms", "dead_letters")
    AGE_MS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    MEMBER_COUNTS_FIELD_NUMBER: _ClassVar[int]
    MEMBER_CODES_FIELD_NUMBER: _ClassVar[int]
    TOPIC_COUNTS_FIELD_NUMBER: _ClassVar[int]
    UNREAD_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    OLDEST_AGES_MS_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTERS_FIELD_NUMBER: _ClassVar[int]
    age_ms: int
    groups: _containers.RepeatedScalarFieldContainer[str]
    member_counts: _containers.RepeatedScalarFieldContainer[int]
    member_codes: _containers.RepeatedScalarFieldContainer[int]
    topic_counts: _containers.RepeatedScalarFieldContainer[int]
    unread: _containers.RepeatedScalarFieldContainer[int]
    in_flight: _containers.RepeatedScalarFieldContainer[int]
    oldest_ages_ms: _containers.RepeatedScalarFieldContainer[int]
    dead_letters: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, age_ms: _Optional[int] = ..., groups: _Optional[_Iterable[str]] = ..., member_counts: _Optional[_Iterable[int]] = ..., member_codes: _Optional[_Iterable[int]] = ..., topic_counts: _Optional[_Iterable[int]] = ..., unread: _Optional[_Iterable[int]] = ..., in_flight: _Optional[_Iterable[int]] = ..., oldest_ages_ms: _Optional[_Iterable[int]] = ..., dead_letters: _Optional[_Iterable[int]] = ...) -> None: ...

class DescribeGroupRequest(_message.Message):
    __slots__ = ("group",)
    GROUP_FIELD_NUMBER: _ClassVar[int]
    group: str
    def __init__(self, group: _Optional[str] = ...) -> None: ...

class GroupDescription(_message.Message):
    __slots__ = ("group", "members", "queues", "retry")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    RETRY_FIELD_NUMBER: _ClassVar[int]
    group: str
    members: _containers.RepeatedCompositeFieldContainer[GroupMember]
    queues: _containers.RepeatedCompositeFieldContainer[GroupQueue]
    retry: RetrySettings
    def __init__(self, group: _Optional[str] = ..., members: _Optional[_Iterable[_Union[GroupMember, _Mapping]]] = ..., queues: _Optional[_Iterable[_Union[GroupQueue, _Mapping]]] = ..., retry: _Optional[_Union[RetrySettings, _Mapping]] = ...) -> None: ...

class ConfigureGroupRequest(_message.Message):
    __slots__ = ("group", "retry")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    RETRY_FIELD_NUMBER: _ClassVar[int]
    group: str
    retry: RetrySettings
    def __init__(self, group: _Optional[str] = ..., retry: _Optional[_Union[RetrySettings, _Mapping]] = ...) -> None: ...

class RetrySettings(_message.Message):
    __slots__ = ("retries_max", "levels", "exponential", "steps", "ordered", "in_order")
    RETRIES_MAX_FIELD_NUMBER: _ClassVar[int]
    LEVELS_FIELD_NUMBER: _ClassVar[int]
    EXPONENTIAL_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    ORDERED_FIELD_NUMBER: _ClassVar[int]
    IN_ORDER_FIELD_NUMBER: _ClassVar[int]
    retries_max: int
    levels: DelayLevelBackOff
    exponential: ExponentialBackOff
    steps: StepBackOff
    ordered: bool
    in_order: InOrderRetries
    def __init__(self, retries_max: _Optional[int] = ..., levels: _Optional[_Union[DelayLevelBackOff, _Mapping]] = ..., exponential: _Optional[_Union[ExponentialBackOff, _Mapping]] = ..., steps: _Optional[_Union[StepBackOff, _Mapping]] = ..., ordered: _Optional[bool] = ..., in_order: _Optional[_Union[InOrderRetries, _Mapping]] = ...) -> None: ...

class InOrderRetries(_message.Message):
    __slots__ = ("retries_max", "back_off")
    RETRIES_MAX_FIELD_NUMBER: _ClassVar[int]
    BACK_OFF_FIELD_NUMBER: _ClassVar[int]
    retries_max: int
    back_off: ExponentialBackOff
    def __init__(self, retries_max: _Optional[int] = ..., back_off: _Optional[_Union[ExponentialBackOff, _Mapping]] = ...) -> None: ...

class DelayLevelBackOff(_message.Message):
    __slots__ = ("delays_ms",)
    DELAYS_MS_FIELD_NUMBER: _ClassVar[int]
    delays_ms: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, delays_ms: _Optional[_Iterable[int]] = ...) -> None: ...

class ExponentialBackOff(_message.Message):
    __slots__ = ("initial_ms", "max_ms", "multiplier")
    INITIAL_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_MS_FIELD_NUMBER: _ClassVar[int]
    MULTIPLIER_FIELD_NUMBER: _ClassVar[int]
    initial_ms: int
    max_ms: int
    multiplier: int
    def __init__(self, initial_ms: _Optional[int] = ..., max_ms: _Optional[int] = ..., multiplier: _Optional[int] = ...) -> None: ...

class StepBackOff(_message.Message):
    __slots__ = ("delays_ms",)
    DELAYS_MS_FIELD_NUMBER: _ClassVar[int]
    delays_ms: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, delays_ms: _Optional[_Iterable[int]] = ...) -> None: ...

class GroupQueue(_message.Message):
    __slots__ = ("topic", "queue_id", "lease_holder", "lease_epoch", "committed_offset", "min_offset", "max_offset")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_HOLDER_FIELD_NUMBER: _ClassVar[int]
    LEASE_EPOCH_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_OFFSET_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue_id: int
    lease_holder: str
    lease_epoch: int
    committed_offset: int
    min_offset: int
    max_offset: int
    def __init__(self, topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., lease_holder: _Optional[str] = ..., lease_epoch: _Optional[int] = ..., committed_offset: _Optional[int] = ..., min_offset: _Optional[int] = ..., max_offset: _Optional[int] = ...) -> None: ...

class DeleteGroupRequest(_message.Message):
    __slots__ = ("group", "force")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    group: str
    force: bool
    def __init__(self, group: _Optional[str] = ..., force: _Optional[bool] = ...) -> None: ...

class DeleteGroupResponse(_message.Message):
    __slots__ = ("known", "members_ended", "removed_count", "removed")
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_ENDED_FIELD_NUMBER: _ClassVar[int]
    REMOVED_COUNT_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    known: bool
    members_ended: int
    removed_count: int
    removed: _containers.RepeatedCompositeFieldContainer[CommittedOffset]
    def __init__(self, known: _Optional[bool] = ..., members_ended: _Optional[int] = ..., removed_count: _Optional[int] = ..., removed: _Optional[_Iterable[_Union[CommittedOffset, _Mapping]]] = ...) -> None: ...

class DescribeRemainingRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class RemainingDescription(_message.Message):
    __slots__ = ("refuses", "refuses_in_ms", "readers", "unread", "delayed", "open_transactions", "set_aside", "in_flight", "dead_letters", "schedules")
    REFUSES_FIELD_NUMBER: _ClassVar[int]
    REFUSES_IN_MS_FIELD_NUMBER: _ClassVar[int]
    READERS_FIELD_NUMBER: _ClassVar[int]
    UNREAD_FIELD_NUMBER: _ClassVar[int]
    DELAYED_FIELD_NUMBER: _ClassVar[int]
    OPEN_TRANSACTIONS_FIELD_NUMBER: _ClassVar[int]
    SET_ASIDE_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTERS_FIELD_NUMBER: _ClassVar[int]
    SCHEDULES_FIELD_NUMBER: _ClassVar[int]
    refuses: bool
    refuses_in_ms: int
    readers: _containers.RepeatedCompositeFieldContainer[RemainingReader]
    unread: int
    delayed: int
    open_transactions: int
    set_aside: int
    in_flight: int
    dead_letters: int
    schedules: int
    def __init__(self, refuses: _Optional[bool] = ..., refuses_in_ms: _Optional[int] = ..., readers: _Optional[_Iterable[_Union[RemainingReader, _Mapping]]] = ..., unread: _Optional[int] = ..., delayed: _Optional[int] = ..., open_transactions: _Optional[int] = ..., set_aside: _Optional[int] = ..., in_flight: _Optional[int] = ..., dead_letters: _Optional[int] = ..., schedules: _Optional[int] = ...) -> None: ...

class RemainingReader(_message.Message):
    __slots__ = ("group", "topic", "unread")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    UNREAD_FIELD_NUMBER: _ClassVar[int]
    group: str
    topic: str
    unread: int
    def __init__(self, group: _Optional[str] = ..., topic: _Optional[str] = ..., unread: _Optional[int] = ...) -> None: ...

class HandOverRequest(_message.Message):
    __slots__ = ("successor_id", "timeout_ms")
    SUCCESSOR_ID_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    successor_id: int
    timeout_ms: int
    def __init__(self, successor_id: _Optional[int] = ..., timeout_ms: _Optional[int] = ...) -> None: ...

class HandOverResponse(_message.Message):
    __slots__ = ("master_id", "epoch", "paused_ms")
    MASTER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    PAUSED_MS_FIELD_NUMBER: _ClassVar[int]
    master_id: int
    epoch: int
    paused_ms: int
    def __init__(self, master_id: _Optional[int] = ..., epoch: _Optional[int] = ..., paused_ms: _Optional[int] = ...) -> None: ...

class GetMessageRequest(_message.Message):
    __slots__ = ("offset_message_id", "physical_offset")
    OFFSET_MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    PHYSICAL_OFFSET_FIELD_NUMBER: _ClassVar[int]
    offset_message_id: str
    physical_offset: int
    def __init__(self, offset_message_id: _Optional[str] = ..., physical_offset: _Optional[int] = ...) -> None: ...

class StoredMessage(_message.Message):
    __slots__ = ("record",)
    RECORD_FIELD_NUMBER: _ClassVar[int]
    record: bytes
    def __init__(self, record: _Optional[bytes] = ...) -> None: ...

class QueryMessagesRequest(_message.Message):
    __slots__ = ("topic", "key", "unique_key", "begin_ms", "end_ms", "max_messages", "before_physical_offset")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    UNIQUE_KEY_FIELD_NUMBER: _ClassVar[int]
    BEGIN_MS_FIELD_NUMBER: _ClassVar[int]
    END_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    BEFORE_PHYSICAL_OFFSET_FIELD_NUMBER: _ClassVar[int]
    topic: str
    key: str
    unique_key: str
    begin_ms: int
    end_ms: int
    max_messages: int
    before_physical_offset: int
    def __init__(self, topic: _Optional[str] = ..., key: _Optional[str] = ..., unique_key: _Optional[str] = ..., begin_ms: _Optional[int] = ..., end_ms: _Optional[int] = ..., max_messages: _Optional[int] = ..., before_physical_offset: _Optional[int] = ...) -> None: ...

class QueryMessagesResponse(_message.Message):
    __slots__ = ("records", "indexed_timestamp_ms", "indexed_physical_offset", "more")
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    INDEXED_TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    INDEXED_PHYSICAL_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    records: _containers.RepeatedScalarFieldContainer[bytes]
    indexed_timestamp_ms: int
    indexed_physical_offset: int
    more: bool
    def __init__(self, records: _Optional[_Iterable[bytes]] = ..., indexed_timestamp_ms: _Optional[int] = ..., indexed_physical_offset: _Optional[int] = ..., more: _Optional[bool] = ...) -> None: ...

class CleanStoreRequest(_message.Message):
    __slots__ = ("force", "unread")
    FORCE_FIELD_NUMBER: _ClassVar[int]
    UNREAD_FIELD_NUMBER: _ClassVar[int]
    force: bool
    unread: bool
    def __init__(self, force: _Optional[bool] = ..., unread: _Optional[bool] = ...) -> None: ...

class CleanStoreResponse(_message.Message):
    __slots__ = ("removed_segments", "removed_bytes", "log_min_offset", "removed_unread", "kept_because")
    REMOVED_SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    REMOVED_BYTES_FIELD_NUMBER: _ClassVar[int]
    LOG_MIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    REMOVED_UNREAD_FIELD_NUMBER: _ClassVar[int]
    KEPT_BECAUSE_FIELD_NUMBER: _ClassVar[int]
    removed_segments: int
    removed_bytes: int
    log_min_offset: int
    removed_unread: _containers.RepeatedCompositeFieldContainer[UnreadRemoval]
    kept_because: str
    def __init__(self, removed_segments: _Optional[int] = ..., removed_bytes: _Optional[int] = ..., log_min_offset: _Optional[int] = ..., removed_unread: _Optional[_Iterable[_Union[UnreadRemoval, _Mapping]]] = ..., kept_because: _Optional[str] = ...) -> None: ...

class UnreadRemoval(_message.Message):
    __slots__ = ("group", "topic", "queue_id", "messages")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    group: str
    topic: str
    queue_id: int
    messages: int
    def __init__(self, group: _Optional[str] = ..., topic: _Optional[str] = ..., queue_id: _Optional[int] = ..., messages: _Optional[int] = ...) -> None: ...

class GetStatsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class BrokerStats(_message.Message):
    __slots__ = ("identity", "role", "epoch", "version", "uptime_ms", "log_min_offset", "log_appended_end", "log_flushed_end", "log_confirmed_end", "log_dispatched_end", "flush_mode", "writable", "not_writable_reason", "messages_in", "bytes_in", "messages_out", "bytes_out", "batches_in", "refused", "fsyncs", "topics", "queues", "groups", "members", "send_streams", "pull_streams", "cpu_seconds", "resident_bytes", "inflight_bytes", "loop_delay_p99_ms", "disk_total_bytes", "disk_free_bytes", "log_segments", "removed_segments", "removed_bytes", "removed_unread_messages", "removed_unread", "index_files", "index_keys", "indexed_end", "index_pending_keys", "cold_reads", "cold_bytes", "cold_reads_waiting", "replication_mode", "replicas", "slave", "duplicates_dropped", "misplaced_records")
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    UPTIME_MS_FIELD_NUMBER: _ClassVar[int]
    LOG_MIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOG_APPENDED_END_FIELD_NUMBER: _ClassVar[int]
    LOG_FLUSHED_END_FIELD_NUMBER: _ClassVar[int]
    LOG_CONFIRMED_END_FIELD_NUMBER: _ClassVar[int]
    LOG_DISPATCHED_END_FIELD_NUMBER: _ClassVar[int]
    FLUSH_MODE_FIELD_NUMBER: _ClassVar[int]
    WRITABLE_FIELD_NUMBER: _ClassVar[int]
    NOT_WRITABLE_REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_IN_FIELD_NUMBER: _ClassVar[int]
    BYTES_IN_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_OUT_FIELD_NUMBER: _ClassVar[int]
    BYTES_OUT_FIELD_NUMBER: _ClassVar[int]
    BATCHES_IN_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    FSYNCS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    SEND_STREAMS_FIELD_NUMBER: _ClassVar[int]
    PULL_STREAMS_FIELD_NUMBER: _ClassVar[int]
    CPU_SECONDS_FIELD_NUMBER: _ClassVar[int]
    RESIDENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    INFLIGHT_BYTES_FIELD_NUMBER: _ClassVar[int]
    LOOP_DELAY_P99_MS_FIELD_NUMBER: _ClassVar[int]
    DISK_TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    DISK_FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    LOG_SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    REMOVED_SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    REMOVED_BYTES_FIELD_NUMBER: _ClassVar[int]
    REMOVED_UNREAD_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    REMOVED_UNREAD_FIELD_NUMBER: _ClassVar[int]
    INDEX_FILES_FIELD_NUMBER: _ClassVar[int]
    INDEX_KEYS_FIELD_NUMBER: _ClassVar[int]
    INDEXED_END_FIELD_NUMBER: _ClassVar[int]
    INDEX_PENDING_KEYS_FIELD_NUMBER: _ClassVar[int]
    COLD_READS_FIELD_NUMBER: _ClassVar[int]
    COLD_BYTES_FIELD_NUMBER: _ClassVar[int]
    COLD_READS_WAITING_FIELD_NUMBER: _ClassVar[int]
    REPLICATION_MODE_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    SLAVE_FIELD_NUMBER: _ClassVar[int]
    DUPLICATES_DROPPED_FIELD_NUMBER: _ClassVar[int]
    MISPLACED_RECORDS_FIELD_NUMBER: _ClassVar[int]
    identity: _common_pb2.BrokerIdentity
    role: _common_pb2.BrokerRole
    epoch: int
    version: str
    uptime_ms: int
    log_min_offset: int
    log_appended_end: int
    log_flushed_end: int
    log_confirmed_end: int
    log_dispatched_end: int
    flush_mode: str
    writable: bool
    not_writable_reason: str
    messages_in: int
    bytes_in: int
    messages_out: int
    bytes_out: int
    batches_in: int
    refused: int
    fsyncs: int
    topics: int
    queues: int
    groups: int
    members: int
    send_streams: int
    pull_streams: int
    cpu_seconds: float
    resident_bytes: int
    inflight_bytes: int
    loop_delay_p99_ms: float
    disk_total_bytes: int
    disk_free_bytes: int
    log_segments: int
    removed_segments: int
    removed_bytes: int
    removed_unread_messages: int
    removed_unread: _containers.RepeatedCompositeFieldContainer[UnreadRemoval]
    index_files: int
    index_keys: int
    indexed_end: int
    index_pending_keys: int
    cold_reads: int
    cold_bytes: int
    cold_reads_waiting: int
    replication_mode: str
    replicas: _containers.RepeatedCompositeFieldContainer[ReplicaProgress]
    slave: SlaveProgress
    duplicates_dropped: int
    misplaced_records: int
    def __init__(self, identity: _Optional[_Union[_common_pb2.BrokerIdentity, _Mapping]] = ..., role: _Optional[_Union[_common_pb2.BrokerRole, str]] = ..., epoch: _Optional[int] = ..., version: _Optional[str] = ..., uptime_ms: _Optional[int] = ..., log_min_offset: _Optional[int] = ..., log_appended_end: _Optional[int] = ..., log_flushed_end: _Optional[int] = ..., log_confirmed_end: _Optional[int] = ..., log_dispatched_end: _Optional[int] = ..., flush_mode: _Optional[str] = ..., writable: _Optional[bool] = ..., not_writable_reason: _Optional[str] = ..., messages_in: _Optional[int] = ..., bytes_in: _Optional[int] = ..., messages_out: _Optional[int] = ..., bytes_out: _Optional[int] = ..., batches_in: _Optional[int] = ..., refused: _Optional[int] = ..., fsyncs: _Optional[int] = ..., topics: _Optional[int] = ..., queues: _Optional[int] = ..., groups: _Optional[int] = ..., members: _Optional[int] = ..., send_streams: _Optional[int] = ..., pull_streams: _Optional[int] = ..., cpu_seconds: _Optional[float] = ..., resident_bytes: _Optional[int] = ..., inflight_bytes: _Optional[int] = ..., loop_delay_p99_ms: _Optional[float] = ..., disk_total_bytes: _Optional[int] = ..., disk_free_bytes: _Optional[int] = ..., log_segments: _Optional[int] = ..., removed_segments: _Optional[int] = ..., removed_bytes: _Optional[int] = ..., removed_unread_messages: _Optional[int] = ..., removed_unread: _Optional[_Iterable[_Union[UnreadRemoval, _Mapping]]] = ..., index_files: _Optional[int] = ..., index_keys: _Optional[int] = ..., indexed_end: _Optional[int] = ..., index_pending_keys: _Optional[int] = ..., cold_reads: _Optional[int] = ..., cold_bytes: _Optional[int] = ..., cold_reads_waiting: _Optional[int] = ..., replication_mode: _Optional[str] = ..., replicas: _Optional[_Iterable[_Union[ReplicaProgress, _Mapping]]] = ..., slave: _Optional[_Union[SlaveProgress, _Mapping]] = ..., duplicates_dropped: _Optional[int] = ..., misplaced_records: _Optional[int] = ...) -> None: ...

class ReplicaProgress(_message.Message):
    __slots__ = ("broker_id", "connected", "in_sync", "acknowledged_end", "lag_bytes", "lag_ms")
    BROKER_ID_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_FIELD_NUMBER: _ClassVar[int]
    IN_SYNC_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_END_FIELD_NUMBER: _ClassVar[int]
    LAG_BYTES_FIELD_NUMBER: _ClassVar[int]
    LAG_MS_FIELD_NUMBER: _ClassVar[int]
    broker_id: int
    connected: bool
    in_sync: bool
    acknowledged_end: int
    lag_bytes: int
    lag_ms: int
    def __init__(self, broker_id: _Optional[int] = ..., connected: _Optional[bool] = ..., in_sync: _Optional[bool] = ..., acknowledged_end: _Optional[int] = ..., lag_bytes: _Optional[int] = ..., lag_ms: _Optional[int] = ...) -> None: ...

class SlaveProgress(_message.Message):
    __slots__ = ("master_id", "connected", "master_end", "confirmed_end", "trouble")
    MASTER_ID_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_FIELD_NUMBER: _ClassVar[int]
    MASTER_END_FIELD_NUMBER: _ClassVar[int]
    CONFIRMED_END_FIELD_NUMBER: _ClassVar[int]
    TROUBLE_FIELD_NUMBER: _ClassVar[int]
    master_id: int
    connected: bool
    master_end: int
    confirmed_end: int
    trouble: str
    def __init__(self, master_id: _Optional[int] = ..., connected: _Optional[bool] = ..., master_end: _Optional[int] = ..., confirmed_end: _Optional[int] = ..., trouble: _Optional[str] = ...) -> None: ...
