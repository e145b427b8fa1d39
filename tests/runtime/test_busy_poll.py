"""An event loop polls while packets follow each other closely, and sleeps otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from aerobee.runtime.busy_poll import (
    CHECK_S,
    CLOSE_PACKETS,
    REST_FIRST_S,
    BusyPoll,
    busy_poll,
)

WINDOW_S = 0.0005
CLOSE_S = WINDOW_S / 2


class Turns:
    """The loop's callbacks, run by hand, and the machine's time and preemptions."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.preemptions = 0
        self.due: list[Callable[[], object]] = []
        self.polling = BusyPoll(
            cast(asyncio.AbstractEventLoop, self),
            window_s=WINDOW_S,
            now=lambda: self.now_s,
            preemptions=lambda: self.preemptions,
        )

    def call_soon(self, callback: Callable[[], object], *_: Any) -> None:
        self.due.append(callback)

    @property
    def sleeps(self) -> bool:
        return not self.due

    def turn(self, elapsed_s: float = 0.0) -> None:
        self.now_s += elapsed_s
        due, self.due = self.due, []
        for callback in due:
            callback()

    def hear(self, packets: int, apart_s: float = CLOSE_S) -> None:
        for _ in range(packets):
            self.turn(apart_s)
            self.polling.heard()


def polling_turns() -> Turns:
    turns = Turns()
    turns.hear(CLOSE_PACKETS + 2)
    assert not turns.sleeps
    return turns


def test_a_loop_polls_once_several_packets_have_followed_each_other_closely() -> None:
    turns = Turns()
    turns.hear(CLOSE_PACKETS + 1)
    assert turns.sleeps
    turns.hear(1)
    assert not turns.sleeps


def test_it_sleeps_after_the_window_has_passed_without_a_packet() -> None:
    turns = polling_turns()
    turns.turn(0.9 * WINDOW_S)
    assert not turns.sleeps
    turns.turn(0.2 * WINDOW_S)
    assert turns.sleeps


def test_a_trickle_of_packets_never_makes_it_poll() -> None:
    turns = Turns()
    turns.hear(1_000, apart_s=2 * WINDOW_S)
    assert turns.sleeps


def test_one_late_packet_makes_it_wait_for_several_close_ones_again() -> None:
    turns = polling_turns()
    turns.hear(1, apart_s=10 * WINDOW_S)
    turns.hear(CLOSE_PACKETS)
    assert turns.sleeps
    turns.hear(1)
    assert not turns.sleeps


def test_it_never_has_two_polls_under_way() -> None:
    turns = polling_turns()
    turns.hear(100)
    assert len(turns.due) == 1


def lose_core(turns: Turns) -> None:
    """Packets keep coming, and another thread takes the core until polling ends."""
    turns.preemptions += 1
    for _ in range(int(2 * CHECK_S / CLOSE_S)):
        turns.hear(1)
        if turns.sleeps:
            return
    raise AssertionError("it still polls")


def test_it_rests_when_another_thread_took_its_core() -> None:
    turns = polling_turns()
    lose_core(turns)
    rests = int(0.9 * REST_FIRST_S / CLOSE_S)
    turns.hear(rests)
    assert turns.sleeps
    turns.hear(rests)
    assert not turns.sleeps


def test_rests_become_longer_while_the_core_is_taken_again_and_again() -> None:
    turns = polling_turns()
    lose_core(turns)
    turns.hear(int(1.1 * REST_FIRST_S / CLOSE_S))
    assert not turns.sleeps
    lose_core(turns)
    turns.hear(int(1.1 * REST_FIRST_S / CLOSE_S))
    assert turns.sleeps
    turns.hear(int(1.1 * REST_FIRST_S / CLOSE_S))
    assert not turns.sleeps


async def test_no_window_means_no_polling() -> None:
    assert busy_poll(0) is None


async def test_fewer_than_two_cores_mean_no_polling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aerobee.runtime.busy_poll.usable_cores", lambda: 1.5)
    assert busy_poll(500) is None
    monkeypatch.setattr("aerobee.runtime.busy_poll.usable_cores", lambda: 2.0)
    assert busy_poll(500) is not None


async def test_a_real_loop_polls_and_ends_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aerobee.runtime.busy_poll.usable_cores", lambda: 2.0)
    polling = busy_poll(1_000)
    assert polling is not None
    for _ in range(CLOSE_PACKETS + 2):
        polling.heard()
        await asyncio.sleep(0)
    await asyncio.sleep(0.01)
    assert "polling=False" in repr(polling)
