"""Logs of nccl-tests in their dialects, and what is wrong with some of them."""

import json

import pytest

from moesim.base.errors import SpecError
from moesim.traces.readers.nccl_tests import read_nccl_tests

RANKS = "\n".join(
    f"#  Rank  {rank} Group  0 Pid  1 on node0{rank // 8} device  {rank % 8} [0x1b] NVIDIA H100" for rank in range(16)
)
NEW = f"""\
# nccl-tests version 2.17.8
# Collective test starting: all_gather_perf
{RANKS}
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
node00:1:1 [0] NCCL INFO Launch mode Parallel
           0             0    double    none      -1     0.02    0.00    0.00       0     0.01    0.00    0.00       0
       1e+06         12500    double    none      -1    80.00   12.50   11.72       0    81.00   12.35   11.57     N/A
    33554400        419430    double    none      -1   721.94   46.48   41.83       0   687.61   48.80   43.92       0
    67108800        838860    double    none      -1  1329.46   50.48   45.43     288  1317.94   50.92   45.83       0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 46.1
"""
OLD = """\
#   Rank  0 Pid 1 on localhost device  0 [0x00] A100-SXM4-40GB
#   Rank  1 Pid 1 on localhost device  1 [0x00] A100-SXM4-40GB
#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error
          64            16   float     sum    34.36    0.00    0.00    N/A    33.83    0.00    0.00    N/A
# Avg bus bandwidth    : 0.1
"""


def written(folder, name, text):
    path = folder / name
    path.write_text(text)
    return path


def test_a_new_log_gives_both_places_and_counts_what_it_refuses(tmp_path):
    table = read_nccl_tests(written(tmp_path, "a.log", NEW))
    assert [row.size for row in table.rows] == [1e6, 1e6, 33554400, 33554400, 67108800]
    assert table.rows[2].time == pytest.approx(721.94e-6)
    assert (table.rows[0].collective, table.rows[0].ranks, table.rows[0].per_node) == ("all-gather", 16, 8)
    assert table.refused == {"size is zero": 1, "data came out wrong (#wrong > 0)": 1}


def test_an_old_log_is_named_by_its_file(tmp_path):
    table = read_nccl_tests(written(tmp_path, "a100_all_reduce.log", OLD))
    assert [row.collective for row in table.rows] == ["all-reduce"] * 2
    with pytest.raises(SpecError, match="operation is not told"):
        read_nccl_tests(written(tmp_path, "a100.log", OLD))


def test_a_cut_log_says_so(tmp_path):
    cut = NEW[: NEW.index("    67108800") + 40]
    table = read_nccl_tests(written(tmp_path, "a.log", cut))
    reasons = {"size is zero": 1, "row is cut or lacks columns": 1, "the log is cut: no summary line": 1}
    assert table.refused == reasons


SETTINGS = "# nThread 1 nGpus 1 minBytes 1048576 maxBytes 4194304 step: 2(factor)\n"


def job(operation, sizes, end=True, scale=1):
    """One run of nccl-tests as lines."""
    rows = [
        f"{size:>12} {size // 4:>12} float none -1 {scale * size / 1e5:.2f} 1 1 0 {scale * size / 1e5:.2f} 1 1 0\n"
        for size in sizes
    ]
    head = [f"# Collective test starting: {operation}_perf\n", SETTINGS, RANKS + "\n"]
    return [*head, *rows, *(["# Avg bus bandwidth    : 1\n"] if end else [])]


SIZES = (2**20, 2**21, 2**22)


@pytest.mark.parametrize(
    ("lines", "rows", "mixed"),
    [
        (job("all_gather", SIZES) + job("alltoall", SIZES), 12, 0),  # one after the other
        (job("all_gather", SIZES, end=False) + job("alltoall", SIZES), 12, 0),  # the first was cut, the second is whole
        (job("all_gather", SIZES + SIZES), 12, 0),  # two cycles of one job
        # rows of two jobs in turn, with both summaries at the end
        ([line for pair in zip(job("all_gather", SIZES), job("alltoall", SIZES), strict=True) for line in pair], 0, 6),
        # the same without the second header
        (job("all_gather", (2**20, 2**20, 2**21, 2**21, 2**22, 2**22)), 0, 6),
        # a whole job beside mixed ones is kept
        (job("all_gather", (2**20, 2**21, 2**21, 2**22)) + job("alltoall", SIZES), 6, 4),
    ],
)
def test_rows_of_jobs_that_wrote_at_once_are_refused(tmp_path, lines, rows, mixed):
    path = written(tmp_path, "a.log", "".join(lines))
    if not rows:
        with pytest.raises(SpecError, match=rf"rows of several jobs are mixed \({mixed}\)"):
            read_nccl_tests(path)
        return
    table = read_nccl_tests(path)
    assert len(table.rows) == rows
    assert table.refused["rows of several jobs are mixed"] == mixed


def test_ranks_come_from_the_rates_where_no_line_tells_them(tmp_path):
    row = "  8589934592    2147483648     float     sum      -1    86026   99.85  187.22    N/A    86106   99.76  187.05    N/A\n"
    table = read_nccl_tests(written(tmp_path, "all_reduce.log", row))
    assert table.rows[0].ranks == 16


def test_a_log_of_failures_is_one_line(tmp_path):
    text = f"# Collective test starting: alltoall_perf\n{RANKS}\nnode00: Test NCCL failure common.cu:1279 'remote process exited'\n"
    with pytest.raises(SpecError, match=r"no usable row.*failure \(1\)") as raised:
        read_nccl_tests(written(tmp_path, "a.log", text))
    assert "\n" not in str(raised.value)


def test_json_with_bare_inf_and_without_its_end(tmp_path):
    half = {"time": 100.0, "alg_bw": 1.0, "bus_bw": 1.0, "nwrong": 0}
    data = {
        "version": 3,
        "args": ["./all_reduce_perf"],
        "config": {"devices": [{"rank": rank, "hostname": "a", "device_info": "NVIDIA H100"} for rank in range(8)]},
        "results": [{"size": 1024 * scale, "out_of_place": half, "in_place": None} for scale in (1, 2, 4)],
    }
    text = json.dumps(data).replace('"alg_bw": 1.0', '"alg_bw": inf')
    assert len(read_nccl_tests(written(tmp_path, "a.json", text)).rows) == 3
    cut = text[: text.rindex('{"size"')]
    table = read_nccl_tests(written(tmp_path, "b.json", cut))
    assert len(table.rows) == 2
    assert table.refused == {"the log is cut: JSON without its end": 1}
