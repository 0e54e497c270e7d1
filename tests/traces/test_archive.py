"""Folders and archives of ranks, and what is told while a file is read."""

import gzip
import tarfile

import pytest

from moesim.base.errors import SpecError
from moesim.studies.trace_summary import trace_report
from moesim.traces.opening import read_timeline


@pytest.fixture
def ranks(made):
    folder = made.folder / "run"
    folder.mkdir()
    for number in (10, 2, 1):
        made.events = []
        made.head = {"distributedInfo": {"rank": number}}
        made.kernel("ncclDevKernel_SendRecv", 10 * number, 200 - 10 * number, stream=20)
        made.write(f"run/rank{number}.json")
    (folder / "notes.txt").write_text("nothing to see")
    return folder


@pytest.mark.parametrize("form", ["folder", "archive", "archive in a folder"])
def test_ranks_come_in_the_order_of_their_numbers(ranks, tmp_path, form):
    path = ranks
    if form != "folder":
        place = tmp_path / "packed"
        place.mkdir()
        with tarfile.open(place / "ranks.tar.gz", "w:gz") as archive:
            archive.add(ranks, "run")
        path = place if form == "archive in a folder" else place / "ranks.tar.gz"
    found = trace_report([path])
    assert [one.rank for one in found.devices] == [1, 2, 10]
    assert found.passed_over == ("notes.txt",)
    assert found.across is not None
    (match,) = found.across.matches
    assert (sorted(match.members), match.last) == ([1, 2, 10], 10)


def test_what_holds_no_trace_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("nothing to see")
    with pytest.raises(SpecError, match=r"holds no trace that is known: notes\.txt"):
        trace_report([tmp_path])
    broken = tmp_path / "a.tar"
    broken.write_bytes(b"a" * 257 + b"ustar" + b"b" * 600)
    with pytest.raises(SpecError) as refused:
        trace_report([broken])
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize("packed", [False, True])
def test_progress_ends_at_the_size_of_the_file(made, packed):
    for number in range(3000):
        made.kernel(f"k{number}", 10 * number, 4)
    text = made.text().encode()
    path = made.write("a.json", gzip.compress(text, compresslevel=0) if packed else text)
    told: list[int] = []
    read_timeline(path, told.append)
    assert told == sorted(told)
    assert told[-1] == path.stat().st_size
