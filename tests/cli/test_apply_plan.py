"""What a file declares, compared with a cluster: the plan reaches it, and changes nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aerobee.cli.declared.plan import (
    Action,
    Fields,
    Key,
    Kind,
    Plan,
    State,
    Wish,
    plan,
    to_remove,
)

NAMES = ("a", "b", "c")
USERS = ("shop", "till")
KEYS = {
    Kind.TOPIC: [Key(Kind.TOPIC, (name,)) for name in NAMES],
    Kind.GROUP: [Key(Kind.GROUP, (name,)) for name in NAMES],
    Kind.QUOTA: [
        Key(Kind.QUOTA, words) for words in (("user", "shop"), ("group", "a"), ("default",))
    ],
    Kind.POLICY: [Key(Kind.POLICY, (user, f"Topic:{name}")) for user in USERS for name in NAMES],
}
FIELDS: dict[Kind, dict[str, st.SearchStrategy[int | str | bool | None]]] = {
    Kind.TOPIC: {
        "queues": st.integers(1, 3),
        "permission": st.sampled_from(["rw", "r"]),
        "type": st.sampled_from(["NORMAL", "FIFO"]),
        "attributes.x": st.sampled_from([None, "1", "2"]),
    },
    Kind.GROUP: {"retriesMax": st.integers(0, 2), "ordered": st.booleans()},
    Kind.QUOTA: {"send_bytes": st.sampled_from([None, 0, 7]), "read_bytes": st.integers(0, 2)},
    Kind.POLICY: {
        "actions": st.sampled_from(["All", "Pub"]),
        "decision": st.sampled_from(["Allow", "Deny"]),
    },
}


def things(*, whole: bool) -> st.SearchStrategy[dict[Key, Fields]]:
    """`whole`: as a cluster has them, with all fields."""

    def of(kind: Kind) -> st.SearchStrategy[dict[Key, Fields]]:
        given = FIELDS[kind]
        fields = (
            st.fixed_dictionaries(given) if whole else st.fixed_dictionaries({}, optional=given)
        )
        return st.dictionaries(st.sampled_from(KEYS[kind]), fields)

    return st.tuples(*map(of, Kind)).map(
        lambda parts: {key: fields for part in parts for key, fields in part.items()}
    )


WISHES = st.builds(
    lambda declared, empty: Wish(declared, empty | {key.kind for key in declared}),
    things(whole=False),
    st.frozensets(st.sampled_from(Kind)),
)
STATES = st.builds(State, things(whole=True), st.frozensets(st.sampled_from(USERS)))


def carried_out(state: State, made: Plan) -> State:
    """A cluster that does what it is told."""
    result = dict(state.things)
    for step in made.steps:
        if step.action is Action.DELETE:
            del result[step.key]
            continue
        assert (step.action is Action.CREATE) == (step.key not in result)
        after = {each.field: each.after for each in step.changes}
        result[step.key] = {**result.get(step.key, {}), **after}
    return State(result, state.users)


@given(WISHES, STATES, st.booleans())
def test_what_is_not_refused_is_reached_and_a_second_run_changes_nothing(
    wish: Wish, state: State, prune: bool
) -> None:
    removed = to_remove(wish, state) if prune else []
    first = plan(wish, state, removed=removed)
    after = carried_out(state, first)
    second = plan(wish, after, removed=to_remove(wish, after) if prune else [])
    assert second.steps == ()
    assert second.refused == first.refused
    assert second.drift == first.drift
    refused = {each.key for each in first.refused}
    grown = {each.key for each in first.drift}
    for key, fields in wish.things.items():
        if key in refused:
            continue
        got = {name: after.things[key].get(name) for name in fields}
        if key in grown:
            assert got["queues"] > fields["queues"]  # type: ignore[operator]
            got["queues"] = fields["queues"]
        assert got == fields
    assert first.unchanged + len(refused) + len(first.steps) - len(removed) == len(wish.things)


@given(WISHES, STATES, st.booleans())
def test_what_the_file_does_not_name_stays(wish: Wish, state: State, prune: bool) -> None:
    removed = to_remove(wish, state) if prune else []
    after = carried_out(state, plan(wish, state, removed=removed))
    for key, have in state.things.items():
        if key in removed:
            continue
        named = wish.things.get(key, {})
        kept = {name: value for name, value in have.items() if name not in named}
        assert kept.items() <= after.things[key].items()


@given(WISHES, STATES)
def test_a_prune_removes_only_what_sections_of_the_file_would_have(
    wish: Wish, state: State
) -> None:
    removed = to_remove(wish, state)
    users = {key.words[0] for key in wish.things if key.kind is Kind.POLICY}
    for key in state.things:
        is_ours = key.kind in wish.sections and key not in wish.things
        if key.kind is Kind.GROUP or (key.kind is Kind.POLICY and key.words[0] not in users):
            is_ours = False
        assert (key in removed) == is_ours


@given(WISHES, STATES)
def test_removals_come_last_and_rights_are_taken_before_others_are_given(
    wish: Wish, state: State
) -> None:
    steps = plan(wish, state, removed=to_remove(wish, state)).steps
    order = list(Kind)
    turns = [
        (step.action is Action.DELETE, 0)
        if step.action is Action.DELETE
        else (False, 2 * order.index(step.key.kind) + (step.wanted.get("decision") != "Deny"))
        for step in steps
    ]
    assert turns == sorted(turns)


TOPIC = Key(Kind.TOPIC, ("orders",))
HAVE: Fields = {"queues": 4, "type": "NORMAL", "permission": "rw", "ordered": False}


@pytest.mark.parametrize(
    ("key", "fields", "why"),
    [
        (TOPIC, {"type": "FIFO"}, "its type is NORMAL, not FIFO"),
        (
            Key(Kind.POLICY, ("bob", "*")),
            {"actions": "All"},
            "there is no user bob; create it with",
        ),
        (Key(Kind.QUOTA, ("user", "bob")), {"send_bytes": 1}, "there is no user bob"),
    ],
)
def test_what_a_cluster_cannot_do_is_refused_before_anything_is_done(
    key: Key, fields: Fields, why: str
) -> None:
    wish = Wish({key: fields}, frozenset({key.kind}))
    (refusal,) = plan(wish, State({TOPIC: HAVE}, frozenset({"ann"}))).refused
    assert refusal.key == key
    assert refusal.why.startswith(why)


def test_queues_that_were_added_by_hand_are_told_and_keep_nothing_else_from_being_done() -> None:
    policy = Key(Kind.POLICY, ("ann", "*"))
    wish = Wish({TOPIC: {"queues": 2, "permission": "r"}, policy: {"actions": "Sub"}})
    made = plan(wish, State({TOPIC: HAVE}, frozenset({"ann"})))
    (drift,) = made.drift
    assert drift.key == TOPIC
    assert drift.why.startswith("it has 4 queues, and the file says 2; queues are never taken")
    assert made.refused == ()
    assert made.differs
    assert [(step.key, [each.field for each in step.changes]) for step in made.steps] == [
        (TOPIC, ["permission"]),
        (policy, ["actions"]),
    ]
    assert "queues" not in made.steps[0].wanted
    alone = plan(Wish({TOPIC: {"queues": 2}}), State({TOPIC: HAVE}))
    assert (alone.steps, alone.unchanged, len(alone.drift)) == ((), 1, 1)


def test_a_topic_with_unread_messages_is_not_pruned() -> None:
    wish = Wish({}, frozenset({Kind.TOPIC}))
    state = State({TOPIC: HAVE})
    made = plan(wish, state, removed=to_remove(wish, state), unread={TOPIC: 1_200})
    assert made.steps == ()
    assert "1,200 unread messages" in made.refused[0].why
    (step,) = plan(wish, state, removed=to_remove(wish, state), unread={TOPIC: 0}).steps
    assert (step.action, step.key) == (Action.DELETE, TOPIC)
