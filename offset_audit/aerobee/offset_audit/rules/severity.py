"""How much a finding matters."""

from __future__ import annotations

from enum import StrEnum


class Severity(StrEnum):
    """The worst one determines the exit code."""

    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"
    CRITICAL = "CRITICAL"
