"""Configuration: which source wins, how text becomes values, and what errors say."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import pytest

from aerobee.runtime.config import keys_of, load_config, require
from aerobee.runtime.errors import InvalidArgument


class Mode(StrEnum):
    SYNC = "sync"
    ASYNC = "async"


@dataclass(frozen=True, kw_only=True)
class Flush:
    mode: Mode = Mode.ASYNC
    interval_ms: int = 500

    def __post_init__(self) -> None:
        require(self.interval_ms > 0, "flush.interval_ms must be > 0", self.interval_ms)


@dataclass(frozen=True, kw_only=True)
class Config:
    root: Path
    name: str = "a"
    share: float = 0.5
    strict: bool = False
    peers: tuple[str, ...] = ()
    ports: tuple[int, ...] = (1, 2)
    limit: int | None = None
    flush: Flush = field(default_factory=lambda: Flush(interval_ms=250))

    def __post_init__(self) -> None:
        require(self.name != "reserved", "name must not be 'reserved'", self.name)


def load(
    tmp_path: Path,
    toml: str = "",
    environment: dict[str, str] | None = None,
    **overrides: object,
) -> Config:
    file = tmp_path / "broker.toml"
    file.write_text(toml)
    return load_config(
        Config,
        environment_prefix="AEROBEE_BROKER",
        file=file,
        environment=environment,
        overrides={"root": "/r", **{k.replace("__", "."): v for k, v in overrides.items()}},
    ).config


def test_flags_win_over_environment_over_file_over_defaults(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text('root = "/from/file"\nname = "file"\nshare = 1\n[flush]\nmode = "sync"\n')
    loaded = load_config(
        Config,
        environment_prefix="AEROBEE_BROKER",
        file=file,
        environment={
            "AEROBEE_BROKER_NAME": "environment",
            "AEROBEE_BROKER_FLUSH_INTERVAL_MS": "9",
            "AEROBEE_CLIENT_NAME": "another service",
            "PATH": "/bin",
        },
        overrides={"flush.interval_ms": "7", "limit": None},
    )
    assert loaded.config == Config(
        root=Path("/from/file"),
        name="environment",
        share=1.0,
        flush=Flush(mode=Mode.SYNC, interval_ms=7),
    )
    assert loaded.origins == {
        "root": str(file),
        "name": "AEROBEE_BROKER_NAME",
        "share": str(file),
        "strict": "default",
        "peers": "default",
        "ports": "default",
        "limit": "default",
        "flush.mode": str(file),
        "flush.interval_ms": "--flush-interval-ms",
    }


def test_a_section_keeps_the_defaults_that_its_owner_gave_it(tmp_path: Path) -> None:
    assert load(tmp_path).flush == Flush(mode=Mode.ASYNC, interval_ms=250)
    assert load(tmp_path, '[flush]\nmode = "sync"').flush == Flush(mode=Mode.SYNC, interval_ms=250)


@pytest.mark.parametrize(
    ("variable", "text", "name", "value"),
    [
        ("STRICT", "yes", "strict", True),
        ("STRICT", "0", "strict", False),
        ("SHARE", "0.25", "share", 0.25),
        ("LIMIT", "12", "limit", 12),
        ("PEERS", "a:1, b:2,", "peers", ("a:1", "b:2")),
        ("PORTS", "3,4", "ports", (3, 4)),
        ("PEERS", "", "peers", ()),
        ("ROOT", "/x", "root", Path("/x")),
    ],
)
def test_text_becomes_a_value_of_the_fields_type(
    variable: str, text: str, name: str, value: object
) -> None:
    environment = {"AEROBEE_BROKER_ROOT": "/r", f"AEROBEE_BROKER_{variable}": text}
    loaded = load_config(Config, environment_prefix="AEROBEE_BROKER", environment=environment)
    assert getattr(loaded.config, name) == value


def test_enumerations_are_read_by_value_or_name_in_any_case(tmp_path: Path) -> None:
    for text in ("sync", "SYNC", "Sync"):
        assert load(tmp_path, flush__mode=text).flush.mode is Mode.SYNC


@pytest.mark.parametrize(
    ("toml", "expected"),
    [
        ("nmae = 1", ("nmae", "broker.toml", "did you mean 'name'")),
        ("[flsh]\nmode = 'sync'", ("flsh", "broker.toml")),
        ("[flush]\nmod = 'sync'", ("flush.mod", "'flush.mode'")),
        ("mode = 'sync'", ("'mode'", "'flush.mode'")),
        ("flush = 3", ("'flush'",)),
        ("zzz = 1", ("known are", "flush.mode")),
        ("share = 'high'", ("share", "'high'", "a number", "broker.toml")),
        ("strict = 1", ("strict", "true or false")),
        ("limit = true", ("limit", "a whole number")),
        ("peers = 'a'", ("peers", "a list")),
        ("ports = ['1']", ("ports", "a whole number")),
        ("[flush]\nmode = 'maybe'", ("flush.mode", "sync, async")),
        ("[flush]\ninterval_ms = 0", ("flush.interval_ms must be > 0", "it is 0", "broker.toml")),
        ("name = 'reserved'", ("name must not be", "broker.toml")),
        ("name = ", ("broker.toml", "not valid TOML")),
    ],
)
def test_an_error_says_what_is_wrong_and_where(
    tmp_path: Path, toml: str, expected: tuple[str, ...]
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        load(tmp_path, toml)
    for part in expected:
        assert part in str(caught.value)


def test_a_misspelt_environment_variable_is_not_silently_ignored(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="did you mean 'AEROBEE_BROKER_FLUSH_MODE'"):
        load(tmp_path, environment={"AEROBEE_BROKER_FLUSHMODE": "sync"})


def test_variables_that_kubernetes_sets_for_services_do_no_harm(tmp_path: Path) -> None:
    links = {
        "AEROBEE_BROKER_SERVICE_HOST": "10.0.0.1",
        "AEROBEE_BROKER_SERVICE_PORT": "10911",
        "AEROBEE_BROKER_SERVICE_PORT_GRPC": "10911",
        "AEROBEE_BROKER_PORT": "tcp://10.0.0.1:10911",
        "AEROBEE_BROKER_PORT_10911_TCP": "tcp://10.0.0.1:10911",
        "AEROBEE_BROKER_PORT_10911_TCP_ADDR": "10.0.0.1",
        "AEROBEE_BROKER_HEADLESS_SERVICE_HOST": "None",
    }
    assert load(tmp_path, environment=links) == load(tmp_path)


def test_a_value_that_must_be_given_is_asked_for_by_all_its_names() -> None:
    with pytest.raises(InvalidArgument, match=r"root.*--root.*AEROBEE_BROKER_ROOT"):
        load_config(Config, environment_prefix="AEROBEE_BROKER")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"missing\.toml: No such file"):
        load_config(Config, environment_prefix="A", file=tmp_path / "missing.toml")


def test_keys_are_listed_with_their_names_for_every_source() -> None:
    keys = {key.name: key for key in keys_of(Config)}
    mode = keys["flush.mode"]
    assert mode.environment_name("AEROBEE_BROKER") == "AEROBEE_BROKER_FLUSH_MODE"
    assert mode.flag_name() == "--flush-mode"
    assert keys["flush.interval_ms"].default == 250


def test_a_field_that_the_program_fills_has_no_key(tmp_path: Path) -> None:
    @dataclass(frozen=True, kw_only=True)
    class Partly:
        size: int = 1
        host: bytes = field(default=b"x", metadata={"key": False})

    assert [key.name for key in keys_of(Partly)] == ["size"]
    loaded = load_config(Partly, environment_prefix="A", environment={"A_SIZE": "2"})
    assert loaded.config == Partly(size=2)
    with pytest.raises(InvalidArgument, match="unknown environment variable A_HOST"):
        load_config(Partly, environment_prefix="A", environment={"A_HOST": "y"})
