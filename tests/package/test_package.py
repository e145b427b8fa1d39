"""The package as strangers get it: built from its sdist, without this repository, on each Python.

`make pythons`. Pythons that this machine does not have are skipped, with a word of which.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest

from tests.package.pythons import PATIENCE_S, ROOT, Environment, find_python, run, uv
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.pythons, pytest.mark.timeout(600)]

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
PYTHONS = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
OLDEST = PYTHONS[0]
OF_TESTS = ("pytest", "pytest-asyncio")
LISTED = "rpc/aerobee/rpc/core/huffman.py\nrpc/aerobee/rpc/core/frames.py\n"
INI = """
[pytest]
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
filterwarnings = error
"""


@dataclass(frozen=True)
class Built:
    sdist: Path
    wheel: Path
    locked: Path
    """The versions of uv.lock, as constraints."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("built")
    # uv builds the wheel from the sdist, which it unpacks elsewhere.
    run(uv(), "build", "--quiet", "--out-dir", folder, ROOT, folder=folder)
    locked = folder / "locked.txt"
    export = (uv(), "export", "--frozen", "--quiet", "--extra", "server", "--no-emit-project")
    run(*export, "--no-hashes", "-o", locked, folder=ROOT)
    [sdist], [wheel] = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return Built(sdist, wheel, locked)


def metadata(built: Built) -> Message:
    with zipfile.ZipFile(built.wheel) as wheel:
        [name] = [name for name in wheel.namelist() if name.endswith("/METADATA")]
        return message_from_bytes(wheel.read(name))


def test_the_sdist_is_the_whole_checkout(built: Built) -> None:
    """Who packages it can build, document and test it."""
    if not (ROOT / ".git").exists():
        pytest.skip("this is no checkout")
    tracked = run("git", "ls-files", folder=ROOT).splitlines()
    with tarfile.open(built.sdist) as sdist:
        packed = {name.partition("/")[2] for name in sdist.getnames()}
    assert [name for name in tracked if name not in packed] == []


def test_the_wheel_has_the_product_alone_and_says_that_it_is_typed(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as wheel:
        names = wheel.namelist()
    folders = {name.split("/")[0] for name in names}
    assert {name for name in folders if not name.endswith(".dist-info")} == {"aerobee", "apache"}
    assert {"aerobee/py.typed", "apache/rocketmq/v2/py.typed"} <= {*names}
    assert [name for name in names if name.endswith((".go", ".java", ".xml", ".md"))] == []


def test_the_metadata_is_what_an_index_shows(built: Built) -> None:
    told = metadata(built)
    assert told["License-Expression"] == "Apache-2.0"
    assert told.get_all("License-File") == ["LICENSE"]
    assert told["Requires-Python"] == f">={OLDEST}"
    assert told["Description-Content-Type"] == "text/markdown"
    assert "# Aerobee\n" in str(told.get_payload())


@contextmanager
def running_cluster(environment: Environment) -> Iterator[str]:
    """`aerobee up` as it is installed there; the address of its nameserver."""
    ready, log = environment.folder / "ready.json", environment.folder / "up.log"
    words = ("up", "--ephemeral", "--ports", "auto", "--ready-file", str(ready))
    with log.open("w") as output:
        up = subprocess.Popen(
            [environment.bin / "aerobee", *words],
            cwd=environment.folder,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={"PATH": "/usr/bin:/bin", "HOME": str(environment.folder)},
        )
    try:
        wait_until(lambda: ready.exists() or up.poll() is not None)
        assert ready.exists(), log.read_text()
        yield json.loads(ready.read_text())["nameserver"]
    finally:
        up.send_signal(signal.SIGINT)
        up.wait(PATIENCE_S)


def use_as_a_stranger(environment: Environment) -> None:
    """Its tests, by the plugin, and a cluster that commands use."""
    (environment.folder / "pytest.ini").write_text(INI, "utf-8")
    shutil.copy(Path(__file__).with_name("stranger.py"), environment.folder / "test_shop.py")
    said = environment.python("-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert "4 passed" in said, said
    command, order = str(environment.bin / "aerobee"), environment.folder / "order"
    order.write_text("order 17\n", "utf-8")
    with running_cluster(environment) as nameserver:
        address = {"AEROBEE_NAMESERVER": nameserver}
        sent = run(command, "produce", "orders", order, folder=environment.folder, **address)
        assert sent.startswith("sent 1 message")
        words = ("consume", "orders", "--group", "billing", "--count", "1")
        assert run(command, *words, folder=environment.folder, **address) == "order 17\n"


@pytest.mark.parametrize("version", PYTHONS)
def test_it_is_installed_and_used(version: str, built: Built, tmp_path: Path) -> None:
    python = find_python(version)
    if python is None:
        pytest.skip(f"there is no Python {version} on this machine")
    environment = Environment(tmp_path, python)
    environment.install(built.wheel, "-c", built.locked)
    assert environment.python("-W", "error", "-c", "from aerobee import *; print(Producer)")
    assert PROJECT["version"] in run(environment.bin / "aerobee", "--version", folder=tmp_path)
    environment.install(f"aerobee[server] @ {built.wheel.as_uri()}", *OF_TESTS, "-c", built.locked)
    use_as_a_stranger(environment)


def test_the_lowest_versions_that_it_asks_for_do(built: Built, tmp_path: Path) -> None:
    """Newer Pythons have no wheels of some of them."""
    python = find_python(OLDEST)
    if python is None:
        pytest.skip(f"there is no Python {OLDEST} on this machine")
    environment = Environment(tmp_path, python)
    lowest = ("--resolution", "lowest-direct", "--extra", "server")
    environment.install(*lowest, "-r", ROOT / "pyproject.toml")
    environment.install("--no-deps", built.wheel)
    environment.install(*OF_TESTS)
    use_as_a_stranger(environment)
    assert environment.python("-c", "import aerobee.v1.broker_pb2_grpc") == ""


def test_the_python_of_this_run_is_one_of_them() -> None:
    assert "{}.{}".format(*sys.version_info) in PYTHONS


def test_a_wheel_with_compiled_modules_says_so(built: Built, tmp_path: Path) -> None:
    """Two of them, as all that are listed would take minutes; `make compiled-test` has those."""
    with tarfile.open(built.sdist) as sdist:
        sdist.extractall(tmp_path, filter="data")
    [tree] = tmp_path.iterdir()
    (tree / "deploy/compiled/modules.txt").write_text(LISTED, "utf-8")
    words = (uv(), "build", "--quiet", "--wheel", "--out-dir", tmp_path, tree)
    run(*words, folder=tmp_path, AEROBEE_COMPILE="quick")
    [wheel] = tmp_path.glob("*.whl")
    environment = Environment(tmp_path, sys.executable)
    environment.install("-c", built.locked, wheel)
    said = run(environment.bin / "aerobee", "version", "--local", folder=tmp_path)
    assert "(2 modules compiled)" in said
    file = "from aerobee.rpc.core import huffman; print(huffman.__file__)"
    assert environment.python("-c", file).strip().endswith(".so")
