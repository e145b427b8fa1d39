"""The checks of `rules.lag`."""

from __future__ import annotations

from aerobee.offset_audit.checks.progress.telling import check_of
from aerobee.offset_audit.rules import lag as rules

LAG = check_of(rules.LAG)
SLOW = check_of(rules.SLOW)
SAMPLING = check_of(rules.SAMPLING)
