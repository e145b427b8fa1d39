"""Users and their policies, and whether a user may do something, and why not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import quote

from starlette.responses import Response

from aerobee.client_core.admin_access import AccessAnswer, Policy, User
from aerobee.console.editing import Field, Plan, Subject, differences
from aerobee.console.listing import Column, listed
from aerobee.console.topic_edits import YES_NO
from aerobee.console.visit import Visit
from aerobee.runtime.errors import InvalidArgument

USERS: Final[Sequence[Column[User]]] = (
    Column("name", "User", lambda each: each.name),
    Column("rights", "Rights", lambda each: each.is_super),
    Column("enabled", "State", lambda each: each.is_enabled),
    Column("secrets", "Secrets", lambda each: each.secrets, is_number=True),
    Column("certificates", "Certificate names"),
)
DECISIONS: Final[Mapping[str, str]] = {"Allow": "allow", "Deny": "deny"}


async def all_users(visit: Visit) -> Response:
    """The list, and the answer to a question, if one is asked."""
    users = await visit.admin.users.list()
    listing = listed(
        users, USERS, visit.query, path=visit.path, text=lambda each: each.name, sort="name"
    )
    names = ("user", "resource", "actions", "source")
    asked = {each: visit.query.get(each, "").strip() for each in names}
    answer: AccessAnswer | None = None
    problem, status = "", 200
    if asked["user"] and asked["resource"] and asked["actions"]:
        try:
            answer = await visit.admin.policies.test(
                asked["user"], asked["resource"], asked["actions"], source=asked["source"]
            )
        except InvalidArgument as error:
            problem, status = str(error), 400
    return visit.render(
        "users.html", status, listing=listing, asked=asked, answer=answer, problem=problem
    )


async def one_user(visit: Visit) -> Response:
    user = await _user(visit, visit.name())
    policies = await visit.admin.policies.list(user.name)
    return visit.render("user.html", user=user, policies=policies)


async def act(visit: Visit) -> Response:
    name, form = visit.name(), await visit.form()
    wanted, users = form["act"], visit.admin.users
    back = f"/users/{quote(name, safe='')}"
    match wanted:
        case "enable":
            await users.enable(name)
            done = f"User {name} may act again."
        case "disable":
            await users.enable(name, False)
            done = f"User {name} may do nothing until it is enabled."
        case "rotate":
            made = await users.rotate(name)
            done = f"The new secret of {name}, shown only now: {made.secret}"
        case "forget":
            await users.forget_former_secret(name)
            done = f"The former secret of {name} is no longer valid."
        case "remove policy":
            resource, is_default = form["resource"], form["default"] == "yes"
            await visit.admin.policies.remove(name, resource, is_default=is_default)
            done = f"The policy of {name} for {resource} is removed."
        case "delete":
            if form["confirm"] != name:
                raise InvalidArgument(
                    f"nothing was changed: to confirm, type the user's name, {name}, as it is"
                )
            await users.delete(name)
            done, back = f"User {name} and its policies are deleted.", "/users"
        case _:
            raise InvalidArgument("nothing was changed: choose what to do")
    visit.changed(f"user: {wanted}", name)
    return visit.render("done.html", text=done, back=back)


async def new_user(visit: Visit) -> Subject:
    admin = visit.admin

    async def plan(values: Mapping[str, str]) -> Plan:
        name, certificates = values["user"], values["certificates"].split()
        if not name:
            raise InvalidArgument("give the user a name")
        if any(each.name == name for each in await admin.users.list()):
            raise InvalidArgument(f"there is a user {name!r} already")
        is_super = values["super"] == "yes"

        async def do() -> str:
            made = await admin.users.create(name, is_super=is_super, certificate_names=certificates)
            return f"User {name} is created. Its secret, shown only now: {made.secret}"

        rows = [
            ("User", "", name),
            ("Rights", "", "all: a super user" if is_super else "those of its policies, none yet"),
            ("Certificate names", "", " ".join(certificates)),
        ]
        return Plan(act="create user", on=name, differences=differences(rows), do=do)

    return Subject(
        title="Create a user",
        fields=(
            Field("user", "Name", is_required=True, help="the access key"),
            Field("super", "May do everything", choices=YES_NO),
            Field(
                "certificates",
                "Certificate names",
                help="of client certificates that prove the user, separated by spaces",
            ),
        ),
        plan=plan,
        back="/users",
        back_name="Users",
        command="aerobee user create NAME",
    )


async def policy(visit: Visit) -> Subject:
    user = await _user(visit, visit.name())
    policies = await visit.admin.policies.list(user.name)

    async def plan(values: Mapping[str, str]) -> Plan:
        if not (values["resource"] and values["actions"]):
            raise InvalidArgument("name the resource and the actions")
        if values["decision"] not in DECISIONS:
            raise InvalidArgument("say whether it is allowed or denied")
        wanted = Policy(
            user=user.name,
            resource=values["resource"],
            actions=values["actions"],
            decision="Deny" if values["decision"] == "Deny" else "Allow",
            sources=tuple(values["sources"].split()),
            is_default=values["default"] == "yes",
        )
        place = wanted.resource, wanted.is_default
        before = next(
            (each for each in policies if (each.resource, each.is_default) == place), None
        )

        async def do() -> str:
            await visit.admin.policies.put(wanted)
            return f"The policy of {user.name} for {wanted.resource} is set."

        rows = [
            (what, text(before) if before else "", text(wanted))
            for what, text in (
                ("Policy", _name_of),
                ("Decision", lambda each: each.decision.lower()),
                ("Actions", lambda each: each.actions),
                ("Only from", lambda each: " ".join(each.sources) or "everywhere"),
            )
        ]
        notes = [f"{user.name} is a super user, and may do everything anyway"]
        return Plan(
            act="put policy",
            on=f"{user.name} {wanted.resource}",
            differences=differences(rows),
            do=do,
            notes=notes if user.is_super else [],
        )

    return Subject(
        title=f"Set a policy of {user.name}",
        fields=(
            Field(
                "resource",
                "Resource",
                visit.query.get("resource", ""),
                is_required=True,
                help="Topic:NAME, Group:NAME or Cluster:NAME, where NAME may end with *; or *",
            ),
            Field(
                "actions",
                "Actions",
                is_required=True,
                help="All, or some of Pub, Sub, Create, Update, Delete, Get, List, with commas",
            ),
            Field("decision", "Decision", "Allow", choices=DECISIONS),
            Field("sources", "Only from", help="addresses or networks, separated by spaces"),
            Field("default", "Only where no other policy applies", choices=YES_NO),
        ),
        plan=plan,
        back=f"/users/{quote(user.name, safe='')}",
        back_name=user.name,
        command=f"aerobee acl put {user.name} RESOURCE ACTIONS",
    )


def _name_of(policy: Policy) -> str:
    return f"{policy.resource}{', by default' if policy.is_default else ''}"


async def _user(visit: Visit, name: str) -> User:
    """Raises InvalidArgument: there is none."""
    for each in await visit.admin.users.list():
        if each.name == name:
            return each
    raise InvalidArgument(f"there is no user {name!r}: see the list of users")
