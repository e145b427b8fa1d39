"""What the documentation shows works: every example of README.md and docs/*.md is run as it stands.

Each page gets a cluster of its own, started by `aerobee up`; its Python programs and console
commands run from top to bottom, with the addresses of the page replaced by those of the cluster.
Python that a page marks `py` needs what no page starts, such as Spark: it is compiled, not run.
Shown output must come, but for what differs from run to run: see `stable`.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import pytest

from aerobee.cli.__main__ import main
from aerobee.consumer_client import ConsumerConfig, FlowLimits
from aerobee.producer_client import ProducerConfig
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ROOT = Path(__file__).resolve().parents[2]
OPERATIONS = ROOT / "docs" / "operations"
# What runs on the cluster of `aerobee up`; the procedures of docs/operations need machines, and are
# carried out by test_operations.py.
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "reference").glob("*.md")),
    *sorted((ROOT / "docs" / "internals").glob("*.md")),
    OPERATIONS / "behaviour.md",
]
ALL_PAGES = [*PAGES, *(page for page in sorted(OPERATIONS.glob("*.md")) if page not in PAGES)]
AT_LENGTH = {"access", "admin", "audit-log", "command-line", "quotas", "store-tools"}
"""Pages whose examples take long: clusters of their own, files that are looked through."""
PATIENCE_S = 60.0
NAMESERVER = "127.0.0.1:8081"
ELLIPSIS = "..."

# Commands that are no one-shot command against a running cluster.
NOT_RUN = ("aerobee nameserver", "aerobee broker --", "aerobee demo", "aerobee bench", "make ")


@dataclass(frozen=True)
class Block:
    """One fenced block of a page."""

    page: Path
    line: int
    language: str
    text: str
    shown: str = ""
    """The text block right after it: its output."""

    @property
    def where(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks_of(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    found: list[Block] = []
    lines = page.read_text("utf-8").splitlines()
    start, language = 0, ""
    for number, line in enumerate(lines, 1):
        if not line.startswith("```"):
            continue
        if not start:
            start, language = number, line.removeprefix("```").strip()
            continue
        text = "\n".join(lines[start : number - 1])
        is_output = language == "text" and found and not any(lines[_end_of(found[-1]) : start - 1])
        if is_output:
            last = found.pop()
            found.append(Block(page, last.line, last.language, last.text, text))
        else:
            found.append(Block(page, start, language, text))
        start = 0
    return found


def _end_of(block: Block) -> int:
    """The line of its closing fence."""
    return block.line + len(block.text.splitlines()) + 1


@dataclass(frozen=True)
class Command:
    """A command of a console block, and the output that the page shows for it."""

    text: str
    shown: str


def commands_of(block: Block) -> list[Command]:
    found: list[Command] = []
    for part in re.split(r"(?m)^(?:mq-[\d*])?\$ ", block.text)[1:]:
        text, _, shown = part.partition("\n")
        found.append(Command(text.partition("   # ")[0].strip(), shown.strip("\n")))
    return found


def programs_of(line: str) -> list[list[str]]:
    """The words of each program of a pipe; a shell's if the line has more of a shell."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    programs: list[list[str]] = [[]]
    for word in lexer:
        if word == "|":
            programs.append([])
        elif set(word) <= set("();<>|&"):
            return [["bash", "-c", f"set -o pipefail; {line}"]]
        else:
            programs[-1].append(word)
    return programs


def stable(text: str) -> str:
    """Output without what differs from run to run."""
    for pattern, name in (
        (r"127\.0\.0\.1:\d+", "ADDRESS"),
        (r"\d{4}-\d\d-\d\d[ T][\d:.]+(\+[\d:]+|Z)?", "TIME"),
        (r"\b(data|logs) +/\S+", r"\1 FOLDER"),
        (r"\b[\d,]+/s", "RATE"),
        (r"\b[\d,.]+ (s|ms|MiB)\b", r"N \1"),
        (r"\b[0-9A-F]{32}\b", "ID"),
        (r"\b[0-9a-f]{16,}\b", "DIGEST"),
        (r"[ \t]+", " "),
    ):
        text = re.sub(pattern, name, text)
    return "\n".join(line.strip() for line in text.strip().splitlines())


def matches(shown: str, said: str) -> bool:
    """Whether `said` is what the page shows; `...` stands for anything, lines included."""
    pieces = (stable(part).split() for part in shown.split(ELLIPSIS))
    pattern = r"\s*.*\s*".join(r"\s+".join(map(re.escape, words)) for words in pieces)
    return re.fullmatch(rf"\s*{pattern}\s*", stable(said), re.DOTALL) is not None


class Cluster:
    """A running `aerobee up`, and a folder in which a user types."""

    def __init__(self, folder: Path, up: str = "aerobee up") -> None:
        self.folder = folder
        self.ready_file = folder / "ready.json"
        self.log = folder / "up.log"
        self.environment = {
            **{name: text for name, text in os.environ.items() if "AEROBEE" not in name},
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(folder),
        }
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [*up.split(), "--ports", "auto", "--ready-file", str(self.ready_file)],
                cwd=folder,
                env=self.environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        try:
            self.addresses = self._wait_ready()
        except BaseException:
            self.process.kill()
            raise

    def _wait_ready(self) -> dict[str, str]:
        """Each address that pages name -> that of this cluster."""
        deadline = time.monotonic() + PATIENCE_S
        while not self.ready_file.exists():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.02)
        document = json.loads(self.ready_file.read_text())
        self.environment["AEROBEE_NAMESERVER"] = document["nameserver"]
        return {
            NAMESERVER: document["nameserver"],
            "127.0.0.1:10911": document["brokers"][0]["address"],
            "127.0.0.1:2379": document["etcd"],
        }

    def here(self, text: str) -> str:
        """The text with this cluster's addresses."""
        # In one pass: a real address may begin as another one that pages name.
        shown = "|".join(map(re.escape, self.addresses))
        return re.sub(shown, lambda found: self.addresses[found[0]], text)

    def run_program(self, block: Block) -> str:
        """Run a Python block as a user would; its output. One that serves gets SIGTERM."""
        program = self.folder / f"example_{block.line}.py"
        program.write_text(self.here(block.text), "utf-8")
        log, errors = program.with_suffix(".out"), program.with_suffix(".err")
        with log.open("w") as output, errors.open("w") as complaints:
            process = subprocess.Popen(
                [sys.executable, "-W", "error", str(program)],
                cwd=self.folder,
                env=self.environment,
                stdout=output,
                stderr=complaints,
            )
        try:
            if "signal.SIGTERM" in block.text:
                self._wait_for_line(log, block.shown.splitlines()[0], process)
                process.send_signal(signal.SIGTERM)
            code = process.wait(PATIENCE_S)
        finally:
            process.kill()
            process.wait()
        said = log.read_text()
        assert code == 0, f"{block.where} ended with {code}:\n{said}{errors.read_text()}"
        return said

    @staticmethod
    def _wait_for_line(log: Path, line: str, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while line not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, f"never said {line!r}: {log.read_text()}"
            time.sleep(0.02)

    def run_command(self, command: Command, where: str) -> str:
        """Run a line of a console block as a shell does; its output."""
        complaints = self.folder / "complaints"
        programs: list[subprocess.Popen[str]] = []
        with complaints.open("w") as errors:
            for words in programs_of(self.here(command.text)):
                before = programs[-1].stdout if programs else None
                programs.append(
                    subprocess.Popen(
                        words,
                        cwd=self.folder,
                        env=self.environment,
                        stdin=before,
                        stdout=subprocess.PIPE,
                        stderr=errors,
                        text=True,
                    )
                )
                if before is not None:
                    before.close()
        try:
            said, _ = programs[-1].communicate(timeout=PATIENCE_S)
            codes = [program.wait(PATIENCE_S) for program in programs]
        finally:
            for program in programs:
                program.kill()
        assert not any(codes), f"{where}: $ {command.text}\n{said}{complaints.read_text()}"
        return said

    def try_command(self, text: str) -> str:
        """What a command says on its standard output, whether it succeeds or not."""
        done = subprocess.run(
            text.split(), env=self.environment, capture_output=True, text=True, timeout=PATIENCE_S
        )
        return done.stdout

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            assert self.process.wait(PATIENCE_S) == 0, self.log.read_text()
        finally:
            self.process.kill()
            self.process.wait()


@pytest.fixture
def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """As the page starts it; the simplest one for what is no page."""
    callspec = getattr(request.node, "callspec", None)
    running = Cluster(
        tmp_path, "aerobee up" if callspec is None else up_of(callspec.params["page"])
    )
    try:
        yield running
    finally:
        running.stop()


def up_of(page: Path) -> str:
    """The first command of a page that starts a cluster."""
    for block in blocks_of(page):
        for command in commands_of(block):
            if command.text.startswith("aerobee up"):
                return command.text
    return "aerobee up"


def is_run(command: str) -> bool:
    if command.startswith("grpcurl"):
        return shutil.which("grpcurl") is not None
    return not command.startswith(NOT_RUN)


def has_examples(page: Path) -> bool:
    return any(block.language in ("python", "console") for block in blocks_of(page))


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.thorough] if page.stem in AT_LENGTH else [])
        for page in PAGES
        if has_examples(page)
    ],
    ids=lambda page: page.stem,
)
def test_the_examples_of_a_page_run(page: Path, cluster: Cluster) -> None:
    for block in blocks_of(page):
        if block.language == "python":
            said = cluster.run_program(block)
            assert not block.shown or matches(block.shown, said), (
                f"{block.where} shows\n{block.shown}\nand said\n{said}"
            )
        elif block.language == "console":
            for command in commands_of(block):
                run_console_line(cluster, block, command)


def run_console_line(cluster: Cluster, block: Block, command: Command) -> None:
    if command.text.startswith("aerobee up"):
        # The file that says so is there a moment before.
        wait_until(lambda: "next, in" in cluster.log.read_text())
        said = cluster.log.read_text()
    elif is_run(command.text):
        said = cluster.run_command(command, block.where)
    else:
        return
    assert not command.shown or matches(command.shown, said), (
        f"{block.where}: $ {command.text}\nshows\n{command.shown}\nand said\n{said}"
    )


@pytest.mark.parametrize(
    "block",
    [block for page in PAGES for block in blocks_of(page) if block.language == "py"],
    ids=lambda block: block.where,
)
def test_python_that_is_not_run_compiles_and_imports_what_there_is(block: Block) -> None:
    tree = ast.parse(block.text, block.where)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            module = import_module(node.module)
            missing = [name.name for name in node.names if not hasattr(module, name.name)]
            assert not missing, f"{block.where}: {node.module} has no {missing}"
        elif isinstance(node, ast.Import):
            for name in node.names:
                import_module(name.name)


TOPIC = re.compile(
    r"""aerobee\ (?:topic\ create|produce|consume)\ (\w+)
    | (?:Message|subscribe)\(\s*"(\w+)"
    | "topic":\ "(\w+)" """,
    re.VERBOSE,
)


def test_pages_can_be_followed_on_one_cluster_since_their_topics_differ() -> None:
    pages: dict[str, set[str]] = {}
    for page in PAGES:
        if page.name == "testing.md":  # Its clusters are its own.
            continue
        for block in blocks_of(page):
            if block.language in ("python", "console"):
                for names in TOPIC.findall(block.text):
                    pages.setdefault("".join(names), set()).add(page.name)
    assert len(pages) > 5
    assert {topic: names for topic, names in pages.items() if len(names) > 1} == {}


def test_the_pages_have_examples() -> None:
    found = [block.language for page in PAGES for block in blocks_of(page)]
    assert found.count("python") >= 15
    assert found.count("console") >= 8


def shown_command_lines() -> list[tuple[str, list[str]]]:
    """(page, words) of each `aerobee ...` in console blocks and between backticks."""
    found: list[tuple[str, list[str]]] = []
    for page in ALL_PAGES:
        text = page.read_text("utf-8")
        lines = [command.text for block in blocks_of(page) for command in commands_of(block)]
        lines += re.findall(r"`(aerobee [^`]+)`", re.sub(r"(?s)```.*?```", "", text))
        for line in lines:
            parts = re.split(r"[|;]| && ", re.sub(r"'[^']*'", "X", line))
            parts = [re.sub(r"^(until|kubectl .* --) (?=aerobee )", "", part) for part in parts]
            found += [
                (page.name, part.split()[1:])
                for part in parts
                if part.strip().startswith("aerobee ")
            ]
    return found


@pytest.mark.parametrize(("page", "words"), shown_command_lines(), ids=lambda each: str(each))
def test_commands_that_pages_name_exist_with_their_options(page: str, words: list[str]) -> None:
    command: click.Command = main
    context = click.Context(main)
    for word in words:
        if isinstance(command, click.Group):
            if word.startswith("-") or word in ("COMMAND", ELLIPSIS):
                return
            inner = command.get_command(context, word)
            assert inner is not None, f"{page}: no command {word!r} in {words}"
            command = inner
        elif word.startswith("--"):
            known = {
                option
                for parameter in command.params
                for option in (*parameter.opts, *parameter.secondary_opts)
            }
            known |= set(command.get_help_option_names(click.Context(command)))
            assert word.partition("=")[0] in {*known, "--help"}, f"{page}: {word} in {words}"


def table_rows(page: Path, heading: str) -> Iterator[tuple[str, str]]:
    """(name, default) of the rows of the tables with a default below a heading."""
    section = re.split(r"(?m)^#+ ", page.read_text("utf-8").partition(f"# {heading}\n")[2])[0]
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) >= 3 and re.fullmatch(r"`[a-z_.]+`", cells[0]):
            yield cells[0].strip("`"), cells[1].strip("`")


def default_text(default: object) -> str:
    """A default as the tables write it."""
    if default is MISSING:
        return "required"
    if isinstance(default, bool):
        return "true" if default else "false"
    if isinstance(default, tuple):
        return ",".join(map(str, default))
    return str(default)


@pytest.mark.parametrize(
    ("page", "kinds"),
    [("producing.md", [ProducerConfig]), ("consumer-groups.md", [ConsumerConfig, FlowLimits])],
)
def test_client_settings_are_as_documented(page: str, kinds: list[type[Any]]) -> None:
    known = {
        field.name: default_text(field.default)
        for kind in kinds
        for field in fields(kind)
        if field.default is not MISSING
    }
    assert dict(table_rows(ROOT / "docs" / page, "Settings")) == known


def test_links_lead_somewhere() -> None:
    others = [*ROOT.glob("*.md"), *(ROOT / "deploy").rglob("*.md"), *(ROOT / "tests").glob("*.md")]
    for page in {*ALL_PAGES, *others}:
        text = re.sub(r"(?s)```.*?```", "", page.read_text("utf-8"))
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            path, _, anchor = target.partition("#")
            if "://" in target:
                continue
            file = (page.parent / path).resolve() if path else page
            assert file.exists(), f"{page.name} links to {target}"
            if anchor:
                assert anchor in anchors(file), f"{page.name} links to {target}"


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as code hosts make them."""
    found = set()
    text = re.sub(r"(?s)```.*?```", "", page.read_text("utf-8"))
    for heading in re.findall(r"(?m)^#+ (.*)$", text):
        kept = re.sub(r"[^\w\- ]", "", heading.lower())
        found.add(kept.replace(" ", "-"))
    return found
