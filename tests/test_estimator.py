"""An answer as a whole: what adds up, what is zero, what can only grow."""

import math
from dataclasses import replace

import pytest

from moesim.cost.machine import Links
from moesim.cost.transports.nccl_alltoall import NcclAllToAll
from moesim.estimator import estimate
from moesim.result import BREAKDOWN
from moesim.studies.faults import faulted


def test_the_breakdown_adds_up_to_the_step(estimates):
    for strategy, answer in estimates:
        assert tuple(answer.breakdown_s) == BREAKDOWN
        assert all(seconds >= 0 for seconds in answer.breakdown_s.values()), strategy
        assert sum(answer.breakdown_s.values()) == pytest.approx(answer.step_time_s, rel=1e-9), strategy
        assert answer.breakdown_s["other"] == 0


def test_memory_classes_add_up_to_the_peak_of_each_stage(estimates):
    for strategy, answer in estimates:
        assert len(answer.memory.stages) == strategy.pp
        for stage in answer.memory.stages:
            classes = {name: value for name, value in stage.items() if name != "peak_bytes"}
            assert all(name.endswith("_bytes") and value >= 0 for name, value in classes.items())
            assert sum(classes.values()) == pytest.approx(stage["peak_bytes"], rel=1e-9)
        peaks = [stage["peak_bytes"] for stage in answer.memory.stages]
        assert answer.memory.peak_bytes == max(peaks) == peaks[answer.memory.peak_stage]
        assert answer.memory.allocated_peak_bytes < answer.memory.reserved_peak_bytes < answer.memory.peak_bytes


def test_exposed_time_lies_between_nothing_and_the_step(estimates):
    for strategy, answer in estimates:
        assert set(answer.exposed_s) == {"ep", "tp", "cp", "pp", "dp", "host"}
        for name, seconds in answer.exposed_s.items():
            assert 0 <= seconds < answer.step_time_s, (name, strategy)


def test_what_an_axis_of_one_rank_costs(estimates):
    seen = set()
    for strategy, answer in estimates:
        dp = 64 / (strategy.tp * strategy.cp * strategy.pp)
        edp = 64 / (strategy.etp * strategy.ep * strategy.pp)
        alone = {
            "cp": strategy.cp == 1,
            "ep": strategy.ep == 1,
            "tp": strategy.tp == 1 and strategy.etp == 1,
            "pp": strategy.pp == 1,
            "dp": dp * strategy.cp == edp == 1,
        }
        for name, one in alone.items():
            if one:
                seen.add(name)
                assert answer.breakdown_s[name] == answer.exposed_s[name] == 0
        if strategy.pp == 1:
            assert answer.breakdown_s["bubble"] == 0
    assert seen >= {"cp", "ep", "tp", "pp"}


def test_one_gpu_talks_to_nobody(small):
    one = small.with_changes({"global_batch": 2})
    one = replace(one, machine=replace(one.machine, num_gpus=1))
    answer = estimate(one, one.strategy.replace(tp=1, pp=1, ep=1, schedule="none"))
    for name in ("ep", "tp", "cp", "pp", "dp", "bubble"):
        assert answer.breakdown_s[name] == 0
    assert answer.bubble_fraction == 0
    assert sum(answer.breakdown_s.values()) == pytest.approx(answer.step_time_s, rel=1e-12)


def test_every_class_that_is_used_takes_time(small, sample):
    """With a host that costs nothing; what runs beside something longer may take none of the walked time."""
    free = small.with_changes({"software.host.framework_per_kernel": "0 s", "software.host.kernel_launch": "0 s"})
    for strategy in sample(20, 7):
        answer = estimate(free, strategy)
        hidden = set()
        if strategy.cp > 1 and strategy.cp_kind == "ring":
            hidden |= {"attention", "cp"}
        if strategy.overlap_tp:
            hidden |= {"tp", "gemm"}
        if strategy.overlap_ep or strategy.dp_sharding in ("zero2", "fsdp", "hsdp"):
            hidden |= {"ep", "tp", "cp", "gemm", "grouped_gemm", "attention", "memory_bound"}
        used = {"gemm": True, "grouped_gemm": True, "attention": True, "memory_bound": True, "optimizer": True}
        used |= {"ep": strategy.ep > 1, "cp": strategy.cp > 1, "tp": strategy.tp > 1 or strategy.etp > 1}
        for name, one in used.items():
            taken = answer.breakdown_s[name] > 0
            assert taken == one or (one and name in hidden), (name, strategy)
        assert answer.exposed_s["ep"] > 0 or strategy.ep == 1 or "ep" in hidden


def test_rates_follow_from_the_step_time(estimates, small):
    tokens = 128 * 2048
    for _, answer in estimates:
        assert answer.tokens_per_s_per_gpu == pytest.approx(tokens / answer.step_time_s / 64)
        flop_rate = answer.model_flop_per_token * answer.tokens_per_s_per_gpu
        assert answer.tflop_per_s_per_gpu == pytest.approx(flop_rate / 1e12)
        assert answer.mfu == pytest.approx(flop_rate / 989.4e12)
        assert answer.model_flop_per_token == small.model.flop_per_token(2048, "causal")
        assert answer.flops_convention == "causal"
        assert 0 < answer.mfu < 0.885
        assert 0 <= answer.bubble_fraction < 1


def test_constants_pull_the_right_way(estimates):
    """More bandwidth and more FLOP/s never slow a step down; more latency and more overhead never speed it up."""
    faster = ("bandwidth", "rates.bf16", "efficiency", "backward_rate", "sm_share")
    slower = ("latency", "_base", "per_node", "per_token", "per_sqrt_token", "fixed", "launch", "sync", "prologue")
    strong = set()
    for strategy, answer in estimates:
        for constant in answer.constants:
            assert math.isfinite(constant.elasticity)
            if any(word in constant.path for word in slower) and "bandwidth" not in constant.path:
                # kernels beside a transport or a reduction pay for its SMs: the share of each shifts a little with
                # their times, and so does the clock under the power limit
                beside = strategy.overlap_ep or strategy.dp_sharding in ("fsdp", "hsdp")
                limited = answer.sustained_clock is not None and answer.sustained_clock < 1
                assert constant.elasticity >= (-1e-3 if beside or limited else -1e-9), (constant, strategy)
            elif constant.path.endswith(faster):
                assert constant.elasticity <= (1e-3 if strategy.overlap_ep else 1e-9), (constant, strategy)
            if abs(constant.elasticity) > 0.01:
                strong.add(constant.path)
        elasticities = [abs(constant.elasticity) for constant in answer.constants]
        assert elasticities == sorted(elasticities, reverse=True)
    assert strong >= {"gpu.rates.bf16", "gpu.memory_bandwidth", "links.nic_bandwidth", "links.nvlink_bandwidth"}


def test_a_longer_kernel_speeds_up_only_others_that_share_the_sms(small, sample, monkeypatch):
    """What a transport takes from the SMs is spread over the kernels beside it in proportion to their time."""
    merged = [strategy for strategy in sample(40, 7) if strategy.overlap_ep and strategy.transport == "nccl-alltoall"]
    monkeypatch.setattr(NcclAllToAll, "sm_share", lambda self, group, machine: 0.0)
    assert merged
    for strategy in merged:
        for constant in estimate(small, strategy).constants:
            if constant.path.endswith(("gemm_fixed", "narrow_fixed", "attention_fixed", "memory_fixed")):
                assert constant.elasticity >= -1e-9, (constant, strategy)


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("gpu.peak_flop_rate.bf16", ("989.4 TFLOP/s", "1.5 PFLOP/s", "5 PFLOP/s")),
        ("gpu.memory_bandwidth", ("3.35 TB/s", "4.8 TB/s", "20 TB/s")),
        ("nic.bandwidth", ("400 Gb/s", "800 Gb/s", "8 Tb/s")),
        ("node.links.nvlink_usable_bandwidth", ("362 GB/s", "720 GB/s", "5 TB/s")),
        ("node.links.alltoall_bandwidth", ("337 GB/s", "600 GB/s", "5 TB/s")),
        ("software.host.kernel_launch", ("5 us", "1 us", "0.1 us")),
        ("fabric.alltoall_efficiency", ("0.8", "0.9", "1")),
    ],
)
def test_a_better_machine_is_never_slower(small, sample, path, values):
    strategies = sample(12, 3)
    machines = [small.with_changes({path: value}) for value in values]
    times = [[estimate(problem, strategy).step_time_s for problem in machines] for strategy in strategies]
    for strategy, (first, second, third) in zip(strategies, times, strict=True):
        assert first >= second * (1 - 1e-9), strategy
        assert second >= third * (1 - 1e-9), strategy
    assert any(first > third for first, _, third in times), "nothing of the sample uses it"


def test_a_pipeline_inside_a_node_sends_over_nvlink(small):
    node = small.with_changes({"cluster.count": 1, "global_batch": 16, "pp": 4, "tp": 1, "ep": 2})
    faster = node.with_changes({"node.links.p2p_bandwidth": "5 TB/s"})
    assert estimate(faster).step_time_s < estimate(node).step_time_s
    assert estimate(node.with_changes({"nic.bandwidth": "800 Gb/s"})).step_time_s == estimate(node).step_time_s


def test_every_constant_of_the_machine_is_ranked_with_its_source(qwen):
    answer = estimate(qwen)
    paths = {constant.path for constant in answer.constants}
    single = set(Links.__dataclass_fields__) - {"nvls", "nccl", "fits"}  # two are switches
    assert {f"links.{name}" for name in single} | {f"links.fits.{name}" for name in qwen.machine.links.fits} <= paths
    assert any(path.startswith("transports.deepep.") for path in paths)
    assert not any(path.startswith("transports.nccl") for path in paths)
    unsourced = [c.path for c in answer.constants if c.kind != "assumed" and not c.source]
    assert unsourced == []
    kinds = {constant.path: constant.kind for constant in answer.constants}
    assert kinds["gpu.rates.bf16"] == "datasheet"
    assert kinds["gpu.memory_bandwidth"] == "datasheet"
    settings = {constant.path: constant.setting for constant in answer.constants}
    assert settings["gpu.rates.bf16"] == "gpu.peak_flop_rate.bf16"
    assert settings["host.launch"] == "software.host.framework_per_kernel"
    assert settings["transports.deepep.num_sms"] == "transports.deepep.num_sms"
    assert kinds["transports.deepep.inter_dispatch_rdma_bandwidth"] == "measured"
    fits = {path: settings[path] for path in paths if path.startswith("links.fits.")}
    assert {kinds[path] for path in fits} == {"measured"}
    assert settings["links.fits.all-gather-ring-simple-node-bandwidth"].startswith("node.links.fits.")
    assert settings["links.fits.all-gather-ring-simple-net-bandwidth"].startswith("fabric.fits.")


def test_overriding_a_number_makes_it_assumed(qwen):
    changed = estimate(qwen.with_changes({"gpu.peak_flop_rate.bf16": "900 TFLOP/s"}))
    assert changed.evidence == "assumed"
    kinds = {constant.path: constant.kind for constant in changed.constants}
    assert kinds["gpu.rates.bf16"] == "assumed"


def test_a_measured_step_stands_beside(qwen):
    own = estimate(qwen).measured
    assert own is not None
    assert own["step_time_s"] == 19.7
    assert own["source"] == "megatron-moe-modelzoo"
    answer = estimate(qwen, measured_s=20.0)
    assert answer.measured == {"step_time_s": 20.0, "error": answer.step_time_s / 20.0 - 1, "source": "--measured"}


def test_what_was_measured_says_nothing_about_another_run(qwen):
    others = (("ep", 16), ("global_batch", 4096), ("strategy.recompute", "full"), ("cluster.count", 64))
    for path, value in others:
        assert estimate(qwen.with_changes({path: value})).measured is None
    assert estimate(qwen, qwen.strategy.replace(ep=16)).measured is None
    assert estimate(qwen.with_changes({"ep": 16}).with_changes({"nic.bandwidth": "200 Gb/s"})).measured is None
    # another number of the hardware is another machine, and so is a broken one
    assert estimate(qwen.with_changes({"gpu.memory_bandwidth": "4.8 TB/s"})).measured is None
    assert estimate(faulted(qwen, "slow:node3=0.3").problem).measured is None
    # what the publication left open, and constants of the software, are guesses about the same run
    host = "software.host.framework_per_kernel"
    for path, value in (("overlap_tp", False), ("strategy.grad_dtype", "bf16"), (host, "x1.1")):
        assert estimate(qwen.with_changes({path: value})).measured is not None
    again = {"ep": 16, "measured.step_time": "21 s"}
    assert (estimate(qwen.with_changes(again)).measured or {})["step_time_s"] == 21.0


def test_more_micro_batches_cost_in_proportion(small):
    steady = small.strategy.replace(pp=1, schedule="none")
    short, long = (estimate(small.with_changes({"global_batch": batch}), steady) for batch in (128, 1280))
    once = {"dp", "optimizer"}
    for name, seconds in short.breakdown_s.items():
        if name not in once:
            assert long.breakdown_s[name] == pytest.approx(10 * seconds, rel=1e-9)
    assert long.breakdown_s["optimizer"] == short.breakdown_s["optimizer"]


def test_overlapping_the_gradients_hides_them(small):
    strategy = small.strategy.replace(pp=1, schedule="none", dp_sharding="ddp", overlap_param_gather=False)
    after, beside = (estimate(small, strategy.replace(overlap_grad_reduce=flag)) for flag in (False, True))
    assert beside.step_time_s <= after.step_time_s


def test_an_infeasible_strategy_is_an_answer(qwen):
    answer = estimate(qwen, qwen.strategy.replace(micro_batch=4))
    assert not answer.feasible
    (violation,) = answer.violations
    assert violation.rule == "memory"
    assert f"pipeline rank {answer.memory.peak_stage}" in violation.message
    assert "79.65 GiB" in violation.message
    assert "activations" in violation.message
    assert answer.step_time_s > 0
    assert estimate(qwen).feasible
    assert estimate(qwen).violations == ()
