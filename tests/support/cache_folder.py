"""Where artefacts that take minutes to build are kept between runs."""

from __future__ import annotations

import os
import pwd
from pathlib import Path


def cache_folder() -> Path:
    """A folder of this user, whatever HOME a test run has set."""
    given = os.environ.get("XDG_CACHE_HOME")
    home = Path(pwd.getpwuid(os.getuid()).pw_dir)
    return (Path(given) if given else home / ".cache") / "aerobee"
