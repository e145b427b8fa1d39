from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class UserDescription(_message.Message):
    __slots__ = ("name", "super", "enabled", "secrets", "certificate_names")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SUPER_FIELD_NUMBER: _ClassVar[int]
    ENABLED_FIELD_NUMBER: _ClassVar[int]
    SECRETS_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_NAMES_FIELD_NUMBER: _ClassVar[int]
    name: str
    super: bool
    enabled: bool
    secrets: int
    certificate_names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., super: _Optional[bool] = ..., enabled: _Optional[bool] = ..., secrets: _Optional[int] = ..., certificate_names: _Optional[_Iterable[str]] = ...) -> None: ...

class UserSecret(_message.Message):
    __slots__ = ("user", "secret")
    USER_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    user: UserDescription
    secret: str
    def __init__(self, user: _Optional[_Union[UserDescription, _Mapping]] = ..., secret: _Optional[str] = ...) -> None: ...

class CreateUserRequest(_message.Message):
    __slots__ = ("name", "super", "certificate_names", "secret")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SUPER_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_NAMES_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    name: str
    super: bool
    certificate_names: _containers.RepeatedScalarFieldContainer[str]
    secret: str
    def __init__(self, name: _Optional[str] = ..., super: _Optional[bool] = ..., certificate_names: _Optional[_Iterable[str]] = ..., secret: _Optional[str] = ...) -> None: ...

class UpdateUserRequest(_message.Message):
    __slots__ = ("name", "super", "enabled", "forget_former_secret", "set_certificate_names", "certificate_names")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SUPER_FIELD_NUMBER: _ClassVar[int]
    ENABLED_FIELD_NUMBER: _ClassVar[int]
    FORGET_FORMER_SECRET_FIELD_NUMBER: _ClassVar[int]
    SET_CERTIFICATE_NAMES_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_NAMES_FIELD_NUMBER: _ClassVar[int]
    name: str
    super: bool
    enabled: bool
    forget_former_secret: bool
    set_certificate_names: bool
    certificate_names: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., super: _Optional[bool] = ..., enabled: _Optional[bool] = ..., forget_former_secret: _Optional[bool] = ..., set_certificate_names: _Optional[bool] = ..., certificate_names: _Optional[_Iterable[str]] = ...) -> None: ...

class RotateUserRequest(_message.Message):
    __slots__ = ("name", "secret")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    name: str
    secret: str
    def __init__(self, name: _Optional[str] = ..., secret: _Optional[str] = ...) -> None: ...

class DeleteUserRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DeleteUserResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListUsersRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListUsersResponse(_message.Message):
    __slots__ = ("users",)
    USERS_FIELD_NUMBER: _ClassVar[int]
    users: _containers.RepeatedCompositeFieldContainer[UserDescription]
    def __init__(self, users: _Optional[_Iterable[_Union[UserDescription, _Mapping]]] = ...) -> None: ...

class AccessPolicy(_message.Message):
    __slots__ = ("user", "resource", "actions", "decision", "sources", "default")
    USER_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    ACTIONS_FIELD_NUMBER: _ClassVar[int]
    DECISION_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_FIELD_NUMBER: _ClassVar[int]
    user: str
    resource: str
    actions: str
    decision: str
    sources: _containers.RepeatedScalarFieldContainer[str]
    default: bool
    def __init__(self, user: _Optional[str] = ..., resource: _Optional[str] = ..., actions: _Optional[str] = ..., decision: _Optional[str] = ..., sources: _Optional[_Iterable[str]] = ..., default: _Optional[bool] = ...) -> None: ...

class PutPolicyRequest(_message.Message):
    __slots__ = ("policy",)
    POLICY_FIELD_NUMBER: _ClassVar[int]
    policy: AccessPolicy
    def __init__(self, policy: _Optional[_Union[AccessPolicy, _Mapping]] = ...) -> None: ...

class PutPolicyResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RemovePolicyRequest(_message.Message):
    __slots__ = ("user", "resource", "default")
    USER_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_FIELD_NUMBER: _ClassVar[int]
    user: str
    resource: str
    default: bool
    def __init__(self, user: _Optional[str] = ..., resource: _Optional[str] = ..., default: _Optional[bool] = ...) -> None: ...

class RemovePolicyResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListPoliciesRequest(_message.Message):
    __slots__ = ("user",)
    USER_FIELD_NUMBER: _ClassVar[int]
    user: str
    def __init__(self, user: _Optional[str] = ...) -> None: ...

class ListPoliciesResponse(_message.Message):
    __slots__ = ("policies",)
    POLICIES_FIELD_NUMBER: _ClassVar[int]
    policies: _containers.RepeatedCompositeFieldContainer[AccessPolicy]
    def __init__(self, policies: _Optional[_Iterable[_Union[AccessPolicy, _Mapping]]] = ...) -> None: ...

class TestAccessRequest(_message.Message):
    __slots__ = ("user", "resource", "actions", "source")
    USER_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    ACTIONS_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    user: str
    resource: str
    actions: str
    source: str
    def __init__(self, user: _Optional[str] = ..., resource: _Optional[str] = ..., actions: _Optional[str] = ..., source: _Optional[str] = ...) -> None: ...

class TestAccessResponse(_message.Message):
    __slots__ = ("allowed", "reason")
    ALLOWED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    allowed: bool
    reason: str
    def __init__(self, allowed: _Optional[bool] = ..., reason: _Optional[str] = ...) -> None: ...

class Quota(_message.Message):
    __slots__ = ("kind", "name", "limits")
    class LimitsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    kind: str
    name: str
    limits: _containers.ScalarMap[str, int]
    def __init__(self, kind: _Optional[str] = ..., name: _Optional[str] = ..., limits: _Optional[_Mapping[str, int]] = ...) -> None: ...

class SetQuotaRequest(_message.Message):
    __slots__ = ("quota", "to_default")
    QUOTA_FIELD_NUMBER: _ClassVar[int]
    TO_DEFAULT_FIELD_NUMBER: _ClassVar[int]
    quota: Quota
    to_default: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, quota: _Optional[_Union[Quota, _Mapping]] = ..., to_default: _Optional[_Iterable[str]] = ...) -> None: ...

class DeleteQuotaRequest(_message.Message):
    __slots__ = ("kind", "name")
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    kind: str
    name: str
    def __init__(self, kind: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class DeleteQuotaResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListQuotasRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListQuotasResponse(_message.Message):
    __slots__ = ("quotas", "built_in")
    QUOTAS_FIELD_NUMBER: _ClassVar[int]
    BUILT_IN_FIELD_NUMBER: _ClassVar[int]
    quotas: _containers.RepeatedCompositeFieldContainer[Quota]
    built_in: Quota
    def __init__(self, quotas: _Optional[_Iterable[_Union[Quota, _Mapping]]] = ..., built_in: _Optional[_Union[Quota, _Mapping]] = ...) -> None: ...
