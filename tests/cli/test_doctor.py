"""`aerobee doctor`: rules of the audit on one reading of a running cluster, without Spark.

That it says the same as Spark of the same rows: tests/offset_audit/test_checks_progress.py.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from aerobee.cli.__main__ import main
from aerobee.offset_audit.doctor.examining import CHECKED, examined
from aerobee.offset_audit.frames.expressions import read
from aerobee.offset_audit.rules.limits import Limits
from tests.support.local_up import Up, numbers, received, running, sent
from tests.support.ports import free_port

NOW_MS = 1_790_000_000_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with running(tmp_path_factory.mktemp("up")) as up:
        yield up


@pytest.mark.slow
def test_a_cluster_in_health_has_no_findings(cluster: Up) -> None:
    sent(cluster, "well", numbers(10))
    received(cluster, "well", "readers", 10)
    done = cluster.run("doctor")
    assert done.stdout.startswith("No findings. 1 of 1 broker answered.")


@pytest.mark.slow
def test_a_group_that_is_far_behind_is_a_warning(cluster: Up) -> None:
    sent(cluster, "much", numbers(10_200), "--sharding-key", "one")
    received(cluster, "much", "slow", 1)
    done = cluster.run("doctor", "--group", "slow", expect=1)
    assert done.stdout.startswith("WARNING LAG\n  Group slow has 10,199 messages of topic much ")
    assert "run (shows): aerobee group show slow" in done.stdout
    document = cluster.json("doctor", expect=1)
    (found,) = document["findings"]
    assert (found["check"], found["affected"]) == ("LAG", 10_199)
    assert document["checked"] == list(CHECKED)


@pytest.mark.slow
def test_what_is_in_the_way_is_no_finding(cluster: Up) -> None:
    nowhere = f"127.0.0.1:{free_port()}"
    failed = cluster.run("doctor", "--nameserver", nowhere, expect=69)
    assert f"no nameserver answers at {nowhere}" in failed.stderr
    assert CliRunner().invoke(main, ["doctor", "--what"]).exit_code == 64


def test_it_needs_no_spark() -> None:
    program = (
        "import sys\n"
        "import aerobee.cli.commands.doctor, aerobee.offset_audit.doctor.asking\n"
        "import aerobee.offset_audit.doctor.examining, aerobee.offset_audit.outputs.verdict\n"
        "assert not {'pyspark', 'pyarrow'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_broker_that_does_not_answer_and_a_replica_that_is_gone_are_errors() -> None:
    broker = {
        "cluster": "c",
        "broker_name": "broker-a",
        "broker_id": 0,
        "address": "10.0.0.1:10911",
        "role": "MASTER",
        "epoch": 1,
        "answered": False,
        "error": "no connection",
    }
    tables = {
        "brokers": [broker],
        "registry_brokers": [
            {
                "cluster": "c",
                "broker_name": "broker-a",
                "broker_id": 0,
                "role": "MASTER",
                "zone": None,
            }
        ],
        "registry_groups": [
            {
                "cluster": "c",
                "broker_name": "broker-a",
                "revision": 1,
                "epoch": 1,
                "master_id": 0,
                "in_sync": [0],
                "replicas": [0, 1],
                "unclean_epochs": [],
            }
        ],
        "registry_topics": [{"broker_name": "broker-a", "topic": "orders", "write_queue_count": 8}],
    }
    told = [each["evidence"] for each in examined(tables, Limits(now_ms=NOW_MS))]
    unknown = "; no master of the group answers: the state of 8 queues of 1 topic is not known."
    assert told == [
        f"broker-a:0 at 10.0.0.1:10911 did not answer: no connection{unknown}",
        f"broker-a:1 is a replica of the broker group but no longer registered{unknown}",
    ]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a + 2 * 3 > 6 and not b", True),
        ("n > 1 and false", False),
        ("n > 1 and true", None),
        ("n > 1 or a = 1", True),
        ("coalesce(n, a)", 1),
        ("n is null and a is not null", True),
        ("case a when 2 then 'two' when 1 then 'one' end", "one"),
        ("a between 0 and 1", True),
        ("t in ('x', 'it\\'s')", True),
        ("s.inner", 5),
        ("none.inner", None),
        ("concat(t, n)", None),
        ("concat_ws(':', t, n, a)", "it's:1"),
        ("7 / 2", 3.5),
        ("floor(7 / 2)", 3),
        ("format_number(1234567, 0)", "1,234,567"),
        ("try_subtract(0, 9223372036854775807) - 1", -9223372036854775808),
        ("try_subtract(-9223372036854775807, 2)", None),
        ("cast(b as string)", "false"),
        ("-a", -1),
    ],
)
def test_expressions_mean_what_spark_means(text: str, value: object) -> None:
    row = {"a": 1, "b": False, "n": None, "none": None, "t": "it's", "s": {"inner": 5}}
    assert read(text)(row) == value


@pytest.mark.parametrize("text", ["a ++", "(a", "unknown(a)", "a b", "'open", "transform(a, b)"])
def test_what_is_not_known_is_refused_when_it_is_read(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        read(text)
