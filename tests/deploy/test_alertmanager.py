"""The Alertmanager of deploy/monitoring makes one page of one outage.

Its rules of inhibition are applied here as its documentation has them: an alert is silent while one
that matches `source_matchers` fires, if it matches `target_matchers` and both have the same values
of `equal`, where a label that is not there is an empty one. What matches both sides is not.
Where Alertmanager is installed it is asked as well.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.error import URLError

import pytest
import yaml

from tests.support.cache_folder import cache_folder
from tests.support.monitoring import FOLDER, alert_rules
from tests.support.ports import free_ports
from tests.support.waiting import wait_until

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


OUTAGES = {
    # What etcd_alerts_test.yaml shows to fire when two members of three are lost.
    "etcd": (
        firing(
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
        ),
        # The others are tickets that say which machines to look at.
        ["AerobeeEtcdUnreachable", "AerobeeEtcdMemberMissing", "AerobeeProcessDown"],
    ),
    "a group below its minimum": (
        firing(
            AerobeeTooFewReplicasInSync="c",
            AerobeeMasterNotWritable="c",
            AerobeeReplicaMissing="c",
            AerobeeSendsFail="c",
            AerobeeProcessDown="",
        ),
        ["AerobeeTooFewReplicasInSync", "AerobeeProcessDown"],
    ),
}
"""What fires, and what is heard of it."""


@pytest.mark.parametrize("outage", OUTAGES)
def test_one_outage_is_one_page(outage: str) -> None:
    fire, heard_of = OUTAGES[outage]
    assert heard(fire) == heard_of
    pages = [one["alertname"] for one in fire if one["severity"] == "page"]
    assert len(set(pages) & set(heard_of)) == 1 < len(pages)


@pytest.fixture(scope="module")
def alertmanager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a real one with our file; Debian has it as prometheus-alertmanager."""
    names = ("alertmanager", "prometheus-alertmanager")
    folder = cache_folder() / "alertmanager" / "bin"
    found = [*map(shutil.which, names), shutil.which(folder / "alertmanager")]
    if not any(found):
        pytest.skip("Alertmanager is not installed (Debian: prometheus-alertmanager)")
    port, peers = free_ports(2)
    url = f"http://127.0.0.1:{port}"
    arguments = [
        f"--config.file={FOLDER / 'alertmanager.yml'}",
        f"--storage.path={tmp_path_factory.mktemp('alertmanager')}",
        f"--web.listen-address=127.0.0.1:{port}",
        f"--cluster.listen-address=127.0.0.1:{peers}",
    ]
    log: Path = tmp_path_factory.mktemp("log") / "alertmanager.log"
    with (
        log.open("w") as lines,
        subprocess.Popen(
            [next(filter(None, found)), *arguments], stdout=lines, stderr=lines
        ) as running,
    ):
        try:
            wait_until(lambda: _answers(url), f"Alertmanager: {log}")
            yield url
        finally:
            running.terminate()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/-/ready", timeout=10):
            return True
    except URLError:
        return False


@pytest.mark.slow
@pytest.mark.parametrize("outage", OUTAGES)
def test_alertmanager_itself_makes_one_page_of_one_outage(alertmanager: str, outage: str) -> None:
    fire, heard_of = OUTAGES[outage]
    document = [{"labels": {**alert, "namespace": outage}} for alert in fire]
    urllib.request.urlopen(
        urllib.request.Request(
            f"{alertmanager}/api/v2/alerts",
            json.dumps(document).encode(),
            {"Content-Type": "application/json"},
        ),
        timeout=30,
    ).close()

    def told() -> list[dict[str, Any]]:
        with urllib.request.urlopen(f"{alertmanager}/api/v2/alerts", timeout=30) as answer:
            return [one for one in json.load(answer) if one["labels"]["namespace"] == outage]

    # An alert has no state until its route was looked at, after `group_wait` in part.
    wait_until(
        lambda: all(one["status"]["state"] != "unprocessed" for one in told()) and bool(told()),
        "all alerts judged",
    )
    active = {one["labels"]["alertname"]: one for one in told() if not one["status"]["inhibitedBy"]}
    assert set(active) == set(heard_of)
    for name, alert in active.items():
        receivers = [receiver["name"] for receiver in alert["receivers"]]
        assert receivers == ["pager" if alert["labels"]["severity"] == "page" else "tickets"], name


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
