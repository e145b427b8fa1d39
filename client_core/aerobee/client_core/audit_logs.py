"""The audit logs of all nodes as one, the newest lines first: `AdminClient.audit_log`.

Invariant: a page has no line that is older than one still unread at another node. So pages put
together are the lines of all nodes in order of time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from aerobee.client_core.cluster import ClusterConnection
from aerobee.client_core.master_search import Masters
from aerobee.client_core.offsets import all_of
from aerobee.cluster_view.methods import READ_AUDIT_LOG
from aerobee.runtime import errors
from aerobee.v1 import audit_log_pb2, nameserver_pb2

LINES_MAX: Final = 50
END: Final = "-"
"""The place before everything that a node keeps."""
SILENT: Final = "!"
"""The place of a node that did not answer: its lines would come out of order later."""
_REFUSALS = (errors.AccessDenied, errors.Unauthenticated, errors.InvalidArgument)


@dataclass(frozen=True, slots=True)
class AuditLine:
    """A line of one node's audit log."""

    time: str
    """Such as `2026-11-26T22:42:35.702Z`, by the node's clock."""
    node: str
    """Such as `broker:aerobee/broker-a/0`."""
    event: str
    """`act`, `refusal`, or what docs/audit-log.md names."""
    caller: str
    """`user NAME`, a node, `operator:command` or `anonymous`; empty: nobody called."""
    method: str
    """The name of the call, such as `CreateTopic`; empty: none."""
    result: str
    content: Mapping[str, Any]
    """Everything in the line."""
    text: str
    """As it is in the file, with hash."""


@dataclass(frozen=True, slots=True)
class AuditLines:
    """The last lines of all nodes, the newest first."""

    lines: tuple[AuditLine, ...]
    older: Mapping[str, str]
    """For the page before this one: the place to continue, by address. Empty: there is nothing
    before."""
    read_to: str
    """All lines since this time were looked at; empty: all that there are."""
    unanswered: Mapping[str, str]
    """Nodes whose lines are missing, and why."""
    without_log: tuple[str, ...]
    """Nodes that keep no audit log."""
    damaged: Mapping[str, int]
    """Lines that are not as they were written, by node: `aerobee audit-log verify` says which."""


class AuditLogAdmin:
    """Audit logs of nodes: the last lines."""

    def __init__(self, connection: ClusterConnection, *, timeout_ms: int = 5_000) -> None:
        self._masters = Masters(connection, timeout_ms=timeout_ms)
        self._nameservers = connection.nameservers.addresses
        self._channels = connection.channels
        self._timeout_ms = timeout_ms

    async def last(
        self,
        *,
        caller: str = "",
        method: str = "",
        about: str = "",
        only_refusals: bool = False,
        begin_ms: int = 0,
        end_ms: int = 0,
        older: Mapping[str, str] | None = None,
        max_lines: int = LINES_MAX,
    ) -> AuditLines:
        """The last lines of every broker, and of every nameserver that this client knows: one
        question to each, which reads at most 512 KiB of its files. With a filter, a page may
        therefore have few lines, or none, although there are `older` ones.

        Args:
            caller, method, about: only lines whose caller, method, and needed rights or request
                contain these texts.
            only_refusals: only calls that were refused.
            begin_ms, end_ms: only lines of this time, in milliseconds since 1970-01-01 UTC,
                inclusive; 0: no limit.
            older: of a page, for the page before it.
            max_lines: 1 to 200.

        Raises:
            AccessDenied: this needs Get on the cluster's AuditLog, and no topic denied.
            InvalidArgument. Unreachable, DeadlineExceeded: no nameserver answers.
        """
        request = audit_log_pb2.ReadAuditLogRequest(
            caller=caller,
            method=method,
            about=about,
            only_refusals=only_refusals,
            begin_ms=begin_ms,
            end_ms=end_ms,
            lines_max=max_lines,
        )
        nodes, silent = _nodes(await self._masters.describe_cluster(), self._nameservers)
        places = dict(older) if older is not None else dict.fromkeys(nodes, "")
        silent |= {
            nodes[each]: "it did not answer when the newest of these lines were read"
            for each, place in places.items()
            if place == SILENT and each in nodes
        }

        answers: dict[str, audit_log_pb2.AuditLogPage] = {}

        async def ask(address: str, place: str) -> None:
            try:
                answers[address] = await self._ask(address, place, request)
            except _REFUSALS:
                raise
            except errors.AerobeeError as error:
                silent[nodes[address]] = str(error)

        await all_of(
            [
                ask(each, place)
                for each, place in places.items()
                if each in nodes and place not in (END, SILENT)
            ]
        )
        return page_of(answers, places, nodes, silent, max_lines)

    async def _ask(
        self, address: str, place: str, request: audit_log_pb2.ReadAuditLogRequest
    ) -> audit_log_pb2.AuditLogPage:
        """Raises Unreachable, too, if another node than the one of the place answers."""
        before, _, expected = place.partition("@")
        wanted = audit_log_pb2.ReadAuditLogRequest(before=before)
        wanted.MergeFrom(request)
        answer = await self._channels.call(
            address, READ_AUDIT_LOG, wanted, timeout_ms=self._timeout_ms
        )
        if expected and answer.node != expected:
            raise errors.Unreachable(
                f"{answer.node or 'another node'} answers at {address} now, and not {expected}"
            )
        return answer


def _nodes(
    found: nameserver_pb2.ClusterDescription, nameservers: Sequence[str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Who is asked, by address, and who cannot be."""
    nodes = {address: f"nameserver {address}" for address in nameservers}
    brokers = {each.address: _replica(each.identity) for each in found.brokers}
    known = {f"{each.broker_name}/{number}" for each in found.groups for number in each.replicas}
    away = sorted(known.difference(brokers.values()))
    return nodes | brokers, dict.fromkeys(away, "it is not registered")


def page_of(
    answers: Mapping[str, audit_log_pb2.AuditLogPage],
    places: Mapping[str, str],
    nodes: Mapping[str, str],
    silent: Mapping[str, str],
    max_lines: int,
) -> AuditLines:
    """Of lines found at several nodes, those that are in order whatever the nodes still have."""
    horizon = max((each.read_to for each in answers.values() if each.next), default="")
    found = [
        (time, address, number)
        for address, answer in answers.items()
        for number, time in enumerate(_times(answer))
        if time >= horizon
    ]
    # By time; at equal times, of one node in its order.
    found.sort(key=lambda each: (each[1], each[2]))
    found.sort(key=lambda each: each[0], reverse=True)
    shown = found[:max_lines]
    older = dict.fromkeys(places, SILENT)
    for address, answer in answers.items():
        count = sum(each[1] == address for each in shown)
        if count == len(answer.lines):
            place = answer.next
        else:
            place = answer.lines[count - 1].place if count else places[address].partition("@")[0]
        if not place and count == len(answer.lines):
            older[address] = END
        else:
            older[address] = f"{place}@{answer.node}"
    is_over = all(older[address] == END for address in answers)
    older = {each: place for each, place in older.items() if place != END}
    parsed = [_line(answers[address].lines[number].json) for _, address, number in shown]
    return AuditLines(
        lines=tuple(parsed),
        older={} if is_over else older,
        read_to="" if is_over else max(horizon, shown[-1][0] if len(found) > max_lines else ""),
        unanswered=silent,
        without_log=tuple(
            sorted(nodes[each] for each, answer in answers.items() if not answer.is_kept)
        ),
        damaged={nodes[each]: answer.damaged for each, answer in answers.items() if answer.damaged},
    )


def _times(answer: audit_log_pb2.AuditLogPage) -> Iterable[str]:
    """Of its lines; never rising, whatever its clock did, so that a page ends at one place."""
    lowest = ""
    for each in answer.lines:
        time = _line(each.json).time
        lowest = time if not lowest else min(lowest, time)
        yield lowest


def _line(data: bytes) -> AuditLine:
    content = json.loads(data)
    return AuditLine(
        time=str(content.get("time", "")),
        node=str(content.get("node", "")),
        event=str(content.get("event", "")),
        caller=str(content.get("caller", "")),
        method=str(content.get("method", "")).rpartition("/")[2],
        result=str(content.get("result", "")),
        content=content,
        text=data.decode("utf-8", "replace"),
    )


def _replica(identity: Any) -> str:
    return f"{identity.broker_name}/{identity.broker_id}"
