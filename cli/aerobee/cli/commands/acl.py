"""`aerobee acl`: what users may do, as rules of ACL 2.0."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from aerobee.cli.options import json_option, wide_option
from aerobee.cli.output import print_documents, print_json, say
from aerobee.cli.target import Target, target_options

if TYPE_CHECKING:
    from aerobee import Policy


@click.group()
def acl() -> None:
    """Set, list, remove and test what users may do.

    \b
    RESOURCE  Topic:NAME, Group:NAME, Cluster:NAME, AuditLog:NAME; NAME may
              end with *; * alone is everything
    ACTIONS   All, or some of Pub,Sub,Create,Update,Delete,Get,List

    The matching policy with the most specific resource decides; among equals, Deny wins. If no
    policy matches, the action is denied.
    """


default_option = click.option(
    "--default",
    "is_default",
    is_flag=True,
    help="Applies only if no other policy of the user matches.",
)


@acl.command()
@click.argument("user")
@click.argument("resource")
@click.argument("actions")
@click.option("--deny", is_flag=True, help="Forbid instead of allowing.")
@click.option(
    "--source",
    "sources",
    multiple=True,
    metavar="ADDRESS",
    help="Only for calls from this address or network; repeatable.",
)
@default_option
@json_option
@target_options
def add(
    target: Target,
    user: str,
    resource: str,
    actions: str,
    deny: bool,
    sources: tuple[str, ...],
    is_default: bool,
    as_json: bool,
) -> None:
    """Let USER do ACTIONS on RESOURCE.

    Replaces the user's policy for RESOURCE.
    """
    from aerobee import Policy

    policy = Policy(
        user=user,
        resource=resource,
        actions=actions,
        decision="Deny" if deny else "Allow",
        sources=sources,
        is_default=is_default,
    )
    target.administer(lambda admin: admin.policies.put(policy))
    if as_json:
        print_json(_document(policy))
        return
    say(f"{'denied' if deny else 'allowed'} {actions} on {resource} to {user}")


@acl.command()
@click.argument("user")
@click.argument("resource")
@default_option
@json_option
@target_options
def remove(target: Target, user: str, resource: str, is_default: bool, as_json: bool) -> None:
    """Remove the policy of USER for RESOURCE."""
    target.administer(lambda admin: admin.policies.remove(user, resource, is_default=is_default))
    if as_json:
        print_json({"user": user, "resource": resource, "default": is_default, "removed": True})
        return
    say(f"removed the policy of {user} for {resource}")


@acl.command("list")
@click.argument("user", default="")
@json_option
@wide_option
@target_options
def list_policies(target: Target, user: str, as_json: bool, wide: bool) -> None:
    """List the policies of USER, or of all users."""
    policies = [
        _document(each) for each in target.administer(lambda admin: admin.policies.list(user))
    ]
    if as_json:
        print_json(policies)
        return
    print_documents(
        policies,
        {
            "user": "user",
            "decision": "decision",
            "actions": "actions",
            "resource": "resource",
            "from": lambda each: ",".join(each["sources"]) or "anywhere",
            "default": lambda each: "yes" if each["default"] else "no",
        },
        droppable=("default", "from"),
        wide=wide,
        empty="no policies yet; add one with `aerobee acl add USER RESOURCE ACTIONS`",
    )


@acl.command()
@click.argument("user")
@click.argument("resource")
@click.argument("actions")
@click.option("--source", default="", metavar="ADDRESS", help="Where the call comes from.")
@json_option
@target_options
def test(
    target: Target, user: str, resource: str, actions: str, source: str, as_json: bool
) -> None:
    """Say whether USER may do ACTIONS on RESOURCE, and why.

    Names the policy that decides it. With several actions, one allowed action is enough. Exit code
    1: denied.
    """
    answer = target.administer(
        lambda admin: admin.policies.test(user, resource, actions, source=source)
    )
    if as_json:
        print_json(
            {
                "user": user,
                "resource": resource,
                "actions": actions,
                "source": source,
                "allowed": answer.allowed,
                "reason": answer.reason,
            }
        )
    else:
        say(f"{'allowed' if answer.allowed else 'denied'}: {answer.reason}")
    if not answer.allowed:
        sys.exit(1)


def _document(policy: Policy) -> dict[str, Any]:
    return {
        "user": policy.user,
        "decision": policy.decision,
        "actions": policy.actions,
        "resource": policy.resource,
        "sources": list(policy.sources),
        "default": policy.is_default,
    }
