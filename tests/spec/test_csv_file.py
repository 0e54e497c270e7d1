"""Tables of text, and what is none."""

import pytest

from moesim.base.errors import SpecError
from moesim.spec.csv_file import csv_rows


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\xff\xfe\x94", "cannot be read as text"),
        (b"a,c\n1,2\n", "columns b are missing; add b"),
        (b"a,b\n" + b"x" * 200_000 + b",1\n", "is no CSV: field larger than field limit"),
    ],
)
def test_what_is_no_table_is_one_line(tmp_path, content, words):
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    with pytest.raises(SpecError) as error:
        list(csv_rows(path, ("a", "b"), "add b"))
    assert len(error.value.issues) == 1
    assert words in str(error.value)


def test_values_are_stripped_and_missing_ones_empty(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text('a,b\n 1 ,"two\nlines"\n3\n')
    assert list(csv_rows(path, ("a",), "")) == [{"a": "1", "b": "two\nlines"}, {"a": "3", "b": ""}]
