"""An operator's mistake: a replica's folder is replaced by an older copy of it.

The copy says that it lost nothing, and does not know what came later. It is put back only if etcd
has recorded more than it has, which is the case for every copy that is some seconds old.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.simulation.cluster.log import Folder
from tests.simulation.cluster.world import World


class OldCopies:
    """Copies of one cluster's folders. It has its own random generator, so that seeds without
    copies run as they did before copies existed."""

    def __init__(
        self, world: World, chance: random.Random, start_later: Callable[[int], None]
    ) -> None:
        self._world = world
        self._chance = chance
        self._start_later = start_later
        self._copies: dict[int, Folder] = {}

    def take(self) -> None:
        """Copy one replica, running or not; not for a group of one."""
        folder = self._world.folders[self._chance.choice(list(self._world.folders))]
        if folder.state is not None and len(folder.state.replicas) > 1:
            self._copies[folder.broker_id] = folder.copied()

    def put_back(self) -> None:
        """Replace the original folder by it; sometimes all others die at the same moment."""
        world = self._world
        usable = [one for one in self._copies.values() if self._is_known_to_lack(one)]
        if not usable:
            return
        copy = self._chance.choice(usable)
        dead = [copy.broker_id]
        if self._chance.random() < 0.6:
            dead = list(world.broker_places)
        for broker_id in dead:
            world.end_process(world.broker_places[broker_id], is_heard=broker_id != copy.broker_id)
        world.note("replica %s gets an old copy, %s", copy.broker_id, copy.log)
        world.folders[copy.broker_id] = copy.copied()
        world.has_old_copies = True
        world.start_broker(copy.broker_id)
        for broker_id in dead:
            if broker_id != copy.broker_id:
                self._start_later(broker_id)

    def _is_known_to_lack(self, copy: Folder) -> bool:
        durable = self._world.etcd_state.durable.get(copy.broker_id)
        return durable is not None and any(
            log.incarnation == copy.opened_state.incarnation and log.end > copy.log.end
            for log in durable.logs
        )
