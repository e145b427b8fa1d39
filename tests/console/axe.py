"""axe-core, which judges whether pages are accessible: fetched once by npm, kept in the cache."""

from __future__ import annotations

import shutil
import subprocess
import tarfile

from tests.support.cache_folder import cache_folder

VERSION = "4.14.1"
_NAME = f"axe-core-{VERSION}.tgz"


def axe_script() -> str | None:
    """Its source; None: there is no npm, or it reaches no registry."""
    folder = cache_folder() / "axe"
    file = folder / _NAME
    if not file.exists():
        npm = shutil.which("npm")
        if npm is None:
            return None
        folder.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            [npm, "pack", "--silent", f"axe-core@{VERSION}"],
            cwd=folder,
            capture_output=True,
            timeout=60,
        )
        if done.returncode:
            return None
    with tarfile.open(file) as packed:
        script = packed.extractfile("package/axe.min.js")
        assert script is not None
        return script.read().decode()
