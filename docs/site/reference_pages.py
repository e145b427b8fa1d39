"""Cuts the references of the command line and of the configuration into pages of docs/reference/.

The texts are those of `aerobee config reference`, with and without `--commands`. Tests compare the
pages: after a change of a command's help or of a setting, run
`python docs/site/reference_pages.py`.
"""

from __future__ import annotations

import re
from pathlib import Path

from aerobee.cli.__main__ import main
from aerobee.cli.cli_reference import cli_reference
from aerobee.cli.config_reference import SERVICES, render_reference

DOCS = Path(__file__).resolve().parents[1]
FOLDER = "reference"
REGENERATE = "python docs/site/reference_pages.py"
COMMANDS = {
    "cli-messages": (
        "Commands for messages",
        "produce consume message schedule transaction outbox dead-letter",
    ),
    "cli-topics": (
        "Commands for topics, groups and users",
        "topic group offset apply user acl quota audit-log",
    ),
    "cli-clusters": (
        "Commands for clusters and services",
        "cluster broker-group health store tier doctor console audit nameserver broker etcd config",
    ),
    "cli-local": ("Commands for this machine", "up demo completion version bench"),
}
SHARED = "options-of-commands-that-ask-a-cluster"
HEADING = re.compile(r"(?m)^#(#+ .*)$")
LINK = re.compile(r"\]\((?!\.\./)(?=[\w./-]+\.md)")


def cli_pages() -> dict[Path, str]:
    """docs/cli-reference.md, the index with the options that commands share, and its parts."""
    before, parts = _parts(cli_reference(main))
    shared = parts.pop("Options of commands that ask a cluster")
    index = [before, f"## Options of commands that ask a cluster\n{shared}"]
    found: dict[Path, str] = {}
    for file, (title, names) in COMMANDS.items():
        rows, text = [], f"# {title}\n\nA part of [all commands](../cli-reference.md).\n"
        for name in names.split():
            heading = f"`aerobee {name}`"
            said = parts.pop(heading)
            about = said.strip().split("\n")[0].replace("|", "\\|")
            link = f"{FOLDER}/{file}.md#aerobee-{name}"
            rows.append(f"| [{heading}]({link}) | {about} |")
            text += f"\n## {heading}\n{said}"
        text = text.replace(f"(#{SHARED})", f"(cli-reference.md#{SHARED})")
        found[DOCS / FOLDER / f"{file}.md"] = _from_below(text)
        index.append(f"## {title}\n\n| command | |\n|---|---|\n" + "\n".join(rows) + "\n")
    assert not parts, f"COMMANDS says of no page for {list(parts)}"
    return {DOCS / "cli-reference.md": _tidied("\n".join(index))} | found


def configuration_pages() -> dict[Path, str]:
    """docs/configuration.md, which says how settings are made, and a page for each service."""
    before, parts = _parts(render_reference(SERVICES))
    index, found = [before], dict[Path, str]()
    for service in SERVICES:
        said = parts.pop(service.name.capitalize())
        file = f"configuration-{service.name}.md"
        text = (
            f"# Settings of a {service.name}\n\nA part of the [configuration](configuration.md).\n"
        )
        found[DOCS / FOLDER / file] = _from_below(HEADING.sub(r"\1", text + said))
        sections = re.findall(r"(?m)^### (\w+: `([\w.]+)`)$", said)
        links = [f"[`{name}`]({FOLDER}/{file}#{_anchor(title)})" for title, name in sections]
        index.append(
            f"## {service.name.capitalize()}\n\n"
            f"[All settings of a {service.name}]({FOLDER}/{file}); its sections: "
            f"{', '.join(links)}.\n"
        )
    return {DOCS / "configuration.md": _tidied("\n".join(index))} | found


def _parts(text: str) -> tuple[str, dict[str, str]]:
    """What is before the first heading of the second level, and what is below each."""
    before, *rest = re.split(r"(?m)^## (.*)$", text)
    texts = (f"{each.rstrip()}\n" for each in rest[1::2])
    return f"{before.rstrip()}\n", dict(zip(rest[::2], texts, strict=True))


def _anchor(title: str) -> str:
    """As code hosts make it from a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def _from_below(text: str) -> str:
    """Links as a page in the folder of the parts has them."""
    return _tidied(LINK.sub("](../", text))


def _tidied(text: str) -> str:
    return text.rstrip() + "\n"


if __name__ == "__main__":
    (DOCS / FOLDER).mkdir(exist_ok=True)
    for path, text in (cli_pages() | configuration_pages()).items():
        path.write_text(text, "utf-8")
