"""The release that the upgrade begins with is in this checkout, or it is said what is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.upgrade.versions import NotThere, released


def test_a_checkout_without_the_release_s_commit_says_what_to_do(tmp_path: Path) -> None:
    file = tmp_path / "released.toml"
    file.write_text(f'version = "0.0.9"\ncommit = "{"a" * 40}"\n')
    with pytest.raises(NotThere, match=r"may be shallow \(`git fetch --unshallow`\)"):
        released(tmp_path / "tree", file)
