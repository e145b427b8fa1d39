"""Whether a serving broker is one that clients and its group can rely on.

The registration must be live, because clients find no broker without one. A master must be allowed
to act. A slave must have everything: it has copied what its master had when copying began, and is
in the in-sync set. So a group whose replicas are all ready can lose any one of them.

A full disk, or too few replicas in sync, cause messages to be refused but make nothing unready:
reads continue, and a restart would not help. A hung disk makes its replica unready: it stores
nothing.
"""

from __future__ import annotations

from aerobee.broker.cluster.registration import Registration
from aerobee.broker.replication.follower import Follower
from aerobee.broker.replication.replica_set import NO_MASTER
from aerobee.broker.replication.report import ReplicationReport
from aerobee.broker.replication.roles import Roles
from aerobee.store.engine.message_store import MessageStore
from aerobee.store.flush.disk_watch import DiskWatch


class Readiness:
    """Queries the parts when it is asked."""

    def __init__(
        self,
        roles: Roles,
        store: MessageStore,
        report: ReplicationReport,
        follower: Follower,
        registration: Registration | None,
        watch: DiskWatch,
    ) -> None:
        self._watch = watch
        self._roles = roles
        self._store = store
        self._report = report
        self._follower = follower
        self._registration = registration

    def why_hung(self) -> str:
        """Empty while the disk responds."""
        return self._watch.why

    def why_not(self) -> str:
        """Empty while it is ready."""
        registration = self._registration
        unregistered = "" if registration is None else registration.why_not_live()
        return self._watch.why or unregistered or self._why_no_role()

    def _why_no_role(self) -> str:
        roles = self._roles
        if roles.may_act():
            return ""
        group = roles.replica_set
        if roles.term is not None:
            return "the replica's lease as master is not renewed: another one may be master by now"
        if group is None:
            return "no nameserver has said yet who is master of the group"
        if group.master_id == roles.own.broker_id:
            return "the replica is becoming master"
        if roles.own.incarnation not in {
            name.incarnation for name in group.in_sync if name.broker_id == roles.own.broker_id
        }:
            behind = "" if not self._report.trouble else f": {self._report.trouble}"
            return f"the replica is not in sync{behind}"
        joined_end = self._follower.joined_end
        if joined_end is None:
            master = "no master" if group.master_id == NO_MASTER else f"master {group.master_id}"
            return f"the replica has not copied the log yet; the group has {master}"
        end = self._store.appended_end
        if end < joined_end:
            return f"the replica has copied {end} of the {joined_end} bytes that its master had"
        return ""
