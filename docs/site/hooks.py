"""The site has the repository's own folders, so a link that works on a code host works here.

MkDocs would take docs/ alone, and links to README.md, the changelog and the pages below deploy/
would be dead. So its list of files is made anew: every page that readers follow and the files
that these pages link, each at its path.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.plugins import get_plugin_logger
from mkdocs.structure.files import File, Files

log = get_plugin_logger("pages")
ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    "*.md",
    "docs/**/*.md",
    "deploy/**/*.md",
    "examples/**/*.md",
    "tests/*.md",
    "tests/golden/*.md",
    "tests/rocketmq_remoting/suite/*.md",
)
OTHERS = (
    "docs/**/*.svg",
    "docs/**/*.png",
    "docs/site/*.css",
    "docs/site/*.js",
    "deploy/**/*.sh",
    "deploy/**/*.y*ml",
    "examples/**/*.*",
)
DECISIONS = "docs/decisions"
NOT_FOR_USERS = ("Operators", "Contributors")
"""Sections of the navigation; those before them are what a developer has to look through."""
USERS_MAX = 40
DEEP = re.compile(r"docs/(decisions|internals|operations)/|CHANGELOG|CONTRIBUTING|deploy/|tests/")
"""What is found after guides that have the same words."""
MOVED = {
    "docs/pull-consumer": "docs/consuming",
    "docs/cli-messages": "docs/command-line",
    "docs/cli-topics": "docs/command-line",
    "docs/cli-cluster": "docs/command-line",
    "docs/metrics": "docs/monitoring",
    "docs/health": "docs/monitoring",
    **{
        f"docs/{name}": f"docs/internals/{name}"
        for name in (
            *("audit-size", "audit-sources", "etcd-keys", "offset-journal", "performance-details"),
            *("pop-journal", "power-cuts", "replication", "simulation", "store-format"),
            "timer-journal",
        )
    },
}
"""Where pages of earlier versions went: their addresses lead there, with the same anchor."""
LEADS_ON = """<!doctype html><meta charset="utf-8"><title>Moved</title>
<link rel="canonical" href="{to}"><meta http-equiv="refresh" content="1; url={to}">
<script>location.replace({to!r} + location.hash)</script><a href="{to}">This page has moved.</a>
"""
FOLDER_LINK = re.compile(r"\]\(((?:[\w.-]+/)+)\)")
NESTED = re.compile(r"^( +)(?=(?:[-*]|\d+\.) )")
FENCE = re.compile(r"^(\s*```\w*).*")
LONG_NAME = re.compile(r"(?<=<code>)[\w.]{16,}(?=</code>)")
BREAK_AFTER = re.compile(r"(?<=[._])(?=\w)")
FROM_ELSEWHERE = re.compile(r'<(?:script|img)[^>]+src="https?://[^"]*"')


def on_config(config: Any) -> Any:
    """Every decision is in the navigation, and so is every page that mkdocs.yml does not place."""
    placed: set[str] = set()
    users = 0
    for section in config.nav:
        placed.update(_placed(section))
        if next(iter(section)) not in NOT_FOR_USERS:
            users = len(placed)
    if users > USERS_MAX:
        raise PluginError(f"{users} pages for users are too many; move one below another section")
    more = [page for pattern in PAGES for page in _pages(pattern) if page not in placed]
    if more:
        config.nav.append({"More": more})
    log.info("%d pages for users, %d in all", users, len(placed) + len(more))
    return config


def _placed(entry: Any) -> list[str]:
    """The pages of an entry of the navigation, with those of entries below it."""
    if isinstance(entry, str):
        return [entry]
    if isinstance(entry, list):
        return [page for each in entry for page in _placed(each)]
    for name, below in entry.items():
        if below == [DECISIONS]:
            entry[name] = [f"{DECISIONS}/README.md", *_pages(f"{DECISIONS}/0*.md")]
    return [page for below in entry.values() for page in _placed(below)]


def _pages(pattern: str) -> list[str]:
    return [path.relative_to(ROOT).as_posix() for path in sorted(ROOT.glob(pattern))]


def on_files(files: Files, config: Any) -> Files:
    """All files at their paths in the repository."""
    theme = [each for each in files if not (ROOT / "docs" / each.src_uri).is_file()]
    paths = {path for pattern in (*PAGES, *OTHERS) for path in ROOT.glob(pattern)}
    ours = [
        File(
            path.relative_to(ROOT).as_posix(), str(ROOT), config.site_dir, config.use_directory_urls
        )
        for path in sorted(paths)
    ]
    return Files([*theme, *ours])


def on_page_markdown(markdown: str, *, page: Any, **_: object) -> str:
    """What code hosts read and Python's Markdown does not; and a search that finds guides first."""
    if DEEP.match(page.file.src_uri):
        page.meta["search"] = {"boost": 0.3}
    lines, fenced = [], False
    for line in markdown.splitlines():
        if fence := FENCE.match(line):
            fenced = not fenced
            lines.append(fence[1])
        else:
            lines.append(line if fenced else _as_python_reads(line, Path(page.file.src_uri).parent))
    return "\n".join(lines)


def on_post_page(output: str, *, page: Any, **_: object) -> str:
    """A page that loads something from elsewhere cannot be read, or searched, offline.

    Long names may be broken at their dots and underscores, which keeps tables narrow.
    """
    if found := FROM_ELSEWHERE.search(output):
        raise PluginError(f"{page.file.src_uri} would load {found[0]}; put a copy in docs/site")
    return LONG_NAME.sub(lambda name: BREAK_AFTER.sub("<wbr>", name[0]), output)


def on_post_build(config: Any) -> None:
    """A page at each address that a moved page had."""
    site = Path(config.site_dir)
    for old, new in MOVED.items():
        page = site / old / "index.html" if config.use_directory_urls else site / f"{old}.html"
        target = site / new / "index.html" if config.use_directory_urls else site / f"{new}.html"
        if not target.is_file():
            raise PluginError(f"{old} has moved to {new}, which does not exist")
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(LEADS_ON.format(to=os.path.relpath(target, page.parent)), "utf-8")


def _as_python_reads(line: str, folder: Path) -> str:
    """A list in a list is indented by four; a link to a folder leads to its page."""
    line = NESTED.sub(lambda found: " " * max(4, len(found[1])), line)
    return FOLDER_LINK.sub(lambda found: f"]({_page_of(folder, found[1])})", line)


def _page_of(folder: Path, link: str) -> str:
    """The page that a code host shows for a folder, or the first one of it."""
    inside = ROOT / folder / link
    if (inside / "README.md").is_file():
        return f"{link}README.md"
    pages = sorted(inside.glob("*.md"))
    return f"{link}{pages[0].name}" if pages else link
