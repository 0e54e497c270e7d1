"""``moesim kernel`` and ``moesim calibrate`` of kernels."""

import json

import pytest


def test_one_gemm_with_its_interval(moesim):
    out = json.loads(moesim("kernel", "gemm", "--gpu", "h100", "-m", "4096", "-n", "7168", "-k", "2048", "--json").out)
    assert out["low_s"] < out["time_s"] < out["high_s"]
    assert out["flop_per_s"] == pytest.approx(2 * 4096 * 7168 * 2048 / out["time_s"])
    assert out["bound"] == "compute"
    assert out["evidence"] == "calibrated"
    assert len(out["nearest"]) == 3
    assert out["nearest"][0]["shape"]["rate"] == "bf16"
    shown = moesim("kernel", "gemm", "--gpu", "h100", "-m", "4096", "-n", "7168", "-k", "2048").out
    assert "nearest on h100-sxm-80gb (aiconfigurator-core-0.12)" in shown
    assert "TFLOP/s" in shown
    assert "90 %" in shown


@pytest.mark.parametrize(
    ("arguments", "evidence"),
    [
        (("gemm", "--gpu", "h100", "-m", "8", "-n", "4096", "-k", "4096"), "datasheet"),
        (("gemm", "--gpu", "h800", "-m", "4096", "-n", "4096", "-k", "4096"), "datasheet"),
        (("grouped-gemm", "--gpu", "h100", "--groups", "8", "-m", "512", "-n", "4096", "-k", "2048"), "calibrated"),
        (("attention", "--gpu", "b200-sxm", "--length", "4096", "--heads", "32"), "calibrated"),
        (("memory", "--gpu", "h100", "--size", "1GiB"), "calibrated"),
    ],
)
def test_evidence(moesim, arguments, evidence):
    assert json.loads(moesim("kernel", *arguments, "--json").out)["evidence"] == evidence


def test_a_table_is_priced_row_by_row(moesim, tmp_path):
    path = tmp_path / "gemm.csv"
    lines = [
        "gpu,dtype,kind,m,n,k,time_us",
        "H100 SXM,bf16,dense,4096,4096,4096,210",
        "H200,bf16,dense,4096,4096,4096,200",
    ]
    lines += [
        "GPU-9,bf16,dense,4096,4096,4096,200",
        "H100,bf16,dense,4096,,4096,200",
        "H100,bf16,dense,4096,64,4096,N/A",
    ]
    path.write_text("\n".join(lines) + "\n")
    out = json.loads(moesim("kernel", "gemm", "--from", str(path), "--json").out)
    assert out["summary"]["count"] == 2
    assert out["summary"]["refused"] == {"no size or no time": 2, "GPU is not known": 1}
    row = out["rows"][0]
    assert list(row)[:8] == ["line", "gpu", "dtype", "kind", "m", "n", "k", "time_us"]
    assert [one["line"] for one in out["rows"]] == [2, 3]
    assert (row["gpu"], row["gpu_name"], row["time_us"]) == ("H100 SXM", "h100-sxm-80gb", 210.0)
    assert set(out["summary"]) == {"count", "timed", "median", "p90", "bias", "coverage", "refused"}
    assert row["error"] == pytest.approx(row["predicted_time_s"] / 210e-6 - 1)
    assert row["low_s"] < row["predicted_time_s"] < row["high_s"]
    assert "refused 1: GPU is not known" in moesim("kernel", "gemm", "--from", str(path)).out


def test_what_is_missing_is_one_line(moesim):
    for arguments, told in (
        (("kernel", "gemm", "--gpu", "h100"), "-m -n -k: is missing"),
        (("kernel", "gemm", "-m", "1", "-n", "1", "-k", "1"), "--gpu: is missing"),
        (("kernel", "gemm", "--gpu", "h100", "--dtype", "fp7", "-m", "1", "-n", "1", "-k", "1"), "no format 'fp7'"),
        (
            ("kernel", "gemm", "--gpu", "a100", "--dtype", "fp8", "-m", "64", "-n", "64", "-k", "64"),
            "no rate for 'fp8'",
        ),
        (("kernel", "memory", "--gpu", "h100", "--size", "12"), "has no unit"),
        (("kernel", "memory", "--gpu", "h100", "--size", "0B"), "moves nothing"),
        (("kernel", "memory", "--gpu", "h100", "--size=-1GiB"), "moves nothing"),
        (("kernel", "gemm", "--gpu", "h100", "-m", "0", "-n", "1", "-k", "1"), "'-m'"),
        (("kernel", "gemm", "--gpu", "h100", "-m", "1.5", "-n", "1", "-k", "1"), "'-m'"),
        (("kernel", "gemm", "--gpu", "gpu-9", "-m", "1", "-n", "1", "-k", "1"), "no GPU 'gpu-9'"),
        (("kernel", "attention", "--gpu", "h100", "--length", "64", "--heads", "32", "--kv-heads", "5"), "32 heads"),
        (("calibrate", "points", "--out", "no-folder"), "there is no folder 'no-folder'"),
    ):
        (line,) = moesim(*arguments).lines
        assert told in line


HEADER = "gpu,dtype,kind,m,n,k,time_us"


@pytest.mark.parametrize(
    ("text", "options", "told"),
    [
        ("gpu,m,n,time_us\nH100,1,2,3", (), "k: is missing"),
        ("gpu,m,n,k,k\nH100,1,2,3,3", (), "has the column 'k' twice"),
        (f"{HEADER}\nH100,bf16,dense,64,64,64,9,9", (), "1: line has more or fewer fields"),
        (f"{HEADER}\nH100,bf16,dense,4096.5,64,64,9", (), "1: size is no whole number"),
        (f"{HEADER}\nH100,bf16,dense,64,64,64,1e-7", (), "1: faster than the datasheet allows"),
        (f"{HEADER}\nH100,,dense,64,64,64,9", (), "1: format is not modelled"),
        ("", (), "is no CSV"),
        (HEADER, (), "has no rows"),
        (f"{HEADER}\nH100,bf16,dense,64,64,64,9", ("--gpu", "b200"), "1: not measured on b200"),
        (f"{HEADER}\nH100,bf16,dense,64,0,64,9", (), "1: size or time is not positive"),
        (f"{HEADER}\nH100,bf16,dense,64,inf,64,9", (), "1: no size or no time"),
        (f"{HEADER}\nH100,bf16,dense,64,NaN,64,9", (), "1: no size or no time"),
        (f"{HEADER}\nA100,fp8,dense,64,64,64,9", (), "1: GPU has no rate for the format"),
        (f"{HEADER}\nH100,int4,dense,64,64,64,9", (), "1: format is not modelled"),
        ("m,n,k,time_us\n64,64,64,9", (), "gpu: is missing"),
        ("m,n,k,time_us\n64,64,64,9", ("--gpu", "gpu-9"), "no GPU 'gpu-9'"),
    ],
)
def test_a_table_without_a_row_to_price_is_one_line(moesim, tmp_path, text, options, told):
    path = tmp_path / "own.csv"
    path.write_text(text)
    for how in ((), ("--json",)):
        (line,) = moesim("kernel", "gemm", "--from", path, *options, *how).lines
        assert told in line


def test_a_table_without_a_gpu_takes_the_one_given(moesim, tmp_path):
    path = tmp_path / "own.csv"
    path.write_text("m,n,k,time_us,gpu_name\n4096,4096,4096,210,mine\n")
    (row,) = moesim("kernel", "gemm", "--from", path, "--gpu", "h100", "--json").json["rows"]
    assert row["gpu_name"] == "h100-sxm-80gb"


def test_what_nobody_measured_has_no_neighbours(moesim):
    arguments = ("kernel", "attention", "--gpu", "h100", "--length", "4096", "--heads", "32", "--backward")
    assert moesim(*arguments, "--json").json["nearest"] == []
    assert "nothing near it" in moesim(*arguments).out
