"""The data folder of a local cluster."""

from __future__ import annotations

import os
from pathlib import Path

from aerobee.cli.local_cluster.child import opened_log
from aerobee.cli.local_cluster.folder import locked_folder


def test_data_and_logs_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    data = tmp_path / "far" / "data"
    before = os.umask(0)
    try:
        with locked_folder(data), opened_log(data / "logs" / "a.log"):
            made = [data.parent, data, *data.rglob("*")]
    finally:
        os.umask(before)
    assert data / "logs" / "a.log" in made
    assert [path for path in made if path.stat().st_mode & 0o077] == []
