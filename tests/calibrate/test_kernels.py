"""Calibration of kernels: CSV in, overlay out; priors; what is refused."""

import numpy as np
import pandas as pd
import pytest

from moesim.base.errors import SpecError
from moesim.calibrate.families import FAMILIES
from moesim.calibrate.family import calibrate, with_values
from moesim.calibrate.overlay import overlay_text
from moesim.calibrate.routing import power_law_skew
from moesim.cost.from_spec import build_gpu, build_residuals
from moesim.cost.gemm import gemm_time
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
    assert "gemm_norm" not in values  # too few rows to say: the shipped one stays
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
    with pytest.raises(SpecError, match="only 0 of 20 rows can be used; 20: not measured on b200-sxm"):
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
    skews = [power_law_skew(1.01, 8192, 128, 8, ranks) for ranks in (1, 2, 8, 32)]
    loads = [skew.load for skew in skews]
    assert loads == sorted(loads)
    assert loads[0] == 1
    assert power_law_skew(1.2, 8192, 128, 8, 8).load > loads[2]
    assert loads[2] == pytest.approx(1.66, abs=0.08)  # time of the published rows against balanced ones: 1.45


def test_a_power_law_leaves_experts_without_rows_and_tiles_without_use():
    skew = power_law_skew(1.2, 512, 256, 8, 1)  # 16 rows an expert
    assert 0.5 * 256 < skew.active < 256
    assert 512 * 8 / 64 < skew.tiles[64] < skew.active + 512 * 8 / 64
    assert skew.tiles[128] < skew.tiles[64]


def test_a_table_without_enough_rows_is_told_with_the_reasons(own):
    with pytest.raises(SpecError, match=r"only 3 of 3 rows can be used; give at least 6"):
        calibrate(FAMILIES["gemm"], GPU, str(own(3)), "c")
    with pytest.raises(SpecError, match=r"only 0 of 12 rows can be used; 12: size or time is not positive"):
        calibrate(FAMILIES["gemm"], GPU, str(own(12, m=0)), "c")


def test_few_rows_keep_intervals_as_wide_as_the_shipped_ones(own):
    found = calibrate(FAMILIES["gemm"], GPU, str(own(12)), "c").residuals
    shipped = library.calibrations(GPU)["gemm"].residuals
    for name, spread in shipped.items():
        assert found[name].q05 <= spread.q05
        assert found[name].q95 >= spread.q95


def test_other_shapes_follow_ten_rows_of_a_slower_gpu_without_running_away(own):
    spec = library.get("gpus", GPU)
    found = calibrate(FAMILIES["gemm"], GPU, str(own(12)), "c").overlay
    before = build_gpu(spec)
    after = with_values(before, spec, {name: value for name, (value, _) in found.constants.items()})
    m, n, k = np.floor(10 ** np.random.default_rng(11).uniform(2, 4.3, (3, 500)))
    slower = np.asarray(gemm_time(Gemm(m, n, k), after)) / gemm_time(Gemm(m, n, k), before)
    assert slower.min() > 0.97
    assert slower.max() < 1.15
    assert np.median(slower[m * n * k > 1e11]) == pytest.approx(1 / 0.9, rel=0.04)
