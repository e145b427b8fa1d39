"""What etcd stores and reports, as plain values; the rest of the nameserver sees etcd only through
these."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KeyValue:
    """One key and its current value."""

    key: str
    value: bytes
    revision: int
    """The etcd revision of its last change."""
    lease_id: int = 0
    """The lease it ends with; 0: none."""


@dataclass(frozen=True, slots=True)
class KeyEvent:
    """One change of one key."""

    key: str
    value: bytes | None
    """None: the key was deleted, or its lease ended."""
    revision: int
    lease_id: int = 0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All keys below a prefix, as of one revision."""

    revision: int
    entries: tuple[KeyValue, ...]


@dataclass(frozen=True, slots=True)
class WatchBatch:
    """Changes in the order in which they happened; those of one revision are never split."""

    events: tuple[KeyEvent, ...]


@dataclass(frozen=True, slots=True)
class Lease:
    lease_id: int
    duration_ms: int


@dataclass(frozen=True, slots=True)
class Put:
    """A change within a transaction: set `key`."""

    key: str
    value: bytes
    lease_id: int = 0


@dataclass(frozen=True, slots=True)
class Delete:
    """A change within a transaction: remove `key`."""

    key: str


@dataclass(frozen=True, slots=True)
class TransactionResult:
    succeeded: bool
    """False: some key was not as expected, and nothing was changed."""
    revision: int
    """The store's revision; when it succeeded, that of its changes."""


class Compacted(Exception):
    """The wanted revision is no longer in etcd's history: read everything again."""


class LeaseNotFound(Exception):
    """The lease has ended or never existed."""
