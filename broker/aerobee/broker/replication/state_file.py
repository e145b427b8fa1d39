"""What a replica must know of itself before anyone can tell it: config/replicaState.json.

Owns: that file's content, and (PURE) how a start interprets the previous one. A checksum keeps a
flipped bit from making a broker believe that it is alone.

Invariant: a folder keeps its incarnation only as long as its log has certainly lost nothing that it
once had.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from zlib import crc32

STATE_PATH = "config/replicaState.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaState:
    """The file's content."""

    broker_id: int
    instance: str
    """The process that uses the folder, or used it last."""
    incarnation: str
    epoch: int = 0
    """The newest epoch that was written to the epoch file."""
    replicas: frozenset[int] = frozenset()
    """The replica set's replicas, as last known; empty: none was ever known."""
    boot_id: str = ""
    """The machine's boot id while the instance ran; empty if unknown."""
    is_sync_flush: bool = False
    has_failed: bool = False
    """A write or an fsync failed: from then on the log may lack what the instance read from it."""
    is_incomplete: bool = False
    """According to the registry, the log lacks what its incarnation had."""
    closed_end: int | None = None
    """Where the log ended when the instance stopped; None while it runs."""
    cluster: str = ""
    broker_name: str = ""
    """Whose messages the log holds; empty in a file from before this was recorded."""

    @property
    def is_alone(self) -> bool:
        """No other replica can be elected."""
        return self.replicas <= {self.broker_id}

    def encode(self) -> bytes:
        document = {
            "brokerId": self.broker_id,
            "instance": self.instance,
            "incarnation": self.incarnation,
            "epoch": self.epoch,
            "replicas": sorted(self.replicas),
            "bootId": self.boot_id,
            "syncFlush": self.is_sync_flush,
            "failed": self.has_failed,
            "incomplete": self.is_incomplete,
            "closedEnd": self.closed_end,
            "cluster": self.cluster,
            "brokerName": self.broker_name,
        }
        return _text({**document, "crc32": _checksum(document)})

    @classmethod
    def decode(cls, data: bytes) -> ReplicaState:
        """Raises ValueError for any other content."""
        try:
            document = json.loads(data)
            if document.pop("crc32") != _checksum(document):
                raise ValueError("its checksum does not match")
            closed_end = document["closedEnd"]
            return cls(
                broker_id=int(document["brokerId"]),
                instance=str(document["instance"]),
                incarnation=str(document["incarnation"]),
                epoch=int(document["epoch"]),
                replicas=frozenset(int(replica) for replica in document["replicas"]),
                boot_id=str(document["bootId"]),
                is_sync_flush=document["syncFlush"] is True,
                has_failed=document.get("failed") is True,
                is_incomplete=document.get("incomplete") is True,
                closed_end=None if closed_end is None else int(closed_end),
                cluster=str(document.get("cluster", "")),
                broker_name=str(document.get("brokerName", "")),
            )
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(f"not a replica's state: {error}") from error


@dataclass(frozen=True, slots=True)
class NewIncarnation:
    """A change of a closed folder: from now on its log counts as another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundLog:
    """The log as this start has opened it."""

    end: int
    is_clean: bool
    """The previous run had closed it."""
    boot_id: str


def may_have_lost(previous: ReplicaState, found: FoundLog) -> bool:
    """Whether bytes that the previous run acknowledged may be missing.

    If a process dies the page cache survives; if a machine dies it does not, nor what a disk
    refused to write. A log that ends elsewhere than its last user said was changed by something
    else.
    """
    if previous.is_incomplete or (previous.has_failed and not previous.is_sync_flush):
        return True
    if found.is_clean:
        return previous.closed_end is not None and previous.closed_end != found.end
    is_same_boot = bool(found.boot_id) and found.boot_id == previous.boot_id
    return not is_same_boot and not previous.is_sync_flush


def ended_predecessor(previous: ReplicaState, boot_id: str, broker_id: int) -> str:
    """The instance that has certainly ended, as we have its folder's lock; empty if that is not
    certain: after a different boot the folder may be a copy on another machine."""
    if previous.broker_id != broker_id:
        return ""
    is_same_boot = bool(boot_id) and boot_id == previous.boot_id
    return previous.instance if is_same_boot or previous.closed_end is not None else ""


def _text(document: Mapping[str, object]) -> bytes:
    return json.dumps(document, indent="\t").encode()


def _checksum(document: Mapping[str, object]) -> str:
    """Over the JSON text of `document` without the checksum itself."""
    return f"{crc32(_text(document)):08x}"
