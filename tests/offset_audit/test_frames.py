"""What a frame does, on both engines: nulls, joins, groups, windows, arrays and structs."""

from __future__ import annotations

from typing import Any

import pytest

from aerobee.offset_audit.frames import functions as F
from aerobee.offset_audit.frames.frame import Engine, Frame

pytestmark = pytest.mark.slow


@pytest.fixture
def rows(engine: Engine) -> Frame:
    return engine.frame(
        "name string, at long, size int, is_new boolean",
        [
            ("a", 1, 5, True),
            ("a", 2, None, False),
            ("a", 2, 7, None),
            ("b", 3, None, None),
            (None, 4, 1, True),
        ],
    )


def told(frame: Frame) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in frame.collect()), key=str)


@pytest.mark.parametrize(
    ("aggregate", "of_a", "of_b"),
    [
        ("count(1)", 3, 1),
        ("count(size)", 2, 0),
        ("count(distinct at)", 2, 1),
        ("count_if(is_new)", 1, 0),
        ("sum(size)", 12, None),
        ("try_sum(size)", 12, None),
        ("min(size)", 5, None),
        ("max(is_new)", True, None),
        ("bool_or(is_new)", True, None),
        ("bool_and(is_new)", False, None),
        ("min_by(size, at)", 5, None),
        ("max_by(at, size)", 2, None),
        ("first(size, true)", 5, None),
        ("sort_array(collect_set(at))", [1, 2], [3]),
        ("max(struct(size, at)).size", 7, None),
        ("min(struct(size, at)).at", 2, 3),
        ("max(at) - min(at) + count(1)", 4, 1),
    ],
)
def test_an_aggregate_leaves_out_what_is_not_known(
    rows: Frame, aggregate: str, of_a: object, of_b: object
) -> None:
    found = rows.groupBy("name").agg(f"{aggregate} found")
    by_name = {row["name"]: row["found"] for row in found.collect()}
    assert (by_name["a"], by_name["b"]) == (of_a, of_b)
    assert set(by_name) == {"a", "b", None}, "rows without a name are a group"


def test_an_aggregate_of_nothing_is_one_row(rows: Frame) -> None:
    nothing = rows.where("at > 99")
    assert told(nothing.agg("count(1) n", "max(at) m")) == [(0, None)]
    assert told(nothing.groupBy("name").agg("count(1) n")) == []


def test_a_condition_that_is_not_known_does_not_hold(rows: Frame) -> None:
    assert rows.where("size > 5").count() == 1
    assert rows.where("not size > 5").count() == 2
    assert rows.where(F.col("size").isNull() | F.col("is_new")).count() == 4
    assert rows.where(F.col("is_new").eqNullSafe(F.lit(None))).count() == 2
    assert rows.where(F.col("name").isin("a", "z")).count() == 3


@pytest.mark.parametrize(
    ("how", "names"),
    [
        ("inner", ["a", "a", "a"]),
        ("left", [None, "a", "a", "a", "b"]),
        ("right", [None, "a", "a", "a", "c"]),
        ("full", [None, None, "a", "a", "a", "b", "c"]),
        ("left_semi", ["a", "a", "a"]),
        ("left_anti", [None, "b"]),
    ],
)
def test_a_join_matches_no_nulls(
    engine: Engine, rows: Frame, how: str, names: list[str | None]
) -> None:
    other = engine.frame("name string, more int", [("a", 10), ("c", 30), (None, 40)])
    found = rows.join(other, "name", how).collect()
    assert sorted((row["name"] for row in found), key=lambda one: one or "") == names


def test_a_join_by_conditions_may_match_nulls(engine: Engine, rows: Frame) -> None:
    other = engine.frame("whose string, since long", [("a", 2), (None, 1), (None, 9)])
    same = F.col("name").eqNullSafe(F.col("whose"))
    later = F.col("at") >= F.col("since")
    assert told(rows.join_where(other, [same, later]).select("name", "at", "since")) == [
        ("a", 2, 2),
        ("a", 2, 2),
        (None, 4, 1),
    ]
    assert rows.join_where(other, [same, later], "left").count() == 5
    assert rows.join_where(other, [same, later], "left_anti").count() == 2
    assert rows.crossJoin(other).count() == 15


def test_windows_see_what_they_say(rows: Frame) -> None:
    by_name = "partition by name"
    in_order = f"{by_name} order by at, size"
    so_far = f"{in_order} rows between unbounded preceding and 1 preceding"
    rest = f"{in_order} rows between 1 following and unbounded following"
    found = rows.where("name = 'a'").withColumns(
        {
            "place": f"row_number() over ({in_order})",
            "before": f"lag(size) over ({in_order})",
            "after": f"lead(at) over ({in_order})",
            "whole": f"max(size) over ({by_name})",
            "so_far": f"max(size) over ({so_far})",
            "running": f"count(size) over ({by_name} order by at)",
            "rest": f"collect_list(size) over ({rest})",
            "newest": f"row_number() over ({by_name} order by size desc nulls last, at)",
        }
    )
    names = ("place", "before", "after", "whole", "so_far", "running", "rest", "newest")
    assert [row[1:] for row in told(found.orderBy("place").select("at", *names))] == [
        (1, None, 2, 7, None, 1, [7], 2),
        # Nulls come first, and rows of one moment share their count.
        (2, 5, 2, 7, 5, 2, [7], 3),
        (3, None, None, 7, 5, 2, [], 1),
    ]


def test_rows_are_made_of_arrays_and_columns_of_structs(engine: Engine) -> None:
    rows = engine.frame(
        "name string, ids array<int>, rest string",
        [("a", [1, 2], '{"x": 5}'), ("b", [], "{}"), ("c", None, '{"y": "z", "other": 1}')],
    )
    assert told(rows.selectExpr("name", "explode(ids) id")) == [("a", 1), ("a", 2)]
    parsed = rows.with_json("rest", "x int, y string").select("name", "rest.*")
    assert told(parsed) == [("a", 5, None), ("b", None, None), ("c", None, "z")]
    made = rows.selectExpr("named_struct('name', name, 'n', size(ids)) one").select("one.*")
    assert told(made) == [("a", 2), ("b", 0), ("c", None)]


def test_equal_rows_are_one_and_frames_are_put_together_by_names(
    engine: Engine, rows: Frame
) -> None:
    assert rows.select("name").distinct().count() == 3
    more = engine.frame("size int, name string", [(9, "z")])
    both = rows.select("name", "size").unionByName(more)
    assert both.where("size = 9").select("name").collect() == [{"name": "z"}]
    wide = rows.unionByName(more, allowMissingColumns=True)
    assert (wide.columns, wide.count()) == (rows.columns, 6)
    assert [row["size"] for row in both.orderBy(F.desc("size"), "name").limit(2).collect()] == [
        9,
        7,
    ]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7 div 2", 3),
        ("-7 div 2", -3),
        ("array_sort(array(3, null, 1))", [1, 3, None]),
        ("sort_array(array(3, null, 1))", [None, 1, 3]),
        ("array_join(array('a', null, 'b'), '-')", "a-b"),
        ("filter(array(1, 2, 3), x -> x > 1)", [2, 3]),
        ("aggregate(array(1, 2), 10, (seen, x) -> seen + x, seen -> seen * 2)", 26),
        ("try_element_at(array(1, 2), -1)", 2),
        ("try_element_at(array(1, 2), 5)", None),
        ("array_contains(array(1, 2), 3)", False),
        ("greatest(1, null, 3)", 3),
        ("lpad(lower(hex(255)), 4, '0')", "00ff"),
        ("substring('%RETRY%g', 8, 99)", "g"),
        ("format_string('%d of %s', 3, 'a')", "3 of a"),
        ("date_format(timestamp_millis(1500), 'yyyy-MM-dd HH:mm:ss')", "1970-01-01 00:00:01"),
        ("try_add(9223372036854775807, 1)", None),
        ("named_struct('a', 1, 'b', null) < named_struct('a', 1, 'b', 2)", True),
        ("null <=> null", True),
        ("case when cast(null as boolean) then 1 else 2 end", 2),
        ("2 not in (1, 3)", True),
    ],
)
def test_a_function_gives_the_same_on_both_engines(
    engine: Engine, text: str, value: object
) -> None:
    (row,) = engine.frame("one int", [(1,)]).select(F.expr(text).alias("found")).collect()
    assert row["found"] == value
