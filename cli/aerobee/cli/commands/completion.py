"""`aerobee completion`: the script that teaches a shell to complete this command."""

from __future__ import annotations

import click

from aerobee.cli.output import say

SHELLS = ("bash", "zsh", "fish")
PROGRAM = "aerobee"


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the completion script for SHELL.

    Completes commands, options and files, and the names of topics, groups and brokers, for which it
    asks the cluster for at most 1 s.

    \b
    bash:  eval "$(aerobee completion bash)"      (in ~/.bashrc)
    zsh:   aerobee completion zsh > FOLDER/_aerobee      (a folder of $fpath)
    fish:  aerobee completion fish > ~/.config/fish/completions/aerobee.fish
    """
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None, shell
    root = click.get_current_context().find_root().command
    # Its own check of bash's version would fail where bash is not installed, as in an image.
    script = found(root, {}, PROGRAM, f"_{PROGRAM.upper()}_COMPLETE")
    text = script.source_template % script.source_vars()
    # zsh loads a file of $fpath at its first call; click's would complete nothing at the second.
    say(text.replace("== loadautofunc ]]", "== (loadautofunc|shfunc) ]]"), keep="\n\t")
