"""``moesim collective``: prices, verdicts, tables, and one line for what is wrong."""

import csv

import pytest


def test_an_all_to_all_names_everything(moesim):
    found = moesim("collective", "alltoall", "--cluster", "hgx-h100:16", "--size", "1GiB", "--json").json
    assert found["ranks"] == 128
    assert found["low_s"] < found["time_s"] < found["high_s"]
    assert found["busbw_bytes_per_s"] == pytest.approx(found["algbw_bytes_per_s"] * 127 / 128)
    assert found["algorithm"] == "pairwise"
    assert found["binding"] == "NIC"


def test_a_measurement_is_judged(moesim):
    call = ("collective", "alltoall", "--cluster", "hgx-h100:16", "--size", "1GiB", "--json", "--measured")
    assert moesim(*call, "46GB/s").json["verdict"] == "healthy"
    sick = moesim(*call, "20GB/s").json
    assert sick["verdict"] == "sick"
    assert "half rate" in sick["causes"][0]["cause"]


@pytest.mark.parametrize(
    ("words", "measured", "verdict", "note"),
    [
        (("allreduce", "hgx-h100:16", "1GiB"), "175GB/s", "cannot tell", "slower than expected"),
        (("alltoall", "hgx-h100:16", "1MiB"), "0.8GB/s", "sick", None),
        (("allreduce", "hgx-h100:2", "1GiB"), "5000GB/s", "impossible", "faster than the wires"),
        (("allgather", "hgx-h100:1", "8B"), "1ns", "impossible", "faster than the wires"),
        (("alltoall", "hgx-h100:1", "64KiB"), "90us", "cannot tell", "slower than expected"),
        (("sendrecv", "hgx-h100:1", "64MiB"), "820us", "cannot tell", "slower than expected"),
        (("sendrecv", "hgx-h100:1", "4GiB"), "52ms", "sick", None),
        (("sendrecv", "hgx-h100:10", "4GiB"), "25GB/s", "healthy", "within expectation"),
        (("sendrecv", "hgx-h100:10", "4GiB"), "15.2GB/s", "sick", None),
    ],
)
def test_a_verdict_says_what_it_can_tell(moesim, words, measured, verdict, note):
    """Half-rate networks are not called healthy, nor units that no wire carries; short messages tell little."""
    operation, cluster, size = words
    call = ("collective", operation, "--cluster", cluster, "--size", size, "--measured", measured, "--json")
    found = moesim(*call).json
    assert found["verdict"] == verdict
    assert (note is None) == ("note" not in found)
    assert note is None or found["note"].startswith(note)
    assert ("causes" in found) == (verdict in ("sick", "cannot tell"))


def test_a_message_between_nodes_goes_by_the_rate_of_its_nic(moesim):
    """25 GB/s of 50 on ten nodes, 46 on a pair (runs of 1, 2 and 4 GPUs a node, and of a pair of nodes)."""
    for cluster, rate in (("hgx-h100:10", 25.5e9), ("hgx-h100:16", 25.5e9), ("hgx-h100:2", 45.8e9)):
        found = moesim("collective", "sendrecv", "--cluster", cluster, "--size", "4GiB", "--json").json
        assert found["busbw_bytes_per_s"] == pytest.approx(rate, rel=0.05)
        assert found["binding"] == "NIC"


def test_what_was_not_measured_is_a_grade_lower_and_wider_the_further(moesim):
    found = [
        moesim("collective", "alltoall", "--cluster", f"hgx-h100:{nodes}", "--size", "1GiB", "--json").json
        for nodes in (10, 16, 1600)
    ]
    assert [one["evidence"] for one in found] == ["calibrated", "datasheet", "datasheet"]
    assert found[1]["evidence_reasons"] == ["nodes 16 is outside of the 10 to 10 that were measured"]
    widths = [one["high_s"] / one["time_s"] for one in found]
    assert widths[0] < widths[1] < widths[2]


def test_what_nccl_is_told_changes_the_choice(moesim):
    call = ("collective", "allreduce", "--cluster", "hgx-h100:1", "--size", "1GiB", "--json")
    assert moesim(*call).json["algorithm"] == "nvls"
    assert moesim(*call, "--no-nvls").json["algorithm"] == "ring"
    assert moesim(*call, "--algo", "ring", "--proto", "ll").json["protocol"] == "ll"


def test_several_sizes_are_those_of_one_each(moesim):
    call = ("collective", "alltoall", "--cluster", "hgx-h100:16", "--measured", "30GB/s", "--json", "--size")
    cases = moesim(*call, "8MiB,1GiB").json["cases"]
    assert cases == [moesim(*call, size).json for size in ("8MiB", "1GiB")]
    assert cases[0]["busbw_bytes_per_s"] < cases[1]["busbw_bytes_per_s"]


@pytest.mark.parametrize(
    ("operation", "nodes", "algorithm", "size"),
    [
        ("allreduce", 16, "collnet", "64MiB"),
        ("allreduce", 1, "symmetric", "64KiB"),
        ("alltoall", 1, "copy-engine", "1GiB"),
        ("alltoall", 16, "hierarchical", "64KiB"),
    ],
)
def test_ways_that_are_off_are_taken_when_they_are_named(moesim, operation, nodes, algorithm, size):
    call = ("collective", operation, "--cluster", f"hgx-h100:{nodes}", "--size", size, "--json")
    named = moesim(*call, "--algo", algorithm).json
    assert named["algorithm"] == algorithm
    assert 0 < named["time_s"] < 1
    assert named["evidence"] == "datasheet"
    assert moesim(*call).json["algorithm"] != algorithm
    assert moesim(*call, "--algo", "^tree").json["algorithm"] != algorithm


def test_a_table_is_priced_and_counts_what_it_refuses(moesim, tmp_path):
    path = tmp_path / "rows.csv"
    rows = [
        ("H100 80GB HBM3", "all_reduce", 2**30, 8, 8, 4000.8, ""),
        ("H100 80GB HBM3", "all_reduce", 2**30, 8, 8, 40008, ""),
        ("H100 80GB HBM3", "all_reduce", 2**30, 8, 8, 4000.8, "CORRUPTION: #wrong"),
        ("MI300X", "all_reduce", 2**30, 8, 8, 4000.8, ""),
        ("H100 SXM", "all_reduce", "peak of 1..2", 8, 8, 4000.8, ""),
        ("H100 SXM", "broadcast", 2**30, 8, 8, 4000.8, ""),
    ]
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("gpu", "op", "size_bytes", "nranks", "gpus_per_node", "time_us", "notes"))
        writer.writerows(rows)
    found = moesim("collective", "--from", str(path), "--json").json
    assert [row["verdict"] for row in found["rows"]] == ["healthy", "sick", "corrupt"]
    assert found["summary"]["count"] == 3
    assert found["summary"]["refused"] == {"no size": 1, "operation 'broadcast' is not priced": 1, "unknown GPU": 1}


ALL = ("collective", "allgather", "--cluster", "hgx-h100:1")
MEASURED = """gpu,op,size_bytes,nranks,gpus_per_node,time_us,wrong
H100 SXM,all_gather,33554432,8,8,125.5,0
H100 SXM,all_gather,67108864,8,8,208.1,3
H100 SXM,all_gather,67108864,16,8,208.1,0
H200 SXM,all_gather,67108864,8,8,208.1,0
H100 SXM,all_reduce,67108864,8,8,208.1,0
"""
LOG = """# nThread 1 nGpus 8 minBytes 33554432 maxBytes 67108864 step: 2(factor) warmup iters: 5 iters: 20
#   Rank  0 Pid 1 on node00 device  0 [0x1b] NVIDIA H100 80GB HBM3
"""


@pytest.fixture
def rows(tmp_path):
    """A file of measured rows."""
    path = tmp_path / "rows.csv"
    path.write_text(MEASURED)
    return str(path)


def test_a_sweep_stands_beside_the_rows_that_are_alike(moesim, rows):
    found = moesim(*ALL, "--sweep", "--from", rows, "--json").json
    sizes = [row["size_bytes"] for row in found["rows"]]
    assert sizes == [2.0**power for power in range(10, 35)]
    assert [(row["size_bytes"], row["wrong"]) for row in found["measured"]] == [(2**25, False), (2**26, True)]
    assert found["measured"][0]["busbw_bytes_per_s"] == pytest.approx(2**25 * 7 / 8 / 125.5e-6)
    assert "measured" not in moesim(*ALL, "--sweep", "--json").json
    assert "233.9-233.9 GB/s (1)" in moesim(*ALL, "--sweep", "--from", rows).out


def test_a_sweep_is_drawn(moesim, rows, tmp_path):
    names = ("alone.svg", "beside.svg")
    for name, more in zip(names, ((), ("--from", rows)), strict=True):
        assert moesim(*ALL, "--sweep", *more, "-o", str(tmp_path / name)).out == ""
    alone, beside = ((tmp_path / name).read_text() for name in names)
    assert "expected" in alone
    assert "measured" not in alone
    assert "measured (1 rows)" in beside
    assert "data came out wrong (1 rows)" in beside
    moesim(*ALL, "--sweep", "--from", rows, "-o", str(tmp_path / "again.svg"))
    assert (tmp_path / "again.svg").read_text() == beside


def test_a_log_is_priced_as_a_table(moesim, tmp_path):
    path = tmp_path / "run_all_gather.log"
    ranks = [f"#   Rank  {rank} Pid 1 on node00 device  {rank} [0x1b] NVIDIA H100 80GB HBM3" for rank in range(8)]
    row = "    33554432       1048576     float    none      -1   125.5  267.4  233.9       0   125.0  268.4  234.9      2"
    path.write_text("\n".join([LOG.splitlines()[0], *ranks, row, "# Avg bus bandwidth : 1"]) + "\n")
    found = moesim("collective", "--from", str(path), "--json").json
    (priced,) = found["rows"]
    assert (priced["op"], priced["size_bytes"], priced["nranks"]) == ("all-gather", 33554432, 8)
    assert priced["error"] == pytest.approx(priced["predicted_time_s"] / 125.5e-6 - 1)
    assert found["summary"]["refused"] == {"data came out wrong (#wrong > 0)": 1}


BARE = """#                                                              out-of-place                       in-place
   268435456      67108864     float     sum      -1   1200.0  223.7  391.5       0   9000.0   29.8   52.2      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 200
"""


def test_a_log_that_names_nothing_is_judged_where_it_is_told(moesim, tmp_path):
    path = tmp_path / "run.log"
    path.write_text(BARE)
    call = ("collective", "allreduce", "--from", str(path), "--cluster", "hgx-h100:1", "--nranks", "8")
    found = moesim(*call, "--json").json
    assert [row["verdict"] for row in found["rows"]] == ["healthy", "sick"]
    assert found["summary"]["verdicts"] == {"healthy": 1, "sick": 1}
    assert "1: sick" in moesim(*call).out
    assert "unknown GPU" in moesim(*call[:4], "--nranks", "8").lines[0]
    across = moesim(*call[:4], "--cluster", "hgx-h100:2", "--nranks", "16", "--gpus-per-node", "8", "--json").json
    assert across["rows"][1]["predicted_time_s"] > 0
    assert across["summary"]["verdicts"]["sick"] == 1
    assert "more ranks than the cluster has" in moesim(*call[:6], "--nranks", "16").lines[0]


def test_odd_rows_are_refused_and_own_columns_kept(moesim, tmp_path):
    path = tmp_path / "rows.csv"
    head = "gpu,op,size_bytes,nranks,gpus_per_node,num_nodes,time_us,error\n"
    lines = [
        "H100 SXM,all_gather,1073741824,8,8,2,3000,mine",
        "H100 SXM,all_gather,1073741824,7.5,8,1,3000,mine",
        "H100 SXM,all_gather,1073741824,8,8,1,3000,mine,more",
        "H100 SXM,all_gather,1073741824,8,8,1,3000,mine",
    ]
    path.write_text(head + "\n".join(lines) + "\n")
    found = moesim("collective", "--from", str(path), "--json").json
    (row,) = found["rows"]
    assert row["input_error"] == "mine"
    assert row["error"] == pytest.approx(row["predicted_time_s"] / 3e-3 - 1)
    assert found["summary"]["refused"] == {
        "more cells than the header has": 1,
        "nranks is no whole number above zero": 1,
        "nranks is not num_nodes times gpus_per_node": 1,
    }


def test_expert_exchanges_are_priced_with_their_own_interval(moesim, tmp_path):
    path = tmp_path / "ep.csv"
    header = "gpu,num_ranks,num_nodes,library,mode,op,tokens_per_rank,hidden,topk,num_experts,dtype,num_sms,time_us\n"
    lines = [
        "H100 SXM,8,1,DeepEP,normal,dispatch,4096,7168,8,256,fp8,20,500",
        "H100 SXM,,1,DeepEP,normal,dispatch,4096,7168,8,256,,20,500",  # all GPUs of a node; FP8 as DeepEP has it
        "H100 SXM,64,8,DeepEP,normal,combine,4096,7168,8,256,bf16,20,",
        "H100 SXM,8,1,DeepEP,low-latency,combine,4096,7168,8,256,bf16,20,9",
        "H100 SXM,8,1,DeepEP,normal,combine,-1,7168,8,256,bf16,20,9",
    ]
    path.write_text(header + "\n".join(lines) + "\n")
    found = moesim("collective", "--from", str(path), "--json").json
    first, second, far = found["rows"]
    assert first["predicted_time_s"] == second["predicted_time_s"]
    assert first["evidence"] == "calibrated"
    assert far["evidence"] == "datasheet"  # one grade lower: eight nodes are beyond the rows of the fit
    assert far["high_s"] / far["low_s"] > first["high_s"] / first["low_s"]
    assert found["summary"]["refused"] == {"no tokens_per_rank": 1, "transport is not priced": 1}


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.csv", "", "is empty"),
        ("a.csv", "gpu,op,size_bytes,nranks\n", "a header and no rows"),
        ("a.csv", "gpu,op,size_bytes,nranks\nMI300X,all_gather,1024,8\n", "no row can be priced: unknown GPU (1)"),
        ("a.csv", "gpu,op,message_size,nranks\nH100,all_gather,1024,8\n", "message_size counts elements"),
        ("a.csv", "gpu,op,size_bytes,nranks\nH100,all_gather,N/A,8\n", "no row can be priced: no size (1)"),
        ("a.log", LOG, "no usable row of nccl-tests: the log is cut: no summary line (1)"),
    ],
)
def test_a_file_without_rows_is_one_line(moesim, tmp_path, name, content, told):
    path = tmp_path / name
    path.write_text(content)
    (line,) = moesim("collective", "--from", str(path)).lines
    assert told in line


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("alltoal", "--cluster", "hgx-h100:2", "--size", "1GiB"), "did you mean 'all-to-all'"),
        (("alltoall", "--cluster", "hgx-h100", "--size", "1GiB"), "hgx-h100:32"),
        (("alltoall", "--cluster", "hgx-h100:2", "--size", "0 B"), "'0 B' is not above zero"),
        (("alltoall", "--cluster", "hgx-h100:2", "--size", "1MiB,1GiB", "--measured", "2ms"), "is a time, of one size"),
        (("alltoall", "--cluster", "hgx-h100:2", "--size", "1MiB,1GiB", "--pxn", "on"), "names several"),
        (("alltoall", "--cluster", "hgx-h100:2", "--size", "1MiB,x"), "'x' is not a quantity"),
        (("alltoall", "--cluster", "hgx-h100:2", "--size", "1GiB", "--measured", "30"), "write 30GB/s"),
        (("alltoall", "--cluster", "hgx-h100:2", "--size", "1GiB", "--algo", "rings"), "did you mean 'ring'"),
        (("alltoall", "--cluster", "hgx-h100:2", "--size", "1GiB", "--gpus-per-node", "9"), "1 to 8"),
        (("alltoall", "--cluster", "hgx-h900:2", "--size", "1GiB"), "no node 'hgx-h900'"),
        (("alltoall", "--cluster", "hgx-h100:2", "--size", "1GiB", "--proto", "ll1"), "did you mean 'll'"),
        (("alltoall", "--cluster", "hgx-h100:2", "--size", "1GiB", "--proto", "^ll,ll128,simple"), "--proto: '^ll"),
        (("alltoall", "--cluster", "hgx-h100:2", "--size", "1e9"), "--size"),
        (("alltoall", "--cluster", "hgx-h100:2", "--size", "1GiB", "-o", "a.svg"), "--sweep draws one"),
        (("alltoall", "--cluster", "hgx-h100:2", "--size", "1GiB", "--sweep"), "leave --size out"),
        (("alltoall", "--cluster", "hgx-h100:2", "--sweep", "--measured", "1ms"), "leave --measured out"),
        (("alltoall", "--cluster", "hgx-h100:2", "--sweep", "--from", "none.csv"), "no such file"),
        (("alltoall", "--cluster", "hgx-h100:2", "--size", "1GiB", "--algo", "pat"), "nothing that is left on"),
        (("--from", "a.csv", "--no-nvls"), "--no-nvls: needs --cluster"),
        (("--from", "a.csv", "--calibrations", "b.yaml"), "--calibrations: needs --cluster"),
        (("--from", "a.csv", "--size", "1GiB"), "leave --size out"),
        (("--from", "a.csv", "--out", "a.xyz"), "no answer of the kind '.xyz'"),
        (("alltoall", "--cluster", "hgx-h100:2", "--sweep", "-o", "a.xyz"), "no answer of the kind '.xyz'"),
        (("alltoall", "--cluster", "hgx-h100:2", "--size", "1GiB", "--nranks", "8"), "is for --from a log"),
        (("--from", "none.csv"), "no such file"),
        (("--from", "."), "is a folder"),
        ((), "are needed"),
    ],
)
def test_what_is_wrong_is_one_line(moesim, words, told):
    (line,) = moesim("collective", *words).lines
    assert told in line


@pytest.mark.parametrize(
    ("fabric", "collective", "algorithm", "least"),
    [
        ("torus3d", "allreduce", "torus", 250),
        ("fat-tree:8", "allreduce", "ring", 100),
        ("torus3d", "alltoall", "pairwise", 10),
    ],
)
def test_the_fabric_decides_on_the_algorithm(moesim, fabric, collective, algorithm, least):
    ask = ["collective", collective, "--cluster", "hgx-h100:64", "--size", "1GiB", "--json"]
    usual, found = moesim(*ask).json, moesim(*ask, "--fabric", fabric).json
    assert found["fabric"] == fabric
    assert found["algorithm"] == algorithm
    assert usual["algorithm"] in ("nvlstree", "pairwise")
    assert least * 1e9 < found["busbw_bytes_per_s"] < 400e9
    assert found["time_s"] > 1.3 * usual["time_s"] or algorithm == "torus"


def test_an_unknown_fabric_is_one_line(moesim):
    (line,) = moesim(
        "collective", "allreduce", "--cluster", "hgx-h100:64", "--size", "1GiB", "--fabric", "toru3d"
    ).lines
    assert line == "--fabric: no fabric 'toru3d'; did you mean 'torus3d'?"


def test_with_pxn_and_without(moesim):
    call = ("collective", "alltoall", "--cluster", "hgx-h100:32", "--fabric", "rail-ndr400:2", "--size", "1GiB")
    found = moesim(*call, "--pxn", "on,off", "--measured", "30GB/s", "--json").json
    on, off = found["cases"]
    assert (on["pxn"], on["crosses_rails"], off["pxn"], off["crosses_rails"]) == (True, False, False, True)
    assert found["ratio"] == pytest.approx(off["time_s"] / on["time_s"])
    assert found["share_of_expected"] == pytest.approx(30e9 / on["busbw_bytes_per_s"])
    assert "crosses rails" in moesim(*call, "--pxn", "off").out


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (("--pxn", "maybe"), "--pxn: 'maybe' is not on or off"),
        (("--pxn", "on", "--algo", "ring"), "--pxn: is for whole nodes as they are"),
        (("--pxn", "off", "--fabric", "rail-only", "--measured", "30GB/s"), "--measured: nothing is priced"),
    ],
)
def test_pxn_that_cannot_be_asked(moesim, options, line):
    (found,) = moesim("collective", "alltoall", "--cluster", "hgx-h100:4", "--size", "1GiB", *options).lines
    assert found.startswith(line)
