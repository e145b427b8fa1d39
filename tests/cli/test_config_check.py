"""`aerobee config check`: everything that is wrong with a file, before a service meets it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from aerobee.broker.config import BrokerConfig
from aerobee.cli.__main__ import main
from aerobee.cli.config_reference import SERVICES, ServiceKind
from aerobee.runtime.config import load_config
from aerobee.runtime.config_check import check_config
from aerobee.runtime.errors import InvalidArgument
from aerobee.runtime.machine import UsableMemory

WRONG = """\
cluster = "aer obee"
listen = "0.0.0.0:10911"
nameserver = ["a:1"]

[store]
flush_mode = "snyc"
segment_bytes = 5
flush_interval_ms = 0
retention.delete_when = "99"

[sessions]
timeout_min_ms = -1
timeout_max_ms = 2
"""
RIGHT = """\
broker_name = "broker-b"
listen = "127.0.0.1:0"
store_root = "/var/lib/aerobee"

[store]
flush_mode = "sync"
"""


@pytest.fixture
def check(tmp_path: Path) -> Any:
    def run(text: str, *arguments: str, name: str = "broker.toml", **environment: str) -> Result:
        file = tmp_path / name
        file.write_text(text, "utf-8")
        return CliRunner().invoke(main, ["config", "check", str(file), *arguments], env=environment)

    return run


def test_all_faults_are_said_at_once_each_with_its_line(check: Any) -> None:
    result = check(WRONG)
    assert result.exit_code == 1
    said = [line.partition("broker.toml:")[2] for line in result.stderr.splitlines()]
    assert [line.split(": ")[0] for line in said] == ["1", "2", "3", "6", "7", "8", "9", "12", "13"]
    for number, words in (
        (0, "cluster must be 1 to 64 letters"),
        (1, "address must be set when listen is a wildcard"),
        (2, "unknown key 'nameserver'; did you mean 'nameservers'?"),
        (3, "expected one of sync, async"),
        (4, "segment_bytes must be at least 1024"),
        (5, "flush_interval_ms must be greater than 0"),
        (6, "retention.delete_when must be hours"),
        (7, "sessions.timeout_min_ms must be > 0"),
        (8, "sessions.timeout_default_ms must be between"),
    ):
        assert words in said[number]


def test_what_the_check_accepts_the_service_loads(check: Any, tmp_path: Path) -> None:
    result = check(RIGHT)
    assert result.exit_code == 0, result.output
    assert "the broker accepts it (4 keys)" in result.stdout
    (broker,) = [kind for kind in SERVICES if kind.name == "broker"]
    load_config(broker.config, environment_prefix="X", file=tmp_path / "broker.toml")


@pytest.mark.parametrize("line", [each for each in WRONG.splitlines() if "=" in each])
def test_what_the_check_refuses_the_service_refuses(line: str, tmp_path: Path) -> None:
    """Each fault alone, in its section."""
    section = ""
    for each in WRONG.splitlines():
        section = each if each.startswith("[") else section
        if each == line:
            break
    text = f'store_root = "/r"\n{section}\n{line}\n'.replace("segment_bytes = 5", "segment_bytes=5")
    (broker,) = [kind for kind in SERVICES if kind.name == "broker"]
    checked = check_config(broker.config, text, environment_prefix="X")
    assert len(checked.errors) == 1
    file = tmp_path / "broker.toml"
    file.write_text(text, "utf-8")
    with pytest.raises(InvalidArgument):
        load_config(broker.config, environment_prefix="X", file=file)


def test_flags_and_environment_count_as_they_do_for_the_service(check: Any) -> None:
    text = 'listen = "0.0.0.0:10911"\nstore_root = "/r"\n'
    assert check(text).exit_code == 1
    assert check(text, "--set", "address=broker.example.net:10911").exit_code == 0
    address = {"AEROBEE_BROKER_ADDRESS": "broker.example.net:10911"}
    assert check(text, **address).exit_code == 0
    assert (
        "unknown environment variable" in check(text, **address, AEROBEE_BROKER_ADRESS="x").stderr
    )
    assert "unknown key 'adress' of --set" in check(text, "--set", "adress=x", **address).stderr


def test_what_is_risky_together_is_a_warning_and_fails_only_if_asked(check: Any) -> None:
    text = RIGHT + "unflushed_bytes_max = 1024\n[replication]\nmin_insync_replicas = 2\n"
    result = check(text)
    assert result.exit_code == 0
    warnings = [line for line in result.stdout.splitlines() if "warning" in line]
    assert any(":7: warning: a batch of store.batch_bytes_max" in line for line in warnings)
    assert any("async_master" in line and ":9: " in line for line in warnings)
    assert check(text, "--strict").exit_code == 1


def test_a_required_key_may_come_as_a_flag(check: Any) -> None:
    result = check('broker_name = "b"\n')
    assert result.exit_code == 0
    assert "store_root is not set here: give it as --store-root" in result.stdout


def test_the_keys_say_whose_file_it_is_or_else_its_name(check: Any) -> None:
    assert (
        "the nameserver accepts it"
        in check("[topics]\nauto_create = false\n", name="x.toml").stdout
    )
    assert "the broker accepts it" in check(RIGHT, name="x.toml").stdout
    either = 'cluster = "a"\n'
    assert "the nameserver accepts it" in check(either, name="my-nameserver.toml").stdout
    unclear = check(either, name="x.toml")
    assert unclear.exit_code == 1
    assert "--service nameserver or --service broker" in unclear.stderr
    assert "the broker accepts it" in check(either, "--service", "broker", name="x.toml").stdout


def test_what_is_no_toml_is_said_with_its_line(check: Any) -> None:
    result = check("cluster = \n")
    assert result.exit_code == 1
    assert "not valid TOML" in result.stderr
    assert "line 1" in result.stderr


def test_programs_can_read_the_findings(check: Any) -> None:
    document = json.loads(check(WRONG, "--json").stdout)
    assert document["service"] == "broker"
    assert document["errors"][0] == {
        "line": 1,
        "keys": ["cluster"],
        "sentence": "cluster must be 1 to 64 letters, digits, '_' and '-' (it is 'aer obee')",
    }


@pytest.mark.parametrize("kind", SERVICES, ids=lambda kind: kind.name)
def test_the_defaults_are_not_risky(kind: ServiceKind) -> None:
    checked = check_config(
        kind.config,
        "",
        environment_prefix="X",
        overrides={"store_root": "/r"} if kind.name == "broker" else {},
    )
    assert checked.errors == checked.warnings == ()


RISKY = {
    "broker": [
        ("[replication]\nmin_insync_replicas = 2", "async_master"),
        ('[replication]\nmode = "sync_master"\nin_sync_lag_max_ms = 6000', "holds up sends"),
        ("[store]\ncut_damaged = true", "for one start"),
        ("[store]\nunflushed_bytes_max = 10000", "always refused with BUSY"),
        ("[store]\nflush_unflushed_bytes = 268435456", "where an early flush would make room"),
        ("registration_lease_ms = 1500", "etcd's own leases"),
        ("registration_lease_ms = 10000", "not below sessions.timeout_default_ms"),
        ("[store.retention]\nenabled = false", "nothing is ever removed"),
        ("[store.retention]\ndisk_used_percent_max = 99", "out of its range"),
        ("[store.retention]\ndisk_refuse_percent = 80", "before unexpired segments are removed"),
        ('listen = "0.0.0.0:1"\naddress = "127.0.0.1:1"', "will connect to their own machine"),
        ('[log]\nlevel = "debug"\nrepeats_per_s_max = 0', "every call writes a line"),
    ],
    "nameserver": [
        ("unclean_election = true", "they are lost"),
        ('listen = "0.0.0.0:8081"', "a misspelt name becomes a topic"),
        ("[etcd]\ncall_timeout_ms = 5000", "before another member is asked"),
    ],
}


@pytest.mark.parametrize(
    ("kind", "text", "words"),
    [(kind, text, words) for kind in SERVICES for text, words in RISKY[kind.name]],
)
def test_each_risk_is_told(kind: ServiceKind, text: str, words: str) -> None:
    overrides = {"store_root": "/r"} if kind.name == "broker" else {}
    checked = check_config(kind.config, text, environment_prefix="X", overrides=overrides)
    assert checked.errors == ()
    assert any(words in finding.sentence and finding.line for finding in checked.warnings)


@pytest.mark.parametrize("kind", SERVICES, ids=lambda kind: kind.name)
@pytest.mark.parametrize(
    ("text", "words", "line"),
    [
        ('listen = "127.0.0.1:99999"', "with a port of 0 to 65535", 1),
        ('[health]\nlisten = "127.0.0.1:70000"', "health.listen must be host:port", 2),
        ('[metrics]\nlisten = "127.0.0.1:65536"', "metrics.listen must be host:port", 2),
        ('listen = "127.0.0.1:9"\n[metrics]\nlisten = "0.0.0.0:9"', "different ports", 3),
        (
            'listen = "127.0.0.1:7"\n[health]\nlisten = "h:9"\n[metrics]\nlisten = "h:9"',
            "health.listen and metrics.listen must have different ports",
            5,
        ),
    ],
)
def test_a_port_that_cannot_be_had_is_an_error(
    kind: ServiceKind, text: str, words: str, line: int
) -> None:
    overrides = {"store_root": "/r"} if kind.name == "broker" else {}
    checked = check_config(kind.config, text, environment_prefix="X", overrides=overrides)
    (finding,) = checked.errors
    assert words in finding.sentence
    assert finding.line == line


@pytest.mark.parametrize(
    ("text", "key", "line"),
    [
        ('store_root = "/r"\nnameservers = ["ns:8081", "ns:0"]', "nameservers", 2),
        ('[etcd]\nendpoints = ["etcd:2379", "etcd:0"]', "etcd.endpoints", 2),
    ],
)
def test_an_address_that_is_called_has_no_port_0(
    check: Any, text: str, key: str, line: int
) -> None:
    result = check(text)
    assert result.exit_code == 1
    (said,) = result.stderr.splitlines()
    assert (
        f"broker.toml:{line}: error: {key} must be host:port with a port of 1 to 65535 (it is "
        in said
    )


def test_keys_with_every_escape_of_toml_are_shown_not_crashed_on(check: Any) -> None:
    result = check('"\\U0001F600 \\u00e9" = 1\n"a\\tb" = 2')
    assert result.exit_code == 1
    assert "unknown key '\U0001f600 \u00e9'" in result.stderr
    assert ":2: " in result.stderr


def test_what_depends_on_the_memory_is_said_unless_it_was_set(check: Any) -> None:
    memory = UsableMemory(2 << 30, "/sys/fs/cgroup/memory.max")
    derived = [
        check_config(
            BrokerConfig, RIGHT + more, environment_prefix="AEROBEE_BROKER", memory=memory
        ).derived
        for more in ("", "[replication]\nslave_read_bytes = 7\n")
    ]
    assert derived == [
        (
            "replication.slave_read_bytes is 858993459 here: 40% of 2147483648 bytes, by "
            "/sys/fs/cgroup/memory.max",
        ),
        (),
    ]
    assert "replication.slave_read_bytes is " in check(RIGHT).stdout
