"""Tables that cannot be: refused in a line, or their rows dropped with a count."""

import numpy as np
import pandas as pd
import pytest

from moesim.base.errors import SpecError
from moesim.calibrate.families import FAMILIES
from moesim.calibrate.family import calibrate
from moesim.cost.from_spec import build_gpu, build_residuals
from moesim.cost.gemm import gemm_time
from moesim.cost.memory_bound import traffic_time
from moesim.spec import library
from moesim.spec.calibration import CalibrationSpec
from moesim.workload.ops import Gemm

GPU = "h100-sxm-80gb"
M, N, K = np.floor(10 ** np.random.default_rng(5).uniform(2.5, 4, (3, 12)))


@pytest.fixture
def table(tmp_path):
    """Fit to a table of twelve products, ten per cent slower than the price, changed in some way."""

    def fit(change):
        frame = pd.DataFrame({"m": M, "n": N, "k": K, "dtype": "bf16"})
        frame["time_us"] = 1.1e6 * gemm_time(Gemm(M, N, K), build_gpu(library.get("gpus", GPU)))
        path = tmp_path / "own.csv"
        change(frame).to_csv(path, index=False)
        return calibrate(FAMILIES["gemm"], GPU, str(path), "c").overlay

    return fit


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda frame: frame.assign(time_us=frame["time_us"] / 1000), "12: faster than the datasheet allows"),
        (lambda frame: frame.assign(time_us=frame["time_us"] * 1000), "1,100 times slower than the price of this GPU"),
        (lambda frame: pd.concat([frame[:1]] * 10), "only 1 of 10 rows can be used; 9: the same row again"),
        (lambda frame: pd.concat([frame[:1].assign(time_us=t) for t in range(900, 912)]), r"\(1 shapes\)"),
        (lambda frame: frame.assign(time_us=np.nan), "12: no size or no time"),
    ],
)
def test_units_that_are_mixed_up_and_copies_are_refused(table, change, told):
    with pytest.raises(SpecError, match=told) as caught:
        table(change)
    assert len(caught.value.issues) == 1


def test_one_outlier_moves_nothing_and_is_reported(table):
    def spoil(frame):
        frame.loc[3, "time_us"] *= 20
        return frame

    clean, spoilt = table(lambda frame: frame), table(spoil)
    assert spoilt.dropped == {"more than 3 times off from what the other rows say": 1}
    assert spoilt.rows == {"read": 12, "used": 11, "held_out": 0}
    values, others = ({name: value for name, (value, _) in one.constants.items()} for one in (clean, spoilt))
    for name in set(values) & set(others):
        assert others[name] == pytest.approx(values[name], rel=0.05)
    assert spoilt.residuals["all"].q05 == pytest.approx(clean.residuals["all"].q05, abs=0.02)


def test_an_overlay_holds_what_its_rows_decided_and_no_counts_of_others(table):
    found = table(lambda frame: frame)
    assert not set(found.constants) & set(found.kept)
    assert all(one.count <= 12 for one in found.residuals.values())
    assert found.note.startswith("Intervals of regimes are those of h100-sxm-80gb-gemm")


def test_families_that_use_the_constants_of_an_own_overlay_are_known_less(table):
    found = table(lambda frame: frame)
    data = {"schema": 1, "name": "own", "gpu": GPU, "family": "gemm", "source": "own.csv", "command": "c"}
    data |= {"constants": {"gemm_efficiency": found.constants["gemm_efficiency"][0]}, "rows": {"used": 12}}
    own = CalibrationSpec.model_validate(
        data | {"residuals": {"all": {"count": 12, "q05": -0.1, "q50": 0, "q95": 0.1}}}
    )
    before, after = build_residuals(GPU), build_residuals(GPU, (own,))
    assert (before["grouped-gemm"].stretch, after["grouped-gemm"].stretch) == (1.0, 1.5)
    assert after["gemm"].stretch == after["attention"].stretch == 1.0


def test_only_plain_kernels_tell_the_constants_of_memory(tmp_path):
    sizes = np.geomspace(1e6, 1e9, 20).round()
    times = 1e6 * np.asarray(traffic_time(sizes, build_gpu(library.get("gpus", GPU))))
    rows = [("copy", size, time) for size, time in zip(sizes, times, strict=True)]
    rows += [("rms_norm forward", size, 4 * time) for _, size, time in rows]
    path = tmp_path / "own.csv"
    pd.DataFrame(rows, columns=["kernel", "bytes", "time_us"]).to_csv(path, index=False)
    found = calibrate(FAMILIES["memory"], GPU, str(path), "c").overlay
    assert found.rows["used"] == 20
    assert list(found.dropped.values()) == [20]
    assert found.scores["fitted"].median < 0.03
