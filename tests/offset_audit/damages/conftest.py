"""One deep audit for all tests of stores at rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.offset_audit.damages.stores_at_rest import Audited


@pytest.fixture(scope="session")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Audited:
    from aerobee.offset_audit.run.local_run import LocalRun
    from tests.offset_audit.damages.stores_at_rest import audited_stores

    return audited_stores(LocalRun(), tmp_path_factory.mktemp("at-rest"))
