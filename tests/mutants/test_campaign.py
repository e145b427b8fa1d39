"""What the campaign says of a small project: what is caught, what survives, what is stale."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutants.campaign import run_all
from tests.mutants.mutant import Mutant, Tree, what_is_stale

ADD = "def add(one: int, other: int) -> int:\n    return one + other\n"
TESTS = """
from aerobee.sums.add import add

def test_adds():
    assert add(2, 2) == 4
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    package = tmp_path / "sums" / "aerobee" / "sums"
    package.mkdir(parents=True)
    (package / "add.py").write_text(ADD)
    (tmp_path / "test_sums.py").write_text(TESTS)
    return tmp_path


def mutant(
    name: str,
    new: str,
    *,
    at: str = "add.py::add",
    old: str = "one + other",
    test: str = "test_adds",
) -> Mutant:
    return Mutant(
        name=name,
        breaks="sums are wrong",
        at=at,
        old=old,
        new=new,
        tests=(f"test_sums.py::{test}",),
    )


@pytest.mark.thorough
@pytest.mark.slow
def test_each_mutant_is_told_as_caught_survived_or_broken(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mutants = [
        mutant("caught", "one - other"),
        mutant("survives", "one * other"),
        mutant("stale", "one - other", old="one - other"),
        mutant("not-imported", "other: int = missing", old="other: int"),
        # As long as the first one, and written within its second.
        mutant("caught-too", "one % other"),
    ]
    assert run_all(mutants, project, jobs=2) == 1
    told = capsys.readouterr().out.splitlines()
    verdicts = {line.split()[3]: line.split()[0] for line in told if " s  " in line}
    assert verdicts == {
        "caught": "caught",
        "survives": "SURVIVED",
        "stale": "BROKEN",
        "not-imported": "BROKEN",
        "caught-too": "caught",
    }
    assert "2 of 5 mutants caught" in told
    assert "  survives at add.py::add: sums are wrong" in told
    assert (project / "sums/aerobee/sums/add.py").read_text() == ADD, "only copies are changed"
    assert run_all(mutants[:1], project, jobs=1) == 0


def test_a_test_that_fails_without_a_mutant_catches_none(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "test_sums.py").write_text(TESTS.replace("4", "5"))
    assert run_all([mutant("caught", "one - other")], project, jobs=1) == 1
    assert "they must pass: test_sums.py::test_adds" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("wrong", "because"),
    [
        (mutant("m", "two", old="three"), "m: its old code occurs 0 times in add.py::add"),
        (mutant("m", "two", old="one"), "m: its old code occurs 2 times in add.py::add"),
        (mutant("m", "one +"), "m: invalid syntax"),
        (mutant("m", "two", test="test_subtracts"), "m: there is no test "),
        (mutant("m", "two", at="sum.py::add"), "m: there is no sum.py; it is in sums/"),
        (mutant("m", "two", at="add.py::sum"), "m: no add.py has sum"),
    ],
)
def test_what_is_stale_is_told(project: Path, wrong: Mutant, because: str) -> None:
    (told,) = what_is_stale(wrong, Tree(project))
    assert told.startswith(because)


LAID_OUT = """
class Sums:
    # one + other: not here
    def add(self, one: int, other: int) -> int:
        if one:
            return (
                one  # the first
                + other
            )
        return other

    def other(self, one: int, other: int) -> int:
        return one + other
"""


def test_a_mutant_survives_another_layout_and_a_move_of_its_file(project: Path) -> None:
    (project / "sums/aerobee/sums/add.py").unlink()
    moved = project / "rooms" / "aerobee" / "rooms" / "sums" / "add.py"
    moved.parent.mkdir(parents=True)
    moved.write_text(LAID_OUT)
    edited = mutant("m", "one\n- other", at="add.py::Sums.add")
    assert what_is_stale(edited, Tree(project)) == []
    assert Tree(project).file_of(edited) == moved
    text = LAID_OUT.replace(
        "one  # the first\n                + other", "one\n                - other"
    )
    assert edited.applied_to(LAID_OUT) == text


def test_files_of_one_name_are_told_apart_by_a_folder(project: Path) -> None:
    second = project / "sums" / "aerobee" / "rooms" / "add.py"
    second.parent.mkdir()
    second.write_text(ADD)
    (told,) = what_is_stale(mutant("m", "one - other"), Tree(project))
    assert told.startswith("m: name a folder of add.py::add, which is in sums/aerobee/rooms/add.py")
    named = mutant("m", "one - other", at="rooms/add.py::add")
    assert Tree(project).file_of(named) == second
