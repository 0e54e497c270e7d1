"""``moesim calibrate collectives`` and ``transport``: a fit that repeats itself, and one line where there is none."""

import pytest

from moesim.calibrate.collective_overlay import links_of
from moesim.cost.collectives import collective_time
from moesim.cost.machine import Group

HEADER = "gpu,op,size_bytes,nranks,gpus_per_node,time_us\n"
SIZES = [2**power for power in range(16, 30)]


def rows(scale=1.0, gpu="H100 SXM", sizes=SIZES):
    """All-gathers on 8 GPUs of a node as the price has them, times a factor."""
    links = links_of("hgx-h100")
    times = [1e6 * scale * float(collective_time("all-gather", float(size), Group(8.0, 8.0), links)) for size in sizes]
    lines = [f"{gpu},all_gather,{size},8,8,{time:.4f}" for size, time in zip(sizes, times, strict=True)]
    return HEADER + "\n".join(lines) + "\n"


@pytest.fixture
def table(tmp_path, monkeypatch):
    """Write a table into the working directory."""
    monkeypatch.chdir(tmp_path)

    def write(text):
        (tmp_path / "rows.csv").write_text(text)
        return "rows.csv"

    return write


def test_the_same_rows_give_the_same_file(moesim, table, tmp_path):
    call = ("calibrate", "collectives", "--gpu", "h100", "--from", table(rows()))
    assert moesim(*call, "--out", "a.yaml").code == 0
    assert moesim(*call, "-o", "b.yaml").code == 0
    text = (tmp_path / "a.yaml").read_text()
    assert (tmp_path / "b.yaml").read_text() == text
    assert "command: moesim calibrate collectives --node hgx-h100 --from rows.csv" in text
    assert "used: 14" in text
    assert "note:" not in text


def test_slow_rows_are_fitted_and_told(moesim, table):
    found = moesim("calibrate", "collectives", "--node", "hgx-h100", "--from", table(rows(2.0)))
    assert found.code == 0
    (line,) = found.err.splitlines()
    assert "times as long as the links need: sizes in elements, slow runs or other links" in line
    assert "note: 'messages take 2." in found.out


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (rows(0.4), "times as fast as the links"),
        (rows(sizes=SIZES[:3]), "give at least 6 rows"),
        (rows(gpu="H200"), "another GPU (14)"),
        (rows(gpu="MI300X"), "unknown GPU (14)"),
        (rows().replace(",8,8,", ",16,8,"), "another scope (14)"),
        (rows().replace("size_bytes", "message_size"), "message_size counts elements"),
        (HEADER, "a header and no rows"),
        ("", "is empty"),
    ],
)
def test_rows_without_a_fit_are_one_line(moesim, table, text, told):
    (line,) = moesim("calibrate", "collectives", "--node", "hgx-h100", "--from", table(text)).lines
    assert told in line


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("collectives", "--from", "a.csv"), "one of --node and --gpu"),
        (("collectives", "--gpu", "h100", "--node", "hgx-h100", "--from", "a.csv"), "one of --node and --gpu"),
        (("collectives", "--node", "hgx-h10", "--from", "a.csv"), "no node 'hgx-h10'"),
        (("collectives", "--gpu", "h100", "--from", "a.csv"), "no such file"),
        (("collectives", "--gpu", "h100", "--from", "."), "is a folder"),
        (("collectives", "--gpu", "h100", "--from", "rows.csv", "--op", "alltoal"), "did you mean 'alltoall'"),
        (("collectives", "--gpu", "h100", "--from", "rows.csv", "--op", "alltoall"), "is for logs"),
        (("collectives", "--gpu", "h100", "--from", "aiconfigurator-core", "--op", "alltoall"), "is for logs"),
        (("transport", "--from", "rows.csv"), "no tables of a transport"),
        (("transport", "--transport", "hybridep", "--from", "aiconfigurator-core"), "they are of deepep"),
    ],
)
def test_what_is_wrong_is_one_line(moesim, table, words, told):
    table(rows())
    (line,) = moesim("calibrate", *words).lines
    assert told in line
