"""Another process has this member's client id: dead without a goodbye, or alive?

Owns: the patience. A broker keeps a dead member's name for one session; whoever has it for longer
is alive.
"""

from __future__ import annotations

import logging

from aerobee.consumer_client.membership import Identity
from aerobee.runtime.errors import DuplicateClient
from aerobee.runtime.log import log_event

log = logging.getLogger(__name__)

PATIENCE_SESSIONS = 1.5


class NameInUse:
    """Of one session; time is passed in."""

    def __init__(self, identity: Identity, broker_name: str) -> None:
        self._identity = identity
        self._broker_name = broker_name
        self._end_s: float | None = None

    def on_free(self) -> None:
        """The broker has taken us."""
        self._end_s = None

    def on_refused(self, error: DuplicateClient, now_s: float) -> None:
        """Raises the error once the other one must be alive."""
        if self._end_s is None:
            patience_s = self._identity.session_timeout_ms * PATIENCE_SESSIONS / 1_000
            self._end_s = now_s + patience_s
            log_event(
                log,
                "another live member has this client id, trying again in case it is dead",
                level=logging.WARNING,
                group=self._identity.group,
                client_id=self._identity.client_id,
                broker=self._broker_name,
                gives_up_in_s=patience_s,
            )
        if now_s > self._end_s:
            raise error
