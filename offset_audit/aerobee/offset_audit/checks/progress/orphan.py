"""The checks of `rules.orphan`."""

from __future__ import annotations

from aerobee.offset_audit.checks.progress.telling import check_of
from aerobee.offset_audit.rules import orphan as rules

ORPHAN = check_of(rules.ORPHAN)
