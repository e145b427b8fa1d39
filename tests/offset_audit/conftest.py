"""One small Spark for all tests of this folder, and silence for what pyspark itself warns of."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aerobee.offset_audit.frames.frame import Engine
from aerobee.offset_audit.frames.local_frame import LocalEngine
from aerobee.offset_audit.run.exit_codes import NotReady
from aerobee.offset_audit.run.java import require_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]
TIMEOUT_S = 400
"""A session's start and its first plans take most of a minute on a machine that others use too."""
LARGE_SETTINGS = {
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.leafNodeDefaultParallelism": "2",
    "spark.sql.autoBroadcastJoinThreshold": "10MB",
    "spark.sql.optimizer.disableHints": "false",
}
"""What Spark does for tables of many rows: compiles, plans again half-way, and broadcasts."""
OF_PYSPARK = (
    "ignore::DeprecationWarning:pyspark",
    "ignore::FutureWarning:pyspark",
    "ignore::UserWarning:pyspark",
    # Its worker and callback sockets are closed by the collector, at moments of its choice.
    "ignore:unclosed <socket:ResourceWarning",
    "ignore:unclosed <socket:pytest.PytestUnraisableExceptionWarning",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if FOLDER in item.path.parents:
            for line in OF_PYSPARK:
                item.add_marker(pytest.mark.filterwarnings(line))
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(TIMEOUT_S))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session on two cores that knows all sources; its workers can import these tests. Its tables
    are small: outside audits, too, what Spark would compile would run once."""
    try:
        require_java()
    except NotReady as error:
        pytest.skip(str(error))
    from aerobee.offset_audit.run.session import TINY_SETTINGS, close_session, open_session

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
        folder = tmp_path_factory.mktemp("spark")
        session = open_session(
            "local[2]",
            settings={
                **TINY_SETTINGS,
                "spark.default.parallelism": "2",
                "spark.local.dir": str(folder),
                "spark.sql.warehouse.dir": str(folder / "warehouse"),
            },
            is_brief=True,
            java_log=folder / "java.log",
        )
        try:
            yield session
        finally:
            close_session(session)


@pytest.fixture(
    scope="session", params=["local", pytest.param("spark", marks=pytest.mark.thorough)]
)
def engine(request: pytest.FixtureRequest) -> Engine:
    """Each of the two, of which every rule must say the same."""
    if request.param == "local":
        return LocalEngine()
    from aerobee.offset_audit.frames.spark_frame import SparkEngine

    return SparkEngine(request.getfixturevalue("spark"))


@pytest.fixture
def spark_of_many_rows(spark: SparkSession) -> Iterator[SparkSession]:
    """The same session with the settings of large audits, for as long as the test lasts."""
    before = {key: str(spark.conf.get(key)) for key in LARGE_SETTINGS}
    for key, value in LARGE_SETTINGS.items():
        spark.conf.set(key, value)
    yield spark
    for key, value in before.items():
        spark.conf.set(key, value)
