"""How large the files of a local cluster's stores are, and how a folder keeps the sizes it has.

A new store gets small files: three messages do not need a gigabyte. A store that exists goes on
with the sizes it was written with, for a broker refuses others: they are in `store-sizes.json`.
Where that says nothing (older versions wrote none) the files themselves tell, and for the rest a
broker's own defaults count, with which those versions wrote. Replicas of a group are alike.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from aerobee.cli.failures import USAGE, EnvironmentFailure, Failure
from aerobee.cli.local_cluster.folder import write_document
from aerobee.cli.local_cluster.plan import ClusterPlan, Replica

Sizes = Mapping[str, int]
"""Broker configuration keys, and their values."""

MIB: Final = 1024 * 1024
SEGMENT_BYTES: Final = "store.segment_bytes"
QUEUE_ENTRIES: Final = "store.consume_queue_entries_per_file"
INDEX_SLOTS: Final = "store.index_slots_max"
INDEX_ENTRIES: Final = "store.index_entries_max"
SIZE_KEYS: Final = (SEGMENT_BYTES, QUEUE_ENTRIES, INDEX_SLOTS, INDEX_ENTRIES)

# Apache's ratio of slots to keys. A file of the index has room for the keys of about a segment.
SMALL: Final[Sizes] = {SEGMENT_BYTES: 64 * MIB, INDEX_SLOTS: 250_000, INDEX_ENTRIES: 1_000_000}
SMALLEST: Final[Sizes] = {SEGMENT_BYTES: 16 * MIB, INDEX_SLOTS: 62_500, INDEX_ENTRIES: 250_000}
PRODUCTION_SEGMENT_BYTES: Final = 1024 * MIB

FILE_NAME: Final = "store-sizes.json"


def sizes_of(plan: ClusterPlan, new: Sizes, given: Mapping[str, str]) -> dict[Replica, Sizes]:
    """What each broker of `plan` is to be started with, besides `given`, the user's own settings.

    Args:
        new: for stores that do not exist yet.

    Raises:
        Failure: `given` contradicts a store that exists.
        EnvironmentFailure: the folder's own note cannot be read.
    """
    noted = _read_note(plan.data)
    chosen: dict[Replica, Sizes] = {}
    for replicas in plan.groups.values():
        known = {
            replica: noted.get(replica.name) or recognised_sizes(plan.broker_folder(replica))
            for replica in replicas
            if _log_files(plan.broker_folder(replica))
        }
        for replica in replicas:
            # A replica that is added to a group gets the sizes of the others.
            sizes = known.get(replica, next(iter(known.values()), None))
            if sizes is not None:
                _check_given(plan, replica, sizes, given)
            chosen[replica] = {
                key: value
                for key, value in (new if sizes is None else sizes).items()
                if key not in given
            }
    return chosen


def note_sizes(plan: ClusterPlan, given: Mapping[str, str]) -> None:
    """Note what the brokers run with, once they do: what they refused is not worth remembering.

    Raises EnvironmentFailure when the folder cannot be written.
    """
    path = plan.data / FILE_NAME
    document = _read_note(plan.data)
    for replica in plan.brokers:
        own = {key: _number(given.get(key, "")) for key in SIZE_KEYS}
        document[replica.name] = {
            **plan.broker_sizes.get(replica, {}),
            **{key: value for key, value in own.items() if value is not None},
        }
    write_document(path, document, advice="free space or change its permissions")


def recognised_sizes(store: Path) -> Sizes:
    """The sizes that the files of a store have; no others than those that are sure.

    The length of a log's only file is not believed unless it is a usual one: the file may have been
    cut off, and the broker is to notice that.
    """
    from aerobee.cli.store.folder import index_geometry_on_disk
    from aerobee.store.engine.disk import RealDisk
    from aerobee.store.repair.folder import measured_sizes

    disk = RealDisk(store)
    measured = measured_sizes(disk)
    sizes: dict[str, int] = {}
    usual = {PRODUCTION_SEGMENT_BYTES, SMALL[SEGMENT_BYTES], SMALLEST[SEGMENT_BYTES]}
    segment_bytes = measured.get("segment_bytes")
    if segment_bytes is not None and (segment_bytes in usual or len(_log_files(store)) > 1):
        sizes[SEGMENT_BYTES] = segment_bytes
    if "consume_queue_entries_per_file" in measured:
        sizes[QUEUE_ENTRIES] = measured["consume_queue_entries_per_file"]
    geometry = index_geometry_on_disk(disk)
    if geometry is not None:
        sizes |= {INDEX_SLOTS: geometry.slots, INDEX_ENTRIES: geometry.entries}
    return sizes


def _check_given(
    plan: ClusterPlan, replica: Replica, sizes: Sizes, given: Mapping[str, str]
) -> None:
    for key, value in sizes.items():
        wanted = _number(given.get(key, ""))
        if wanted not in (None, value):
            raise Failure(
                f"--broker-set {key}={given[key]} contradicts the data folder {plan.data}: "
                f"{replica.broker_name} was written with {value}; leave the option out, or choose "
                "another --data",
                exit_code=USAGE,
            )


def _number(text: str) -> int | None:
    """None for what the broker will refuse, in its own words."""
    try:
        return int(text)
    except ValueError:
        return None


def _log_files(store: Path) -> Sequence[Path]:
    try:
        return [path for path in (store / "commitlog").iterdir() if path.name.isdecimal()]
    except OSError:
        return []


def _read_note(data: Path) -> dict[str, dict[str, int]]:
    path = data / FILE_NAME
    try:
        document = json.loads(path.read_text("utf-8"))
        return {
            name: {key: int(value) for key, value in sizes.items() if key in SIZE_KEYS}
            for name, sizes in document.items()
        }
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise EnvironmentFailure(
            f"cannot read {path}: {error.strerror}; change its permissions"
        ) from error
    except (ValueError, TypeError, AttributeError):
        raise EnvironmentFailure(
            f"{path} is damaged: remove it to have the sizes taken from the stores' files"
        ) from None
