"""The checks of `rules.standstill`."""

from __future__ import annotations

from aerobee.offset_audit.checks.progress.telling import check_of
from aerobee.offset_audit.rules import standstill as rules

STUCK = check_of(rules.STUCK)
STOPPED = check_of(rules.STOPPED)
UNCOMMITTED_QUEUE = check_of(rules.UNCOMMITTED_QUEUE)
