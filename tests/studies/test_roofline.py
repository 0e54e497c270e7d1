"""Every operation of a step beside the roofs of its GPU and links."""

import pytest

from moesim.studies.explain import explain
from moesim.studies.roofline import roofline

ALONE = {"tp": 1, "ep": 1, "pp": 1, "overlap_grad_reduce": False, "overlap_param_gather": False}


@pytest.fixture(scope="module")
def piped(small):
    return roofline(small)


def test_no_matrix_product_is_over_its_roof(piped):
    counted = [point for point in piped.points if point.intensity is not None]
    assert {point.family for point in counted} == {"gemm", "grouped_gemm", "attention"}
    for point in counted:
        assert point.intensity == pytest.approx(point.flop / point.hbm_bytes)
        assert point.rate == pytest.approx(point.flop / point.seconds)
        assert point.roof == min(piped.flop_roofs[point.format], point.intensity * piped.byte_roofs["hbm"])
        assert 0 < point.share_of_roof <= 1
    assert any(point.roof < piped.flop_roofs["bf16"] for point in counted)


def test_every_pipeline_rank_is_on_it(piped, small):
    assert {rank for point in piped.points for rank in point.stages} == set(range(small.strategy.pp))
    ends = {point.name: point.stages for point in piped.points if point.where.startswith(("head", "embedding"))}
    assert ends["head"] == (small.strategy.pp - 1,)
    assert any(point.name == "stage boundary" for point in piped.points)
    assert any(point.name == "optimizer" for point in piped.points)


def test_it_holds_the_operations_of_an_explanation(small):
    alone = small.with_changes(ALONE)
    listed = explain(alone)
    found = roofline(alone)
    for family in ("gemm", "grouped_gemm", "attention"):
        flop = sum(row.flop * row.calls for row in listed.ops if row.category == family)
        assert sum(point.flop * point.calls for point in found.points if point.family == family) == pytest.approx(flop)
        share = sum(row.seconds * row.calls for row in listed.ops if row.category == family) / found.step_time_s
        assert sum(point.share_of_step for point in found.points if point.family == family) == pytest.approx(share)


def test_messages_stand_against_their_link(piped):
    messages = [point for point in piped.points if point.message_bytes]
    assert {point.family for point in messages} >= {"ep", "tp", "pp", "dp"}
    for point in messages:
        assert point.intensity is None
        assert point.format in ("nvlink", "nic")
        assert piped.byte_roofs["nic"] <= point.roof <= piped.byte_roofs["nvlink"]
        assert (point.roof == piped.byte_roofs["nvlink"]) or point.format == "nic"
        assert point.share_of_roof < 1 or point.family == "ep", point


def test_another_format_has_a_roof_of_its_own(small):
    narrow = roofline(small.with_changes({"precision": "fp8-current"}))
    assert narrow.flop_roofs == {"bf16": 989.4e12, "fp8": pytest.approx(2 * 989.4e12, rel=1e-3)}
    assert {point.format for point in narrow.points if point.family == "grouped_gemm"} == {"fp8"}
    assert set(roofline(small).flop_roofs) == {"bf16"}


def test_a_number_set_by_hand_moves_the_roof(small):
    changed = roofline(small.with_changes({"gpu.peak_flop_rate.bf16": "800 TFLOP/s"}))
    assert changed.flop_roofs["bf16"] == 800e12
