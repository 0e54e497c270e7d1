"""A search that was stopped goes on from its file, and only from its own."""

import json

import pytest

from moesim.base.errors import SpecError
from moesim.studies.search import tasks
from moesim.studies.search.search import search


@pytest.fixture(scope="module")
def lines(tiny, vary, tmp_path_factory):
    """The lines of a search that was stopped in its third part."""
    path = tmp_path_factory.mktemp("stopped") / "s.jsonl"

    def stop(progress):
        if path.exists() and len(path.read_text().splitlines()) == 3:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tasks, "COLUMNS", 2)
        found = search(tiny, vary, top=5, checkpoint=path, progress=stop)
    assert not found.complete
    assert found.top
    return path.read_text()


@pytest.fixture
def stopped(lines, fine, tmp_path):
    """Its file."""
    path = tmp_path / "s.jsonl"
    path.write_text(lines)
    return path


def test_it_goes_on_where_it_was(stopped, tiny, vary, told, whole):
    found = search(tiny, vary, top=5, checkpoint=stopped)
    assert told(found) == told(whole)
    lines = [json.loads(line) for line in stopped.read_text().splitlines()]
    assert found.resumed == sum(one["counts"]["done"] for one in lines[1:3]) > 0
    assert found.plans_per_s == (found.counts.done - found.resumed) / found.seconds
    assert len({one["part"] for one in lines[1:]}) == len(lines) - 1 == 6
    again = search(tiny, vary, top=5, checkpoint=stopped, workers=2)
    assert told(again) == told(whole)
    assert again.resumed == again.plans_legal


def test_a_line_that_was_cut_off_is_done_again(stopped, tiny, vary, told, whole):
    text = stopped.read_text()
    stopped.write_text(text[:-40])
    assert told(search(tiny, vary, top=5, checkpoint=stopped)) == told(whole)
    lines = [json.loads(line) for line in stopped.read_text().splitlines()]
    assert len({one["part"] for one in lines[1:]}) == len(lines) - 1 == 6


@pytest.mark.parametrize(
    ("changes", "options", "what"),
    [
        ({}, {"top": 6}, "another objective"),
        ({}, {"top": 5, "objective": "memory"}, "another objective"),
        ({"gpu.memory_bandwidth": "4 TB/s"}, {"top": 5}, "another machine"),
        ({"strategy.pp": 4}, {"top": 5}, "another strategy"),
        ({"global_batch": 64}, {"top": 5}, "another batch"),
    ],
)
def test_the_file_of_another_search_is_refused(stopped, tiny, vary, changes, options, what):
    before = stopped.read_bytes()
    with pytest.raises(SpecError, match=f"s.jsonl: is of a search with {what}; ask the same"):
        search(tiny.with_changes(changes) if changes else tiny, vary, checkpoint=stopped, **options)
    assert stopped.read_bytes() == before


def test_another_space_is_refused(stopped, tiny, vary):
    with pytest.raises(SpecError, match="of a search with another space; ask"):
        search(tiny, {**vary, "tp": [1, 2, 4]}, top=5, checkpoint=stopped)


@pytest.mark.parametrize("text", ["no json\n", "no end of a line", '{"traceEvents": []}\n', "[1]\n"])
def test_what_is_no_such_file_is_refused(tiny, vary, tmp_path, text):
    path = tmp_path / "s.jsonl"
    path.write_text(text)
    with pytest.raises(SpecError, match="is no file of a search"):
        search(tiny, vary, checkpoint=path)
    assert path.read_text() == text


@pytest.mark.parametrize(
    ("line", "name", "what"),
    [(2, "9-9", "has part '9-9' that this search does not have"), (1, None, "has part '0-1' twice")],
)
def test_a_part_that_is_none_of_the_search_is_refused(stopped, tiny, vary, line, name, what):
    lines = stopped.read_text().splitlines()
    changed = json.loads(lines[line]) | {"part": name or json.loads(lines[2])["part"]}
    lines[line] = json.dumps(changed)
    stopped.write_text("\n".join(lines) + "\n")
    before = stopped.read_bytes()
    with pytest.raises(SpecError, match=f"s.jsonl: {what}; name another, or delete it"):
        search(tiny, vary, top=5, checkpoint=stopped)
    assert stopped.read_bytes() == before


def test_an_empty_file_is_a_new_one(tiny, vary, told, whole, tmp_path):
    path = tmp_path / "s.jsonl"
    path.touch()
    assert told(search(tiny, vary, top=5, checkpoint=path)) == told(whole)
