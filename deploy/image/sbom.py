"""The bill of materials of an image, as CycloneDX 1.6 in JSON: what is really in its root.

    sbom.py NAME VERSION ROOT --debs FILE... --wheels FILE...  > sbom.cdx.json

Lists each Debian package that base.sh notes and each Python distribution that can be imported, with
version, licences and the hash of the archive that it came in: base.sh writes those of its packages,
as `sha256sum` prints them, and pip its report. Runs in a stage of deploy/Dockerfile, with nothing
but Python's own library. The same root gives the same bytes; the time is SOURCE_DATE_EPOCH.
"""

from __future__ import annotations

import argparse
import email
import json
import os
import re
import sys
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any
from urllib.parse import quote

Component = dict[str, Any]


def debian_release(root: Path) -> str:
    found = re.search(r'^VERSION_ID="?(\d+)', (root / "etc/os-release").read_text(), re.MULTILINE)
    if found is None:
        raise SystemExit(f"{root}/etc/os-release does not say which Debian it is")
    return found[1]


def debian_packages(root: Path, hashes: dict[str, str]) -> Iterator[Component]:
    release = debian_release(root)
    yield {"type": "operating-system", "name": "debian", "version": release}
    for path in sorted((root / "var/lib/dpkg/status.d").iterdir()):
        fields = email.message_from_string(path.read_text("utf-8"))
        name, version = fields["Package"], fields["Version"]
        where = f"arch={fields['Architecture']}&distro=debian-{release}"
        yield {
            "type": "library",
            "name": name,
            "version": version,
            "purl": f"pkg:deb/debian/{quote(name, safe='')}@{quote(version, safe='')}?{where}",
            "licenses": debian_licences(root / "usr/share/doc" / name / "copyright"),
            "hashes": [{"alg": "SHA-256", "content": hashes[name]}],
        }


def debian_licences(file: Path) -> list[Component]:
    """As the file names them, which is one by one only where it is written to be read by programs;
    a folder of licences may be a link to that of another package."""
    text = file.read_text("utf-8") if file.exists() else ""
    if text.startswith("Format:"):
        names = sorted(set(re.findall(r"^License: *(\S[^\n]*)", text, re.MULTILINE)))
    else:
        names = [f"see /usr/share/doc/{file.parent.name}/copyright"]
    return [{"license": {"name": name}} for name in names]


def python_packages(root: Path, hashes: dict[str, str]) -> Iterator[Component]:
    (packages,) = root.glob("usr/local/lib/python3.*/dist-packages")
    for one in sorted(distributions(path=[str(packages)]), key=lambda one: normal(one.name)):
        name = normal(one.name)
        digest = hashes.get(name)
        component: Component = {
            "type": "library" if digest else "application",
            "name": name,
            "version": one.version,
            # Not from the index, even if the index has a package of that name.
            "purl": f"pkg:{'pypi' if digest else 'generic'}/{name}@{quote(one.version, safe='')}",
            "licenses": python_licences(one),
        }
        if digest:
            component["hashes"] = [{"alg": "SHA-256", "content": digest}]
        yield component


def python_licences(one: Distribution) -> list[Component]:
    if expression := one.metadata["License-Expression"]:
        return [{"expression": expression}]
    said = one.metadata.get_all("Classifier") or []
    names = [each.rpartition(" :: ")[2] for each in said if each.startswith("License ::")]
    first_line = (one.metadata["License"] or "not stated").strip().partition("\n")[0]
    return [{"license": {"name": name}} for name in sorted(names) or [first_line]]


def normal(name: str) -> str:
    """As the index compares names."""
    return re.sub(r"[-_.]+", "-", name).lower()


def hashes_of_debs(files: list[Path]) -> dict[str, str]:
    """By package, of lines `DIGEST  PATH/NAME_VERSION_ARCHITECTURE.deb`."""
    lines = [line.split(None, 1) for file in files for line in file.read_text().splitlines()]
    return {Path(path).name.partition("_")[0]: digest for digest, path in lines}


def hashes_of_wheels(files: list[Path]) -> dict[str, str]:
    """By distribution, of reports of `pip install`."""
    found = {}
    for one in (one for file in files for one in json.loads(file.read_text("utf-8"))["install"]):
        archive = one["download_info"]["archive_info"]
        digest = archive.get("hashes", {}).get("sha256") or archive["hash"].partition("=")[2]
        found[normal(one["metadata"]["name"])] = digest
    return found


def bill(name: str, version: str, parts: list[Component]) -> Component:
    for one in parts:
        one["bom-ref"] = one.get("purl", f"{one['name']}@{one['version']}")
    made = datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), UTC)
    image = {"type": "container", "name": name, "version": version, "bom-ref": f"{name}@{version}"}
    content = json.dumps([image, parts], sort_keys=True)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, content)}",
        "version": 1,
        "metadata": {"timestamp": made.isoformat(), "component": image},
        "components": parts,
        # Lists all parts of the image, not which part needs which.
        "compositions": [{"aggregate": "complete", "assemblies": [image["bom-ref"]]}],
    }


def main() -> None:
    words = argparse.ArgumentParser(description="The bill of materials of an image.")
    words.add_argument("name")
    words.add_argument("version")
    words.add_argument("root", type=Path)
    words.add_argument("--debs", type=Path, nargs="+", required=True)
    words.add_argument("--wheels", type=Path, nargs="+", required=True)
    given = words.parse_args()
    parts = [
        *debian_packages(given.root, hashes_of_debs(given.debs)),
        *python_packages(given.root, hashes_of_wheels(given.wheels)),
    ]
    json.dump(bill(given.name, given.version, parts), sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
