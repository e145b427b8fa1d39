"""A finding, the command that it names, and a second run that proves the cure."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from aerobee.cli.__main__ import main
from tests.golden_stores.conftest import GoldenStore

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def run(*arguments: str) -> str:
    found = CliRunner().invoke(main, list(arguments))
    assert found.exception is None or isinstance(found.exception, SystemExit), found.output
    return found.output


def audited(root: Path, out: Path, *more: str) -> dict[str, Any]:
    run("audit", "--store", str(root), "--deep", "--out", str(out), *more)
    document: dict[str, Any] = json.loads((out / "summary.json").read_text())
    return document


def test_a_finding_is_cured_by_its_own_command_and_the_next_run_says_so(tmp_path: Path) -> None:
    root = GoldenStore("clean-small", tmp_path / "golden").root
    first = audited(root, tmp_path / "first")
    assert first["after"] is None
    lost = max(
        (root / "consumequeue").glob("*/*/*"), key=lambda path: len(path.read_bytes().strip(b"\0"))
    )
    lost.unlink()
    damaged = audited(root, tmp_path / "damaged")
    (finding,) = [one for one in damaged["findings"] if one["check"] == "MISSING_ENTRY"]
    assert finding["command_effect"] == "shows; cures with --apply"

    earlier = ["--after", str(tmp_path / "damaged" / "summary.json")]
    same = audited(root, tmp_path / "same", *earlier)
    assert [one["check"] for one in same["after"]["still"]] == [
        one["check"] for one in damaged["findings"]
    ]
    run(*shlex.split(finding["command"])[1:], "--apply")
    cured = audited(root, tmp_path / "cured", *earlier)
    assert "MISSING_ENTRY" in [one["check"] for one in cured["after"]["cured"]]
    assert cured["after"]["new"] == []
    told = run("audit", "--store", str(root), "--deep", *earlier)
    assert "\n  cured: MISSING_ENTRY: " in told
