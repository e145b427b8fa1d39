"""What clients may not write into a record, although the format has it.

Replicas, the broker's own journal and imported stores may contain such records; a client's are
refused before they are stored, since no queue would ever show them, or not as intended.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NoReturn

import numpy as np

from aerobee.store.format.batch import BatchFault, BatchIllegal
from aerobee.store.format.checked_batch import CheckedBatch
from aerobee.store.format.properties import NAME_END, VALUE_END, PropertyIllegal
from aerobee.store.format.record_layout import (
    SYSFLAG_INNER_BATCH,
    SYSFLAG_NEED_UNWRAP,
    SYSFLAG_TRANSACTION_MASK,
)
from aerobee.store.format.reserved_properties import check_property, may_be_illegal

_INNER: Final = SYSFLAG_NEED_UNWRAP | SYSFLAG_INNER_BATCH
_REFUSED_FLAGS: Final = SYSFLAG_TRANSACTION_MASK | _INNER


def check_client_records(batch: CheckedBatch) -> None:
    """Raises BatchIllegal for the first record that a client may not send."""
    if batch.has_flags(_REFUSED_FLAGS):
        _refuse_flags(batch)
    if may_be_illegal(batch.properties.joined):
        _check_each(batch.properties)


def _check_each(properties: Sequence[bytes]) -> None:
    for index, data in enumerate(properties):
        for segment in data.split(VALUE_END):
            name, _, value = segment.partition(NAME_END)
            try:
                check_property(name.decode("utf-8", "replace"), value.decode("utf-8", "replace"))
            except PropertyIllegal as error:
                raise BatchIllegal(BatchFault.RESERVED, index, str(error)) from None


def _refuse_flags(batch: CheckedBatch) -> NoReturn:
    index = int(np.flatnonzero(batch.sys_flags & _REFUSED_FLAGS)[0])
    sys_flag = int(batch.sys_flags[index])
    if sys_flag & _INNER:
        raise BatchIllegal(
            BatchFault.INNER_BATCH,
            index,
            f"its system flag {sys_flag:#x} says that it holds several messages, which this broker "
            "does not unwrap; send each as a record of its own",
        )
    raise BatchIllegal(
        BatchFault.TRANSACTION,
        index,
        f"its system flag {sys_flag:#x} is that of a stored record of a transaction; send it "
        "without that flag, in a batch of half messages if it begins a transaction",
    )
