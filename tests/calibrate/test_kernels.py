"""Calibration of kernels: CSV in, overlay out; priors; what is refused."""

import numpy as np
import pandas as pd
import pytest

from moesim.base.errors import SpecError
from moesim.calibrate.families import FAMILIES
from moesim.calibrate.family import calibrate, with_values
from moesim.calibrate.overlay import overlay_text
from moesim.calibrate.routing import power_law_load
from moesim.cost.gemm import gemm_time
from moesim.problem import build_gpu, build_residuals
from moesim.spec import library
from moesim.spec.calibration import CalibrationSpec
from moesim.workload.ops import Gemm

GPU = "h100-sxm-80gb"


def shapes(count):
    generator = np.random.default_rng(5)
    m, n, k = np.floor(10 ** generator.uniform(2, 4, (3, count)))
    return m, n, k


@pytest.fixture
def own(tmp_path):
    """Timings of a GPU whose tensor cores are a tenth slower than those of the spec."""

    def write(count, **columns):
        spec = library.get("gpus", GPU)
        gpu = build_gpu(spec)
        slower = with_values(gpu, spec, {"gemm_efficiency": 0.9 * float(gpu.kernels.gemm_efficiency)})
        m, n, k = shapes(count)
        frame = pd.DataFrame({"m": m, "n": n, "k": k, "dtype": "bf16", "gpu": "H100 SXM"})
        frame["time_us"] = 1e6 * gemm_time(Gemm(m, n, k), slower)
        path = tmp_path / "own.csv"
        frame.assign(**columns).to_csv(path, index=False)
        return path

    return write


def test_ten_rows_of_a_slower_gpu_move_its_efficiency_and_little_else(own):
    prior = library.get("gpus", GPU).kernels
    path = own(12)
    found = calibrate(FAMILIES["gemm"], GPU, str(path), "moesim calibrate gemm").overlay
    values = {name: value for name, (value, _) in found.constants.items()}
    assert values["gemm_efficiency"] == pytest.approx(0.9 * prior.gemm_efficiency.value, rel=0.04)
    assert values["gemm_fixed"] == pytest.approx(prior.gemm_fixed.value, rel=0.1)
    assert values["gemm_norm"] == prior.gemm_norm.value
    assert found.rows == {"read": 12, "used": 12, "held_out": 0}
    assert "gemm_norm" in found.kept


def test_the_same_measurements_give_the_same_file_that_a_spec_can_read(own):
    path = own(60)
    first, second = (overlay_text(calibrate(FAMILIES["gemm"], GPU, str(path), "c").overlay) for _ in range(2))
    assert first == second
    from ruamel.yaml import YAML

    spec = CalibrationSpec.model_validate(YAML(typ="safe").load(first))
    assert spec.values()["gemm_fixed"] > 0
    assert spec.residuals["all"].q05 <= spec.residuals["all"].q95


def test_what_cannot_be_used_is_counted(own):
    path = own(20)
    frame = pd.read_csv(path)
    frame.loc[0, "time_us"] = np.nan
    frame.loc[1, "m"] = 0
    frame.loc[2, "dtype"] = "int4"
    frame.loc[3, "gpu"] = "B200"
    frame.loc[4, "m"] = 8
    frame.to_csv(path, index=False)
    rows = FAMILIES["gemm"].read(str(path), GPU)
    assert rows.dropped == {
        "no size or no time": 1,
        "size or time is not positive": 1,
        "format is not modelled": 1,
        f"not measured on {GPU}": 1,
        "m, n or k below 64": 1,
    }
    assert len(rows.frame) == 15


def test_a_table_of_another_gpu_or_without_columns_is_refused(own, tmp_path):
    with pytest.raises(SpecError, match="0 usable rows"):
        calibrate(FAMILIES["gemm"], "b200-sxm", str(own(20)), "c")
    path = tmp_path / "bad.csv"
    path.write_text("m,n\n1,2\n")
    with pytest.raises(SpecError, match="k: is missing"):
        FAMILIES["gemm"].read(str(path), GPU)
    with pytest.raises(SpecError, match="there is no file"):
        FAMILIES["gemm"].read(str(tmp_path / "none.csv"), GPU)


def test_shipped_overlays_replace_the_constants_of_the_spec_and_say_so():
    for gpu in ("h100-sxm-80gb", "h200-sxm-141gb", "a100-sxm-80gb", "b200-sxm"):
        overlay = library.calibrations(gpu)["gemm"]
        constant = library.get("gpus", gpu).kernels.gemm_efficiency
        assert constant.value == overlay.values()["gemm_efficiency"]
        assert constant.kind == "measured"
        assert constant.source == overlay.source
        assert overlay.scores["held_out 16-bit"].median < 0.06
    assert build_residuals("h100-sxm-80gb")["gemm"].stretch == 1


def test_a_gpu_like_another_takes_its_residuals_wider():
    own, like = build_residuals("h100-sxm-80gb")["gemm"], build_residuals("h800-sxm-80gb")["gemm"]
    assert like.sigma() == pytest.approx(1.5 * own.sigma())
    kernels = library.get("gpus", "h800-sxm-80gb").kernels
    assert kernels.gemm_fixed.value == library.get("gpus", "h100-sxm-80gb").kernels.gemm_fixed.value
    assert kernels.gemm_fixed.kind == "derived"


def test_the_load_of_a_power_law_grows_with_the_ranks():
    loads = [power_law_load(1.01, 8192, 128, 8, ranks) for ranks in (1, 2, 8, 32)]
    assert loads == sorted(loads)
    assert loads[0] == 1
    assert power_law_load(1.2, 8192, 128, 8, 8) > loads[2]
    assert loads[2] == pytest.approx(1.66, abs=0.05)
