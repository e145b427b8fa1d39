"""Whether this machine has what Spark needs, and what to install if not.

Imports neither pyspark nor pyarrow: it reports that they are missing.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import warnings
from importlib.util import find_spec
from pathlib import Path

from aerobee.offset_audit.run.exit_codes import NotReady

JAVA_MAJOR = 17
"""The oldest Java that Spark 4 runs on."""

NEEDED_PACKAGES = ("pyspark", "pyarrow", "pandas", "jinja2")
VERSION_TIMEOUT_S = 30.0

_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


def require_packages() -> None:
    """Raises:
    NotReady: one of NEEDED_PACKAGES is not installed; the sentence says how to get them.
    """
    missing = [name for name in NEEDED_PACKAGES if find_spec(name) is None]
    if missing:
        raise NotReady(
            f"the offset audit needs {' and '.join(missing)}: pip install '.[audit]' in a checkout"
        )


def silence_pyspark() -> None:
    """pyspark's warnings on import are of no use to people who run an audit."""
    for category in (FutureWarning, DeprecationWarning, UserWarning):
        warnings.filterwarnings("ignore", category=category, module=r"pyspark\.")
    # py4j logs a traceback for each call interrupted by Ctrl-C, partly through the root logger.
    logging.getLogger("py4j").propagate = False
    logging.getLogger().addFilter(_is_not_of_py4j)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    """What is logged here is also raised, and reported where it is caught."""
    return "py4j" not in Path(record.pathname).parts


def require_java() -> Path:
    """The `java` that Spark will start.

    Raises:
        NotReady: there is none, or it is too old; the sentence says what to install.
    """
    path = _java_path()
    if path is None:
        raise NotReady(f"the offset audit runs on Spark, which needs {_advice()}")
    major = java_major(path)
    if major is None or major < JAVA_MAJOR:
        found = "a broken Java" if major is None else f"Java {major}"
        raise NotReady(f"{path} is {found}; Spark needs {_advice()}")
    return path


def java_major(path: Path) -> int | None:
    """17 of `openjdk version "17.0.15"`, 8 of `"1.8.0"`; None if it does not run."""
    try:
        done = subprocess.run(
            [path, "-version"], capture_output=True, text=True, timeout=VERSION_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(done.stderr + done.stdout)
    return int(found[1]) if found is not None and done.returncode == 0 else None


def _java_path() -> Path | None:
    """In the order of Spark's own scripts: JAVA_HOME first, then PATH."""
    home = os.environ.get("JAVA_HOME")
    if home:
        path = Path(home) / "bin" / "java"
        return path if path.exists() else None
    found = shutil.which("java")
    return Path(found) if found is not None else None


def _advice() -> str:
    home = os.environ.get("JAVA_HOME")
    where = f" (JAVA_HOME is {home})" if home else ""
    return (
        f"Java {JAVA_MAJOR} or newer{where}: install openjdk-17-jre-headless "
        "(Debian, Ubuntu), java-17-openjdk-headless (Fedora) or temurin@17 (Homebrew)"
    )
