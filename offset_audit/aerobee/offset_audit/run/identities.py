"""Which report counts if a broker answered and its files are read too: for progress, the broker's.

What its files say about topics and queues is kept separately, for the checks that compare files
with each other. No two stores of one run belong to the same replica: their rows could not be told
apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce

from aerobee.offset_audit.frames import functions as F
from aerobee.offset_audit.frames.frame import Frame
from aerobee.offset_audit.frames.functions import Column
from aerobee.runtime.errors import InvalidArgument

Identity = tuple[str | None, str | None, int | None]
"""Cluster, name and id of a broker."""

_ORIGIN = ("cluster", "broker_name", "broker_id")

OF_PROGRESS = ("topics", "queues", "commits")
"""Tables in which one report per replica counts, in addition to the journal."""


def heard_stores(brokers: Frame, stores: Frame) -> list[Identity]:
    """The replicas of `stores` that are among the `brokers` that answered.

    Raises:
        InvalidArgument: two stores are of one replica.
    """
    of_stores = _identities(stores)
    for one in of_stores:
        if of_stores.count(one) > 1:
            raise InvalidArgument(
                f"two stores are of broker {one[1]}:{one[2]}: give one of them another name with "
                "DIR=NAME:ID, or audit them one after the other"
            )
    spoke = set(_identities(brokers.where("answered and role <> 'STORE'")))
    return [one for one in of_stores if one in spoke]


def unheard(rows: Frame, heard: Iterable[Identity]) -> Frame:
    """`rows` without those of these replicas."""
    for identity in heard:
        same = (
            F.col(name).eqNullSafe(F.lit(value))
            for name, value in zip(_ORIGIN, identity, strict=True)
        )
        rows = rows.where(~reduce(Column.__and__, same))
    return rows


def until_answered(epochs: Frame, brokers: Frame) -> Frame:
    """`epochs` of files without those that began after their broker answered: the registry was
    asked before."""
    told = brokers.where("answered and role <> 'STORE'").groupBy(*_ORIGIN).agg("max(epoch) told")
    return (
        epochs.join(F.broadcast(told), list(_ORIGIN), "left")
        .where("coalesce(epoch <= told, true)")
        .drop("told")
    )


def _identities(brokers: Frame) -> list[Identity]:
    rows = brokers.select(*_ORIGIN).collect()
    return [(row["cluster"], row["broker_name"], row["broker_id"]) for row in rows]
