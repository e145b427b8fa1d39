"""Messages that stay invisible while their client works on them: the rules of `auto_renew`.

A push consumer does not say how long it needs. Apache's server renews each of its messages again
and again. Here the message belongs to the client, and is invisible for as long as the client is
heard of: nothing has to be renewed or stored meanwhile, and the first handle stays good.
"""

from __future__ import annotations

from dataclasses import dataclass

_MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class RenewalRules:
    """When a message of a client is visible again without its doing."""

    silence_ms_max: int = 60_000
    """A client that is not heard of for so long is gone; the least time that one message stays
    invisible. The slowest clients are heard of every 30 s."""
    held_ms_max: int = 180 * _MINUTE_MS
    """The client lives, but its listener hangs."""
    released_ms: int = 1_000
    """After a client said that it goes, or its connection broke: time for answers on the way."""


@dataclass(frozen=True, slots=True)
class Holder:
    """What is known of the client that has a message. Unix ms."""

    heard_ms: int
    """Any call of it, or the begin of this broker's run, since nothing was heard before that."""
    gone_ms: int | None = None
    """When it said goodbye, or its command stream ended and none took its place."""


def visible_ms(taken_ms: int, holder: Holder | None, rules: RenewalRules) -> int:
    """When a message that was taken at `taken_ms` comes again, as far as is known now.

    Later when the client is heard of again, never earlier unless it goes. `holder` None: the client
    is not known any more.
    """
    if holder is None:
        return taken_ms + rules.released_ms
    held_until_ms = taken_ms + rules.held_ms_max
    if holder.gone_ms is not None and holder.gone_ms >= taken_ms:
        return min(held_until_ms, holder.gone_ms + rules.released_ms)
    heard_ms = max(holder.heard_ms, taken_ms)
    return min(held_until_ms, heard_ms + rules.silence_ms_max)
