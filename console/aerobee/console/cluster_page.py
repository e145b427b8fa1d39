"""The cluster: replicas, disks, and what is wrong now, in the words of `aerobee doctor`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from starlette.responses import Response

from aerobee.cli.cluster_picture import look, remarks
from aerobee.client_core.admin_client import AdminClient
from aerobee.console.visit import Visit
from aerobee.runtime.errors import AerobeeError

FINDINGS_MAX: Final = 50

Examine = Callable[[AdminClient], Awaitable[Sequence[Mapping[str, Any]]]]
"""Findings, the worst first: each with `severity`, `check`, `evidence` and `command`."""


class ClusterPage:
    """The page, with findings if they can be had."""

    def __init__(self, examine: Examine | None) -> None:
        self._examine = examine

    async def show(self, visit: Visit) -> Response:
        state = await visit.admin.cluster()
        replicas = await look(visit.admin, state)
        findings: Sequence[Mapping[str, Any]] = ()
        problem = "Findings need `aerobee doctor`, which is not installed here."
        is_wanted = visit.query.get("findings") == "1"
        if self._examine is not None:
            problem = ""
            if is_wanted:
                try:
                    findings = await self._examine(visit.admin)
                except AerobeeError as error:
                    problem = str(error)
        return visit.render(
            "cluster.html",
            state=state,
            replicas=replicas,
            remarks=remarks(replicas),
            findings=findings[:FINDINGS_MAX],
            more=max(0, len(findings) - FINDINGS_MAX),
            is_examined=is_wanted and not problem,
            problem=problem,
        )
