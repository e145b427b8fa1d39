"""Why a store cannot be opened.

These end a start-up with one sentence for the operator; they never cross the wire, so they are not
part of the `MqError` tree.
"""

from __future__ import annotations


class StoreUnusable(Exception):
    """The folder cannot serve as a store as it lies; the message says why and what to do."""


class StoreLocked(StoreUnusable):
    """Another process has the store open."""


class StoreDamaged(StoreUnusable):
    """A record that was once safely on disk is no longer whole.

    `segment` is the file below the store's root, `position` the byte offset of the record in the
    whole log. Nothing was changed: the operator decides (restore a copy, or cut the log there).
    """

    def __init__(self, message: str, *, segment: str, position: int) -> None:
        super().__init__(message)
        self.segment = segment
        self.position = position
