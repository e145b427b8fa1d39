"""What a refusal of a whole stream applies to: access control ends a stream, not a batch."""

from __future__ import annotations

from collections.abc import Sequence

from aerobee.producer_client.accumulator import Batch
from aerobee.runtime import errors


def denied(batches: Sequence[Batch], error: errors.AerobeeError) -> list[Batch]:
    """Those of the topic that a refusal names, or all if it names none of their topics; none if the
    error is not a refusal.

    >>> denied((), errors.AccessDenied("user shop may not", resource="Topic:a"))
    []
    """
    if not isinstance(error, errors.AccessDenied | errors.Unauthenticated):
        return []
    named = error.resource if isinstance(error, errors.AccessDenied) else ""
    of_topic = [batch for batch in batches if named == f"Topic:{batch.queue.topic}"]
    return of_topic or list(batches)
