"""Tables shared by many questions, detached from how they were made.

Spark plans each question from its sources up, even if a table on the way is cached: with some
twenty checks over one wide table, planning would take longer than the work. Small tables become
part of the plan itself: a question about tables without rows, or for rows that do not exist, is
optimised away, and nothing runs for it.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame

from aerobee.offset_audit.run.engine import LOCAL_ROWS


def cut(frame: DataFrame) -> DataFrame:
    """The same rows as a source of their own, to be persisted by the caller.

    What shuffles the rows runs at once, the rest with the first question. Rows are not copied.
    """
    session: Any = frame.sparkSession
    java: Any = frame._jdf
    rows = java.queryExecution().toRdd()
    return DataFrame(
        session._jsparkSession.internalCreateDataFrame(rows, java.schema(), False), session
    )


def at_hand(frame: DataFrame, rows_max: int = LOCAL_ROWS) -> tuple[DataFrame, int] | None:
    """The same rows as part of every plan that uses them, and their number; None: there are more
    than `rows_max`.

    Runs at once. The rows stay in the driver's JVM; Python does not see them.
    """
    session: Any = frame.sparkSession
    java: Any = frame.limit(rows_max + 1)._jdf
    rows = java.collectAsList()
    if rows.size() > rows_max:
        return None
    return DataFrame(session._jsparkSession.createDataFrame(rows, java.schema()), session), (
        rows.size()
    )
