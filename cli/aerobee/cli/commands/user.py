"""`aerobee user`: create, list, change and delete users, and exchange their secrets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aerobee.cli.options import confirm, json_option, wide_option, yes_option
from aerobee.cli.output import counted, print_documents, print_json, remark, say
from aerobee.cli.target import Target, target_options
from aerobee.runtime.errors import InvalidArgument
from aerobee.runtime.private_files import private_opener

if TYPE_CHECKING:
    from aerobee import AdminClient, NewSecret, User


STANDARD_OUTPUT = Path("-")


@click.group()
def user() -> None:
    """Create, list, change and delete users.

    The caller must be a super user, or have the cluster secret: AEROBEE_CLUSTER_SECRET_FILE.
    """


def secret_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Where a secret comes from and goes to; never an argument, which others can see."""
    command = click.option(
        "--secret-file",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="File with the secret.  [default: one is made]",
    )(command)
    return click.option(
        "--credentials-file",
        type=click.Path(path_type=Path, allow_dash=True),
        help="Write access key and secret to this new file, in the format of clients, instead of"
        " printing them. Only you can read it. `-` prints such a file and nothing else.",
    )(command)


@user.command()
@click.argument("name")
@click.option("--super", "is_super", is_flag=True, help="A super user, who may do everything.")
@click.option(
    "--certificate-name",
    "certificate_names",
    multiple=True,
    help="The name in a client certificate that proves this user; repeatable.",
)
@secret_options
@json_option
@target_options
def create(
    target: Target,
    name: str,
    is_super: bool,
    certificate_names: tuple[str, ...],
    secret_file: Path | None,
    credentials_file: Path | None,
    as_json: bool,
) -> None:
    """Create the user NAME, who may do nothing yet.

    `aerobee acl add` gives it rights. Prints the access key and the secret, which cannot be shown
    again.
    """
    secret = _secret_of(secret_file)
    _check_new(credentials_file, as_json)
    made = target.administer(
        lambda admin: admin.users.create(
            name, is_super=is_super, certificate_names=certificate_names, secret=secret
        )
    )
    _hand_over(made, credentials_file, f"created user {name}", as_json=as_json)


@user.command()
@click.argument("name")
@click.option("--finish", is_flag=True, help="Make no new secret; make the former one invalid.")
@secret_options
@json_option
@target_options
def rotate(
    target: Target,
    name: str,
    finish: bool,
    secret_file: Path | None,
    credentials_file: Path | None,
    as_json: bool,
) -> None:
    """Give the user NAME a new secret; the present one stays valid.

    Once all clients have the new secret, --finish makes the former one invalid.
    """
    if finish:
        left = target.administer(lambda admin: admin.users.forget_former_secret(name))
        _print_user(left, f"user {name} has one valid secret", as_json=as_json)
        return
    secret = _secret_of(secret_file)
    _check_new(credentials_file, as_json)
    made = target.administer(lambda admin: admin.users.rotate(name, secret=secret))
    said = (
        f"user {name} has a new secret; the former one is valid until "
        f"`aerobee user rotate {name} --finish`"
    )
    _hand_over(made, credentials_file, said, as_json=as_json)


@user.command("list")
@json_option
@wide_option
@target_options
def list_users(target: Target, as_json: bool, wide: bool) -> None:
    """List the users."""
    users = [_document(each) for each in target.administer(lambda admin: admin.users.list())]
    if as_json:
        print_json(users)
        return
    print_documents(
        users,
        {
            "user": "user",
            "super": lambda each: "yes" if each["super"] else "no",
            "enabled": lambda each: "yes" if each["enabled"] else "no",
            "secrets": "secrets",
            "certificate names": lambda each: " ".join(each["certificateNames"]) or "-",
        },
        droppable=("secrets", "certificate names"),
        wide=wide,
        empty="no users yet; create one with `aerobee user create NAME`",
    )


@user.command()
@click.argument("name")
@json_option
@target_options
def disable(target: Target, name: str, as_json: bool) -> None:
    """Refuse all calls of the user NAME, and end its streams."""
    _enable(target, name, False, as_json=as_json)


@user.command()
@click.argument("name")
@json_option
@target_options
def enable(target: Target, name: str, as_json: bool) -> None:
    """Undo `aerobee user disable`."""
    _enable(target, name, True, as_json=as_json)


@user.command()
@click.argument("name")
@yes_option
@json_option
@target_options
def delete(target: Target, name: str, yes: bool, as_json: bool) -> None:
    """Delete the user NAME and its policies, and end its streams."""
    confirm(f"Delete user {name} and its policies?", yes=yes)
    target.administer(lambda admin: admin.users.delete(name))
    if as_json:
        print_json({"user": name, "deleted": True})
        return
    say(f"deleted user {name}")


@user.command()
@json_option
@target_options
def reseal(target: Target, as_json: bool) -> None:
    """Encrypt all users' secrets again, with a new cluster secret.

    That is the first line of the cluster secret's file. Afterwards, the second line is no longer
    needed.
    """

    async def question(admin: AdminClient) -> list[User]:
        return [await admin.users.reseal(each.name) for each in await admin.users.list()]

    users = target.administer(question)
    if as_json:
        print_json([_document(each) for each in users])
        return
    say(f"sealed the secrets of {counted(len(users), 'user')}")


def _enable(target: Target, name: str, is_enabled: bool, *, as_json: bool) -> None:
    changed = target.administer(lambda admin: admin.users.enable(name, is_enabled))
    said = f"user {name} is {'enabled' if is_enabled else 'disabled'}"
    _print_user(changed, said, as_json=as_json)


def _print_user(changed: User, said: str, *, as_json: bool) -> None:
    if as_json:
        print_json(_document(changed))
        return
    say(said)


def _document(user: User) -> dict[str, Any]:
    return {
        "user": user.name,
        "super": user.is_super,
        "enabled": user.is_enabled,
        "secrets": user.secrets,
        "certificateNames": list(user.certificate_names),
    }


def _secret_of(file: Path | None) -> str:
    if file is None:
        return ""
    secret = file.read_text().strip()
    if not secret:
        raise InvalidArgument(f"{file} is empty; write the secret into it, or leave it out")
    return secret


def _check_new(file: Path | None, as_json: bool) -> None:
    """Before the user is made: nobody can ask for its secret again."""
    if as_json and file == STANDARD_OUTPUT:
        raise click.UsageError("--json and --credentials-file - both print: give one of them")
    if file not in (None, STANDARD_OUTPUT) and file.exists():
        raise InvalidArgument(f"{file} is there already; remove it or name another file")


def _hand_over(made: NewSecret, file: Path | None, said: str, *, as_json: bool) -> None:
    """Say what was done, and give the secret to `file`, or print it."""
    told = {"secret": made.secret}
    lines = (f"access_key = {made.user.name}", f"secret_key = {made.secret}")
    if not as_json:
        # Not among what is the file.
        (remark if file == STANDARD_OUTPUT else say)(said)
    if file is not None and file != STANDARD_OUTPUT:
        told = {"credentialsFile": str(file)}
        with open(file, "x", opener=private_opener) as out:
            out.write("".join(f"{line}\n" for line in lines))
    if as_json:
        print_json({**_document(made.user), **told})
    elif "secret" in told:
        for line in lines:
            say(line)
    else:
        say(f"access key and secret are in {file}")
