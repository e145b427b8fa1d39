"""A checkout with compiled modules does not run what a source no longer says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from deploy.compiled.build import note_sources, remove

GUARD = Path("runtime/aerobee__mypyc.py")
SOURCE = Path("rpc/aerobee/rpc/frames.py")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """One with a compiled module, whose library is none."""
    for path in (GUARD, SOURCE):
        (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / SOURCE).write_text("SIZE = 9\n", "utf-8")
    (tmp_path / SOURCE).with_suffix(".cpython-311.so").touch()
    note_sources(tmp_path, [SOURCE])
    return tmp_path


def loaded(checkout: Path) -> str:
    """What an import of a compiled module says."""
    words = [sys.executable, "-c", "import aerobee__mypyc"]
    done = subprocess.run(
        words, cwd=checkout / GUARD.parent, capture_output=True, text=True, check=False
    )
    return done.stderr


def test_a_changed_source_is_refused(checkout: Path) -> None:
    (checkout / SOURCE).write_text("SIZE = 10\n", "utf-8")
    assert f"ImportError: {SOURCE} has changed since it was compiled" in loaded(checkout)


def test_an_unchanged_source_leads_to_the_library(checkout: Path) -> None:
    (checkout / SOURCE).write_text("SIZE = 9\n", "utf-8")
    assert "dist/compiled/aerobee__mypyc" in loaded(checkout)
    assert "has changed" not in loaded(checkout)


def test_pure_means_that_nothing_compiled_is_left(checkout: Path) -> None:
    remove(checkout)
    left = [path.relative_to(checkout) for path in checkout.rglob("*") if path.is_file()]
    assert [path for path in left if path.suffix == ".so" or path == GUARD] == []
    assert SOURCE in left
