"""What a refusal of a whole stream is about: access control ends a stream, not a batch."""

from __future__ import annotations

from collections.abc import Sequence

from aerobee.producer_client.accumulator import Batch
from aerobee.runtime import errors


def denied(batches: Sequence[Batch], error: errors.AerobeeError) -> list[Batch]:
    """Of the topic that a refusal names, or all if it names none of theirs; none if the error is no
    refusal.

    >>> denied((), errors.AccessDenied("user shop may not: this needs Pub on Topic:a; no policy"))
    []
    """
    if not isinstance(error, errors.AccessDenied | errors.Unauthenticated):
        return []
    named = [batch for batch in batches if f" on Topic:{batch.queue.topic};" in str(error)]
    return named or list(batches)
