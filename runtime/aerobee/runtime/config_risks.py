"""What is risky in the settings that all services have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from aerobee.runtime.config_check import Risk
from aerobee.runtime.log_config import LogConfig, LogLevel


class CommonConfig(Protocol):
    """The settings of any service."""

    @property
    def log(self) -> LogConfig: ...


def common_risks(config: CommonConfig) -> Iterator[Risk]:
    """What to say of them."""
    if config.log.level is LogLevel.DEBUG and config.log.repeats_per_s_max == 0:
        yield Risk(
            ("log.level", "log.repeats_per_s_max"),
            "log.level is debug and log.repeats_per_s_max is 0: every call writes a line, so "
            "clients determine how fast the disk of the log fills",
        )
