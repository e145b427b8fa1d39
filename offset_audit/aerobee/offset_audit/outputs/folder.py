"""A folder on whatever file system Spark's path refers to: this machine's, HDFS, an object store.

Owns: the few operations that Spark's own readers and writers lack: list, move, and write a small
file atomically.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from aerobee.offset_audit.outputs.local_files import replace_file


def replace_document(session: SparkSession, path: str, text: str, *, for_all: bool = False) -> None:
    """Replace a small file as a whole, wherever Spark's path points. On this machine it is private
    to its owner, or readable `for_all`; elsewhere as Spark's settings say.

    Raises:
        OSError: it cannot be written.
    """
    place = Folder(session, path)
    if place.local is not None:  # without the checksum files that Hadoop puts beside local ones
        replace_file(place.local, text, for_all=for_all)
    else:
        place.become(text.encode())


class Folder:
    """`name`s are relative to it, with `/` between their parts."""

    def __init__(self, session: SparkSession, path: str) -> None:
        jvm: Any = session.sparkContext._jvm
        java_context: Any = session.sparkContext._jsc
        self._path_class = jvm.org.apache.hadoop.fs.Path
        self._copy_bytes = jvm.org.apache.hadoop.io.IOUtils.copyBytes
        self._bytes_out = jvm.java.io.ByteArrayOutputStream
        settings = java_context.hadoopConfiguration()
        given = self._path_class(path)
        self._files = given.getFileSystem(settings)
        self._root = self._files.makeQualified(given)

    def path(self, name: str = "") -> str:
        """The whole path, with its file system, as Spark takes it."""
        return str(self._at(name).toString())

    def exists(self, name: str) -> bool:
        return bool(self._files.exists(self._at(name)))

    def names(self, name: str = "") -> list[str]:
        """Files and folders directly below; empty if there is no such folder."""
        if not self.exists(name):
            return []
        return sorted(one.getPath().getName() for one in self._files.listStatus(self._at(name)))

    def files_below(self, name: str) -> list[str]:
        """All files, relative to `name`, whatever their depth."""
        if not self.exists(name):
            return []
        found = []
        base = self._at(name).toUri().getPath() + "/"
        each = self._files.listFiles(self._at(name), True)
        while each.hasNext():
            found.append(str(each.next().getPath().toUri().getPath()).removeprefix(base))
        return sorted(found)

    def move(self, name: str, to: str) -> None:
        """Raises:
        OSError: it could not be moved.
        """
        target = self._at(to)
        self._files.mkdirs(target.getParent())
        if not self._files.rename(self._at(name), target):
            raise OSError(f"cannot move {self.path(name)} to {self.path(to)}")

    def remove(self, name: str) -> None:
        self._files.delete(self._at(name), True)

    def write(self, name: str, content: bytes) -> None:
        """Write the whole file at once: written beside and moved into place."""
        unfinished = f"{name}.unfinished"
        stream = self._files.create(self._at(unfinished), True)
        try:
            stream.write(content)
        finally:
            stream.close()
        self.move(unfinished, name)

    @property
    def local(self) -> Path | None:
        """The same path on this machine; None: it is on another file system."""
        where = self._root.toUri()
        return Path(str(where.getPath())) if where.getScheme() == "file" else None

    def become(self, content: bytes) -> None:
        """Replace the path itself by a file with this content: written beside and moved into place.

        Raises:
            OSError: it cannot be written.
        """
        name = str(self._root.getName())
        unfinished = self._path_class(self._root.getParent(), f".{name}.unfinished")
        try:
            stream = self._files.create(unfinished, True)
            try:
                stream.write(content)
            finally:
                stream.close()
            # Not every file system can move onto an existing file.
            self._files.delete(self._root, False)
            is_moved = self._files.rename(unfinished, self._root)
        except (PySparkException, Py4JJavaError) as error:
            reason = getattr(error, "java_exception", None) or error
            raise OSError(f"cannot write {self.path()}: {reason}") from error
        if not is_moved:
            raise OSError(f"cannot move {unfinished.toString()} to {self.path()}")

    def read(self, name: str) -> bytes:
        stream = self._files.open(self._at(name))
        gathered = self._bytes_out()
        self._copy_bytes(stream, gathered, 4096, True)
        return bytes(gathered.toByteArray())

    def _at(self, name: str) -> Any:
        return self._path_class(self._root, name) if name else self._root
