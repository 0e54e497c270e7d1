"""``moesim kernel`` and ``moesim calibrate`` of kernels."""

import json

import pytest


def test_one_gemm_with_its_interval(moesim):
    out = json.loads(moesim("kernel", "gemm", "--gpu", "h100", "-m", "4096", "-n", "7168", "-k", "2048", "--json").out)
    assert out["low_s"] < out["time_s"] < out["high_s"]
    assert out["flop_per_s"] == pytest.approx(2 * 4096 * 7168 * 2048 / out["time_s"])
    assert out["bound"] == "compute"
    assert out["evidence"] == "calibrated"
    shown = moesim("kernel", "gemm", "--gpu", "h100", "-m", "4096", "-n", "7168", "-k", "2048").out
    assert "TFLOP/s" in shown
    assert "90 %" in shown


@pytest.mark.parametrize(
    ("arguments", "evidence"),
    [
        (("gemm", "--gpu", "h100", "-m", "8", "-n", "4096", "-k", "4096"), "extrapolated"),
        (("gemm", "--gpu", "h800", "-m", "4096", "-n", "4096", "-k", "4096"), "derived"),
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
    ):
        (line,) = moesim(*arguments).lines
        assert told in line
