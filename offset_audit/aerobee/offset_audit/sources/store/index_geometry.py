"""An index file for readers, and how many slots and entries a store's files have."""

from __future__ import annotations

from collections.abc import Sequence

from aerobee.offset_audit.sources.store.files import StoreFile
from aerobee.offset_audit.sources.store.open_file import OpenFile
from aerobee.store.format.index_file import HEADER_SIZE, IndexGeometry, IndexHeader
from aerobee.store.format.index_geometry import USUAL_GEOMETRY, geometry_of


class IndexFile:
    """An index file, read by positions in it. Close it."""

    def __init__(self, file: StoreFile) -> None:
        """Raises FileNotFoundError if it was deleted."""
        self._file = OpenFile(file)
        self._base = file.base
        self.bytes = file.size
        self.path = file.path

    def read(self, begin: int, end: int) -> bytes:
        return self._file.read(self._base + begin, self._base + end)

    def header(self) -> IndexHeader | None:
        """None if the file is too short to have one."""
        data = self.read(0, HEADER_SIZE)
        return IndexHeader.decode(data) if len(data) == HEADER_SIZE else None

    def close(self) -> None:
        self._file.close()


def find_geometry(files: Sequence[StoreFile]) -> IndexGeometry | None:
    """That of the first file that shows it; None if none does."""
    for file in files:
        if file.size == USUAL_GEOMETRY.file_bytes:
            return USUAL_GEOMETRY
    for file in files:
        try:
            index = IndexFile(file)
        except FileNotFoundError:
            continue
        geometry = geometry_of(index.read, index.bytes)
        index.close()
        if geometry is not None:
            return geometry
    return None
