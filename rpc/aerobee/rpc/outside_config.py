"""What an operator can set about the outside listener of a node (see `aerobee.rpc.outside`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from aerobee.rpc.core.tls import ClientAuth
from aerobee.rpc.grpc_config import Engine, GrpcConfig
from aerobee.rpc.tls_config import NodeTlsConfig, PlainText
from aerobee.runtime.addresses import is_loopback, require_dialled_address
from aerobee.runtime.config import require
from aerobee.runtime.config_check import Risk


@dataclass(frozen=True, slots=True, kw_only=True)
class OutsideTlsConfig:
    """TLS of the outside listener, if it has a certificate of its own; without one, the settings of
    `tls` apply there, too."""

    certificate: str = ""
    """PEM file with the certificate that names the hosts that outside clients connect to, and with
    those that signed it. The files are read again when they change.

    Unit: path; empty: the settings of `tls`
    Costs: a file that must be replaced before it expires.
    """
    key: str = ""
    """PEM file with the private key of `outside.tls.certificate`, without a password.

    Unit: path; empty: none
    Costs: a secret: only this process should be able to read it.
    """
    ca: str = ""
    """PEM file with the authorities whose certificates this node accepts from outside clients.

    Unit: path; empty: none
    Costs: nothing.
    """
    client_auth: ClientAuth = ClientAuth.NONE
    """Whether outside clients are asked for a certificate.

    Costs: `required`: official Apache clients cannot present a certificate, so none can connect.
    """

    def __post_init__(self) -> None:
        require(
            bool(self.certificate) == bool(self.key),
            "outside.tls.certificate and outside.tls.key belong together: give both or neither",
            self.certificate or self.key,
        )
        require(
            not self.ca or bool(self.certificate),
            "outside.tls.ca needs outside.tls.certificate: without it the settings of tls count",
            self.ca,
        )
        require(
            self.client_auth is ClientAuth.NONE or bool(self.ca),
            "outside.tls.client_auth needs outside.tls.ca, the authorities of clients' "
            "certificates",
            self.client_auth.value,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OutsideConfig:
    """A second listener, for clients outside the cluster's network. Clients that use it get the
    brokers' outside addresses; nodes never use it ([how](listeners.md))."""

    listen: str = ""
    """host:port to serve outside clients on, in addition to `listen`. Clients of this port get the
    `outside.address` of each broker, or its only address if it has just one.

    Unit: host:port; empty: all clients use `listen`
    Costs: a listening port; as with `listen`, everything that `access` and `tls` do not refuse is
    open.
    """
    tls: OutsideTlsConfig = field(default_factory=OutsideTlsConfig)

    def __post_init__(self) -> None:
        _check(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerOutsideConfig:
    """A second listener, for clients outside the cluster's network. Replicas, brokers and
    nameservers never use it, and it refuses them ([how](listeners.md))."""

    listen: str = ""
    """host:port to serve outside clients on, in addition to `listen`.

    Unit: host:port; empty: all clients use `listen`
    Costs: a listening port; as with `listen`, everything that `access` and `tls` do not refuse is
    open.
    """
    address: str = ""
    """host:port where outside clients reach `outside.listen`, for example through a load balancer.
    Nameservers and brokers give it to clients of their own outside listener.

    Unit: host:port; empty: the broker has one address for all
    Costs: each client that connects looks up the name.
    """
    tls: OutsideTlsConfig = field(default_factory=OutsideTlsConfig)

    def __post_init__(self) -> None:
        _check(self)
        require(
            bool(self.listen) == bool(self.address),
            "outside.listen and outside.address belong together: give both or neither",
            self.listen or self.address,
        )
        if self.address:
            require_dialled_address("outside.address", self.address)


class Listener(Protocol):
    """The outside listener that any node may have."""

    @property
    def listen(self) -> str: ...
    @property
    def tls(self) -> OutsideTlsConfig: ...


class OutsideSections(Protocol):
    """The settings of any node that concern the outside listener."""

    @property
    def outside(self) -> Listener: ...
    @property
    def grpc(self) -> GrpcConfig: ...
    @property
    def tls(self) -> NodeTlsConfig: ...


def _check(outside: Listener) -> None:
    if outside.listen:
        require_dialled_address("outside.listen", outside.listen)


def require_outside_that_works(config: OutsideSections) -> None:
    """For `__post_init__`: the sections agree about the outside listener.

    Raises:
        InvalidArgument: they do not.
    """
    require(
        not config.outside.listen or config.grpc.engine is Engine.OWN,
        "outside.listen needs grpc.engine own: the other one does not know where calls come from",
        config.grpc.engine.value,
    )


def outside_risks(config: OutsideSections) -> Iterator[Risk]:
    """Risks of the outside listener."""
    listen = config.outside.listen
    if not listen or is_loopback(listen):
        return
    danger = "anyone on the network's path can read and change messages"
    if config.outside.tls.certificate:
        return
    if not config.tls.is_on:
        yield Risk(
            ("outside.listen", "outside.tls.certificate"),
            f"clients outside connect to {listen} without TLS: {danger}; set "
            "outside.tls.certificate and outside.tls.key",
        )
    elif config.tls.plain_text is not PlainText.REFUSED:
        yield Risk(
            ("outside.listen", "tls.plain_text"),
            f"clients outside may connect to {listen} without TLS, because tls.plain_text is "
            f"{config.tls.plain_text}: {danger}; set outside.tls.certificate, or tls.plain_text to "
            "refused",
        )
