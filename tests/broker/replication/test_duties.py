"""What only a master does begins with its term and ends with it, in one order."""

from __future__ import annotations

import asyncio

import pytest

from aerobee.broker.replication.duties import Duties, Duty
from aerobee.broker.replication.master_term import MasterTerm
from aerobee.runtime.errors import DeadlineExceeded
from tests.support.roles_scene import OTHER, OWN, Scene, running
from tests.support.waiting import until


class Told(Duty):
    """Notes what it is told, together with others."""

    def __init__(self, name: str, notes: list[str]) -> None:
        self._name = name
        self._notes = notes

    def begin(self, term: MasterTerm) -> None:
        self._notes.append(f"{self._name} begins {term.epoch}")

    async def leave(self) -> None:
        await asyncio.sleep(0)
        self._notes.append(f"{self._name} leaves")

    def resume(self) -> None:
        self._notes.append(f"{self._name} resumes")

    def end(self) -> None:
        self._notes.append(f"{self._name} ends")


def told(notes: list[str]) -> Duties:
    return Duties((Told("first", notes), Told("second", notes)))


async def test_a_term_begins_and_ends_its_duties_in_their_order() -> None:
    notes: list[str] = []
    scene = Scene(duties=told(notes))
    async with running(scene):
        scene.hear(scene.record(3))
        await until(lambda: len(notes) == 2)
        assert notes == ["first begins 3", "second begins 3"]
        scene.hear(scene.record(4, master_id=1, instance="run-of-1"))
        await until(lambda: len(notes) == 4)
        assert notes[2:] == ["first ends", "second ends"]


async def test_a_slave_is_told_of_no_duty() -> None:
    notes: list[str] = []
    scene = Scene(duties=told(notes))
    scene.manager.begin_alone()
    async with running(scene):
        scene.hear(scene.record(3, master_id=1, instance="run-of-1"))
        await until(lambda: scene.master.calls == [("host-1:1", 3)])
    assert notes == []


async def test_a_hand_over_that_is_called_off_leaves_its_duties_and_resumes_them() -> None:
    notes: list[str] = []
    scene = Scene(duties=told(notes))
    async with running(scene):
        scene.hear(scene.record(1, in_sync=(OWN, OTHER)))
        await until(lambda: len(notes) == 2)
        scene.roles.replica_joined(OTHER, 0)  # and it never catches up
        with pytest.raises(DeadlineExceeded, match="stays master"):
            await scene.handover.hand_over(1, 0.05)
    assert notes[2:] == ["first leaves", "second leaves", "first resumes", "second resumes"]
