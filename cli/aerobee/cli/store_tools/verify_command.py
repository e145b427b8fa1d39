"""`aerobee store verify`: is everything in a store folder what it should be?"""

from __future__ import annotations

from pathlib import Path

import click

from aerobee.cli.failures import NEGATIVE
from aerobee.cli.output import json_option, print_json
from aerobee.cli.store_tools.folder_argument import (
    folder_options,
    open_folder,
    progress_bar,
    store_failures,
)
from aerobee.cli.store_tools.verify_document import print_verified, verify_document
from aerobee.store_repair.verify import verify_store


@click.command("verify")
@folder_options
@click.option("--no-index", is_flag=True, help="Leave the key index out: faster.")
@json_option
@click.pass_context
def store_verify(
    context: click.Context,
    folder: Path,
    config: tuple[str, ...],
    no_index: bool,
    as_json: bool,
) -> None:
    """Read everything in FOLDER, ours or Apache's, and report what is not as it should be.

    Nothing is written. A broker may be using the folder: then what is newer than the start of the
    command is not judged. Exit code 0: sound, though there may be notes and warnings; 1: damaged.
    """
    with store_failures(folder):
        disk, store_configuration = open_folder(folder, config)
        with progress_bar(f"verifying {folder}") as on_progress:
            verified = verify_store(
                disk, store_configuration, check_index=not no_index, on_progress=on_progress
            )
    if as_json:
        print_json(verify_document(verified))
    else:
        print_verified(verified, folder)
    if not verified.is_sound:
        context.exit(NEGATIVE)
