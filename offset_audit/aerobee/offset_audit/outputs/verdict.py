"""A run in a few words: what is lost, what was found, and what was not even checked.

The same words on a terminal, in the report and in `summary.json`. A run never says that nothing is
lost: a snapshot has read no stored byte.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

_NOUNS: Final = (
    ("CRITICAL", "critical finding", "critical findings"),
    ("ERROR", "error", "errors"),
    ("WARNING", "warning", "warnings"),
    ("INFO", "note", "notes"),
)

_PAGE: Final = "docs/audit-findings.md"
_TOGETHER: Final = ("HALF_OVERDUE", "DELAY_OVERDUE", "TIMER_OVERDUE")
"""Checks that share a heading in the documentation."""

SHOWS: Final = "shows"
CURES: Final = "cures"
_CURES: Final = ("aerobee offset delete ", "aerobee offset reset ", "aerobee group delete ")


LOSSES: Final = (
    "GAP",
    "CORRUPT",
    "OUT_OF_RANGE_LOW",
    "RETRY_LOST",
    "TIER_IMBALANCE",
    "SKIPPED",
)
"""Checks whose critical findings are messages that no group, or not every group, will get."""


def lost(affected: Mapping[str, int | None]) -> str:
    """What critical findings of LOSSES count, as the first sentence of a verdict; empty if
    there are none.

    >>> lost({"GAP": 3, "SKIPPED": None})
    'Lost or skipped: 3 messages (GAP), an unknown number (SKIPPED). '
    """
    parts = [f"{_messages(affected[check])} ({check})" for check in LOSSES if check in affected]
    return f"Lost or skipped: {', '.join(parts)}. " if parts else ""


def _messages(count: int | None) -> str:
    if count is None:
        return "an unknown number"
    return f"{count:,} {'message' if count == 1 else 'messages'}"


def found(counts: Mapping[str, int]) -> str:
    """`12 warnings, no errors`: findings by severity, the worst first."""
    parts = [
        f"{count:,} {one if count == 1 else many}"
        for severity, one, many in _NOUNS
        if (count := counts.get(severity, 0))
    ]
    if not parts:
        return "No findings"
    if not counts.get("CRITICAL") and not counts.get("ERROR"):
        parts.append("no errors")
    return ", ".join(parts)


def not_read(depth: str, not_asked: Sequence[str]) -> str:
    """How much of the stored bytes the run has read: a sentence."""
    if not not_asked:
        return "All bytes of the named stores were read."
    if depth == "deep":
        return "Of stored bytes only the brokers' own checksums were compared."
    return "Stored bytes were not read."


def page_of(check: str) -> str:
    """Where the documentation explains a check's findings.

    >>> page_of("LAG")
    'docs/audit-findings.md#lag'
    """
    names = _TOGETHER if check in _TOGETHER else (check,)
    return f"{_PAGE}#{'-'.join(names).lower()}"


def effect_of(command: str) -> str:
    """Whether a finding's command fixes the problem or only shows it, and what fixing takes.

    >>> effect_of("aerobee group show billing")
    'shows'
    """
    if command.endswith(" --dry-run"):
        return f"{SHOWS}; {CURES} without --dry-run"
    words = f"{command} "
    if words.startswith("aerobee store repair "):
        return f"{SHOWS}; {CURES} with --apply"
    return CURES if words.startswith(_CURES) else SHOWS
