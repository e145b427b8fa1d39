"""Writes docs/api.md, an index, and the pages of docs/reference/ that it lists.

They are made from the docstrings of what `aerobee` exports.

Read from the sources, so that a signature is as it was written. A test compares the pages: after
a change of a public name, a signature or a docstring, run `python docs/site/api_reference.py`.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType

import aerobee

DOCS = Path(__file__).resolve().parents[1]
PAGE = DOCS / "api.md"
FOLDER = "reference"
REGENERATE = "python docs/site/api_reference.py"
HEAD = f"""# Python API

All public classes and functions: what `from aerobee import ...` gives you. To learn the clients,
read [producing](producing.md) and [consuming](consuming.md) first. `{REGENERATE}`
generates these pages from the docstrings.
"""


@dataclass(frozen=True)
class Family:
    """Names that share a page: those given, or what no page before has of a part of the product."""

    file: str
    title: str
    package: str
    names: frozenset[str] = frozenset()

    def has(self, name: str, module: str) -> bool:
        return name in self.names if self.names else module.startswith(self.package)


CONSUMERS = "aerobee.consumer_client"
ADMINISTRATION = "aerobee.client_core.admin"
FAMILIES = (
    Family("producer", "Sending", "aerobee.producer_client"),
    Family(
        "push-consumer",
        "Receiving: push consumer",
        CONSUMERS,
        frozenset({"PushConsumer", "BlockingPushConsumer", "Listener", "ConsumeResult", "Ordering"})
        | {"RetryPolicy", "Exhausted", "OnExhausted", "FlowLimits"},
    ),
    Family(
        "pull-consumer",
        "Receiving: pull consumer",
        CONSUMERS,
        frozenset({"PullConsumer", "BlockingPullConsumer", "ReceivedBatch"}),
    ),
    Family("consumer-settings", "Receiving: settings, strategies, statistics", CONSUMERS),
    Family(
        "admin-client",
        "Administration: clients",
        ADMINISTRATION,
        frozenset({"AdminClient", "BlockingAdminClient"}),
    ),
    Family("admin-values", "Administration: what its calls take and return", ADMINISTRATION),
    Family("messages", "Messages, the cluster, access", ""),
)
HEADING = re.compile(r"(?m)^#(?=##+ )")
LINK = re.compile(r"\]\((?=[\w.-]+\.md)")
SECTION = re.compile(r"^(Args|Raises|Returns|Yields):\s*(.*)$")
ITEM = re.compile(r"^ {4}([\w*, .]+): (.*)$")


def pages() -> dict[Path, str]:
    """Each page, index first, and its text."""
    left = dict(public_names())
    index, found = [HEAD], dict[Path, str]()
    for family in FAMILIES:
        mine = {name: module for name, module in left.items() if family.has(name, module)}
        left = {name: module for name, module in left.items() if name not in mine}
        file = f"{FOLDER}/{family.file}.md"
        index += [f"## [{family.title}]({file})\n", "| name | |\n|---|---|"]
        parts = [f"# {family.title}\n", "A part of the [Python API](api.md).\n"]
        for name, module in sorted(mine.items()):
            text = entry(name, import_module(module))
            parts.append(text)
            index.append(f"| [`{name}`]({file}#{name.lower()}) | {first_sentence(text)} |")
        index.append("")
        found[DOCS / file] = from_below("\n".join(parts))
    index.append("## Errors\n\n`aerobee.errors` has all of them.\n")
    index += ["| error | base | |\n|---|---|---|", *error_rows()]
    return {PAGE: tidied("\n".join(index))} | found


def first_sentence(entry: str) -> str:
    """What an entry says first, for a cell."""
    plain = re.sub(r"(?s)```.*?```", "", entry)
    said = (part for part in plain.split("\n\n") if part.strip() and part[0] not in "#`|-*\n")
    text = next((part for part in said if not part.startswith("Is a ")), "")
    sentence = re.split(r"(?<=[.:])\s", " ".join(text.split()))[0].rstrip(".:")
    return sentence.replace("|", "\\|")


def from_below(text: str) -> str:
    """As a page in the folder of the parts has it: links lead up, headings are one level higher."""
    return tidied(HEADING.sub("", LINK.sub("](../", text)))


def tidied(text: str) -> str:
    return text.rstrip() + "\n"


def public_names() -> Iterator[tuple[str, str]]:
    """(name, the module where it is defined), as `aerobee` itself says."""
    tree = ast.parse(Path(aerobee.__file__ or "").read_text("utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and _is_source(node.module):
            for name in node.names:
                if name.asname == name.name:
                    yield name.name, str(node.module)


def _is_source(module: str | None) -> bool:
    return (module or "").startswith("aerobee.") and module != "aerobee.errors"


def entry(name: str, module: ModuleType) -> str:
    """The part of one name."""
    node, below = definition(name, module)
    if isinstance(node, ast.ClassDef):
        own = class_entry(node, hidden_bases(getattr(module, name)))
        return "\n".join([own, *part_entries(node, module)])
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return f"### {name}\n\n{signature(node)}\n\n{prose(ast.get_docstring(node))}\n"
    return f"### {name}\n\n`{ast.unparse(node)}`\n\n{prose(below)}\n"


def definition(name: str, module: ModuleType) -> tuple[ast.stmt, str]:
    """Where a module defines a name, and the text below it. A package's names come from within."""
    tree = ast.parse(inspect.getsource(module))
    for node, following in itertools.pairwise([*tree.body, ast.Pass()]):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if node.name == name:
                return node, ""
            continue
        if name in assigned(node):
            return node, text_of(following)
    origin = getattr(module, name).__module__
    assert origin != module.__name__, f"{module.__name__} does not define {name}"
    return definition(name, import_module(origin))


def assigned(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.Assign):
        return [ast.unparse(target) for target in node.targets]
    return [ast.unparse(node.target)] if isinstance(node, ast.AnnAssign) else []


def text_of(node: ast.stmt) -> str:
    """A string that stands as a statement: what is written below a field."""
    is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return inspect.cleandoc(str(node.value.value)) if is_text else ""  # type: ignore[attr-defined]


def hidden_bases(kind: type) -> dict[str, ast.ClassDef]:
    """Classes of ours that have no entry of their own, farthest first: what they bring is said
    here."""
    public = dict(public_names())
    found = {}
    for base in reversed(kind.__mro__[1:]):
        if base.__module__.startswith("aerobee.") and base.__name__ not in public:
            node, _ = definition(base.__name__, import_module(base.__module__))
            assert isinstance(node, ast.ClassDef)
            found[base.__name__] = node
    return found


def methods_of(node: ast.ClassDef) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    functions = [
        each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    return [each for each in functions if not is_overload(each)]


def is_overload(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Its last definition says all."""
    return any(ast.unparse(each) == "overload" for each in node.decorator_list)


def class_entry(node: ast.ClassDef, hidden: Mapping[str, ast.ClassDef]) -> str:
    bases = [ast.unparse(base) for base in node.bases]
    bases = [base for base in bases if base.partition("[")[0] not in hidden]
    parts = [f"### {node.name}\n"]
    methods = methods_of(node)
    made = next((each for each in methods if each.name == "__init__"), None)
    if made is not None:
        parts.append(signature(made, name=node.name) + "\n")
    if bases:
        parts.append(f"Is a {', '.join(f'`{base}`' for base in bases)}.\n")
    parts.append(prose(ast.get_docstring(node)) + "\n")
    parts += field_table(node, is_enum=any("Enum" in base for base in bases))
    own = {method.name for method in methods}
    inherited = [each for base in hidden.values() for each in methods_of(base)]
    for method in [*(each for each in inherited if each.name not in own), *methods]:
        if not method.name.startswith("_"):
            parts.append(method_entry(node.name, method))
    return "\n".join(parts)


def part_entries(node: ast.ClassDef, module: ModuleType) -> Iterator[str]:
    """What the parts of an object can do, such as `AdminClient.topics`: public attributes, of a
    class of the same package that has no entry of its own."""
    public = dict(public_names())
    package = module.__name__.rpartition(".")[0]
    for each in ast.walk(node):
        if not (isinstance(each, ast.Assign) and isinstance(each.value, ast.Call)):
            continue
        target = each.targets[0]
        kind = getattr(module, ast.unparse(each.value.func), None)
        is_part = isinstance(target, ast.Attribute) and not target.attr.startswith("_")
        if not is_part or not isinstance(kind, type) or kind.__name__ in public:
            continue
        if kind.__module__.rpartition(".")[0] != package:
            continue
        assert isinstance(target, ast.Attribute)
        owner = f"{node.name}.{target.attr}"
        part, _ = definition(kind.__name__, import_module(kind.__module__))
        assert isinstance(part, ast.ClassDef)
        first, *_ = (ast.get_docstring(part) or "").partition("\n\n")
        yield f"#### {owner}\n\n{prose(first)}\n"
        inherited = [each for base in hidden_bases(kind).values() for each in methods_of(base)]
        own = {method.name for method in methods_of(part)}
        for method in [*(each for each in inherited if each.name not in own), *methods_of(part)]:
            if not method.name.startswith("_"):
                yield method_entry(owner, method)


def method_entry(owner: str, node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    is_property = any("property" in ast.unparse(each) for each in node.decorator_list)
    if is_property:
        returned = f" -> `{ast.unparse(node.returns)}`" if node.returns else ""
        text = prose(ast.get_docstring(node))
        return f"#### {owner}.{node.name}\n\nA property{returned}. {text}\n"
    return f"#### {owner}.{node.name}()\n\n{signature(node)}\n\n{prose(ast.get_docstring(node))}\n"


def field_table(node: ast.ClassDef, *, is_enum: bool) -> list[str]:
    """Fields of a dataclass, values of an enumeration."""
    rows = []
    for field, following in itertools.pairwise([*node.body, ast.Pass()]):
        names = [name for name in assigned(field) if not name.startswith("_")]
        meaning = " ".join(text_of(following).split()).replace("|", "\\|")
        for name in names:
            value = getattr(field, "value", None)
            shown = f"`{ast.unparse(value)}`" if value is not None else ""
            if is_enum:
                rows.append(f"| `{name}` | {shown} | {meaning} |")
            elif isinstance(field, ast.AnnAssign):
                kind = ast.unparse(field.annotation).replace("|", "\\|")
                rows.append(f"| `{name}` | `{kind}` | {shown} | {meaning} |")
    if not rows:
        return []
    head = (
        "| name | value | |\n|---|---|---|"
        if is_enum
        else "| field | type | default | |\n|---|---|---|---|"
    )
    return ["\n".join([head, *rows]) + "\n"]


def signature(node: ast.FunctionDef | ast.AsyncFunctionDef, name: str = "") -> str:
    """As it was written, one argument in a line if it is long; without `self`."""
    arguments = list(written(node.args))
    returned = f" -> {ast.unparse(node.returns)}" if node.returns and not name else ""
    start = ("await " if _is_awaited(node) else "") + (name or node.name)
    line = f"{start}({', '.join(arguments)}){returned}"
    if len(line) > 100:
        split = ",\n    ".join(arguments)
        line = f"{start}(\n    {split},\n){returned}"
    return f"```\n{line}\n```"


def _is_awaited(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Else its result is looped over with `async for`, or used at once."""
    is_generator = any(isinstance(each, ast.Yield) for each in ast.walk(node))
    return isinstance(node, ast.AsyncFunctionDef) and not is_generator


def written(arguments: ast.arguments) -> Iterator[str]:
    """Each argument with its annotation and default, and the star where it is."""
    positional = [each for each in arguments.args if each.arg not in ("self", "cls")]
    missing: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults))
    yield from map(_argument, positional, [*missing, *arguments.defaults])
    if arguments.vararg is not None:
        yield f"*{_argument(arguments.vararg, None)}"
    elif arguments.kwonlyargs:
        yield "*"
    yield from map(_argument, arguments.kwonlyargs, arguments.kw_defaults)
    if arguments.kwarg is not None:
        yield f"**{_argument(arguments.kwarg, None)}"


def _argument(argument: ast.arg, default: ast.expr | None) -> str:
    kind = f": {ast.unparse(argument.annotation)}" if argument.annotation else ""
    return f"{argument.arg}{kind}" + (f" = {ast.unparse(default)}" if default is not None else "")


def prose(docstring: str | None) -> str:
    """A docstring as Markdown: sections become lists, indented examples become code."""
    in_section, blocks = False, list[str]()
    for block in re.split(r"\n\n+|\n(?=(?:Args|Raises|Returns|Yields):)", docstring or ""):
        first, *rest = block.splitlines() or [""]
        section = SECTION.match(first)
        if section:
            in_section = True
            said = f": {section[2]}" if section[2] else ""
            blocks += [f"**{section[1]}**{said}", items(rest)]
        elif in_section and first.startswith("    "):
            blocks.append(items([first, *rest]))
        elif first.startswith("    "):
            code = textwrap.dedent(block)
            is_more = bool(blocks) and blocks[-1].startswith("```")
            before = _continued(blocks.pop()) if is_more else ""
            blocks.append(f"```py\n{before}{code}\n```")
        elif first.startswith(">>>"):
            blocks.append(f"```pycon\n{block}\n```")
        else:
            in_section = False
            blocks.append(" ".join(block.split()).replace("::", ":"))
    return "\n\n".join(block for block in blocks if block)


def _continued(block: str) -> str:
    """The code of a block, and the blank lines before more of it: two after a function's body."""
    code = block.removeprefix("```py\n").removesuffix("\n```")
    return code + ("\n\n\n" if code.splitlines()[-1].startswith(" ") else "\n\n")


def items(lines: list[str]) -> str:
    """`name: what it is`, each with the lines that go on."""
    found: list[str] = []
    for line in lines:
        item = ITEM.match(line)
        if item:
            found.append(f"- `{item[1]}`: {item[2]}")
        elif found:
            found[-1] += f" {line.strip()}"
        else:
            found.append(f"- {line.strip()}")
    return "\n".join(found)


def error_rows() -> Iterator[str]:
    """The tree of `aerobee.errors`."""
    errors = import_module("aerobee.errors")
    for name in dir(errors):
        kind = getattr(errors, name)
        if isinstance(kind, type) and issubclass(kind, errors.AerobeeError):
            bases = ", ".join(f"`{base.__name__}`" for base in kind.__bases__)
            meaning = " ".join((kind.__doc__ or "").partition("\n\n")[0].split())
            retry = " *Retryable.*" if getattr(kind, "retryable", False) else ""
            link = f"[`{name}`](troubleshooting.md#{name.lower()})"
            shown = f"`{name}`" if name == "AerobeeError" else link
            yield f"| {shown} | {bases} | {meaning}{retry} |".replace("\\|", "|")


if __name__ == "__main__":
    (DOCS / FOLDER).mkdir(exist_ok=True)
    for path, text in pages().items():
        path.write_text(text, "utf-8")
