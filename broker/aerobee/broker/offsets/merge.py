"""PURE: how a record of the offset journal changes a group's offset on a queue.

Records take effect in log order. A reset sets the offset unconditionally, and ends every lease
granted before it: a later commit under one of those changes nothing. Neither does a commit under an
older lease than the newest that has committed. Otherwise the larger offset wins, so that without a
reset no offset ever moves back.

Invariant: applying a record again, with all that followed it, changes nothing.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

NO_LEASE = 0
"""The lease epoch of a commit that was taken while no member held the queue."""


class ChangeKind(StrEnum):
    """What a record of the journal says about one queue of one group."""

    COMMIT = "commit"
    RESET = "reset"
    IMAGE = "image"
    """The state at this place of the journal, for a reader that continues from here without having
    read the earlier records."""


class Standing(NamedTuple):
    """A group's offset on one queue."""

    offset: int
    lease_epoch_min: int = NO_LEASE
    """Commits under leases older than this have no effect."""


class Change(NamedTuple):
    """The part of a journal record that concerns the offset.

    `lease_epoch` is the committing member's lease; for a reset, the newest lease granted before it;
    for an image, the standing's `lease_epoch_min`.
    """

    kind: ChangeKind
    offset: int
    lease_epoch: int = NO_LEASE


def merge(standing: Standing | None, change: Change) -> Standing:
    """The state after `change`; the same object if it changes nothing."""
    kind, offset, lease_epoch = change
    if kind is ChangeKind.IMAGE:
        after = Standing(offset, lease_epoch)
        return standing if standing is not None and standing == after else after
    if kind is ChangeKind.RESET:
        fence = lease_epoch + 1 if lease_epoch != NO_LEASE else NO_LEASE
        epoch_min = fence if standing is None else max(fence, standing.lease_epoch_min)
        return Standing(offset, epoch_min)
    if standing is None:
        return Standing(offset, lease_epoch)
    if is_fenced(standing, lease_epoch):
        return standing
    if offset <= standing.offset and lease_epoch <= standing.lease_epoch_min:
        return standing
    return Standing(max(offset, standing.offset), max(lease_epoch, standing.lease_epoch_min))


def is_fenced(standing: Standing | None, lease_epoch: int) -> bool:
    """Whether a commit under this lease has no effect."""
    return standing is not None and NO_LEASE < lease_epoch < standing.lease_epoch_min
