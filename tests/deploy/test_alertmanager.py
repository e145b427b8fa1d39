"""The Alertmanager of deploy/monitoring makes one page of one outage.

Its rules of inhibition are applied here as its documentation has them: an alert is silent while one
that matches `source_matchers` fires, if it matches `target_matchers` and both have the same values
of `equal`, where a label that is not there is an empty one. What matches both sides is not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

from tests.support.monitoring import FOLDER, alert_rules

Alert = Mapping[str, str]

_MATCHER = re.compile(r'(\w+) *(=~|!=|!~|=) *"(.*)"')


def rules() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load((FOLDER / "alertmanager.yml").read_text())[
        "inhibit_rules"
    ]
    return found


def matches(matchers: list[str], alert: Alert) -> bool:
    return all(_is_met(matcher, alert) for matcher in matchers)


def _is_met(matcher: str, alert: Alert) -> bool:
    found = _MATCHER.fullmatch(matcher)
    assert found, matcher
    name, operator, wanted = found.groups()
    value = alert.get(name, "")
    is_same = re.fullmatch(wanted, value) is not None if operator.endswith("~") else value == wanted
    return is_same != operator.startswith("!")


def heard(alerts: list[Alert]) -> list[str]:
    """Names of those that are not inhibited."""
    return [one["alertname"] for one in alerts if not any(_mutes(other, one) for other in alerts)]


def _mutes(source: Alert, target: Alert) -> bool:
    return any(
        matches(rule["source_matchers"], source)
        and matches(rule["target_matchers"], target)
        and not matches(rule["source_matchers"], target)
        and all(source.get(name, "") == target.get(name, "") for name in rule["equal"])
        for rule in rules()
    )


def firing(**labels: str) -> list[Alert]:
    """Alerts of these names with their severities; the values are those of `cluster`,
    or nothing for alerts on etcd's own series."""
    severities = {rule["alert"]: rule["labels"]["severity"] for rule in alert_rules()}
    return [
        {
            "alertname": name,
            "severity": severities[name],
            **({"cluster": cluster} if cluster else {}),
        }
        for name, cluster in labels.items()
    ]


def test_rules_name_alerts_that_exist() -> None:
    names = {rule["alert"] for rule in alert_rules()}
    for rule in rules():
        for key in ("source_matchers", "target_matchers"):
            assert any(matches(rule[key][:1], {"alertname": name}) for name in names), rule
            for listed in re.findall(r"\(([\w|]+)\)", " ".join(rule[key])):
                for part in listed.split("|"):
                    assert any(part in name for name in names), part


def test_one_outage_of_etcd_is_one_page() -> None:
    """What etcd_alerts_test.yaml shows to fire when two members of three are lost."""
    outage = firing(
        AerobeeEtcdUnreachable="c",
        AerobeeEtcdNoLeader="",
        AerobeeEtcdMemberAlone="",
        AerobeeEtcdMemberMissing="",
        AerobeeNameserverWithoutEtcd="c",
        AerobeeProcessDown="",
        AerobeeRegistrationStale="c",
        AerobeeNotReady="c",
        AerobeeGroupWithoutMaster="c",
        AerobeeSendsFail="c",
    )
    assert heard(outage) == [
        "AerobeeEtcdUnreachable",
        # Tickets that say which machines to look at.
        "AerobeeEtcdMemberMissing",
        "AerobeeProcessDown",
    ]


def test_a_group_below_its_minimum_is_one_page() -> None:
    down = firing(
        AerobeeTooFewReplicasInSync="c",
        AerobeeMasterNotWritable="c",
        AerobeeReplicaMissing="c",
        AerobeeSendsFail="c",
        AerobeeProcessDown="",
    )
    assert heard(down) == ["AerobeeTooFewReplicasInSync", "AerobeeProcessDown"]


def test_nobody_is_silenced_by_another_cluster_or_by_itself() -> None:
    here = {"namespace": "here", "cluster": "c"}
    there = {"namespace": "there", "cluster": "c"}
    outage: Alert = {"alertname": "AerobeeEtcdUnreachable", **here}
    assert heard([outage]) == ["AerobeeEtcdUnreachable"]
    two: list[Alert] = [outage, {"alertname": "AerobeeGroupWithoutMaster", **there}]
    assert heard(two) == ["AerobeeEtcdUnreachable", "AerobeeGroupWithoutMaster"]


def test_pages_and_tickets_go_to_different_receivers() -> None:
    route = yaml.safe_load((FOLDER / "alertmanager.yml").read_text())["route"]
    (pages,) = route["routes"]
    assert pages["matchers"] == ['severity = "page"']
    assert pages["receiver"] != route["receiver"]
