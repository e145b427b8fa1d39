"""What a run of containers leaves on this machine: nothing, but for what a person is to look at."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kubernetes.containers import NoContainers
from tests.kubernetes.pods.engine import FOLDERS, PREFIX, Engine, open_engine

pytestmark = [pytest.mark.slow, pytest.mark.kubernetes]


async def left_by_a_run(*, keeps_folder: bool) -> Engine:
    """An engine whose run is over."""
    try:
        async with open_engine() as engine:
            (engine.folder / "volume").mkdir()
            engine.keeps_folder = keeps_folder
    except NoContainers as error:
        pytest.skip(str(error))
    return engine


async def test_volumes_are_not_among_the_folders_that_pytest_clears(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    engine = await left_by_a_run(keeps_folder=False)
    assert not engine.folder.is_relative_to(tmp_path_factory.getbasetemp())
    assert not engine.folder.exists()


async def test_a_kept_folder_stays_until_the_next_run_after_its_process_has_ended() -> None:
    kept = (await left_by_a_run(keeps_folder=True)).folder
    process = subprocess.Popen([sys.executable, "-c", "pass"])
    process.wait()
    of_another = Path(FOLDERS, f"{PREFIX}-{process.pid}-abcd")
    (of_another / "volume").mkdir(parents=True)
    try:
        await left_by_a_run(keeps_folder=False)
        assert (kept / "volume").exists()
        assert not of_another.exists()
    finally:
        shutil.rmtree(kept)
