"""What became of an earlier run's findings, and which are new: by this run's own reading.

A finding counts as cured only if this run could have found it again: its check was made, its broker
answered, its topic and group were asked for, and no finding was left out of the summary. It counts
as new only if the earlier run's summary left none out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

Finding = Mapping[str, Any]

FINDINGS_MAX: Final = 200
"""How many of a run's findings, worst first, a summary has."""

_PLACE: Final = ("check", "cluster", "broker_name", "broker_id", "topic", "queue_id", "group")


@dataclass(frozen=True, slots=True)
class After:
    """The findings of the run `run_id`, each in one list."""

    run_id: str
    run_at_ms: int
    cured: tuple[Finding, ...]
    still: tuple[Finding, ...]
    unknown: tuple[Finding, ...]
    """This run could not have found them again."""
    new: tuple[Finding, ...] | None = None
    """Of this run's findings those that the earlier one did not have; None: not known."""
    is_asked: bool = True
    """Whether the request named the run; otherwise it is the newest one of the history."""

    def lines(self) -> Iterator[str]:
        """For people, the cured ones last. What is new stands above anyway, and what is still there
        only matters to those who asked."""
        counts = f"{len(self.cured)} cured, {len(self.still)} still there"
        if self.unknown:
            counts += f", {len(self.unknown)} not known now"
        if self.new is not None:
            counts = f"{len(self.new)} new, {counts}"
        yield f"since run {self.run_id}: {counts}"
        told = [("new", self.new or ()), ("cured", self.cured)]
        if self.is_asked:
            told[1:1] = [("still there", self.still), ("not known now", self.unknown)]
        for word, findings in told:
            for one in findings:
                yield f"  {word}: {one['check']}: {one['evidence']}"


def after(
    earlier: Mapping[str, Any],
    findings: Sequence[Finding],
    *,
    findings_total: int,
    not_asked: Sequence[str],
    brokers: Sequence[Mapping[str, Any]],
    groups: Collection[str] = (),
    topics: Collection[str] = (),
    is_asked: bool = True,
) -> After:
    """`earlier`: `run_id`, `run_at_ms` and `findings` of that run's `summary.json`; the rest is of
    this run. Empty `groups` and `topics`: all were asked for."""
    now = {_key(one): one for one in findings}
    answered = {one["broker_name"] for one in brokers if one["answered"]}
    parts: dict[str, list[Finding]] = {"cured": [], "still": [], "unknown": []}
    for one in earlier["findings"]:
        is_seen = (
            one["check"] not in not_asked
            and (one["broker_name"] is None or one["broker_name"] in answered)
            and (not groups or one["group"] in groups)
            and (not topics or one["topic"] in topics)
            and findings_total == len(findings)
        )
        part = "still" if _key(one) in now else "cured" if is_seen else "unknown"
        parts[part].append(one)
    before = {_key(one) for one in earlier["findings"]}
    is_whole = len(earlier["findings"]) < FINDINGS_MAX
    new = tuple(one for key, one in now.items() if key not in before) if is_whole else None
    return After(
        earlier["run_id"],
        earlier["run_at_ms"],
        **{name: tuple(each) for name, each in parts.items()},
        new=new,
        is_asked=is_asked,
    )


def _key(finding: Finding) -> tuple[Any, ...]:
    return tuple(finding[name] for name in _PLACE)
