"""Each bottleneck against the estimate that it reads, or against a count by hand."""

from dataclasses import replace

import numpy as np
import pytest

from moesim.cost.once import Once
from moesim.estimator import estimate
from moesim.matrix.bottlenecks import bottlenecks, rows
from moesim.matrix.case import Step, run_together
from moesim.matrix.ensemble import BASE, SOFTWARE
from moesim.matrix.own import own_situations
from moesim.matrix.situation import Own, Situation
from moesim.problem import from_names
from moesim.workload.strategy import Strategy

LAYERS, HIDDEN, TOP_K, EP, PP, MICRO_BATCHES = 37, 3072, 4, 8, 3, 6
"""37 of 39 layers are routed."""
SEQUENCE = 4096


@pytest.fixture(scope="module")
def situation():
    problem = from_names("olmo3moe-medium-64e", "hgx-b300:3", SOFTWARE).with_changes(
        {"sequence_length": SEQUENCE, "global_batch": 48, "pp": PP, "schedule": "1f1b", "ep": EP}
    )
    strategy = Strategy(**BASE, pp=PP, schedule="1f1b", ep=EP)
    return Situation("medium", problem, strategy, MICRO_BATCHES)


def total_terms(situation, row, **changes):
    case, _ = situation.case(changes)
    return case.read(bottlenecks.get(row).read)


def total(situation, row, **changes):
    terms = total_terms(situation, row, **changes)
    return float(np.ravel(sum(value() if callable(value) else value for value in terms.values()))[0])


@pytest.mark.parametrize("row", rows())
def test_every_bottleneck_has_a_title_of_its_own_and_is_finite(situation, row):
    assert np.isfinite(total(situation, row))
    titles = [bottlenecks.get(name).title for name in rows()]
    assert titles.count(bottlenecks.get(row).title) == 1


def test_dispatch_traffic_is_rows_times_width_times_legs(situation):
    rows_out = SEQUENCE * TOP_K * (1 - 1 / EP)
    expected = 4 * rows_out * HIDDEN * 2 * LAYERS * MICRO_BATCHES / PP
    assert total(situation, "dispatch-traffic") == pytest.approx(expected)


def test_eight_bit_rows_take_33_of_64_bytes(situation):
    low = {"precision": "mxfp8", "fp8_params": True, "dispatch_precision": "recipe"}
    ratio = total(situation, "dispatch-traffic", **low) / total(situation, "dispatch-traffic")
    assert ratio == pytest.approx(33 / 64)  # rows are cast on all four legs


def test_repeating_whole_layers_repeats_the_two_forward_legs(situation):
    ratio = total(situation, "dispatch-traffic", recompute=("full",)) / total(situation, "dispatch-traffic")
    assert ratio == pytest.approx(6 / 4)


def test_boundary_traffic_is_one_tensor_each_way(situation):
    expected = 2 * (PP - 1) * SEQUENCE * HIDDEN * 2 * MICRO_BATCHES / PP
    assert total(situation, "boundary-traffic") == pytest.approx(expected)


def test_sync_bytes_are_those_of_a_ring(situation):
    case, _ = situation.case({})
    dense = sum(params.dense for params in case.plan.params) / PP
    expected = 2 * 7 / 8 * 4 * dense  # experts have no replicas here
    assert total(situation, "state-sync") == pytest.approx(float(expected))


def test_bubbles_of_1f1b_are_the_closed_form(situation):
    terms = situation.case({})[0].read(bottlenecks.get("pipeline-bubbles").read)
    assert terms["slots of the schedule"] == pytest.approx((PP - 1) / (MICRO_BATCHES + PP - 1))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, 0),
        ({"transport": "nccl-alltoall"}, LAYERS * MICRO_BATCHES / PP),
        ({"transport": "nccl-alltoall", "ep": 1}, 0),
        ({"transport": "nccl-alltoall", "sync_free": True, "capacity_factor": 1.25}, 0),
        ({"offsets": "host"}, 2 * LAYERS * MICRO_BATCHES / PP),
    ],
)
def test_host_waits_are_counted_by_hand(situation, changes, expected):
    assert total(situation, "host-syncs", **changes) == pytest.approx(expected)


def test_padding_to_a_capacity_wastes_a_quarter(situation):
    wasted = total(situation, "padding", expert_gemm="padded", capacity_factor=1.25)
    assert wasted == pytest.approx(0.25)


def test_padding_is_counted_once_rows_that_align_segments_are_in_their_tiles(situation):
    assert total(situation, "padding") == 0
    assert total(situation, "padding", micro_batch=2) == 0


@pytest.mark.parametrize(
    "changes", [{"activation_offload": 0.5}, {"cp": 2}, {"precision": "mxfp8", "fp8_params": True}]
)
def test_bytes_that_shrink_alike_on_all_ranks_leave_their_imbalance(situation, changes):
    before, after = total(situation, "saved-activations"), total(situation, "saved-activations", **changes)
    assert after < 0.95 * before
    assert total(situation, "retention-imbalance", **changes) == pytest.approx(
        total(situation, "retention-imbalance"), abs=5e-3
    )


def test_the_fullest_rank_of_1f1b_keeps_as_many_micro_batches_as_there_are_ranks(situation):
    kept = [PP - rank for rank in range(PP)]
    expected = max(kept) / (sum(kept) / PP) - 1
    assert total(situation, "retention-imbalance") == pytest.approx(
        expected, rel=0.1
    )  # layers differ, and do not divide evenly


def test_products_take_as_long_wherever_their_gradients_are_summed(situation):
    assert total(situation, "small-gemms", dp_sharding="fsdp") == pytest.approx(total(situation, "small-gemms"))
    terms = situation.case({"dp_sharding": "fsdp"})[0].read(bottlenecks.get("compute-throughput").read)
    assert terms["dp"] > 0  # gathers and reductions take SMs from what runs beside them
    assert "dp" not in total_terms(situation, "small-gemms", dp_sharding="fsdp")


def test_the_clock_is_that_of_the_situation_whatever_a_method_changes(qwen):
    hot = replace(qwen.machine.gpu.power, limit=qwen.machine.gpu.power.limit * 0.4)
    machine = replace(qwen.machine, gpu=replace(qwen.machine.gpu, power=hot))
    (situation, _) = own_situations(replace(qwen, machine=machine))
    several: tuple[dict[str, object], ...] = ({}, {"recompute": ("full",)}, {"precision": "fp8-current"})
    cases = [found[0] for found in map(situation.case, several) if found is not None]
    rates = [case.plan.machine.gpu.rates["bf16"] for case in cases]
    assert rates[0] < qwen.machine.gpu.rates["bf16"]
    assert rates == [rates[0]] * 3
    assert float(cases[0].timed.makespan()) == pytest.approx(
        estimate(replace(qwen, machine=machine)).step_time_s, rel=1e-6
    )


@pytest.mark.parametrize("changes", [{}, {"transport": "deepep"}, {"recompute": ("full",)}])
def test_memory_and_exposure_are_those_of_the_estimate(situation, changes):
    fields = ("dp_sharding", "transport", "layout", "cp_kind", "overlap_shared_expert", "capacity_factor")
    strategy = situation.strategy.replace(**changes)
    problem = situation.problem
    answer = estimate(problem, strategy)
    assert all(answer.strategy.get(name) == getattr(strategy, name) for name in fields if name in answer.strategy)
    state = sum(
        sum(stage[f"{name}_bytes"] for name in ("weights", "gradients", "optimizer")) for stage in answer.memory.stages
    )
    assert total(situation, "persistent-memory", **changes) == pytest.approx(state / PP)
    case, _ = situation.case(changes)
    exposed = case.read(bottlenecks.get("exposed-communication").read)
    for name in ("ep", "pp", "dp"):
        assert float(exposed[name]()) == pytest.approx(answer.exposed_s[name], rel=1e-6, abs=1e-9)
    assert float(case.timed.makespan()) == pytest.approx(answer.step_time_s)


def test_an_own_value_is_kept_where_the_situation_has_one(situation):
    assert situation._value(Own("ep", 2)) == EP
    assert situation._value(Own("cp", 2)) == 2


def test_a_case_that_is_not_legal_is_none(situation):
    assert situation.case({"ep": 7}) is None


def test_steps_that_run_together_take_what_they_take_alone(situation):
    several: tuple[dict[str, object], ...] = (
        {},
        {"recompute": ("full",)},
        {"transport": "deepep"},
        {"schedule": "gpipe"},
    )
    steps = [found[0].step for found in map(situation.case, several) if found is not None]
    alone = [Step(step.plan, Once()) for step in steps]
    together = [Step(step.plan, Once()) for step in steps]
    run_together((step, True) for step in (*together, together[0]))
    for one, other in zip(alone, together, strict=True):
        expected, found = one.timed(True), other.timed(True)
        assert found.rows == expected.rows
        assert found.graph is expected.graph
        np.testing.assert_array_equal(found.result.start, expected.result.start)
        np.testing.assert_array_equal(found.result.end, expected.result.end)
    assert len({float(step.timed(True).makespan()) for step in together}) > 2
    assert len({id(step.timed(True).graph) for step in together}) < len(several)
