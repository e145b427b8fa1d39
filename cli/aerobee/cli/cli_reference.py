"""What every command says of itself, in Markdown; docs/cli-reference.md has it in parts."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence

import click

from aerobee.cli.target import target_options

SERVICES = ("aerobee nameserver", "aerobee broker")
SHARED_TEXT = (
    "And the [options of commands that ask a cluster](#options-of-commands-that-ask-a-cluster)."
)
HEAD = """# All commands and their options

What `--help` prints for each command. [The command line](command-line.md) shows them at work.
`aerobee config reference --commands` prints all of it, from the commands themselves.
"""


def cli_reference(root: click.Command) -> str:
    """The whole page."""
    shared = _shared_options()
    context = click.Context(root, info_name="aerobee")
    lines = [
        HEAD,
        "## Options of commands that ask a cluster",
        "",
        *_options(shared, context),
        "",
        "All commands but `nameserver` and `broker` have `--quiet`: print only the answer and",
        "errors. All have `--help`.",
        "",
    ]
    names = {str(option.name) for option in shared} | {"quiet", "help"}
    lines += _commands(root, context, names, {str(option.name) for option in shared})
    return "\n".join(lines).rstrip() + "\n"


def _shared_options() -> list[click.Parameter]:
    command = click.command()(target_options(lambda target: None))
    return command.params


def _commands(
    group: click.Command, context: click.Context, told: set[str], shared: set[str]
) -> Iterator[str]:
    assert isinstance(group, click.Group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if command.hidden:
            continue
        below = click.Context(command, info_name=name, parent=context)
        level = "#" * (below.command_path.count(" ") + 1)
        yield f"{level} `{below.command_path}`"
        yield ""
        yield from _help(command)
        if isinstance(command, click.Group) and not command.invoke_without_command:
            yield from _commands(command, below, told, shared)
            continue
        pieces = " ".join(command.collect_usage_pieces(below))
        yield from ("```text", f"{below.command_path} {pieces}", "```", "")
        if below.command_path in SERVICES:
            yield "Its options are the keys of [configuration.md](configuration.md)."
            yield ""
            if isinstance(command, click.Group):
                yield from _commands(command, below, told, shared)
            continue
        own = [one for one in command.params if one.name not in told]
        options = [one for one in own if isinstance(one, click.Option) and not one.hidden]
        if options:
            yield from (*_options(options, below), "")
        if shared <= {one.name for one in command.params}:
            yield SHARED_TEXT
            yield ""


def _help(command: click.Command) -> Iterator[str]:
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        if paragraph.startswith("\b"):
            yield from ("```text", paragraph.removeprefix("\b").strip("\n"), "```", "")
        elif paragraph:
            yield from (_escaped(" ".join(paragraph.split())), "")


def _options(options: Sequence[click.Parameter], context: click.Context) -> Iterator[str]:
    yield "| option | what it does |"
    yield "|---|---|"
    for option in options:
        record = option.get_help_record(context)
        if record is not None:
            names, said = record
            yield f"| `{names.replace('|', chr(92) + '|')}` | {_escaped(' '.join(said.split()))} |"


def _escaped(text: str) -> str:
    """For Markdown: what looks like a tag, a cell's end or emphasis."""
    for sign in ("|", "<", "*", "_"):
        text = text.replace(sign, f"\\{sign}")
    return text
