"""Java's classes of Spark in one file, which a JVM maps instead of finding, reading and checking
them one by one: half of a session's start, and a quarter of a small audit.

The file is of one Java and one Spark, and some 200 MB large. It is made once, by the JVM of the
first audit that ended well, after its answer was given: that JVM knows exactly the classes that an
audit needs, nothing runs on behind the user's back, and nobody waits for it but who has the answer
already. It stands in the user's cache folder, since what starts from it runs as that user.

Invariants: it is only about speed. Where it cannot be made or is damaged, nothing fails and
nothing is said; a file of that name is always whole, even if another process makes one.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyspark
from py4j.protocol import Py4JError
from pyspark.find_spark_home import _find_spark_home

FOLDER = Path("aerobee") / "java-classes"
SUFFIX = ".jsa"
KEPT_MAX = 2
"""How many remain; an update of Java or Spark leaves the previous one."""
FREE_BYTES_MIN = 2 * 1024**3
"""Where less is free, room is worth more than speed."""

_SILENT = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")
_UNUSABLE = frozenset(':"\\%\n')
"""Letters of paths that Java's options would take for something else."""


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """Where the file of this Java and Spark is, or would be."""

    folder: Path
    key: str

    def file(self) -> Path | None:
        """The file, if it is there. Its name ends with its length: Java would die of a shorter one,
        while it passes over one whose checksums are wrong."""
        with contextlib.suppress(OSError):
            for path in self.folder.glob(f"{self.key}-*{SUFFIX}"):
                if _is_ours(path) and path.stem == f"{self.key}-{path.stat().st_size}":
                    return path
        return None

    def java_options(self) -> tuple[str, ...]:
        """For the start of a JVM: to use the file, or to be able to make it."""
        if (path := self.file()) is not None:
            return (f'"-XX:SharedArchiveFile={path}"', "-XX:+VerifySharedSpaces", *_SILENT)
        return ("-XX:+RecordDynamicDumpInfo", *_SILENT) if _has_room(self.folder) else ()

    def make(self, gateway: Any) -> None:
        """Have the JVM behind `gateway` write the file, unless there is one. Takes seconds."""
        if self.file() is not None:
            return
        unfinished = self.folder / f".{self.key}.{os.getpid()}"
        with contextlib.suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            try:
                if _dump(gateway, unfinished):
                    size = unfinished.stat().st_size
                    made = self.folder / f"{self.key}-{size}{SUFFIX}"
                    unfinished.replace(made)
                    _remove_older(made)
            finally:
                unfinished.unlink(missing_ok=True)


def class_archive(java: Path) -> ClassArchive | None:
    """None: there is no place for one."""
    folder = _cache_folder()
    if folder is None or _UNUSABLE & set(str(folder)):
        return None
    with contextlib.suppress(OSError):
        return ClassArchive(folder / FOLDER, _key(java))
    return None


def _key(java: Path) -> str:
    """Java would pass over the file of another one; this way it has one of its own."""
    home = java.resolve().parent.parent
    modules = (home / "lib" / "modules").stat()
    parts = [str(home), f"{modules.st_size} {modules.st_mtime_ns}", pyspark.__version__]
    for jar in sorted((Path(_find_spark_home()) / "jars").iterdir()):
        found = jar.stat()
        parts.append(f"{jar} {found.st_size} {found.st_mtime_ns}")
    return sha256("\n".join(parts).encode()).hexdigest()[:32]


def _cache_folder() -> Path | None:
    told = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(told):
        return Path(told)
    try:
        home = Path.home()
    except RuntimeError:
        return None  # a user without one
    return home / ".cache" if home.is_absolute() else None


def _is_ours(path: Path) -> bool:
    """Whether it is a file that nobody else could have written."""
    try:
        found = path.stat()
    except OSError:
        return False
    others = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return stat.S_ISREG(found.st_mode) and found.st_uid == os.getuid() and not others


def _has_room(folder: Path) -> bool:
    """Whether the file could be made there."""
    there = next((one for one in (folder, *folder.parents) if one.exists()), None)
    with contextlib.suppress(OSError):
        return (
            there is not None
            and os.access(there, os.W_OK | os.X_OK)
            and shutil.disk_usage(there).free >= FREE_BYTES_MIN
        )
    return False


def _dump(gateway: Any, path: Path) -> bool:
    """Ask the JVM as `jcmd` would, which is not part of a runtime alone; whether it did."""
    jvm = gateway.jvm
    try:
        server = jvm.java.lang.management.ManagementFactory.getPlatformMBeanServer()
        # By reflection: py4j does not look for methods in classes that are not exported.
        methods = jvm.java.lang.Class.forName("javax.management.MBeanServer").getMethods()
        (invoke,) = (one for one in methods if one.getName() == "invoke")
        words = _array(gateway, jvm.java.lang.String, "dynamic_dump", str(path))
        asked = (
            jvm.javax.management.ObjectName("com.sun.management:type=DiagnosticCommand"),
            "vmCds",
            _array(gateway, jvm.java.lang.Object, words),
            _array(gateway, jvm.java.lang.String, "[Ljava.lang.String;"),
        )
        invoke.invoke(server, _array(gateway, jvm.java.lang.Object, *asked))
    except (Py4JError, ValueError):
        return False
    return path.is_file() and path.stat().st_size > 0


def _array(gateway: Any, kind: Any, *values: Any) -> Any:
    made = gateway.new_array(kind, len(values))
    for place, value in enumerate(values):
        made[place] = value
    return made


def _remove_older(path: Path) -> None:
    files = [one for one in path.parent.iterdir() if one.suffix == SUFFIX]
    files.sort(key=lambda one: one.stat().st_mtime, reverse=True)
    for one in files[KEPT_MAX:]:
        if one != path:
            one.unlink(missing_ok=True)
