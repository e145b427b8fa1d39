"""What a node knows now about users and policies, and the cluster secrets that open them."""

from __future__ import annotations

import logging
from collections.abc import Callable

from aerobee.access.sealing import ClusterSecrets
from aerobee.access.table import NO_RECORDS, NOBODY, AccessTable, Record, Records
from aerobee.runtime.log import log_event
from aerobee.runtime.watched_file import WatchedFile

log = logging.getLogger(__name__)


class AccessBook:
    """The current table; changes notify the listeners."""

    def __init__(self, file: WatchedFile[ClusterSecrets] | None = None) -> None:
        """Without a `file` for the cluster secret, no signature can be checked."""
        self.table = NOBODY
        self.is_known = False
        """Whether this node has received the users since it started, even if there are none."""
        self._file = file
        self._opened_by = self.secrets
        self._records = NO_RECORDS
        self._listeners: list[Callable[[], None]] = []

    @property
    def version(self) -> str:
        """The version of the records it has."""
        return self._records.version

    @property
    def quotas(self) -> tuple[Record, ...]:
        return self._records.quotas

    @property
    def secrets(self) -> ClusterSecrets | None:
        """The current secrets; None: none are configured."""
        return None if self._file is None else self._file.value()

    def on_change(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    def hear(self, records: Records) -> None:
        """Take over all users and policies as they are now."""
        self.is_known = True
        if records.version == self.version:
            return
        self._records = records
        before = self.table if self._opened_by is self.secrets else None
        self._become(AccessTable.of(records, self.secrets, before))

    def refresh(self) -> None:
        """Open the secrets again if the file has changed."""
        if self._opened_by is not self.secrets:
            self._become(AccessTable.of(self._records, self.secrets))

    def _become(self, table: AccessTable) -> None:
        self._opened_by = self.secrets
        before, self.table = self.table, table
        if table.unreadable and table.unreadable != before.unreadable:
            log_event(
                log,
                "records of users cannot be read; they may do nothing",
                level=logging.ERROR,
                users=",".join(table.unreadable[:10]),
            )
        if table.unopened and table.unopened != before.unopened:
            log_event(
                log,
                "secrets of users were sealed by another cluster secret",
                level=logging.ERROR,
                secrets=table.unopened,
            )
        for listener in self._listeners:
            listener()
