"""What became of an earlier run's findings: which are cured, by this run's own reading.

A finding counts as cured only if this run could have found it again: its check was made, its broker
answered, and no finding was left out of the summary.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

Finding = Mapping[str, Any]

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

    def lines(self) -> Iterator[str]:
        """For people, the cured ones last."""
        counts = f"{len(self.cured)} cured, {len(self.still)} still there"
        if self.unknown:
            counts += f", {len(self.unknown)} not known now"
        yield f"of the findings of run {self.run_id}: {counts}"
        for word, findings in (
            ("still there", self.still),
            ("not known now", self.unknown),
            ("cured", self.cured),
        ):
            for one in findings:
                yield f"  {word}: {one['check']}: {one['evidence']}"


def after(
    earlier: Mapping[str, Any],
    findings: Sequence[Finding],
    *,
    findings_total: int,
    not_asked: Sequence[str],
    brokers: Sequence[Mapping[str, Any]],
) -> After:
    """`earlier`: the content of that run's `summary.json`; the rest is of this run."""
    now = {_key(one) for one in findings}
    answered = {one["broker_name"] for one in brokers if one["answered"]}
    parts: dict[str, list[Finding]] = {"cured": [], "still": [], "unknown": []}
    for one in earlier["findings"]:
        is_seen = (
            one["check"] not in not_asked
            and (one["broker_name"] is None or one["broker_name"] in answered)
            and findings_total == len(findings)
        )
        part = "still" if _key(one) in now else "cured" if is_seen else "unknown"
        parts[part].append(one)
    return After(
        earlier["run_id"],
        earlier["run_at_ms"],
        **{name: tuple(each) for name, each in parts.items()},
    )


def _key(finding: Finding) -> tuple[Any, ...]:
    return tuple(finding[name] for name in _PLACE)
