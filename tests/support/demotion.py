"""A broker that opens its folder again, as after its demotion, when a test says so."""

from __future__ import annotations

from typing import Protocol

from aerobee.broker.features import Feature
from aerobee.broker.replication.role_manager import Reopening, RoleManager


class Parts(Protocol):
    manager: RoleManager


class Demotable(Feature):
    """One more feature of a broker, for the list that it is started with."""

    def __init__(self, parts: Parts, opened: None) -> None:
        self._parts = parts

    def demote(self) -> None:
        """End this run as a demotion does."""
        self._parts.manager.reopening.set_result(Reopening("by the test"))
