"""What a node writes on its stream of rings to a broker, and reads from it."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Final

from aerobee.v1 import broker_pb2

WISHES_PER_FRAME_MAX: Final = 1_000

Wish = broker_pb2.RingWish
Wishes = broker_pb2.RingWishes
Rung = broker_pb2.Rung


class Kind(IntEnum):
    """See broker.proto."""

    RING = broker_pb2.RingWish.RING_UNSPECIFIED
    PASS_ON = broker_pb2.RingWish.PASS_ON
    END = broker_pb2.RingWish.END


def wish_of(number: int, kind: Kind, topic: str, group: str) -> Wish:
    if kind is Kind.RING:
        return Wish(id=number, topic=topic, group=group)
    return Wish(id=number, kind=kind.value)  # type: ignore[arg-type]  # the stubs have no int


def frame_of(wishes: Iterable[Wish]) -> Wishes:
    """At most WISHES_PER_FRAME_MAX of them."""
    return Wishes(wishes=wishes)
