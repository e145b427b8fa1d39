"""What the image is made from is pinned: by a version, a lock file or a hash."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from aerobee.runtime.health import Question
from tests.support.command_parsing import parsed

ROOT = Path(__file__).resolve().parents[2]
IMAGE = ROOT / "deploy" / "image"
DOCKERFILES = [ROOT / "deploy" / "Dockerfile", IMAGE / "etcd" / "Dockerfile"]
SCRIPTS = sorted(IMAGE.rglob("*.sh"))


def _instructions(path: Path) -> list[tuple[str, str]]:
    text = re.sub(r"(?m)^\s*#.*\n", "", path.read_text("utf-8")).replace("\\\n", " ")
    lines = [line.split(None, 1) for line in text.splitlines() if line.strip()]
    return [(name, rest) for name, rest in lines]


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_dockerfile_takes_nothing_that_can_change_below_it(path: Path) -> None:
    instructions = _instructions(path)
    stages = {"scratch"}
    arguments = {
        name: value
        for name, _, value in (rest.partition("=") for name, rest in instructions if name == "ARG")
    }
    for name, rest in instructions:
        assert name != "ADD", "COPY takes files of the repository; ADD takes more"
        assert not re.search(r"\b(curl|wget)\b", rest), "a download without a hash"
        if name == "FROM":
            image, *as_name = rest.split()
            image = re.sub(r"\$\{(\w+)\}", lambda found: arguments[found[1]], image)
            if image not in stages:
                assert re.search(r":(?!latest$)[\w.-]*\d[\w.-]*$|@sha256:", image), image
            stages.update(as_name[1:])
    assert [rest for name, rest in instructions if name == "USER"] == ["10001:10001"]
    assert not [rest for name, rest in instructions if name == "ENV" and "PIP_" in rest]


def test_nobody_is_killed_for_not_being_ready() -> None:
    """Swarm and autoheal kill what is unhealthy, and the image cannot know where to ask."""
    for path in DOCKERFILES:
        assert "HEALTHCHECK" not in dict(_instructions(path))
    readme = (IMAGE / "README.md").read_text("utf-8")
    (example,) = re.findall(r"```yaml\n(healthcheck:.*?)```", readme, re.DOTALL)
    kind, *words = yaml.safe_load(example)["healthcheck"]["test"]
    assert kind == "CMD", "the image has no shell"
    assert parsed(words[1:]).params["service"] == Question.LIVENESS


def _build_requirements() -> list[str]:
    lines = (IMAGE / "build-requirements.txt").read_text("utf-8").replace("\\\n", " ").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def test_every_package_of_the_build_has_its_hash() -> None:
    packages = _build_requirements()
    assert {line.split("==")[0] for line in packages} >= {"uv", "hatchling", "setuptools"}
    assert all(re.match(r"[\w-]+==[\w.]+ ", line) for line in packages)
    assert all("--hash=sha256:" in line for line in packages)


def test_a_checkout_is_built_by_the_same_versions() -> None:
    """There uv takes no hashes for what builds; for all that is installed it does."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    pinned = project["tool"]["uv"]["build-constraint-dependencies"]
    built_by = {line.split()[0] for line in _build_requirements() if not line.startswith("uv==")}
    assert set(pinned) == built_by
    lock = tomllib.loads((ROOT / "uv.lock").read_text("utf-8"))
    for package in lock["package"]:
        files = [*package.get("wheels", ()), *filter(None, [package.get("sdist")])]
        assert files or package["name"] == "aerobee", package["name"]
        assert all(file["hash"].startswith("sha256:") for file in files), package["name"]
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for line in re.findall(r"pip install\b.*", makefile.replace("\\\n", " ")):
        assert "--require-hashes" in line
    for line in re.findall(r"\(UV\) (?:sync|run|export)\b.*", makefile):
        assert "--frozen" in line


def test_the_image_is_installed_by_hash_and_without_what_is_for_developers() -> None:
    installs = (IMAGE / "install.sh").read_text("utf-8")
    assert "--require-hashes --no-deps" in installs
    exports = [
        words for name, words in _instructions(DOCKERFILES[0]) if name == "RUN" and "uv" in words
    ]
    assert exports
    for words in exports:
        if "uv export" in words:
            assert words.count("uv export") == words.count("--frozen") == words.count("--no-dev")


def test_the_images_version_is_the_projects() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    assert ("ARG", f"VERSION={version}") in _instructions(DOCKERFILES[0])


def test_the_context_of_the_build_is_a_list_of_what_is_wanted() -> None:
    """Else a key or a store that lies about in the checkout gets into a layer."""
    first, *others = [
        line
        for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines()
        if line and not line.startswith("#")
    ]
    assert first == "*"
    wanted = {line[1:] for line in others if line.startswith("!")}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    roots = project["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]
    alone = {"LICENSE", "README.md", "pyproject.toml", "uv.lock"}
    assert wanted == {*roots, *alone, "deploy/image/*", "deploy/compiled/*"}


def test_etcd_for_tests_is_the_version_that_the_manifests_run() -> None:
    manifest = (ROOT / "deploy" / "k8s" / "base" / "etcd.yaml").read_text("utf-8")
    released = re.search(r"image: registry\.k8s\.io/etcd:([\d.]+)-\d+", manifest)
    assert released is not None
    module = (IMAGE / "etcd" / "source" / "go.mod").read_text("utf-8")
    assert re.findall(r"go\.etcd\.io/etcd/server/v3 v([\d.]+)", module) == [released[1]]


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_script_is_one_that_every_shell_reads(path: Path) -> None:
    assert path.read_text("utf-8").startswith("#!/bin/sh\n")
    assert path.stat().st_mode & 0o111
    assert subprocess.run(["sh", "-n", str(path)]).returncode == 0
