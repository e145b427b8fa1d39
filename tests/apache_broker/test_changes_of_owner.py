"""A folder changes owners between Aerobee's broker and Apache's, with all that waits in it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from peers.rocketmq import write_topics
from tests.apache_broker.apache_owner import ApacheOwner
from tests.apache_broker.own_owner import STORE, OwnOwner
from tests.apache_broker.owners import Owner, Popper, Sender
from tests.apache_broker.programs import REMOTING
from tests.apache_broker.scene import POPPERS, QUEUES, TYPES, Scene
from tests.support.cache_folder import cache_folder
from tests.support.v2_calls import sent_message

pytestmark = [pytest.mark.apache, pytest.mark.slow, pytest.mark.timeout(1800)]

Owners = tuple[OwnOwner, ApacheOwner]


@pytest.fixture
async def owners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Owners]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache_folder().parent))
    if REMOTING.missing:
        pytest.skip(f"{REMOTING.missing}: make apache-test")
    own = OwnOwner(tmp_path, TYPES, QUEUES)
    apache = ApacheOwner(tmp_path / STORE, tmp_path)
    yield own, apache
    await own.close()
    await apache.close()


async def lives(scene: Scene, *owners: Owner, kills: bool) -> None:
    """One after the other; each leaves something to the next, and the last one nothing."""
    left = None
    for number, owner in enumerate(owners):
        await owner.start()
        scene.say(f"{owner.name} has started")
        if left is not None:
            await scene.empty(owner, left)
        if number < len(owners) - 1:
            left = await scene.fill(owner)
        await (owner.kill() if kills else owner.stop())
        scene.say(f"{owner.name} has ended")
    scene.count()


HANDED_OUT = {("apache", POPPERS)}
"""Apache's broker does not know what was acknowledged after the oldest unfinished message."""
DELAYED = {("apache", f"{each}-readers") for each in ("timed", "level", "failing")}
"""What Apache's broker reads of the messages that wait is written when ours stops."""
APACHES_DELAYED = {("aerobee", group) for _, group in DELAYED}
"""Apache's broker writes every 10 s how far it is with the messages that wait."""


async def test_ours_is_stopped_and_apaches_goes_on_and_back(owners: Owners) -> None:
    own, apache = owners
    scene = Scene()
    await lives(scene, own, apache, own, kills=False)
    assert not scene.problems, "\n".join(scene.problems)
    assert scene.repeated <= HANDED_OUT


async def test_apaches_is_stopped_and_ours_goes_on_and_back(owners: Owners, tmp_path: Path) -> None:
    own, apache = owners
    write_topics(tmp_path / STORE, TYPES, queues=QUEUES)
    scene = Scene()
    await lives(scene, apache, own, apache, kills=False)
    assert not scene.problems, "\n".join(scene.problems)
    assert scene.repeated <= HANDED_OUT


async def test_ours_is_killed_and_apaches_goes_on_and_back(owners: Owners) -> None:
    own, apache = owners
    scene = Scene()
    await lives(scene, own, apache, own, kills=True)
    assert not scene.problems, "\n".join(scene.problems)
    assert scene.repeated <= HANDED_OUT | DELAYED


async def test_apaches_is_killed_and_ours_goes_on_and_back(owners: Owners, tmp_path: Path) -> None:
    own, apache = owners
    write_topics(tmp_path / STORE, TYPES, queues=QUEUES)
    scene = Scene()
    await lives(scene, apache, own, apache, kills=True)
    assert not scene.problems, "\n".join(scene.problems)
    assert scene.repeated <= HANDED_OUT | DELAYED | APACHES_DELAYED


async def test_message_groups_keep_their_order(owners: Owners) -> None:
    own, apache = owners
    waiting: list[str] = []
    turns: tuple[Owner, ...] = (own, apache, own, apache)
    for life, owner in enumerate(turns):
        await owner.start()
        if not life:
            await own.configure("lane-poppers", "--ordered")
        async with (
            Sender(owner.address) as sender,
            Popper(owner.address, "lane-poppers", "lanes") as popper,
        ):
            came = []
            for _ in waiting:
                (message,) = await popper.receive(1, invisible_s=30)
                came.append(message.body.decode())
                await popper.acknowledge(message)
            assert came == waiting
            waiting = [f"{owner.name}-{life}-{number}" for number in range(3)]
            for body in waiting:
                await sender.send(
                    sent_message("lanes", body.encode(), body.upper(), message_group="one")
                )
            (message,) = await popper.receive(1, invisible_s=60)
            assert message.body.decode() == waiting[0]
        await owner.stop()
