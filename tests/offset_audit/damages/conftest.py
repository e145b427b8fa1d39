"""One deep audit for all tests of stores at rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.offset_audit.damages.stores_at_rest import Audited


@pytest.fixture(scope="session")
def audited(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Audited:
    from tests.offset_audit.damages.stores_at_rest import audited_stores

    return audited_stores(spark, tmp_path_factory.mktemp("at-rest"))
