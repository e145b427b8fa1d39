"""All policies of one user, arranged so that a decision costs a few lookups.

The order of Apache's ACL 2.0: policies that match and are not defaults; only if there are none, the
defaults that match. Among these the most specific pattern wins, and between equals Deny wins. If
nothing matches, the answer is no.
"""

from __future__ import annotations

from collections.abc import Iterable

from aerobee.access.policies import Decision, Policy, Ruling
from aerobee.access.resources import SEEING, Action, Kind, Need

_NOTHING: tuple[Policy, ...] = ()


class _Arranged:
    """Policies by the text of their patterns."""

    __slots__ = ("_any", "_by_text", "_lengths")

    def __init__(self, policies: Iterable[Policy]) -> None:
        by_text: dict[tuple[Kind, str], list[Policy]] = {}
        for policy in policies:
            by_text.setdefault((policy.pattern.kind, policy.pattern.text), []).append(policy)
        for alike in by_text.values():
            # Deny first.
            alike.sort(key=lambda policy: policy.decision is Decision.ALLOW)
        self._any = tuple(by_text.pop((Kind.ANY, "*"), ()))
        self._by_text = {key: tuple(alike) for key, alike in by_text.items()}
        prefixes = {text for _, text in by_text if text.endswith("*")}
        self._lengths = sorted({len(text) - 1 for text in prefixes}, reverse=True)

    def first(self, kind: Kind, name: str, action: Action, source: str) -> Policy | None:
        """The policy that counts."""
        by_text = self._by_text
        for policy in by_text.get((kind, name), _NOTHING):
            if policy.matches(kind, name, action, source):
                return policy
        for length in self._lengths:
            if length <= len(name):
                for policy in by_text.get((kind, name[:length] + "*"), _NOTHING):
                    if policy.matches(kind, name, action, source):
                        return policy
        for policy in self._any:
            if policy.matches(kind, name, action, source):
                return policy
        return None


class UserRules:
    """The policies of one user."""

    __slots__ = ("_customs", "_defaults", "_denying", "denies")

    def __init__(self, policies: Iterable[Policy] = ()) -> None:
        mine = tuple(policies)
        self._customs = _Arranged(policy for policy in mine if not policy.is_default)
        self._defaults = _Arranged(policy for policy in mine if policy.is_default)
        self.denies = any(policy.decision is Decision.DENY for policy in mine)
        """Whether any policy does."""
        self._denying = tuple(policy for policy in mine if _denies_topics(policy))

    def decide(self, need: Need, source: str) -> Ruling:
        """Whether a call from that address is allowed. The rule is the first that allows, or else
        the first that denies."""
        denied: Policy | None = None
        for action in Action:
            if action not in need.actions:
                continue
            rule = self._customs.first(need.kind, need.name, action, source)
            if rule is None:
                rule = self._defaults.first(need.kind, need.name, action, source)
            if rule is not None and rule.decision is Decision.ALLOW:
                hiding = self._hiding(source) if need.shows_all_topics else None
                return Ruling(need, hiding is None, hiding or rule)
            denied = denied or rule
        why = "" if denied is not None else "no policy allows it"
        return Ruling(need, False, denied, why)

    def _hiding(self, source: str) -> Policy | None:
        """A policy that hides some topic: one that denies, and that no better one overrules."""
        for policy in self._denying:
            ruling = self.decide(Need(Kind.TOPIC, policy.pattern.text, SEEING), source)
            if ruling.is_denied:
                return ruling.rule
        return None


def _denies_topics(policy: Policy) -> bool:
    is_of_topics = policy.pattern.kind in (Kind.TOPIC, Kind.ANY)
    return policy.decision is Decision.DENY and is_of_topics and bool(policy.actions & SEEING)
