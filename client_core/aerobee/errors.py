"""Every error that Aerobee's clients raise on purpose; see `AerobeeError`.

Those that belong to one client are imported on first use, so that catching an error loads no
client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aerobee.runtime.errors import *  # noqa: F403
from aerobee.runtime.lazy_names import load_name

if TYPE_CHECKING:
    from aerobee.client_core.schemas import SchemaIncompatible as SchemaIncompatible
    from aerobee.client_core.transactions import TransactionEnded as TransactionEnded
    from aerobee.cluster_view.own_process import UsedAfterFork as UsedAfterFork
    from aerobee.producer_client.receipt import PartlySent as PartlySent
    from aerobee.producer_client.transactions import (
        TransactionUnanswered as TransactionUnanswered,
    )

_MODULES = {
    "PartlySent": "aerobee.producer_client.receipt",
    "SchemaIncompatible": "aerobee.client_core.schemas",
    "TransactionEnded": "aerobee.client_core.transactions",
    "TransactionUnanswered": "aerobee.producer_client.transactions",
    "UsedAfterFork": "aerobee.cluster_view.own_process",
}


if not TYPE_CHECKING:  # Else every name would be right.

    def __getattr__(name: str) -> object:
        return load_name(globals(), _MODULES, name)


def __dir__() -> list[str]:
    kinds = (name for name, kind in globals().items() if isinstance(kind, type))
    return sorted({*kinds, *_MODULES})
