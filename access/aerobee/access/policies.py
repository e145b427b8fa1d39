"""One policy: whether a user may do some things with some resources."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from enum import StrEnum

from aerobee.access.resources import (
    Action,
    Kind,
    Need,
    Pattern,
    actions_text,
    parse_actions,
)
from aerobee.runtime.errors import InvalidArgument

SOURCES_MAX = 64

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Decision(StrEnum):
    ALLOW = "Allow"
    DENY = "Deny"


@dataclass(frozen=True, slots=True)
class Policy:
    """A rule for one user. There is at most one for each user, pattern and `is_default`."""

    user: str
    pattern: Pattern
    actions: Action
    decision: Decision
    sources: tuple[Network, ...] = ()
    """Where the call must come from; empty: anywhere."""
    is_default: bool = False
    """Applies only to what no other policy of the user matches."""

    def __str__(self) -> str:
        sources = f" from {','.join(map(str, self.sources))}" if self.sources else ""
        default = " by default" if self.is_default else ""
        actions = actions_text(self.actions)
        return f"{self.decision} {actions} on {self.pattern} to {self.user}{sources}{default}"

    @classmethod
    def parse(
        cls,
        user: str,
        resource: str,
        actions: str,
        decision: str,
        *,
        sources: tuple[str, ...] = (),
        is_default: bool = False,
    ) -> Policy:
        """Parse what a person typed. Raises InvalidArgument."""
        if decision.capitalize() not in tuple(Decision):
            raise InvalidArgument(f"{decision!r} is not a decision; choose Allow or Deny")
        if len(sources) > SOURCES_MAX:
            raise InvalidArgument(f"a policy has at most {SOURCES_MAX} source addresses")
        return cls(
            user,
            Pattern.parse(resource),
            parse_actions(actions),
            Decision(decision.capitalize()),
            tuple(_network(source) for source in sources),
            is_default,
        )

    def matches(self, kind: Kind, name: str, action: Action, source: str) -> bool:
        """`source` is an IP address; anything else matches no network."""
        return (
            action in self.actions
            and self.pattern.matches(kind, name)
            and (not self.sources or self._comes_from(source))
        )

    def _comes_from(self, source: str) -> bool:
        try:
            address = ipaddress.ip_address(source)
        except ValueError:
            # An unreadable address must not slip past a rule that denies.
            return self.decision is Decision.DENY
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return any(address in network for network in self.sources)


def _network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text.strip(), strict=False)
    except ValueError:
        raise InvalidArgument(
            f"{text!r} is not a source address; write 10.1.2.3 or 10.1.0.0/16"
        ) from None


@dataclass(frozen=True, slots=True)
class Ruling:
    """What was decided about one need, and by which rule."""

    need: Need
    is_allowed: bool
    rule: Policy | None = None
    """None: no policy matches, or none is needed, as for super users."""
    why: str = ""
    """The reason, if no policy decided."""

    @property
    def is_denied(self) -> bool:
        """A policy says no; otherwise it may be that none says anything."""
        return not self.is_allowed and self.rule is not None

    def __str__(self) -> str:
        word = "allowed" if self.is_allowed else "denied"
        return f"{self.need} is {word}: {self.why or self.rule}"
