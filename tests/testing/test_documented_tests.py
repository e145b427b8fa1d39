"""The tests that docs/testing.md shows are tests that pass."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.testing.test_plugin import ROOT, run_pytest

PAGE = ROOT / "docs" / "testing.md"


@pytest.mark.slow
def test_the_tests_of_the_page_pass(tmp_path: Path) -> None:
    programs = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    for number, program in enumerate(programs):
        (tmp_path / f"test_page_{number}.py").write_text(program, "utf-8")
    tests = sum(program.count("def test_") for program in programs)
    ini = "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n"
    (tmp_path / "pytest.ini").write_text(ini, "utf-8")
    done = run_pytest(tmp_path)
    assert f"{tests} passed" in done.stdout, done.stdout + done.stderr
    assert tests >= 5
