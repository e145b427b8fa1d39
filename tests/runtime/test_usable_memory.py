"""Memory budgets follow the limit that the kernel holds this process to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from aerobee.runtime.machine import UsableMemory, usable_memory

GIB = 1 << 30
MACHINE_BYTES = 64 * GIB


def found(root: Path, groups: str, **limits: str) -> UsableMemory:
    """Of a process with that /proc/self/cgroup; the limits by their files, `__` for `/`."""
    (root / "proc" / "self").mkdir(parents=True)
    (root / "proc" / "self" / "cgroup").write_text(groups)
    for name, text in limits.items():
        file = root / "sys" / "fs" / "cgroup" / name.replace("__", "/").replace("_DOT_", ".")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return usable_memory(root, MACHINE_BYTES)


def test_a_container_of_version_2_sees_its_limit_at_the_root(tmp_path: Path) -> None:
    memory = found(tmp_path, "0::/\n", memory_DOT_max=f"{2 * GIB}\n")
    assert memory == UsableMemory(2 * GIB, "/sys/fs/cgroup/memory.max")


def test_a_service_has_the_lowest_limit_of_its_group_and_those_above(tmp_path: Path) -> None:
    memory = found(
        tmp_path,
        "0::/system.slice/aerobee-broker.service\n",
        system_DOT_slice__memory_DOT_max=f"{3 * GIB}\n",
        **{"system_DOT_slice__aerobee-broker.service__memory_DOT_max": f"{4 * GIB}\n"},
    )
    assert memory == UsableMemory(3 * GIB, "/sys/fs/cgroup/system.slice/memory.max")


@pytest.mark.parametrize(
    "place",
    ["memory__kubepods__pod7__memory_DOT_limit_in_bytes", "memory__memory_DOT_limit_in_bytes"],
)
def test_a_container_of_version_1_has_its_limit_by_its_path_or_at_the_root(
    tmp_path: Path, place: str
) -> None:
    groups = "5:devices:/kubepods/pod7\n4:cpu,memory:/kubepods/pod7\n0::/\n"
    assert found(tmp_path, groups, **{place: f"{GIB}\n"}).bytes == GIB


@pytest.mark.parametrize(
    ("groups", "limits"),
    [
        ("0::/\n", {}),
        ("0::/\n", {"memory_DOT_max": "max\n"}),
        ("0::/\n", {"memory_DOT_max": "0\n"}),
        ("0::/\n", {"memory_DOT_max": "what\n"}),
        ("0::/../other\n", {"other__memory_DOT_max": f"{GIB}\n"}),
        ("4:memory:/\n", {"memory__memory_DOT_limit_in_bytes": "9223372036854771712\n"}),
        ("4:cpu:/\n", {"cpu__memory_DOT_limit_in_bytes": f"{GIB}\n"}),
        ("", {}),
    ],
)
def test_without_a_limit_it_is_the_machines(
    tmp_path: Path, groups: str, limits: dict[str, str]
) -> None:
    assert found(tmp_path, groups, **limits) == UsableMemory(MACHINE_BYTES, "the machine")


def test_where_there_are_no_groups_it_is_the_machines(tmp_path: Path) -> None:
    assert usable_memory(tmp_path, MACHINE_BYTES).source == "the machine"


def test_of_this_process_it_is_something_that_it_has() -> None:
    machine_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 0 < usable_memory().bytes <= machine_bytes
