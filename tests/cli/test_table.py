"""Tables of commands: aligned, folded to the terminal, nothing lost."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.cli.table import cells_wide, table_lines

TEXT = st.text(alphabet="ab c東é", max_size=30).map(str.strip)


def test_numbers_are_aligned_to_the_right_and_texts_to_the_left() -> None:
    rows = [{"name": "a", "count": 5}, {"name": "longer", "count": 1_234}]
    assert list(table_lines(rows, ["name", "count"])) == [
        "name    count",
        "a           5",
        "longer   1234",
    ]


def test_what_is_missing_is_a_dash_and_a_bool_a_word() -> None:
    rows: list[dict[str, object]] = [{"a": None, "b": True, "c": [], "d": {"x": 1}}]
    assert list(table_lines(rows, ["a", "b", "c", "d"]))[1].split() == ["-", "yes", "-", "x=1"]


def test_wide_characters_take_two_columns() -> None:
    rows = [{"name": "東京", "n": 1}, {"name": "abcd", "n": 2}]
    assert [cells_wide(line) for line in table_lines(rows, ["name", "n"])] == [7, 7, 7]


def test_only_the_header_is_bold() -> None:
    header, row = table_lines([{"a": "x"}], ["a"], is_bold=True)
    assert (header, row) == ("\x1b[1ma\x1b[0m", "x")


@given(
    rows=st.lists(st.fixed_dictionaries({"a": TEXT, "b": TEXT}), min_size=1, max_size=4),
    width=st.integers(16, 40),
)
def test_a_narrow_terminal_folds_cells_and_loses_nothing(
    rows: list[dict[str, str]], width: int
) -> None:
    lines = list(table_lines(rows, ["a", "b"], width=width))
    assert all(cells_wide(line) <= width for line in lines)
    kept = "".join("".join(line.split()) for line in lines)
    wanted = "ab" + "".join(row["a"] + row["b"] for row in rows)
    assert sorted(kept) == sorted("".join(wanted.split()))
