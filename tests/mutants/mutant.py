"""An error in the product, as a small edit inside one function, and the tests against it."""

from __future__ import annotations

import ast
import io
import os
import textwrap
import tokenize
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_NOT_PRODUCT = frozenset({"tests", "docs", "examples", "site", "dist", "node_modules"})
_LAYOUT = frozenset(
    {
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    }
)


@dataclass(frozen=True, slots=True)
class Mutant:
    """What a hurried edit could do to the core."""

    name: str
    breaks: str
    """The promise that is broken, as a user would meet it."""
    at: str
    """`file.py::function` or `file.py::Class.method`. Folders before the file only where several
    files of one name have such a function."""
    old: str
    """Code that occurs exactly once in the function. Line breaks and comments do not count."""
    new: str
    """What stands there instead. Further lines are indented from where the first one begins."""
    tests: tuple[str, ...]
    """Those that promise it: `tests/…/test_x.py::test_y`. At least one of them fails."""

    @property
    def file(self) -> str:
        return self.at.partition("::")[0]

    @property
    def function(self) -> str:
        return self.at.partition("::")[2]

    def applied_to(self, text: str) -> str:
        """The file's text with the error in it. Raises ValueError unless the file has the function
        and the function has `old` exactly once."""
        lines = text.splitlines(keepends=True)
        functions = _functions(ast.parse(text), self.function)
        places = [
            place for node in functions for place in _places(lines, _lines_of(node), self.old)
        ]
        if not functions:
            raise ValueError(f"{self.file} has no {self.function}")
        if len(places) != 1:
            raise ValueError(
                f"its old code occurs {len(places)} times in {self.at}, and must occur once: "
                f"{self.old!r}"
            )
        (first_line, first), (last_line, last) = places[0]
        head, tail = lines[first_line][:first], lines[last_line][last:]
        indent = head[: len(head) - len(head.lstrip())]
        new = textwrap.indent(self.new, indent).removeprefix(indent)
        return "".join([*lines[:first_line], head, new, tail, *lines[last_line + 1 :]])


class Tree:
    """Where the product's files are below a root."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._paths: Mapping[str, Sequence[Path]] = _python_files(root)

    def file_of(self, mutant: Mutant) -> Path:
        """The one file that the mutant means. Raises ValueError if there is none, or several."""
        parts = Path(mutant.file).parts
        named = [path for path in self._paths[parts[-1]] if path.parts[-len(parts) :] == parts]
        having = [path for path in named if _has(path, mutant.function)]
        if len(having) == 1:
            return having[0]
        if having:
            raise ValueError(f"name a folder of {mutant.at}, which is in {self._told(having)}")
        paths = [path for paths in self._paths.values() for path in paths]
        elsewhere = [path for path in paths if _has(path, mutant.function)]
        hint = f"; it is in {self._told(elsewhere)}" if elsewhere else ""
        if named:
            raise ValueError(f"no {mutant.file} has {mutant.function}{hint}")
        raise ValueError(f"there is no {mutant.file}{hint}")

    def _told(self, paths: Sequence[Path]) -> str:
        return ", ".join(str(path.relative_to(self.root)) for path in paths)


def what_is_stale(mutant: Mutant, tree: Tree) -> list[str]:
    """Why the entry does not speak of this tree any more; empty if it does."""
    stale = []
    try:
        ast.parse(mutant.applied_to(tree.file_of(mutant).read_text()))
    except (ValueError, SyntaxError) as error:
        stale.append(f"{mutant.name}: {error}")
    if not mutant.tests:
        stale.append(f"{mutant.name}: it names no test")
    for test in mutant.tests:
        path, _, name = test.partition("::")
        file = tree.root / path
        if not file.is_file() or name.split("[")[0] not in _defined(file):
            stale.append(f"{mutant.name}: there is no test {test}")
    return stale


def _python_files(root: Path) -> Mapping[str, list[Path]]:
    found: defaultdict[str, list[Path]] = defaultdict(list)
    for folder, folders, files in os.walk(root):
        is_root = Path(folder) == root
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith((".", "__")) and not (is_root and name in _NOT_PRODUCT)
        )
        for name in files:
            if name.endswith(".py") and "_pb2" not in name and not is_root:
                found[name].append(Path(folder) / name)
    return found


def _has(path: Path, function: str) -> bool:
    text = path.read_text()
    name = function.rpartition(".")[2]
    return f"def {name}(" in text and bool(_functions(ast.parse(text), function))


_Function = ast.FunctionDef | ast.AsyncFunctionDef


def _functions(tree: ast.Module, name: str) -> list[_Function]:
    """Several if a property has a setter."""
    found: list[ast.AST] = [tree]
    for part in name.split("."):
        found = [node for each in found for node in _definitions(each) if node.name == part]
    return [node for node in found if isinstance(node, _Function)]


def _definitions(node: ast.AST) -> Iterator[_Function | ast.ClassDef]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _Function | ast.ClassDef):
            yield child
        else:
            yield from _definitions(child)


def _lines_of(node: _Function) -> range:
    return range(node.lineno - 1, node.end_lineno or node.lineno)


_Position = tuple[int, int]


def _places(
    lines: Sequence[str], within: range, code: str
) -> Iterator[tuple[_Position, _Position]]:
    """Where the code begins and ends, by its tokens: line from 0 on, and column."""
    wanted = [token.string for token in _tokens(textwrap.dedent(code))]
    tokens = _tokens("".join(lines[within.start : within.stop]))
    strings = [token.string for token in tokens]
    for index in range(len(strings) - len(wanted) + 1):
        if strings[index : index + len(wanted)] == wanted:
            first, last = tokens[index].start, tokens[index + len(wanted) - 1].end
            row = within.start - 1
            yield (first[0] + row, first[1]), (last[0] + row, last[1])


def _tokens(code: str) -> list[tokenize.TokenInfo]:
    """What the code consists of, however it is laid out."""
    read = tokenize.generate_tokens(io.StringIO(code).readline)
    return [token for token in read if token.type not in _LAYOUT]


def _defined(path: Path) -> Sequence[str]:
    """Tests of a file: its functions, and state machines by the name that pytest finds them by."""
    names = []
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names.append(node.name)
        elif isinstance(node, ast.Assign):
            names += [target.id for target in node.targets if isinstance(target, ast.Name)]
    return [name for name in names if name.lower().startswith("test")]
