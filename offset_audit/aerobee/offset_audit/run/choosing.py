"""Which engine a run gets: this process for what is small, Spark for what is large or elsewhere.

Imports neither pyspark nor pyarrow.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from glob import glob
from pathlib import Path
from typing import Final

from aerobee.offset_audit.run.request import AuditRequest

LOCAL, SPARK = "local", "spark"
ROWS_MAX: Final = 300_000
"""Of one source. This process judges them in about the time that Spark needs to start."""
DEEP_BYTES_MAX: Final = 1 << 30
"""Of the stores whose every byte is read."""
ONLY_HERE: Final = (
    "--watch --deep works without Spark: leave out --master, --spark, --engine spark and paths "
    "with a scheme, or run --deep without --watch"
)


def chosen_engine(request: AuditRequest) -> str:
    """LOCAL, unless the request names Spark, or means another file system or very large stores."""
    if request.engine is not None:
        return request.engine
    paths = [place.path for place in request.stores]
    written = [one for one in (request.history, request.out, request.report) if one is not None]
    if request.master is not None or request.spark_settings:
        return SPARK
    if any("://" in path for path in (*paths, *written)):
        return SPARK
    is_once = request.is_deep and request.watch_s is None
    return SPARK if is_once and _bytes_of(paths) > DEEP_BYTES_MAX else LOCAL


def rows_max(request: AuditRequest) -> int | None:
    """How many rows of a source this process should hold; None: it was asked to do it anyway, or
    only it can."""
    return None if request.engine == LOCAL or keeps_parts(request) else ROWS_MAX


def keeps_parts(request: AuditRequest) -> bool:
    """Whether runs reuse what earlier ones have read of stores; Spark reads everything again."""
    return request.is_deep and request.watch_s is not None


def _bytes_of(patterns: Iterable[str]) -> int:
    """What the files occupy: a segment that is not full yet is mostly a hole."""
    found = 0
    for pattern in patterns:
        for root in glob(pattern):
            for folder, _, names in os.walk(root):
                found += sum(_occupied(Path(folder, name)) for name in names)
    return found


def _occupied(path: Path) -> int:
    try:
        return path.stat().st_blocks * 512
    except OSError:
        return 0
