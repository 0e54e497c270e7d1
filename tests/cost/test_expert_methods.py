"""Kinds of expert products, sync-free execution, low-precision dispatch, the persistent kernel, two-step exchange."""

from dataclasses import replace

import numpy as np
import pytest

from moesim.cost.blocks import price_blocks
from moesim.cost.fused_experts import fused_experts_time
from moesim.cost.gemm import gemm_time
from moesim.cost.grouped import grouped_parts
from moesim.cost.machine import Group
from moesim.cost.transports import leg_time, transports
from moesim.estimator import estimate
from moesim.studies.explain import bound
from moesim.workload.ops import ExpertLeg, FusedExperts, Gemm, Traffic

TRANSPORT = {"pp": 4, "schedule": "1f1b", "tp": 1, "ep": 8, "sequence_parallel": False}
ROWWISE = TRANSPORT | {"transport": "nvshmem-rowwise"}
BLOCK = TRANSPORT | {"transport": "nccl-alltoall"}


@pytest.fixture(scope="module")
def mx(free):
    """The small model where MXFP8 exists."""
    return replace(free.with_changes({"cluster.node": "hgx-b200"}), software=free.software)


def layer(problem, **changes):
    plan = problem.plan(problem.strategy.replace(**changes))
    block = next(block for name, block in price_blocks(plan).items() if not isinstance(name, str))
    return plan, {priced.op.name: priced for priced in (*block.forward, *block.backward)}, block


def answer(problem, **changes):
    return estimate(problem, problem.strategy.replace(**changes))


def launched(block):
    return sum(float(np.sum(priced.op.kernels)) for priced in (*block.forward, *block.backward))


def test_a_loop_launches_a_product_for_each_expert_and_waits_for_the_counts(free):
    free = free.with_changes({"software.runtime.product_each_expert": "false"})
    plan, ops, block = layer(free, **ROWWISE, expert_gemm="loop")
    _, grouped, plain = layer(free, **ROWWISE)
    experts = 32 / 8
    for name in ("expert-up", "expert-down", "expert-up-dgrad", "expert-up-wgrad"):
        work = ops[name].op.work
        assert ops[name].op.kernels == experts
        one = gemm_time(replace(work, groups=1), plan.machine.gpu)
        assert ops[name].seconds == pytest.approx(experts * one, rel=1e-12)
        assert ops[name].launch == pytest.approx(experts * grouped[name].launch)
    assert launched(block) - launched(plain) == 6 * (experts - 1)
    assert ops["sort-by-expert"].op.host_sync
    assert not grouped["sort-by-expert"].op.host_sync
    # a transport that tells the host needs no second wait
    assert not layer(free, **BLOCK, expert_gemm="loop")[1]["sort-by-expert"].op.host_sync


def test_a_loop_over_uneven_experts_pays_for_each_and_not_for_idle_ones(free):
    rows = "histogram:" + ",".join(["3", "1", "0", "0"] * 8)
    plan, ops, _ = layer(free, **BLOCK, expert_gemm="loop", routing=rows)
    work = ops["expert-up"].op.work
    mean = 2048 * 4 / 4
    alone = [gemm_time(Gemm(share * mean, 1536, 2048), plan.machine.gpu) for share in (3, 1)]
    assert work.m == mean
    assert ops["expert-up"].seconds == pytest.approx(sum(alone), rel=1e-12)


def test_padding_computes_rows_that_nobody_sent(free):
    plan, ops, block = layer(free, **BLOCK, expert_gemm="padded", capacity_factor=1.25)
    _, grouped, plain = layer(free, **BLOCK, capacity_factor=1.25)
    rows = 2048 * 4
    for name in ("expert-up", "expert-down", "expert-up-dgrad", "expert-down-wgrad"):
        assert ops[name].op.work.flop == pytest.approx(1.25 * grouped[name].op.work.flop)
        assert ops[name].seconds == gemm_time(ops[name].op.work, plan.machine.gpu)
    # of 1.25 rows a fifth is waste: 1 - M / (N C)
    assert 1 - grouped["expert-up"].op.work.flop / ops["expert-up"].op.work.flop == pytest.approx(0.2)
    for name in ("pad-experts", "unpad-experts", "pad-experts-backward", "unpad-experts-backward"):
        assert ops[name].op.work.hbm_bytes == pytest.approx(2 * 2048 * rows * 2.25)
    kept, plain_kept = ({saved.name: saved.num_bytes for saved in one.block.saved} for one in (block, plain))
    assert kept["expert-up-output"] == pytest.approx(1.25 * plain_kept["expert-up-output"])
    assert ops["dispatch"].seconds == grouped["dispatch"].seconds
    assert launched(block) == launched(plain) + 4


def test_what_is_padded_to_the_mean_wastes_nothing(free):
    _, ops, _ = layer(free, **BLOCK, expert_gemm="padded", capacity_factor=1.0)
    _, grouped, _ = layer(free, **BLOCK)
    assert ops["expert-up"].op.work.flop == grouped["expert-up"].op.work.flop


def test_sync_free_trades_the_waits_of_the_host_for_spare_rows(free):
    slow = free.with_changes({"software.host.framework_per_kernel": "60 us"})
    slow = replace(slow, software=slow.software.model_copy(update={"rules": ()}))
    waits, never = (answer(slow, **BLOCK, capacity_factor=1.25, sync_free=flag) for flag in (False, True))
    assert never.step_time_s < waits.step_time_s
    assert never.exposed_s["host"] < waits.exposed_s["host"]
    assert never.memory.peak_bytes > waits.memory.peak_bytes
    _, ops, block = layer(slow, **BLOCK, capacity_factor=1.25, sync_free=True)
    _, _, plain = layer(slow, **BLOCK, capacity_factor=1.25)
    assert not any(priced.op.host_sync for priced in ops.values())
    kept, plain_kept = ({saved.name: saved.num_bytes for saved in one.block.saved} for one in (block, plain))
    assert kept["dispatched-rows"] == pytest.approx(1.25 * plain_kept["dispatched-rows"])
    # flop and bytes of the operations are the same
    assert sum(float(priced.op.work.flop) for priced in block.forward) == sum(
        float(priced.op.work.flop) for priced in plain.forward
    )
    assert not slow.check(slow.strategy.replace(**BLOCK, capacity_factor=1.25, sync_free=True, cuda_graph="moe"))


def test_a_hot_rank_fills_the_spare_rows_of_sync_free_buffers(free):
    held = [
        layer(free, **BLOCK, capacity_factor=1.5, sync_free=True, rank_imbalance=load, routing="natural")[2]
        for load in (1.0, 1.2, 1.5, 2.0)
    ]
    kept = [{saved.name: saved.num_bytes for saved in one.block.saved}["expert-up-output"] for one in held]
    assert kept == pytest.approx([kept[0]] * 4)


@pytest.mark.parametrize("transport", ["nvshmem-rowwise", "deepep"])
def test_a_dispatch_in_the_format_of_the_products_casts_once_and_sends_less(mx, transport):
    changes = ROWWISE | {"precision": "mxfp8", "transport": transport}
    _, wide, _ = layer(mx, **changes)
    plan, narrow, _ = layer(mx, **changes, dispatch_precision="recipe")
    assert narrow["dispatch"].op.work.row_bytes == pytest.approx(33 / 64 * wide["dispatch"].op.work.row_bytes)
    every_leg = transport == "nvshmem-rowwise"
    for name, rows in {"combine": 4, "combine-backward": 1, "dispatch-backward": 4}.items():
        factor = 33 / 64 if every_leg else 1
        assert narrow[name].op.work.row_bytes == pytest.approx(factor * wide[name].op.work.row_bytes)
        assert (f"{name}-cast" in narrow) == every_leg
        assert f"{name}-cast" not in wide
        if every_leg:  # rows of the experts, one a route; gradients of the tokens
            cast, token = (narrow[each].op.work.hbm_bytes for each in (f"{name}-cast", "dispatch-cast"))
            assert cast == pytest.approx(rows * token)
    assert "expert-up-cast" in wide
    assert "expert-up-cast" not in narrow
    # every token once instead of every route
    assert wide["expert-up-cast"].op.work.hbm_bytes == pytest.approx(4 * narrow["dispatch-cast"].op.work.hbm_bytes)
    assert isinstance(narrow["dispatch-cast"].op.work, Traffic)
    assert plan.setting.products.low_dispatch


LEGS = (ExpertLeg("dispatch", 4096.0, 8, 64, 4096.0, True), ExpertLeg("combine", 4096.0, 8, 64, 4096.0))
PRODUCTS = (Gemm(4096.0, 4096, 4096, 8), Gemm(4096.0, 4096, 2048, 8))
NODE = Group(8.0, 8.0)


def test_a_persistent_kernel_takes_its_longer_stream_the_last_wave_and_the_fill(machine):
    rowwise = transports.get("nvshmem-rowwise")
    comm = sum(leg_time(rowwise, leg, NODE, machine) for leg in LEGS)
    parts = [grouped_parts(product, machine.gpu) for product in PRODUCTS]
    gemm = sum(part.time for part in parts) - machine.gpu.kernels.grouped_gemm_fixed
    tiles = 8 * 32 * 16 * 2  # experts, rows, columns of 256, both products
    waves = tiles / machine.gpu.num_sms
    small = [replace(leg, tokens=16.0, counts=False) for leg in LEGS]
    fill = sum(leg_time(rowwise, leg, NODE, machine) for leg in small)
    expected = max(comm, gemm) * np.ceil(waves) / waves + fill
    found = fused_experts_time(FusedExperts(*LEGS, PRODUCTS), NODE, machine, rowwise)
    assert found == pytest.approx(expected, rel=1e-12)
    assert max(comm, gemm) < found < comm + gemm


def test_a_persistent_kernel_joins_what_was_apart(mx):
    changes = ROWWISE | {"precision": "mxfp8"}
    kinds = ("separate", "fused-forward", "fused")
    found = {kind: layer(mx, **changes, expert_kernel=kind) for kind in kinds}
    counts = [launched(found[kind][2]) for kind in kinds]
    assert counts == sorted(counts, reverse=True)
    forward = {priced.op.name for priced in found["fused-forward"][2].forward}
    assert "expert-kernel" in forward
    assert not {"dispatch", "combine", "expert-up", "expert-activation"} & forward
    backward = {priced.op.name for priced in found["fused"][2].backward}
    assert {"expert-kernel-backward", "expert-up-wgrad", "expert-down-wgrad"} <= backward
    assert not {"combine-backward", "expert-up-dgrad"} & backward
    # the same products in all: useful FLOP do not change
    flops = [
        sum(float(priced.op.work.flop) for priced in (*block.forward, *block.backward))
        for _, _, block in found.values()
    ]
    assert flops == pytest.approx([flops[0]] * 3, rel=1e-12)
    times = [answer(mx, **changes, expert_kernel=kind) for kind in kinds]
    assert times[2].step_time_s < times[1].step_time_s < times[0].step_time_s
    assert times[2].exposed_s["ep"] < times[0].exposed_s["ep"]
    assert times[2].memory.stages[0]["transport_bytes"] < times[0].memory.stages[0]["transport_bytes"]


def test_the_persistent_kernel_is_held_against_the_rate_of_its_operands(mx):
    strategy = mx.strategy.replace(**ROWWISE, precision="mxfp8", expert_kernel="fused")
    plan = mx.plan(strategy)
    assert "fused-experts" in estimate(mx, strategy).interval.uncalibrated
    kernel = layer(mx, **ROWWISE, precision="mxfp8", expert_kernel="fused")[1]["expert-kernel"]
    assert kernel.op.work.rate == "mxfp8"
    peak = plan.machine.gpu.rates["mxfp8"]
    slow = kernel._replace(seconds=4 * kernel.op.work.flop / peak)
    assert bound(plan, slow) == "tensor-cores"
    assert bound(plan, slow._replace(seconds=6 * kernel.op.work.flop / peak)) == "kernel start"


def test_two_steps_send_fewer_messages_and_every_byte_twice(machine):
    plain, steps = (transports.get(name) for name in ("nccl-alltoall", "nccl-hierarchical"))
    across = Group(256.0, 8.0)
    small, large = (ExpertLeg("dispatch", tokens, 8, 256, 4096.0) for tokens in (16.0, 65536.0))
    assert leg_time(steps, small, across, machine) < leg_time(plain, small, across, machine)
    assert leg_time(steps, large, across, machine) > leg_time(plain, large, across, machine)
    for group in (NODE, Group(4.0, 1.0)):
        assert leg_time(steps, large, group, machine) == leg_time(plain, large, group, machine)
        assert steps.passes(large, group) == plain.passes(large, group)
    assert steps.passes(large, across).after_dispatch == plain.passes(large, across).after_dispatch + 16


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"expert_gemm": "padded"}, "padded-needs-capacity"),
        ({"expert_gemm": "padded", "capacity_factor": 0.9}, "padded-needs-capacity"),
        ({"expert_gemm": "padded", "capacity_factor": 1.5, "routing": "zipf:1"}, "padded-needs-capacity"),
        ({"expert_gemm": "padded", "capacity_factor": 1.2, "rank_imbalance": 1.3}, "padded-hot-rank"),
        ({"expert_gemm": "batched"}, "known-expert_gemm"),
        ({"sync_free": True, "transport": "nccl-alltoall"}, "sync-free-capacity"),
        ({"sync_free": True, "transport": "hybridep", "capacity_factor": 1.2}, "sync-free-syncs"),
        ({"expert_gemm": "loop", "transport": "hybridep", "cuda_graph": "moe"}, "host-counts"),
        ({"dispatch_precision": "recipe"}, "dispatch-precision"),
        ({"dispatch_precision": "recipe", "precision": "fp8-current", "transport": "nccl-alltoall"}, "dispatch-scales"),
        ({"dispatch_precision": "fp8"}, "known-dispatch_precision"),
        ({"expert_kernel": "fused", "precision": "fp8-current", "transport": "deepep"}, "fused-experts-memory"),
        ({"expert_kernel": "fused", "transport": "nvshmem-rowwise"}, "fused-experts-precision"),
        ({"expert_kernel": "fused-forward", "transport": "nvshmem-rowwise", "ep": 16}, "fused-experts-domain"),
        ({"expert_kernel": "fused", "transport": "nvshmem-rowwise", "recompute": ("moe_act",)}, "fused-experts-alone"),
        ({"expert_kernel": "mega"}, "known-expert_kernel"),
    ],
)
def test_what_is_refused(free, changes, rule):
    assert rule in {broken.violation.rule for broken in free.check(free.strategy.replace(**changes))}


def test_a_dense_model_has_no_such_methods(variants):
    dense = variants["dense"]
    found = dense.check(dense.strategy.replace(expert_gemm="loop"))
    assert "methods-of-experts" in {broken.violation.rule for broken in found}
