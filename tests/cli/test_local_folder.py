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


def test_what_an_earlier_cluster_left_open_is_closed_and_a_folder_of_others_is_not(
    tmp_path: Path,
) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "logs").mkdir(mode=0o755)
    (tmp_path / "work-of-others").mkdir(mode=0o755)
    with locked_folder(tmp_path):
        modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path, *tmp_path.iterdir())}
    assert modes[tmp_path.name] == modes["work-of-others"] == 0o755
    assert modes["logs"] == modes["brokers"] == 0o700
