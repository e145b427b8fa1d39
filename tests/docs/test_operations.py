"""The pages of docs/operations/ are true: each is carried out as it stands, on three machines.

Real etcd, nameservers, brokers and commands; what stands in for machines and systemd is in
tests/docs/operations/. Commands must succeed and say what the page shows.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.docs.operations.machines import NAMES, Laboratory
from tests.docs.operations.pages import File, Step, Typed, steps_of
from tests.docs.test_examples import ROOT, matches

pytestmark = [pytest.mark.slow, pytest.mark.procedures, pytest.mark.timeout(600)]

PAGES = ROOT / "docs" / "operations"
INSTALL = PAGES / "install.md"


def installed(laboratory: Laboratory) -> None:
    """The machines as `install.md` leaves them once everything is started.

    The files that are alike everywhere are on machines that are not used yet, too.
    """
    for step in steps_of(INSTALL):
        if isinstance(step, File) and step.path.startswith("/etc/prometheus"):
            return
        if isinstance(step, Typed) and "aerobee cluster show" in step.command:
            return
        if isinstance(step, Typed) and step.command.startswith(("aerobee config", "etcdctl")):
            continue
        if isinstance(step, File):
            step = replace(step, machines=NAMES)
        carry_out(laboratory, INSTALL, step)


def carry_out(laboratory: Laboratory, page: Path, step: Step) -> None:
    for name in step.machines:
        machine = laboratory.machines[name]
        if isinstance(step, File):
            machine.write(step.path, step.text)
            continue
        where = f"{page.name}:{step.line}: {name}$ {step.command}"
        begin = time.monotonic()
        code, answer, said = machine.run(step.command)
        if "AEROBEE_SHOW_STEPS" in os.environ:
            print(f"{where}\n{said}({time.monotonic() - begin:.1f} s)", file=sys.stderr)
        assert code == 0, f"{where}\nended with {code}:\n{said}\n{laboratory.log()}"
        assert not step.shown or any(matches(step.shown, text) for text in (answer, said)), (
            f"{where}\nshows\n{step.shown}\nand said\n{said}\n{laboratory.log()}"
        )


@pytest.fixture
def laboratory(tmp_path: Path) -> Iterator[Laboratory]:
    with Laboratory(tmp_path / "machines") as running:
        yield running


def runs(page: Path) -> bool:
    return any(isinstance(step, Typed) for step in steps_of(page))


def skip_without_what_a_page_needs(page: Path) -> None:
    text = page.read_text("utf-8")
    if "promtool" in text and shutil.which("promtool") is None:
        pytest.skip("no Prometheus here: apt-get install prometheus")
    if "mount -t tmpfs" in text and os.geteuid() != 0:
        pytest.skip("only root can mount the small disk of this page")


@pytest.mark.parametrize(
    "page", [each for each in sorted(PAGES.glob("*.md")) if runs(each)], ids=lambda page: page.stem
)
def test_a_procedure_is_carried_out_word_for_word(page: Path, laboratory: Laboratory) -> None:
    skip_without_what_a_page_needs(page)
    if page != INSTALL:
        installed(laboratory)
    for step in steps_of(page):
        carry_out(laboratory, page, step)
