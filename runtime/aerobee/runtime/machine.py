"""What the machine lets this process have: memory, files and connections; and which boot it is."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from aerobee.runtime.errors import InvalidArgument

BOOT_ID_PATH: Final = Path("/proc/sys/kernel/random/boot_id")
CONNECTIONS_MIN: Final = 64
"""With fewer, a service is useless."""
_STATM: Final = Path("/proc/self/statm")
_UNLIMITED: Final = 1 << 20


def boot_id(path: Path = BOOT_ID_PATH) -> str:
    """Random for each boot of the kernel; empty if the kernel does not provide it. A process that
    finds another boot id than the one it recorded knows that anything that was only in the page
    cache may be gone."""
    try:
        return path.read_text("ascii").strip()
    except OSError:
        return ""


def raise_limit() -> None:
    """Raise the limit of open files as far as allowed; shells often start with less."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):  # a limit of the platform: it stays as it is
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def connections_max(own_files: int) -> int:
    """How many clients may be connected in addition to `own_files` files of the service itself.
    Both share one budget, and clients can use up only the rest: a store that cannot open a file has
    to stop.

    Raises:
        InvalidArgument: the limit leaves no room for clients.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = _UNLIMITED if soft == resource.RLIM_INFINITY else soft
    needed = own_files + CONNECTIONS_MIN
    if limit < needed:
        raise InvalidArgument(
            f"this process may open {limit} files and connections and needs at least {needed}: "
            "raise the limit of file descriptors (`ulimit -n`, LimitNOFILE of a systemd unit)"
        )
    return limit - own_files


@dataclass(frozen=True, slots=True)
class UsableMemory:
    """How much memory this process may use: its cgroup's limit, or else the machine's memory.

    Both versions of cgroups count, and so do the groups above this process's own: the lowest limit
    applies. A container that sees only its own part of the tree finds its limit at the root.
    """

    bytes: int
    source: str
    """Where the limit comes from: `the machine`, or the file that contains it."""


def usable_memory(root: Path = Path("/"), machine_bytes: int | None = None) -> UsableMemory:
    """The current limit; reads a few small files. `root` and `machine_bytes` are for tests.

    Files that are missing or invalid set no limit.
    """
    if machine_bytes is None:
        machine_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    found = [UsableMemory(machine_bytes, "the machine")]
    for file in _limit_files(root, "memory", "memory.max", "memory.limit_in_bytes"):
        limit_bytes = _number_in(file)
        if limit_bytes is not None:
            found.append(UsableMemory(limit_bytes, f"/{file.relative_to(root)}"))
    return min(found, key=lambda one: one.bytes)


def private_bytes() -> int:
    """What this process holds in memory apart from files that it maps; where the system does not
    tell, the most that it has ever held."""
    try:
        _, resident, shared, *_ = map(int, _STATM.read_text().split())
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    return (resident - shared) * os.sysconf("SC_PAGE_SIZE")


def usable_cores(root: Path = Path("/"), machine_cores: int | None = None) -> float:
    """How many cores this process may use at once: those it may run on, or its cgroup's quota of
    CPU time if that is less; 0.5 is half of one. `root` and `machine_cores` are for tests.

    Files that are missing or invalid set no limit.
    """
    if machine_cores is None:
        machine_cores = len(os.sched_getaffinity(0))
    found = [float(machine_cores)]
    for file in _limit_files(root, "cpu", "cpu.max", "cpu.cfs_quota_us"):
        if file.name == "cpu.max":
            quota, period = _quota_in(file)
        else:
            quota, period = _number_in(file), _number_in(file.with_name("cpu.cfs_period_us"))
        if quota is not None and period is not None:
            found.append(quota / period)
    return min(found)


def _limit_files(root: Path, v1_controller: str, v2_name: str, v1_name: str) -> Iterator[Path]:
    mounts = root / "sys" / "fs" / "cgroup"
    try:
        lines = (root / "proc" / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        # Hierarchy, controllers, path. A line without controllers is version 2.
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not controllers:
            yield from _upwards(mounts, path, v2_name)
            yield from _upwards(mounts / "unified", path, v2_name)
        elif v1_controller in controllers.split(","):
            yield from _upwards(mounts / v1_controller, path, v1_name)


def _upwards(mount: Path, path: str, name: str) -> Iterator[Path]:
    """The file of a group and of the groups above it."""
    group = PurePosixPath(path.lstrip("/"))
    for one in (group, *group.parents):
        if ".." not in one.parts:  # a group outside of what this process can see
            yield mount / one / name


def _number_in(file: Path) -> int | None:
    try:
        text = file.read_text().strip()
    except OSError:
        return None
    # Version 2 writes `max` for no limit, version 1 a number larger than any memory.
    return int(text) if text.isdecimal() and int(text) > 0 else None


def _quota_in(file: Path) -> tuple[int | None, int | None]:
    """The two numbers of version 2, of which the first is `max` for no limit."""
    try:
        quota, _, period = file.read_text().strip().partition(" ")
    except OSError:
        return None, None
    if not (quota.isdecimal() and period.isdecimal() and int(quota) and int(period)):
        return None, None
    return int(quota), int(period)
