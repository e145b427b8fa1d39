"""Spark's Java classes in one file, which a JVM maps instead of finding, reading and checking them
one by one: that is half of a session's start, and a quarter of a small audit.

The file is of one Java and one Spark, and some 200 MB large. It is made once, by the JVM of the
first successful audit, after its answer was given: that JVM knows exactly the classes that an audit
needs, nothing is left running in the background, and only a user who already has the answer waits
for it. It is in the user's cache folder, since what starts from it runs as that user.

Invariants: only speed depends on it. If it cannot be made or is damaged, nothing fails and nothing
is reported; a file of that name is always complete, even if another process makes one.
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
"""How many are kept; an update of Java or Spark leaves the previous one."""
FREE_BYTES_MIN = 2 * 1024**3
"""With less free space than this, space is worth more than speed."""

_SILENT = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")
_UNUSABLE = frozenset(':"\\%\n')
"""Characters in paths that Java's options would misinterpret."""


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """The path of this Java's and Spark's file, whether or not it exists."""

    folder: Path
    key: str

    def file(self) -> Path | None:
        """The file, if it exists. Its name ends with its length: Java would crash on a shortened
        one, while it ignores one whose checksums are wrong."""
        with contextlib.suppress(OSError):
            for path in self.folder.glob(f"{self.key}-*{SUFFIX}"):
                if _is_ours(path) and path.stem == f"{self.key}-{path.stat().st_size}":
                    return path
        return None

    def java_options(self) -> tuple[str, ...]:
        """For the start of a JVM: use the file, or be able to make it."""
        if (path := self.file()) is not None:
            return (f'"-XX:SharedArchiveFile={path}"', "-XX:+VerifySharedSpaces", *_SILENT)
        return ("-XX:+RecordDynamicDumpInfo", *_SILENT) if _has_room(self.folder) else ()

    def make(self, gateway: Any) -> None:
        """Have the JVM behind `gateway` write the file, unless it exists. Takes seconds."""
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
    """Java would ignore another version's file; this way each version has its own."""
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
    """Whether it is a file that no other user could have written."""
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
    """Ask the JVM as `jcmd` would, which is not part of a plain runtime; whether it succeeded."""
    jvm = gateway.jvm
    try:
        server = jvm.java.lang.management.ManagementFactory.getPlatformMBeanServer()
        # By reflection: py4j does not find methods in classes that are not exported.
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
