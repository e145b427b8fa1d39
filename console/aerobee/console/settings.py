"""How a console is reached, and what its visitors may do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

PORT: Final = 8088
LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSettings:
    """Of one console."""

    host: str = "127.0.0.1"
    """The address to listen on."""
    port: int = PORT
    names: tuple[str, ...] = ()
    """Names by which browsers may reach it, besides its address and those of this machine. A
    request for another name is refused: a foreign page could have made the name point here."""
    allow_changes: bool = False
    """Whether visitors may change something in a cluster without access control. With access
    control, the policies of the user decide."""
    show_bodies: bool = True
    """Whether pages show the bodies of messages."""
    audit_results: str = ""
    """The folder that `aerobee audit --out` names; empty: no page shows the last audit."""
    certificate: str = ""
    """PEM file for https."""
    key: str = ""
    """PEM file of its private key."""
    behind_tls: bool = False
    """A proxy speaks https to browsers."""

    @property
    def is_https(self) -> bool:
        """For browsers."""
        return bool(self.certificate) or self.behind_tls

    @property
    def is_on_loopback(self) -> bool:
        return self.host in LOOPBACK

    @property
    def known_hosts(self) -> frozenset[str]:
        """What a request's Host may be, without a port."""
        own = () if self.host in ("0.0.0.0", "::") else (self.host,)
        return frozenset(each.lower() for each in (*LOOPBACK, *own, *self.names))
