"""A check: a name, its requirements, and a pure function from tables to findings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from aerobee.offset_audit.frames.frame import Frame
from aerobee.offset_audit.rules.limits import Limits
from aerobee.offset_audit.rules.severity import Severity
from aerobee.offset_audit.tables import Tables

__all__ = ["Check", "Limits", "Severity"]


@dataclass(frozen=True, slots=True)
class Check:
    """One question. `run` gives rows of FINDINGS in which `run_id`, `run_at_ms`, `previous_state`
    and `first_seen_ms` are null; the run fills them."""

    name: str
    title: str
    """One sentence, for the report and the docs."""
    run: Callable[[Tables, Limits], Frame]
    is_deep: bool = False
    """Whether it needs the bytes of stores."""
    is_live: bool = False
    """Deep, but what brokers report about their logs is enough."""
    needs: Mapping[str, str] = field(default_factory=dict)
    """By table: an SQL aggregate over its rows; if it is false, they give no finding. A run skips a
    check if none of these holds; without any it always runs the check."""
