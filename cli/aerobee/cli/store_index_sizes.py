"""How many slots and entries the index files of a folder have, found in a file that is in use."""

from __future__ import annotations

from aerobee.broker.store.disk import Disk
from aerobee.store_format.index_file import IndexGeometry
from aerobee.store_format.index_geometry import geometry_of

INDEX_DIRECTORY = "index"


def index_geometry_on_disk(disk: Disk) -> IndexGeometry | None:
    """Of the first file that tells; None without one."""
    for entry in disk.list(INDEX_DIRECTORY):
        if entry.is_directory:
            continue
        file = disk.open_file(f"{INDEX_DIRECTORY}/{entry.name}", read_only=True)
        geometry = geometry_of(
            lambda begin, end, file=file: file.read_at(begin, end - begin),  # type: ignore[misc]
            entry.size_bytes,
        )
        if geometry is not None:
            return geometry
    return None
