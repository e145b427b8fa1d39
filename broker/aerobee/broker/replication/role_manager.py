"""Carries out what the replica set's record asks of this replica: lead, follow, or restart.

Owns: the task that checks the mastership's decision after every piece of news, and the task that
follows a master. Everything that takes time happens here, one step after another: so a promotion is
never overtaken by another, and no byte arrives from a master once a promotion has begun.

A master that steps down and a slave whose log must be cut cannot continue with an open store: they
ask for a `Reopening`, and the broker closes the store, does what it says, and opens it again.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from aerobee.broker.replication.duties import Duty
from aerobee.broker.replication.epoch_history import EpochHistory, EpochStart
from aerobee.broker.replication.joining import BeginAnew, Cut
from aerobee.broker.replication.master_term import MasterTerm
from aerobee.broker.replication.mastership import Follow, Lead, Stay, StepDown
from aerobee.broker.replication.replica_folder import ReplicaFolder
from aerobee.broker.replication.replica_set import ReplicaSetView
from aerobee.broker.replication.roles import ReplicatedLog, Roles
from aerobee.broker.replication.state_file import NewIncarnation
from aerobee.runtime.clock import Clock
from aerobee.runtime.errors import (
    AerobeeError,
    ForeignCluster,
    InvalidArgument,
    NotWritable,
    ReplicaDiverged,
    ReplicaIncomplete,
    StoreFailed,
)
from aerobee.runtime.log import log_event
from aerobee.runtime.retry import Backoff
from aerobee.store.flush.disk_watch import DiskWatch

log = logging.getLogger(__name__)

FINAL = (ReplicaDiverged, ForeignCluster, InvalidArgument)
"""Errors that only an operator can resolve; the slave still retries from time to time."""
FINAL_PAUSE_S = 5.0
STOP_RETRY_S = 0.2
RETRY_S = 0.5
"""Pause after a full disk has refused a small file."""
STEADY_S = 5.0
"""A stream that lasted this long does not count as a failed attempt."""


@dataclass(frozen=True, slots=True)
class Reopening:
    """Why the store must be closed and reopened, and what to do in between."""

    reason: str
    change: Cut | BeginAnew | NewIncarnation | None = None


class FollowsMaster(Protocol):
    """A slave's side of the stream."""

    async def follow(self, master_address: str, epoch: int) -> Cut | BeginAnew:
        """Copy the master's log until the stream ends. Returns only if the folder must be changed.

        Raises AerobeeError.
        """
        ...


class RoleManager:
    """`run` it as a task."""

    def __init__(
        self,
        roles: Roles,
        folder: ReplicaFolder,
        store: ReplicatedLog,
        clock: Clock,
        chance: random.Random,
        *,
        follower: FollowsMaster,
        duties: Duty,
        watch: DiskWatch,
        on_store_failed: Callable[[StoreFailed], None],
    ) -> None:
        self._roles = roles
        self._folder = folder
        self._store = store
        self._clock = clock
        self._chance = chance
        self._follower = follower
        self._duties = duties
        self._watch = watch
        self._on_store_failed = on_store_failed
        self._tasks: asyncio.TaskGroup | None = None
        self._following: asyncio.Task[None] | None = None
        self._followed: tuple[Follow, str] | None = None
        self._news = asyncio.Event()
        self._backoff = Backoff(base_ms=50, max_ms=1_000)
        self.trouble = ""
        """Why this replica cannot even try to follow a master; empty if it can, or leads."""
        self._noted = ""
        self.reopening: asyncio.Future[Reopening] = asyncio.get_running_loop().create_future()

    def wake(self) -> None:
        """Something was heard: check what is due."""
        self._news.set()

    def begin_alone(self) -> None:
        """Lead at once if no other replica could be elected, with or without a nameserver."""
        if self._roles.is_alone:
            end = self._store.appended_end
            self._begin_term(self._roles.history.latest_epoch, None, end, end)

    def count_as_another_log(self, why: ReplicaIncomplete) -> None:
        """The registry knows that this log once had more: it must not pass for the longer log."""
        if self.reopening.done():
            return
        log_event(
            log,
            "this log lacks what it once had: an older copy of the folder was put back, or its "
            "disk lost bytes; from now on it counts as another log and copies what it lacks "
            "from the broker group's master; what no other replica has is lost",
            level=logging.ERROR,
            reason=why,
        )
        if self._roles.term is not None:
            self._end_term()
        self._reopen(Reopening("the log takes a new incarnation", NewIncarnation()))

    async def run(self) -> None:
        """Until cancelled, or until the store must be opened again. Raises StoreFailed."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            try:
                while not self.reopening.done():
                    self._news.clear()
                    await self._act_then_wait()
            finally:
                await self._stop_following()

    async def _act_then_wait(self) -> None:
        if self._watch.is_hung and self._roles.term is None:
            # Its acknowledgements would never reach its disk, and a term could not begin.
            await self._stop_following()
            self.trouble = self._watch.why
            await self._news.wait()
            return
        try:
            await self._note_replicas()
            await self._do_what_is_due()
        except NotWritable as error:
            log_event(log, "role not taken", level=logging.WARNING, reason=error)
            await asyncio.sleep(RETRY_S)
        else:
            await self._news.wait()

    # ------------------------------------------------------------------------------ decisions

    async def _note_replicas(self) -> None:
        """Record them durably before a stream of another replica is accepted: from then on this
        broker does not lead again without being told to."""
        replica_set = self._roles.mastership.replica_set
        if replica_set is not None:
            replicas = replica_set.replicas
            if replicas != self._folder.state.replicas:
                await self._folder.save_replicas(replicas)
            self._roles.note_replicas(replicas)

    async def _do_what_is_due(self) -> None:
        match self._roles.mastership.decide():
            case Lead(epoch):
                await self._lead(epoch)
            case Follow() as wanted:
                await self._follow(wanted)
            case StepDown(epoch):
                self._step_down(epoch)
            case Stay():
                if self._roles.term is None and self._following is not None:
                    await self._stop_following()

    async def _lead(self, epoch: int) -> None:
        await self._stop_following()
        roles = self._roles
        log_end = self._store.appended_end
        kept = roles.history.up_to(log_end)
        if epoch <= kept.latest_epoch:
            # Do not take it up: its bytes would pass for those of another run. Give it back;
            # otherwise no other replica would be elected while this one is registered.
            roles.mastership.decline(epoch)
            roles.ask()
            log_event(
                log,
                "elected under an old epoch; asking for a newer one",
                level=logging.ERROR,
                epoch=epoch,
                log_epoch=kept.latest_epoch,
            )
            return
        # A log from before epochs existed belongs entirely to the first epoch: it is what that
        # epoch's master had.
        start = log_end if kept.entries else self._store.min_offset
        history = EpochHistory((*kept.entries, EpochStart(epoch, start)))
        await adopt_history(self._folder, roles, history)
        replica_set = roles.mastership.replica_set
        if replica_set is None or roles.mastership.decide() != Lead(epoch):
            self.wake()  # the record has changed meanwhile
            return
        # While leading alone, messages came in during the file write: they belong to this epoch.
        self._begin_term(epoch, replica_set, self._store.appended_end, roles.confirmed_end)

    def _begin_term(
        self, epoch: int, replica_set: ReplicaSetView | None, log_end: int, confirmed_end: int
    ) -> None:
        roles = self._roles
        term = MasterTerm(
            epoch=epoch,
            own=roles.own,
            in_sync=(roles.own,) if replica_set is None else replica_set.in_sync,
            revision=0 if replica_set is None else replica_set.revision,
            log_end=log_end,
            confirmed_end=confirmed_end,
            policy=roles.config.term_policy,
            now_s=self._clock.monotonic_s(),
            is_unclean=replica_set is not None and epoch in replica_set.unclean_epochs,
        )
        roles.begin_term(term)
        self.trouble = ""
        log_event(
            log,
            "leads",
            epoch=epoch,
            log_end=log_end,
            confirmed_end=roles.confirmed_end,
            in_sync=sorted(name.broker_id for name in term.in_sync),
        )
        self._duties.begin(term)

    def _end_term(self) -> None:
        self._roles.end_term()
        self._duties.end()

    def _step_down(self, epoch: int) -> None:
        self._end_term()
        self._reopen(Reopening(f"another replica is master under epoch {epoch}"))

    def _reopen(self, reopening: Reopening) -> None:
        if not self.reopening.done():
            log_event(log, "the store is opened again", reason=reopening.reason)
            self.reopening.set_result(reopening)
        self.wake()

    # ------------------------------------------------------------------------------ following

    async def _follow(self, wanted: Follow) -> None:
        address = self._roles.master_address()
        if address is None and self._followed is not None and self._followed[0] == wanted:
            return  # the nameserver lost sight of the master; the stream shows whether it is alive
        if address is None:
            self.trouble = f"no nameserver has said yet where replica {wanted.master_id} is reached"
            await self._stop_following()
            return
        if self._followed == (wanted, address):
            return
        await self._stop_following()
        self._followed = (wanted, address)
        self.trouble = ""
        log_event(log, "follows", master=wanted.master_id, address=address, epoch=wanted.epoch)
        assert self._tasks is not None, "only `run` follows"
        self._following = self._tasks.create_task(
            self._keep_following(address, wanted.epoch), name="follow-master"
        )

    async def _stop_following(self) -> None:
        """Returns once nothing more comes from a master."""
        following, self._following, self._followed = self._following, None, None
        while following is not None and not following.done():
            # Repeatedly, in case one cancellation is lost to a failure at the same moment.
            following.cancel()
            await asyncio.wait((following,), timeout=STOP_RETRY_S)

    async def _keep_following(self, address: str, epoch: int) -> None:
        failures = 0
        while True:
            began_s = self._clock.monotonic_s()
            try:
                change = await self._follower.follow(address, epoch)
            except StoreFailed as error:
                self._on_store_failed(error)
                return
            except AerobeeError as error:
                lasted_s = self._clock.monotonic_s() - began_s
                failures = 1 if lasted_s > STEADY_S else failures + 1
                self._note_trouble(error)
                if isinstance(error, FINAL):
                    await asyncio.sleep(FINAL_PAUSE_S)
                else:
                    await asyncio.sleep(self._backoff.delay_s(failures, self._chance))
            else:
                self._reopen(Reopening(_why(change), change))
                return

    def _note_trouble(self, error: AerobeeError) -> None:
        """One line per new trouble."""
        if str(error) != self._noted:
            self._noted = str(error)
            level = logging.ERROR if isinstance(error, FINAL) else logging.WARNING
            log_event(log, "does not follow its master", level=level, reason=error)


async def adopt_history(folder: ReplicaFolder, roles: Roles, history: EpochHistory) -> None:
    """Make these epochs ours, before the first byte of the newest one is stored. Raises
    NotWritable, StoreFailed."""
    await folder.save_history(history)
    roles.history = history


def _why(change: Cut | BeginAnew) -> str:
    if isinstance(change, Cut):
        return f"the log is cut at {change.end}: the master does not have what follows"
    return f"the log begins anew at {change.position}, where the master's begins"
