"""The bill of materials of an image lists all that is in it, in the form that others read."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "deploy" / "image" / "sbom.py"
DIGEST = "0123456789abcdef" * 4
CONTROL = """\
Package: {name}
Architecture: amd64
Version: {version}
Description: one
 and more of it
"""
DEBIAN = {"libc6": "2.36-9+deb12u10", "libstdc++6": "12.2.0-14", "zlib1g": "1:1.2.13.dfsg-1~a"}
COPYRIGHT = {
    "libc6": "Format: 1.0\nLicense: LGPL-2.1+\n terms\n\nLicense: LGPL-2.1+\nLicense: ISC\n",
    "zlib1g": "This is free.\n",
}


def normal(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


@pytest.fixture(scope="module")
def installed() -> dict[str, str]:
    """What these tests run with: dozens of packages of all ages, and Aerobee."""
    return {normal(one.name): one.version for one in distributions()}


@pytest.fixture(scope="module")
def arguments(tmp_path_factory: pytest.TempPathFactory, installed: dict[str, str]) -> list[str]:
    """An image's root with these packages, and what apt and pip said of them."""
    folder = tmp_path_factory.mktemp("image")
    root = folder / "root"
    packages = root / "usr/local/lib/python3.11/dist-packages"
    for place in (packages, root / "etc", root / "var/lib/dpkg/status.d"):
        place.mkdir(parents=True)
    for one in distributions():
        (known,) = (
            each
            for each in one.files or ()
            if each.match("*.dist-info/METADATA") and len(each.parts) == 2
        )
        metadata = Path(str(one.locate_file(known))).parent
        (packages / metadata.name).symlink_to(metadata)
    (root / "etc/os-release").write_text('PRETTY_NAME="Debian"\nVERSION_ID="12"\n')
    for name, version in DEBIAN.items():
        control = CONTROL.format(name=name, version=version)
        (root / "var/lib/dpkg/status.d" / name).write_text(control)
    for name, text in COPYRIGHT.items():
        (root / "usr/share/doc" / name).mkdir(parents=True)
        (root / "usr/share/doc" / name / "copyright").write_text(text)
    debs = [f"{DIGEST}  {name}_{version}_amd64.deb\n" for name, version in DEBIAN.items()]
    (folder / "debs").write_text("".join(debs))
    reports: list[dict[str, Any]] = [
        {
            "metadata": {"name": name},
            "download_info": {"archive_info": {"hashes": {"sha256": DIGEST}}},
        }
        for name in installed
        if name != "aerobee"
    ]
    # As pip wrote it before it knew several hashes.
    reports[0]["download_info"] = {"archive_info": {"hash": f"sha256={DIGEST}"}}
    (folder / "wheels").write_text(json.dumps({"install": reports}))
    files = ["--debs", str(folder / "debs"), "--wheels", str(folder / "wheels")]
    return ["aerobee", "0.1.0", str(root), *files]


def listed(arguments: list[str]) -> str:
    done = subprocess.run(
        [sys.executable, "-I", str(PROGRAM), *arguments], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_all_that_is_installed_is_listed_with_version_licence_and_hash(
    arguments: list[str], installed: dict[str, str]
) -> None:
    components = json.loads(listed(arguments))["components"]
    system, *packages = components
    assert (system["name"], system["version"]) == ("debian", "12")
    found = {}
    for one in packages:
        purl = PackageURL.from_string(one["purl"])
        assert (purl.name, purl.version) == (one["name"], one["version"])
        found[purl.type, one["name"]] = one["version"]
        assert one["licenses"]
        hashes = [each["content"] for each in one.get("hashes", ())]
        assert hashes == ([] if purl.type == "generic" else [DIGEST])
    own = {("generic", "aerobee"): installed["aerobee"]}
    debian = {("deb", name): version for name, version in DEBIAN.items()}
    python = {("pypi", name): version for name, version in installed.items() if name != "aerobee"}
    assert found == own | debian | python
    licences = {one["name"]: one["licenses"] for one in packages}
    assert licences["libc6"] == [{"license": {"name": name}} for name in ("ISC", "LGPL-2.1+")]
    assert licences["zlib1g"] == [{"license": {"name": "see /usr/share/doc/zlib1g/copyright"}}]
    assert licences["aerobee"] == [{"expression": "Apache-2.0"}]
    stated = [one for one in licences.values() if one != [{"license": {"name": "not stated"}}]]
    assert len(stated) > 0.9 * len(licences)


def test_it_is_what_the_standard_says_and_the_same_each_time(arguments: list[str]) -> None:
    text = listed(arguments)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    assert listed(arguments) == text
    spoiled = text.replace('"type": "library"', '"type": "book"', 1)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(spoiled) is not None
