"""The file that declares what a cluster shall have: YAML, of which JSON is a part.

Everything that is wrong with it is found before the cluster is asked anything, each with its line.
A scalar is taken as it is written: a topic may be called `yes` or `0123` without quotes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import yaml

from aerobee.access.policies import Policy
from aerobee.access.quota import DEFAULT, GROUP, QUOTA_FIELDS, USER, Quota, Subject, check_fields
from aerobee.access.resources import actions_text
from aerobee.broker.retries.policy import RETRIES_LIMIT
from aerobee.broker.retries.settings import MULTIPLIER_MAX
from aerobee.cli.declared.plan import DECISION, QUEUES, TYPE, Fields, Key, Kind, Value, Wish
from aerobee.cli.moments import parse_delay_ms
from aerobee.cli.topic_keep import parse_keep, parse_keep_bytes
from aerobee.domain import names
from aerobee.domain.topic_attributes import (
    DECLARED_TYPES,
    KEEP_BYTES,
    KEEP_MS,
    MESSAGE_TYPE,
    check_topic_attributes,
)
from aerobee.runtime.config import nearest
from aerobee.runtime.errors import AerobeeError, InvalidArgument
from aerobee.store.format.retry_delays import Exponential

PERMISSIONS: Final = ("rw", "r", "w")
ATTRIBUTE: Final = "attributes."
"""Before the name of a topic's attribute, as a field."""
BY_DEFAULT: Final = "default"
"""Last word of the key of a policy that counts only where no other does."""
EXPONENTIAL: Final = "exponential"
BACK_OFFS: Final = ("levels", EXPONENTIAL)
NO_LIMIT: Final = "none"
QUEUES_MAX: Final = 2**31 - 1

_SECTIONS: Final = {
    "topics": Kind.TOPIC,
    "groups": Kind.GROUP,
    "quotas": Kind.QUOTA,
    "policies": Kind.POLICY,
}
_KEEPS: Final = {"keep": (KEEP_MS, parse_keep), "keepBytes": (KEEP_BYTES, parse_keep_bytes)}
"""Members of a topic that stand for an attribute."""
_MEMBERS: Final = {
    Kind.TOPIC: ("name", QUEUES, "permission", TYPE, "ordered", *_KEEPS, "attributes"),
    Kind.GROUP: ("name", "retriesMax", "backOff", "initial", "longest", "multiplier", "ordered"),
    Kind.QUOTA: (USER, GROUP, DEFAULT, "limits"),
    Kind.POLICY: ("user", "resource", "actions", DECISION, "sources", "default"),
}


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a file."""

    line: int
    text: str


class _Unfit(Exception):
    def __init__(self, node: yaml.Node, text: str) -> None:
        super().__init__(text)
        self.problem = Problem(_line(node), text)


def read_wish(text: str) -> tuple[Wish, list[Problem]]:
    """What the text declares, and what is wrong with it; only if nothing is, the wish counts."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        return Wish({}), [Problem(mark.line + 1 if mark else 1, f"not YAML: {error.problem}")]
    except (yaml.YAMLError, RecursionError) as error:
        return Wish({}), [Problem(1, f"not YAML: {' '.join(str(error).split())[:200]}")]
    if root is None:
        return Wish({}), [Problem(1, f"the file is empty; write {', '.join(_SECTIONS)}")]
    return _Reader().read(root)


class _Reader:
    """Collects what is declared, and goes on after what is wrong."""

    def __init__(self) -> None:
        self._things: dict[Key, Fields] = {}
        self._lines: dict[Key, int] = {}
        self._problems: list[Problem] = []

    def read(self, root: yaml.Node) -> tuple[Wish, list[Problem]]:
        sections: Mapping[str, yaml.Node] = {}
        with self._noted(None):
            sections = self._members(root, tuple(_SECTIONS), "the file")
        for name, node in sections.items():
            with self._noted(None):
                for entry in _entries(node, name):
                    self._read_entry(_SECTIONS[name], entry)
        wish = Wish(self._things, frozenset(_SECTIONS[name] for name in sections))
        return wish, sorted(self._problems, key=lambda each: each.line)

    def _read_entry(self, kind: Kind, entry: yaml.Node) -> None:
        with self._noted(entry):
            members = self._members(entry, _MEMBERS[kind], f"a {kind}")
            match kind:
                case Kind.TOPIC:
                    key, fields = self._topic(entry, members)
                case Kind.GROUP:
                    key, fields = _group(entry, members)
                case Kind.QUOTA:
                    key, fields = self._quota(entry, members)
                case Kind.POLICY:
                    key, fields = _policy(entry, members)
            if key in self._things:
                raise _Unfit(entry, f"{key} is declared twice; first in line {self._lines[key]}")
            self._things[key] = fields
            self._lines[key] = _line(entry)

    @contextmanager
    def _noted(self, entry: yaml.Node | None) -> Iterator[None]:
        """Errors within become problems, those of the product's own checks at the entry."""
        try:
            yield
        except _Unfit as error:
            self._problems.append(error.problem)
        except AerobeeError as error:
            assert entry is not None
            self._problems.append(Problem(_line(entry), str(error)))

    def _members(self, node: yaml.Node, known: tuple[str, ...], what: str) -> dict[str, yaml.Node]:
        """Of a mapping, by name; those that are not `known`, unless that is empty, and repeated
        ones are noted and left out."""
        found: dict[str, yaml.Node] = {}
        if not isinstance(node, yaml.MappingNode):
            raise _Unfit(node, f"{what} is written as {known[0]}: ..., not as {_shape(node)}")
        for key, value in node.value:
            name = _text(key, "a key")
            if known and name not in known:
                hint = nearest(name, dict.fromkeys(known))
                self._problems.append(Problem(_line(key), f"unknown key {name!r} of {what}{hint}"))
            elif name in found:
                self._problems.append(Problem(_line(key), f"{name} is there twice; remove one"))
            else:
                found[name] = value
        return found

    def _topic(self, entry: yaml.Node, members: Mapping[str, yaml.Node]) -> tuple[Key, Fields]:
        name = _text(_needed(entry, members, "name", "a topic"), "name")
        names.check_topic_name(name)
        if names.is_system_topic(name) or names.is_retry_topic(name):
            raise InvalidArgument(f"topic {name} is made by brokers themselves; leave it out")
        fields = _given(
            members,
            {
                QUEUES: _number(1, QUEUES_MAX),
                "permission": _choice(PERMISSIONS),
                TYPE: _choice(DECLARED_TYPES),
                "ordered": _yes_or_no,
            },
        )
        kept = {_KEEPS[each][0]: _kept(members[each], each) for each in _KEEPS if each in members}
        check_topic_attributes(kept)
        fields |= {ATTRIBUTE + each: value or None for each, value in kept.items()}
        if "attributes" in members:
            attributes = self._texts(members["attributes"], "attributes")
            if MESSAGE_TYPE in attributes:
                raise _Unfit(members["attributes"], f"write type: for the attribute {MESSAGE_TYPE}")
            if both := kept.keys() & attributes.keys():
                raise _Unfit(members["attributes"], f"{min(both)} is there twice; remove one")
            check_topic_attributes(attributes)
            # As with `aerobee topic update`, an empty value stands for a removal.
            fields |= {ATTRIBUTE + each: value or None for each, value in attributes.items()}
        return Key(Kind.TOPIC, (name,)), fields

    def _quota(self, entry: yaml.Node, members: Mapping[str, yaml.Node]) -> tuple[Key, Fields]:
        whose = [word for word in (USER, GROUP, DEFAULT) if word in members]
        if len(whose) != 1:
            raise _Unfit(
                entry, "say whose quota it is: one of user: NAME, group: NAME, default: true"
            )
        kind = whose[0]
        if kind == DEFAULT and not _yes_or_no(members[DEFAULT], DEFAULT):
            raise _Unfit(members[DEFAULT], "write default: true, or leave it out")
        subject = Subject.checked(kind, "" if kind == DEFAULT else _text(members[kind], kind))
        node = _needed(entry, members, "limits", "a quota")
        limits = {
            name: _limit(value, name)
            for name, value in self._members(node, QUOTA_FIELDS, "limits").items()
        }
        if not limits:
            raise _Unfit(node, f"name at least one limit: {', '.join(QUOTA_FIELDS)}")
        quota = Quota().changed(limits)
        check_fields(subject, quota)
        # The whole quota: what is not named is left to the default.
        words = (kind,) if kind == DEFAULT else (kind, subject.name)
        return Key(Kind.QUOTA, words), {name: limits.get(name) for name in QUOTA_FIELDS}

    def _texts(self, node: yaml.Node, what: str) -> dict[str, str]:
        if not isinstance(node, yaml.MappingNode):
            raise _Unfit(node, f"{what} is written as NAME: VALUE, not as {_shape(node)}")
        return {name: _text(each, name) for name, each in self._members(node, (), what).items()}


def _group(entry: yaml.Node, members: Mapping[str, yaml.Node]) -> tuple[Key, Fields]:
    name = _text(_needed(entry, members, "name", "a group"), "name")
    names.check_group_name(name)
    fields = _given(
        members,
        {
            "retriesMax": _number(0, RETRIES_LIMIT),
            "ordered": _yes_or_no,
            "backOff": _choice(BACK_OFFS),
        },
    )
    told = _given(
        members,
        {"initial": _time, "longest": _time, "multiplier": _number(1, MULTIPLIER_MAX)},
    )
    if told and fields.get("backOff") != EXPONENTIAL:
        raise _Unfit(entry, f"{', '.join(told)}: only for backOff: {EXPONENTIAL}")
    if fields.get("backOff") == EXPONENTIAL:
        default = Exponential()
        initial, longest = told.get("initial", default.initial_ms), told.get("longest")
        longest = default.max_ms if longest is None else longest
        assert isinstance(initial, int)
        assert isinstance(longest, int)
        if not 0 < initial <= longest:
            raise _Unfit(
                entry,
                f"a back-off from {initial} ms to {longest} ms: begin with 1 ms or more, and "
                "end with as much or more",
            )
        fields |= {"initialMs": initial, "longestMs": longest}
        fields["multiplier"] = told.get("multiplier", default.multiplier)
    return Key(Kind.GROUP, (name,)), fields


def _policy(entry: yaml.Node, members: Mapping[str, yaml.Node]) -> tuple[Key, Fields]:
    user, resource = (
        _text(_needed(entry, members, name, "a policy"), name) for name in ("user", "resource")
    )
    actions = _needed(entry, members, "actions", "a policy")
    is_default = "default" in members and _yes_or_no(members["default"], "default")
    policy = Policy.parse(
        user,
        resource,
        ",".join(_words(actions, "actions")),
        _text(members[DECISION], DECISION) if DECISION in members else "Allow",
        sources=tuple(_words(members["sources"], "sources")) if "sources" in members else (),
        is_default=is_default,
    )
    return policy_of(policy)


def policy_of(policy: Policy) -> tuple[Key, Fields]:
    """One that is declared, or that a cluster has, in the same words."""
    by_default = (BY_DEFAULT,) if policy.is_default else ()
    return Key(Kind.POLICY, (policy.user, str(policy.pattern), *by_default)), {
        "actions": actions_text(policy.actions),
        DECISION: str(policy.decision),
        "sources": ",".join(sorted(map(str, policy.sources))) or None,
    }


Parse = Callable[[yaml.Node, str], Value]


def _given(members: Mapping[str, yaml.Node], parsers: Mapping[str, Parse]) -> dict[str, Value]:
    return {name: parsers[name](node, name) for name, node in members.items() if name in parsers}


def _needed(entry: yaml.Node, members: Mapping[str, yaml.Node], name: str, what: str) -> yaml.Node:
    if name not in members:
        raise _Unfit(entry, f"{what} needs {name}: add it")
    return members[name]


def _entries(node: yaml.Node, section: str) -> list[yaml.Node]:
    if not isinstance(node, yaml.SequenceNode):
        raise _Unfit(node, f"{section} must be a list, not {_shape(node)}; write [] for none")
    return list(node.value)


def _text(node: yaml.Node, what: str) -> str:
    if not isinstance(node, yaml.ScalarNode) or _is_null(node):
        raise _Unfit(node, f"{what} must be text, not {_shape(node)}")
    return str(node.value)


def _words(node: yaml.Node, what: str) -> list[str]:
    """A list of texts, or a text with commas."""
    if isinstance(node, yaml.SequenceNode):
        return [_text(each, what) for each in node.value]
    return _text(node, what).split(",")


def _number(least: int, most: int) -> Parse:
    def parse(node: yaml.Node, what: str) -> int:
        text = node.value if isinstance(node, yaml.ScalarNode) else ""
        if not (text.isascii() and text.isdecimal() and len(text) < 18) or (
            not least <= int(text) <= most
        ):
            raise _Unfit(
                node, f"{what} must be a number from {least} to {most}, not {_shape(node)}"
            )
        return int(text)

    return parse


def _limit(node: yaml.Node, what: str) -> int:
    if isinstance(node, yaml.ScalarNode) and node.value == NO_LIMIT:
        return 0
    text = node.value if isinstance(node, yaml.ScalarNode) else ""
    if not (text.isascii() and text.isdecimal() and len(text) < 18 and int(text)):
        raise _Unfit(node, f"{what} must be a number from 1 on, or {NO_LIMIT}, not {_shape(node)}")
    return int(text)


def _choice(words: tuple[str, ...]) -> Parse:
    def parse(node: yaml.Node, what: str) -> str:
        text = _text(node, what)
        if text not in words:
            hint = nearest(text, dict.fromkeys(words))
            raise _Unfit(node, f"{what} cannot be {text!r}{hint}")
        return text

    return parse


def _kept(node: yaml.Node, what: str) -> str:
    try:
        return _KEEPS[what][1](_text(node, what))
    except ValueError as error:
        raise _Unfit(node, f"{what}: {error}") from None


def _yes_or_no(node: yaml.Node, what: str) -> bool:
    if not isinstance(node, yaml.ScalarNode) or node.value not in ("true", "false"):
        raise _Unfit(node, f"{what} must be true or false, not {_shape(node)}")
    return bool(node.value == "true")


def _time(node: yaml.Node, what: str) -> int:
    try:
        return parse_delay_ms(_text(node, what))
    except ValueError as error:
        raise _Unfit(node, f"{what}: {error}") from None


def _is_null(node: yaml.ScalarNode) -> bool:
    return bool(node.tag == "tag:yaml.org,2002:null")


def _shape(node: yaml.Node) -> str:
    if isinstance(node, yaml.ScalarNode):
        return "nothing" if _is_null(node) else repr(node.value[:80])
    return "a list" if isinstance(node, yaml.SequenceNode) else "a mapping"


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1
