"""The state of every group on every queue, as a run keeps it for those that follow."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from aerobee.offset_audit.checks.check import Limits
from aerobee.offset_audit.checks.progress.judged import judged
from aerobee.offset_audit.tables import STATES, Tables, schema


def progress(tables: Tables, limits: Limits) -> DataFrame:
    """Rows of STATES; `run_id` and `run_at_ms` are null and the run fills them.

    The system's own groups have none. A queue on which a group's members wait for messages without
    a commit has a row with a null offset: the next run sees for how long that has been so.
    """
    rows = judged(tables, limits).filter("not is_system")
    given = {"run_id": F.lit(None), "run_at_ms": F.lit(None)}
    return rows.select(
        *(
            given.get(field.name, F.col(field.name)).cast(field.dataType).alias(field.name)
            for field in schema(STATES).fields
        )
    )
