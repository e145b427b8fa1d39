"""What an operator can set about TLS at a node, and a program about a client's."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from aerobee.rpc.core.tls import ClientAuth, TlsFiles
from aerobee.rpc.grpc_config import Engine, GrpcConfig
from aerobee.runtime.config import require

if TYPE_CHECKING:  # Clients import this file, but have neither.
    from aerobee.runtime.health import HealthConfig
    from aerobee.runtime.metrics.config import MetricsConfig

TLS_VARIABLE: Final = "AEROBEE_TLS"
CA_VARIABLE: Final = "AEROBEE_TLS_CA"
CERTIFICATE_VARIABLE: Final = "AEROBEE_TLS_CERTIFICATE"
KEY_VARIABLE: Final = "AEROBEE_TLS_KEY"
_YES: Final = frozenset({"1", "true", "yes", "on"})
_NO: Final = frozenset({"0", "false", "no", "off"})


class PlainText(StrEnum):
    """What a node that has a certificate still does without TLS."""

    REFUSED = "refused"  # nothing
    ACCEPTED = "accepted"  # its ports serve both; it calls others over TLS
    SPOKEN = "spoken"  # its ports serve both; it calls others without TLS


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTlsConfig:
    """TLS 1.2 and 1.3, for everything that this node serves and for its calls to other nodes."""

    certificate: str = ""
    """PEM file with this node's certificate and those that signed it, except the authority's own.
    It names every host that clients and nodes connect to. All files are read again when they
    change; open connections stay.

    Unit: path; empty: no TLS
    Costs: a handshake for each connection, and CPU time for each byte ([measured](tls.md)).
    """
    key: str = ""
    """PEM file with the private key of `certificate`, without a password.

    Unit: path; empty: none
    Costs: a secret: only this process should be able to read it.
    """
    ca: str = ""
    """PEM file with the authorities whose certificates this node accepts from clients and nodes.

    Unit: path; empty: for nodes those of the system, for clients none
    Costs: everyone who holds a certificate of these authorities can act as a node.
    """
    client_auth: ClientAuth = ClientAuth.NONE
    """Whether clients, and nodes that call this node, are asked for a certificate.

    Costs: `required`: official Apache clients cannot present a certificate, so none can connect.
    """
    plain_text: PlainText = PlainText.REFUSED
    """What still works without TLS once there is a certificate. `accepted`: each port also serves
    plain text. `spoken`: in addition, this node calls others without TLS; this is the first step
    when a running cluster changes to TLS.

    Costs: both: anyone on the network path can read and change what is sent without TLS.
    """

    def __post_init__(self) -> None:
        require(
            bool(self.certificate) == bool(self.key),
            "tls.certificate and tls.key belong together: give both or neither",
            self.certificate or self.key,
        )
        require(
            not self.ca or bool(self.certificate),
            "tls.ca needs tls.certificate: without it there is no TLS",
            self.ca,
        )
        require(
            self.client_auth is ClientAuth.NONE or bool(self.ca),
            "tls.client_auth needs tls.ca, the authorities of clients' certificates",
            self.client_auth.value,
        )

    @property
    def is_on(self) -> bool:
        return bool(self.certificate)

    @property
    def tells_callers(self) -> bool:
        """Whether nodes show their certificates to each other."""
        return self.client_auth is not ClientAuth.NONE and self.plain_text is not PlainText.SPOKEN

    def files(self) -> TlsFiles:
        return files_of(self.certificate, self.key, self.ca)


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsConfig:
    """A client's TLS: paths of PEM files, read again when they change.

    Args:
        ca: the authorities that sign the certificates of nodes; if not given, the system's.
        certificate: this client's own, for a cluster that asks for one.
        key: the private key of `certificate`, without a password.
    """

    ca: str | Path = ""
    certificate: str | Path = ""
    key: str | Path = ""

    def __post_init__(self) -> None:
        require(
            bool(str(self.certificate)) == bool(str(self.key)),
            "a client's TLS certificate and key belong together: give both or neither",
            str(self.certificate or self.key),
        )

    def files(self) -> TlsFiles:
        return files_of(self.certificate, self.key, self.ca)


class TlsSections(Protocol):
    """The settings of any node that concern TLS."""

    @property
    def tls(self) -> NodeTlsConfig: ...
    @property
    def grpc(self) -> GrpcConfig: ...
    @property
    def health(self) -> HealthConfig: ...
    @property
    def metrics(self) -> MetricsConfig: ...


def require_tls_that_works(config: TlsSections) -> None:
    """For `__post_init__`: the sections agree about TLS.

    Raises:
        InvalidArgument: they do not.
    """
    for name, wants in (("health.tls", config.health.tls), ("metrics.tls", config.metrics.tls)):
        require(
            not wants or config.tls.is_on,
            f"{name} needs tls.certificate: without it there is no TLS",
            wants,
        )
    require(
        not config.tls.is_on or config.grpc.engine is Engine.OWN,
        "tls.certificate needs grpc.engine own: the other one is without TLS here",
        config.grpc.engine.value,
    )


def files_of(certificate: str | Path, key: str | Path, ca: str | Path) -> TlsFiles:
    return TlsFiles(certificate=_path(certificate), key=_path(key), authorities=_path(ca))


def _path(text: str | Path) -> Path | None:
    return Path(text).expanduser() if str(text) else None


def client_tls_config(
    tls: bool | TlsConfig | None, environment: Mapping[str, str] = os.environ
) -> TlsConfig | None:
    """What a client's argument `tls` means; None: no TLS. Without the argument, the environment
    decides: AEROBEE_TLS, or one of the variables that name files.

    Raises:
        InvalidArgument: AEROBEE_TLS is neither true nor false, or a file is set without one that it
        needs.
    """
    if isinstance(tls, TlsConfig):
        return tls
    if tls is False:
        return None
    word = environment.get(TLS_VARIABLE, "").casefold()
    require(not word or word in _YES | _NO, f"{TLS_VARIABLE} must be true or false", word)
    found = TlsConfig(
        ca=environment.get(CA_VARIABLE, ""),
        certificate=environment.get(CERTIFICATE_VARIABLE, ""),
        key=environment.get(KEY_VARIABLE, ""),
    )
    if tls or word in _YES or (not word and found != TlsConfig()):
        return found
    return None
