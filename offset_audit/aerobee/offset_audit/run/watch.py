"""Repeats the audit over one session: a stream whose batches are the moments to run.

Structured streaming gives the rhythm: a run that takes longer than the interval is followed by the
next at once, and never by two. A run that fails is reported and does not end the watch.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from aerobee.offset_audit.outputs.summary import Summary
from aerobee.offset_audit.run.pipeline import run_audit
from aerobee.offset_audit.run.progress import Progress
from aerobee.offset_audit.run.request import DEFAULT_WATCH_S, AuditRequest
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import AerobeeError

POLL_S = 0.5
"""How soon Ctrl-C is noticed."""

Seen = Callable[[Summary | None, str], None]
"""Called for each run: what was found, or why it failed."""


def watch(
    session: SparkSession,
    request: AuditRequest,
    seen: Seen,
    *,
    clock: Clock,
    chance: random.Random,
    progress: Progress,
    looks_max: int | None = None,
) -> Summary | None:
    """Run until interrupted, or `looks_max` times. Returns the last summary.

    Raises:
        KeyboardInterrupt: Ctrl-C; the stream has stopped.
        SparkFailed: the stream itself broke down.
    """
    last: list[Summary] = []
    looks = 0

    def look(_: DataFrame, __: int) -> None:
        nonlocal looks
        if looks_max is not None and looks >= looks_max:
            return
        try:
            found = run_audit(session, request, clock=clock, chance=chance, progress=progress)
        except (AerobeeError, OSError) as error:
            seen(None, str(error))
        else:
            last[:] = [found]
            seen(found, "")
        looks += 1

    interval_s = request.watch_s or DEFAULT_WATCH_S
    with tempfile.TemporaryDirectory(prefix="aerobee-watch-") as checkpoint:
        query = (
            session.readStream.format("rate")
            .option("rowsPerSecond", 1)
            .load()
            .writeStream.foreachBatch(look)
            .trigger(processingTime=f"{interval_s} seconds")
            .option("checkpointLocation", checkpoint)
            .start()
        )
        try:
            while query.isActive and (looks_max is None or looks < looks_max):
                query.awaitTermination(POLL_S)  # type: ignore[arg-type]
        finally:
            _stop(query)
    return last[0] if last else None


def _stop(query: object) -> None:
    stop: Callable[[], None] = query.stop  # type: ignore[attr-defined]
    try:
        stop()
    except PySparkException:
        # It ended by itself; `awaitTermination` has reported its reason.
        return
