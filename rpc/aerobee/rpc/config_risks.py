"""Risks in the settings that all services have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from aerobee.rpc.tls_config import NodeTlsConfig, PlainText
from aerobee.runtime.addresses import is_loopback
from aerobee.runtime.config_check import Risk
from aerobee.runtime.log_config import LogConfig, LogLevel
from aerobee.runtime.private_files import all_users_can_read


class CommonConfig(Protocol):
    """The settings that any service has."""

    @property
    def log(self) -> LogConfig: ...
    @property
    def listen(self) -> str: ...
    @property
    def tls(self) -> NodeTlsConfig: ...


def common_risks(config: CommonConfig) -> Iterator[Risk]:
    """Their risks."""
    yield from _tls(config)
    yield from exposed_secrets({"tls.key": config.tls.key})
    if config.log.level is LogLevel.DEBUG and config.log.repeats_per_s_max == 0:
        yield Risk(
            ("log.level", "log.repeats_per_s_max"),
            "log.level is debug and log.repeats_per_s_max is 0: every call writes a line, so "
            "clients determine how fast the disk of the log fills",
        )


def exposed_secrets(files: Mapping[str, str]) -> Iterator[Risk]:
    """Files holding a secret, by key, that other users can read too."""
    for key, path in files.items():
        if path and all_users_can_read(path):
            yield Risk(
                (key,),
                f"{key} is {path}, which every user of this machine can read: take the right from "
                "others, and exchange what is in it",
            )


def _tls(config: CommonConfig) -> Iterator[Risk]:
    if is_loopback(config.listen):
        return
    danger = "anyone on the network's path can read and change messages"
    if not config.tls.is_on:
        yield Risk(
            ("listen", "tls.certificate"),
            f"listens on {config.listen} without TLS: {danger}; set tls.certificate and tls.key, "
            "or listen on a loopback address",
        )
    elif config.tls.plain_text is not PlainText.REFUSED:
        yield Risk(
            ("listen", "tls.plain_text"),
            f"listens on {config.listen} and tls.plain_text is {config.tls.plain_text}: {danger} "
            "that are sent without TLS; set tls.plain_text to refused once all clients speak TLS",
        )
