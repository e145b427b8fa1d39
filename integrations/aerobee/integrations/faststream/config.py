"""What a broker of FastStream's knows of the cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from faststream._internal.configs import BrokerConfig
from faststream._internal.logger import DefaultLoggerStorage
from faststream._internal.logger.logging import get_broker_logger

from aerobee.access.credentials import Credentials
from aerobee.client_core.telemetry import Telemetry
from aerobee.consumer_client.options import ConsumerConfig
from aerobee.producer_client.config import ProducerConfig
from aerobee.rpc.tls_config import TlsConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How clients reach the cluster; see `ClusterConnection`."""

    nameservers: str | Sequence[str] | None = None
    cluster: str | None = None
    tls: bool | TlsConfig | None = None
    credentials: Credentials | None = None
    telemetry: Telemetry | None = None
    producer: ProducerConfig | None = None
    consumers: ConsumerConfig | None = None


@dataclass(kw_only=True)
class AerobeeBrokerConfig(BrokerConfig):
    """Of a broker, or of a router, whose own is not used."""

    access: Access = field(default_factory=Access)


class LoggerStorage(DefaultLoggerStorage):
    """Lines with topic and group, in columns as wide as the longest of each."""

    def __init__(self) -> None:
        super().__init__()
        self._topic_width = 4
        self._group_width = 0

    def register_subscriber(self, params: dict[str, Any]) -> None:
        self._topic_width = max(self._topic_width, len(params.get("topic", "")))
        self._group_width = max(self._group_width, len(params.get("group", "")))

    def get_logger(self, *, context: Any) -> Any:
        logger = self._get_logger_ref()
        if logger is None:
            group = f"%(group)-{self._group_width}s | " if self._group_width else ""
            logger = get_broker_logger(
                name="aerobee",
                default_context={"topic": "", "group": ""},
                message_id_ln=10,
                fmt=f"%(asctime)s %(levelname)-8s - {group}%(topic)-{self._topic_width}s | "
                "%(message_id)-10s - %(message)s",
                context=context,
                log_level=self.logger_log_level,
            )
            self._logger_ref.add(logger)
        return logger
