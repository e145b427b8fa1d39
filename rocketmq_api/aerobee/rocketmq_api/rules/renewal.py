"""Messages that stay invisible while their client works on them: the rules of `auto_renew`.

A push consumer does not say how long it needs. Apache's server renews each of its messages again
and again. Here the message belongs to the client, and is invisible for as long as the client is
heard from: nothing has to be renewed or stored, and the first handle stays valid.
"""

from __future__ import annotations

from dataclasses import dataclass

_MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class RenewalRules:
    """When a client's message becomes visible again by itself."""

    silence_ms_max: int = 60_000
    """A client that is silent for this long is gone; also the minimum time that a message stays
    invisible. The slowest clients are heard from every 30 s."""
    held_ms_max: int = 180 * _MINUTE_MS
    """Beyond this the client lives, but its listener hangs."""
    released_ms: int = 1_000
    """After a client has terminated, or its connection broke: time for answers in flight."""


@dataclass(frozen=True, slots=True)
class Holder:
    """What is known about the client that has a message. Unix ms."""

    heard_ms: int
    """Its last call, or the start of this broker's run, since calls before that are unknown."""
    gone_ms: int | None = None
    """When it terminated, or when its command stream ended without a replacement."""


def visible_ms(taken_ms: int, holder: Holder | None, rules: RenewalRules) -> int:
    """When a message taken at `taken_ms` is redelivered, as far as is known now.

    Moves later when the client is heard from again, and earlier only if it leaves. `holder` None:
    the client is not known any more.
    """
    if holder is None:
        return taken_ms + rules.released_ms
    held_until_ms = taken_ms + rules.held_ms_max
    if holder.gone_ms is not None and holder.gone_ms >= taken_ms:
        return min(held_until_ms, holder.gone_ms + rules.released_ms)
    heard_ms = max(holder.heard_ms, taken_ms)
    return min(held_until_ms, heard_ms + rules.silence_ms_max)
