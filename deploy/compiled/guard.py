"""Loads the compiled modules of a checkout, unless a source has changed since.

`make compiled` copies it to where each compiled module looks for their common library, so it runs
before the first of them.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.util
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MADE = ROOT / "dist" / "compiled"


def refuse_changed_sources() -> None:
    for name, digest in json.loads((MADE / "built.json").read_text("utf-8")).items():
        if hashlib.sha256((ROOT / name).read_bytes()).hexdigest() != digest:
            raise ImportError(
                f"{name} has changed since it was compiled, and its compiled form would run: "
                "run `make compiled` again, or `make pure`"
            )


def load_library() -> None:
    path = str(MADE / f"{__name__}{importlib.machinery.EXTENSION_SUFFIXES[0]}")
    loader = importlib.machinery.ExtensionFileLoader(__name__, path)
    spec = importlib.util.spec_from_file_location(__name__, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[__name__] = module
    loader.exec_module(module)


refuse_changed_sources()
load_library()
