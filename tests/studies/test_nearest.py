"""Measured kernels beside a price."""

import numpy as np
import pytest

from moesim.calibrate.families import FAMILIES
from moesim.calibrate.points import COLUMNS, MOST, points
from moesim.cost.from_spec import build_gpu
from moesim.spec import library
from moesim.spec.check import sources
from moesim.studies.nearest import nearest
from moesim.workload.ops import AttentionCore, Gemm, Traffic

H100 = "h100-sxm-80gb"
WORKS: dict[str, Gemm | AttentionCore | Traffic] = {
    "gemm": Gemm(4096, 7168, 2048),
    "grouped-gemm": Gemm(512, 4096, 2048, 8),
    "attention": AttentionCore(1, 32, 8, 4096, 2048, 128, 128),
    "memory": Traffic(1e9, plain=True),
}


@pytest.mark.parametrize("family", list(COLUMNS))
def test_the_shipped_points_have_a_source_and_can_be_priced(family):
    frame, source = points(family)
    assert source in sources()
    assert tuple(frame.columns[: 2 + len(COLUMNS[family])]) == ("gpu", *COLUMNS[family], "time_us")
    counts = frame.groupby("gpu").size()
    assert counts.max() <= MOST[family]
    assert set(counts.index) <= set(library.names("gpus"))
    own = frame[frame["gpu"] == H100].reset_index(drop=True)
    extra = library.calibrations(H100)[family].values("extra")
    predicted = FAMILIES[family].predict(own, build_gpu(library.get("gpus", H100)), extra)
    assert np.median(np.abs(predicted / own["time_s"] - 1)) < 0.1


@pytest.mark.parametrize("family", list(WORKS))
def test_neighbours_come_nearest_first_and_carry_their_error(family):
    found = nearest(family, WORKS[family], H100)
    assert len(found) == 3
    assert [point.distance for point in found] == sorted(point.distance for point in found)
    frame, source = points(family)
    for point in found:
        assert (point.gpu, point.source) == (H100, source)
        assert point.error == pytest.approx(point.predicted_time_s / point.time_s - 1)
        assert tuple(point.shape) == COLUMNS[family]
        assert (frame["time_s"] == point.time_s).any()


def test_a_measured_kernel_is_its_own_neighbour():
    frame, _ = points("gemm")
    row = frame[(frame["gpu"] == H100) & (frame["rate"] == "bf16")].iloc[7]
    first, *_ = nearest("gemm", Gemm(row["m"], row["n"], row["k"]), H100)
    assert first.distance == 0
    assert first.time_s == row["time_s"]


def test_only_kernels_of_the_same_format_are_neighbours():
    found = nearest("gemm", Gemm(4096, 7168, 2048, rate="fp8", operand_bytes=1.0), H100)
    assert {point.shape["rate"] for point in found} == {"fp8"}
    assert nearest("gemm", Gemm(4096, 7168, 2048, rate="mxfp8"), H100) == ()


def test_a_gpu_without_tables_shows_those_of_the_one_it_is_like():
    assert {point.gpu for point in nearest("gemm", WORKS["gemm"], "h800-sxm-80gb")} == {H100}


def test_what_the_tables_lack_has_no_neighbours():
    assert nearest("attention", AttentionCore(1, 32, 8, 4096, 2048, 128, 128, True), H100) == ()
    assert nearest("memory", Traffic(1e9, cast=True), H100) == ()
