"""Where what takes minutes to build is kept from run to run."""

from __future__ import annotations

import os
import pwd
from pathlib import Path


def cache_folder() -> Path:
    """A folder of this user's, whatever HOME a test run has set."""
    given = os.environ.get("XDG_CACHE_HOME")
    home = Path(pwd.getpwuid(os.getuid()).pw_dir)
    return (Path(given) if given else home / ".cache") / "aerobee"
