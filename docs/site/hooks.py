"""The site has the repository's own folders, so a link that works on a code host works here.

MkDocs would take docs/ alone, and links to README.md, the changelog and the pages below deploy/
would be dead. So its list of files is made anew: every page that readers follow and the files
that these pages link, each at its path.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    "*.md",
    "docs/**/*.md",
    "deploy/**/*.md",
    "examples/**/*.md",
    "tests/*.md",
    "tests/golden/*.md",
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
DEEP = re.compile(
    r"docs/(decisions/|[\w-]*journal|store-format|replication|simulation|power-cuts)|CHANGELOG"
)
"""What is found after guides that have the same words."""
FOLDER_LINK = re.compile(r"\]\(((?:[\w.-]+/)+)\)")
NESTED = re.compile(r"^( +)(?=(?:[-*]|\d+\.) )")
FENCE = re.compile(r"^(\s*```\w*).*")
LONG_NAME = re.compile(r"(?<=<code>)[\w.]{16,}(?=</code>)")
BREAK_AFTER = re.compile(r"(?<=[._])(?=\w)")
FROM_ELSEWHERE = re.compile(r'<(?:script|img)[^>]+src="https?://[^"]*"')


def on_config(config: Any) -> Any:
    """Every decision is in the navigation, and so is every page that mkdocs.yml does not place."""
    placed: set[str] = set()
    for section in config.nav:
        for name, pages in section.items():
            if pages == [DECISIONS]:
                section[name] = pages = [f"{DECISIONS}/README.md", *_pages(f"{DECISIONS}/0*.md")]
            placed.update(pages if isinstance(pages, list) else [pages])
    more = [page for pattern in PAGES for page in _pages(pattern) if page not in placed]
    if more:
        config.nav.append({"More": more})
    return config


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
