"""How many cores a process may use is what it may run on, or less if its cgroup has a quota."""

from __future__ import annotations

from pathlib import Path

import pytest

from aerobee.runtime.machine import usable_cores


def found(root: Path, groups: str, files: dict[str, str]) -> float:
    """Of a process with that /proc/self/cgroup on a machine of eight cores."""
    (root / "proc" / "self").mkdir(parents=True)
    (root / "proc" / "self" / "cgroup").write_text(groups)
    for name, text in files.items():
        file = root / "sys" / "fs" / "cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return usable_cores(root, 8)


@pytest.mark.parametrize(
    ("groups", "files", "cores"),
    [
        ("0::/\n", {"cpu.max": "150000 100000\n"}, 1.5),
        ("0::/\n", {"cpu.max": "max 100000\n"}, 8),
        ("0::/\n", {"cpu.max": "1600000 100000\n"}, 8),
        ("0::/a/b\n", {"a/cpu.max": "200000 100000\n", "a/b/cpu.max": "300000 100000\n"}, 2),
        ("0::/\n", {"cpu.max": "what\n"}, 8),
        ("0::/\n", {}, 8),
        (
            "4:cpu,cpuacct:/\n",
            {"cpu/cpu.cfs_quota_us": "50000\n", "cpu/cpu.cfs_period_us": "100000\n"},
            0.5,
        ),
        (
            "4:cpu,cpuacct:/\n",
            {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"},
            8,
        ),
        ("4:cpu,cpuacct:/\n", {"cpu/cpu.cfs_quota_us": "50000\n"}, 8),
    ],
)
def test_the_lowest_quota_applies(
    tmp_path: Path, groups: str, files: dict[str, str], cores: float
) -> None:
    assert found(tmp_path, groups, files) == cores


def test_of_this_process_it_is_something_that_it_has() -> None:
    assert usable_cores() > 0
