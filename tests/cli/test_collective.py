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


def test_what_nccl_is_told_changes_the_choice(moesim):
    call = ("collective", "allreduce", "--cluster", "hgx-h100:1", "--size", "1GiB", "--json")
    assert moesim(*call).json["algorithm"] == "nvls"
    assert moesim(*call, "--no-nvls").json["algorithm"] == "ring"
    assert moesim(*call, "--algo", "ring", "--proto", "ll").json["protocol"] == "ll"


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


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("alltoal", "--cluster", "hgx-h100:2", "--size", "1GiB"), "did you mean 'all-to-all'"),
        (("alltoall", "--cluster", "hgx-h100", "--size", "1GiB"), "hgx-h100:32"),
        (("alltoall", "--cluster", "hgx-h100:2", "--size", "0 B"), "is zero"),
        (("alltoall", "--cluster", "hgx-h100:2", "--size", "1GiB", "--measured", "30"), "write 30GB/s"),
        (("alltoall", "--cluster", "hgx-h100:2", "--size", "1GiB", "--algo", "rings"), "did you mean 'ring'"),
        (("alltoall", "--cluster", "hgx-h100:2", "--size", "1GiB", "--gpus-per-node", "9"), "1 to 8"),
        ((), "are needed"),
    ],
)
def test_what_is_wrong_is_one_line(moesim, words, told):
    (line,) = moesim("collective", *words).lines
    assert told in line
