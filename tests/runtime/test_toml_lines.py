"""Where keys stand in a TOML document, whatever stands around them."""

from __future__ import annotations

import tomllib
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from aerobee.runtime.toml_lines import lines_of

DOCUMENT = """\
# a comment with key = 1
cluster = "a = b # c"      # here
peers = [
    "x:1", # [table]
    'y = 2',
]
"quoted key" = '''
listen = "inside a string"
[nothing]
'''
a.b.c = 1
inline = { x = 1, y = { z = "}" }, list = [ [1], [2] ] }
escaped = "\\"[not]\\""

[store]
flush_mode = "sync"
 retention . enabled = true

[store.more]
when = 2026-01-31T12:00:00Z
text = \"\"\"
three ""\\" quotes
\"\"\"
[[tables]]
n = 1
"""


def test_each_key_is_where_a_reader_sees_it() -> None:
    tomllib.loads(DOCUMENT)
    assert lines_of(DOCUMENT) == {
        "cluster": 2,
        "peers": 3,
        "quoted key": 7,
        "a.b.c": 11,
        "inline": 12,
        "inline.x": 12,
        "inline.y": 12,
        "inline.y.z": 12,
        "inline.list": 12,
        "escaped": 13,
        "store": 15,
        "store.flush_mode": 16,
        "store.retention.enabled": 17,
        "store.more": 19,
        "store.more.when": 20,
        "store.more.text": 21,
        "tables": 24,
        "tables.n": 25,
    }


NAMES = st.text("abcXYZ_-19", min_size=1, max_size=6)
SCALARS = st.one_of(
    st.integers(-5, 5).map(str),
    st.sampled_from(
        ["true", "1.5", "'#='", '"[x] = {"', "[1, 2]", "[\n  1, # one\n]", '"""\na\n"""']
    ),
)


@given(st.dictionaries(NAMES, st.dictionaries(NAMES, SCALARS, max_size=4), max_size=4))
def test_every_key_is_found_on_the_line_that_begins_with_it(
    tables: dict[str, dict[str, str]],
) -> None:
    text = "".join(
        f"[{table}]\n" + "".join(f"{name} = {value}\n" for name, value in pairs.items())
        for table, pairs in tables.items()
    )
    tomllib.loads(text)
    found = lines_of(text)
    wanted = {f"{table}.{name}" for table, pairs in tables.items() for name in pairs}
    assert set(found) == wanted | set(tables)
    for key, line in found.items():
        shown = text.splitlines()[line - 1]
        last = key.rpartition(".")[2]
        assert shown.startswith((f"{last} =", f"[{last}]"))


def test_the_files_of_this_repository_can_be_read() -> None:
    file = Path(__file__).resolve().parents[2] / "pyproject.toml"
    text = file.read_text("utf-8")
    assert set(tomllib.loads(text)) <= {key.partition(".")[0] for key in lines_of(text)}


def test_a_quoted_key_is_read_as_toml_reads_it() -> None:
    text = '"\\U0001F600" = 1\n"\\u00e9\\t" = 2\n"" = 3\n\'\\U\' = 4\n["x\\"y" . z]\n'
    assert list(lines_of(text)) == ["\U0001f600", "\u00e9\t", "", "\\U", 'x"y.z']
    assert set(tomllib.loads(text)) == {"\U0001f600", "\u00e9\t", "", "\\U", 'x"y'}
