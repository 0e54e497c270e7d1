"""From a scenario to a problem: names resolved, defaults taken and noted, changes made."""

import pytest

import moesim
from moesim.base.errors import SpecError
from moesim.problem import Problem
from moesim.spec.library import get


def test_the_shipped_scenario(qwen: Problem):
    assert qwen.name == "qwen3-235b-h100x256"
    assert qwen.machine.num_gpus == 256
    assert (qwen.sequence_length, qwen.global_batch) == (4096, 2048)
    assert len(qwen.model.layers) == 94
    strategy = qwen.strategy
    assert (strategy.tp, strategy.pp, strategy.vpp, strategy.ep, strategy.etp) == (2, 8, 4, 32, 1)
    assert strategy.recompute == ("layernorm", "moe_act")
    assert qwen.plan().num_micro_batches == 128
    assert qwen.check() == []


def test_what_is_left_out_takes_the_default_of_the_software_and_is_noted(qwen: Problem):
    assert qwen.strategy.grad_dtype == "fp32"
    assert qwen.strategy.overlap_p2p
    assert set(qwen.assumed) == {
        "strategy.cp_kind",
        "strategy.reshard_after_forward",
        "strategy.fp8_params",
        "strategy.param_dtype",
        "strategy.main_param_dtype",
        "strategy.grad_dtype",
        "strategy.optimizer_state_dtype",
        "strategy.overlap_grad_reduce",
        "strategy.overlap_param_gather",
        "strategy.overlap_tp",
        "strategy.overlap_shared_expert",
        "strategy.overlap_p2p",
        "strategy.cuda_graph",
        "strategy.rank_imbalance",
        "strategy.capacity_factor",
    }
    given = qwen.with_changes({"grad_dtype": "bf16", "overlap_tp": False})
    assert given.strategy.grad_dtype == "bf16"
    assert not {"strategy.grad_dtype", "strategy.overlap_tp"} & set(given.assumed)


def test_a_default_sees_the_defaults_before_it(small: Problem):
    # zero1 and overlap_grad_reduce are defaults themselves; both are what overlap_param_gather asks for
    assert small.strategy.dp_sharding == "zero1"
    assert small.strategy.overlap_grad_reduce
    assert small.strategy.overlap_param_gather
    assert not small.with_changes({"dp_sharding": "ddp"}).strategy.overlap_param_gather
    assert not small.with_changes({"overlap_grad_reduce": False}).strategy.overlap_param_gather


@pytest.mark.parametrize(
    ("changes", "schedule", "overlap_p2p", "noted"),
    [
        ({"pp": 1}, "none", False, False),
        ({"pp": 4}, "1f1b", False, True),
        ({"pp": 4, "vpp": 2}, "interleaved-1f1b", True, True),
        ({"pp": 4, "vpp": 2, "schedule": "zb-v"}, "zb-v", True, False),
    ],
)
def test_the_schedule_follows_from_the_degrees(small: Problem, changes, schedule, overlap_p2p, noted):
    changed = small.with_changes(changes)
    assert changed.strategy.schedule == schedule
    assert changed.strategy.overlap_p2p == overlap_p2p
    assert ("strategy.schedule" in changed.assumed) == noted


def test_sequence_parallelism_comes_with_tensor_parallelism(small: Problem):
    assert small.strategy.sequence_parallel
    assert not small.with_changes({"tp": 1}).strategy.sequence_parallel


def test_names_instead_of_a_file():
    problem = moesim.from_names("qwen3-235b-a22b", "hgx-h100:32")
    assert problem.machine.num_gpus == 256
    assert problem.measured is None
    assert {"sequence_length", "global_batch"} <= set(problem.assumed)
    assert (problem.sequence_length, problem.global_batch) == (4096, 8 * 256)
    assert "global_batch" not in problem.with_changes({"global_batch": 512}).assumed
    same = moesim.from_names("qwen3-235b", "h100x8:32")  # aliases
    assert same.model == problem.model
    assert same.machine == problem.machine


def nic_alone(problem: Problem) -> float:
    """Rate of a NIC without what steps of the software keep of it. [B/s]"""
    return float(problem.machine.links.nic_bandwidth) / problem.software.sustained.network.value


def test_the_machine_has_the_numbers_of_the_specs(qwen: Problem):
    machine, gpu, node = qwen.machine, get("gpus", "h100-sxm-80gb"), get("nodes", "hgx-h100")
    software, kept = qwen.software, qwen.software.sustained
    assert machine.gpu.memory_capacity == 81_559 * 2**20
    assert machine.gpu.bf16_flop_rate == gpu.peak_flop_rate["bf16"].value
    assert machine.links.nvlink_bandwidth == node.links.nvlink_usable_bandwidth.value * kept.nvlink.value
    # one 400 Gb/s NIC a GPU, what is usable of it, and what steps of this software keep of that
    assert machine.links.nic_bandwidth == pytest.approx(0.97 * 400e9 / 8 * kept.network.value)
    assert machine.host.launch == pytest.approx(5e-6 + software.host.framework_per_kernel.value)
    assert machine.nvlink_domain == 8
    assert not machine.links.nvls
    assert machine.gpu.rates["bf16"] == machine.gpu.bf16_flop_rate * kept.tensor.value
    assert not {"mxfp8", "nvfp4"} & set(machine.gpu.rates)
    assert machine.runtime.launches_per_moe_layer is None
    assert software.runtime.launches_per_operation is not None
    assert machine.runtime.launches_per_operation == software.runtime.launches_per_operation.value
    assert machine.host.chunk == software.host.chunk.value


def test_every_number_of_the_machine_has_a_source(qwen: Problem):
    for path, sourced in qwen.machine.provenance.items():
        assert sourced.source or sourced.note, path
        assert sourced.note if sourced.kind == "assumed" else sourced.source, path


@pytest.mark.parametrize(
    ("path", "value", "read"),
    [
        ("gpu.memory_bandwidth", "4.8 TB/s", lambda p: p.machine.gpu.memory_bandwidth == 4.8e12),
        ("gpu.kernels.gemm_fixed", "1 us", lambda p: p.machine.gpu.kernels.gemm_fixed == 1e-6),
        ("nic.bandwidth", "800 Gb/s", lambda p: nic_alone(p) == pytest.approx(97e9)),
        ("node.nics_per_node", 4, lambda p: nic_alone(p) == pytest.approx(0.97 * 25e9)),
        ("node.links.p2p_latency", "1 us", lambda p: p.machine.links.p2p_latency == 1e-6),
        ("fabric.p2p_latency", "2 us", lambda p: p.machine.links.nic_p2p_latency == 2e-6),
        ("software.host.device_sync", "0 s", lambda p: p.machine.host.sync == 0),
        ("software.memory.cuda_context", "1 GiB", lambda p: p.machine.memory.context == 2**30),
        ("transports.deepep.num_sms", 24, lambda p: p.machine.transports["deepep"]["num_sms"] == 24),
        ("cluster.count", 64, lambda p: p.machine.num_gpus == 512),
        ("cluster", "hgx-h100:16", lambda p: p.machine.num_gpus == 128),
        ("sequence_length", 8192, lambda p: p.sequence_length == 8192),
        ("strategy.ep", "16", lambda p: p.strategy.ep == 16),
        ("ep", 16, lambda p: p.strategy.ep == 16),
        ("recompute", "[layernorm, full]", lambda p: p.strategy.recompute == ("layernorm", "full")),
        ("recompute", "none", lambda p: p.strategy.recompute == ()),
        ("layout", "Ett|(ttt|)*30ttL", lambda p: p.strategy.layout == "Ett|(ttt|)*30ttL"),
        ("layout", [2] + [3] * 30 + [2], lambda p: p.strategy.layout == (2, *[3] * 30, 2)),
    ],
)
def test_changes_reach_what_they_name(qwen: Problem, path, value, read):
    assert not read(qwen)
    assert read(qwen.with_changes({path: value}))
    assert not read(qwen)  # the problem itself stays as it was


@pytest.mark.parametrize(
    ("cluster", "gpus", "used"),
    [("hgx-b300:1", 4, 4), ("hgx-b300:1", 8, 8), ("hgx-h100:2", 12, 12), ("hgx-h100:1", None, 8)],
)
def test_a_job_may_leave_a_part_of_its_last_node_idle(cluster, gpus, used):
    problem = moesim.from_names("llama3-8b", cluster).with_changes({"cluster.gpus": gpus} if gpus else {})
    assert problem.machine.num_gpus == used
    assert problem.machine.gpus_per_node == 8


@pytest.mark.parametrize(
    ("cluster", "gpus", "fix"),
    [("hgx-h100:1", 9, "write 1 to 8"), ("hgx-h100:2", 8, "write 9 to 16"), ("hgx-h100:2", 17, "write 9 to 16")],
)
def test_gpus_that_do_not_fill_the_nodes_are_refused(cluster, gpus, fix):
    with pytest.raises(SpecError, match=f"--set cluster.gpus: {gpus} GPUs do not fill . nodes of 8; {fix}"):
        moesim.from_names("llama3-8b", cluster).with_changes({"cluster.gpus": gpus})


@pytest.mark.parametrize("precision", ["fp8-delayed", "fp8-current", "fp8-blockwise", "mxfp8", "nvfp4"])
def test_a_gpu_without_fp8_has_none(precision):
    ampere = moesim.from_names("llama3-8b", "hgx-a100-roce200:1")
    assert set(ampere.machine.gpu.rates) == {"bf16", "fp16"}
    with pytest.raises(SpecError, match=f"no rate for precision {precision}.*precision in bf16, fp16"):
        ampere.with_changes({"precision": precision}).plan()
    assert ampere.with_changes({"precision": "fp16"}).plan()


def test_each_kind_of_gemm_counts_against_its_own_peak_and_efficiency():
    problem = moesim.from_names("llama3-8b", "hgx-b200:1")
    machine, kept = problem.machine, problem.software.sustained.tensor.value
    gpu, kernels = get("gpus", "b200-sxm"), get("gpus", "b200-sxm").kernels
    efficiencies = {
        "fp8": ("fp8", kernels.fp8_efficiency),
        "fp8-blockwise": ("fp8", kernels.fp8_blockwise_efficiency),
        "mxfp8": ("fp8", kernels.mxfp8_efficiency),
        "nvfp4": ("fp4", kernels.fp4_efficiency),
    }
    for name, (peak, efficiency) in efficiencies.items():
        reached = machine.gpu.rates[name] * kernels.gemm_efficiency.value  # the form multiplies by this
        assert reached == pytest.approx(kept * gpu.peak_flop_rate[peak].value * efficiency.value)
    assert machine.gpu.rates["mxfp8-wgrad"] == pytest.approx(
        machine.gpu.rates["mxfp8"] * kernels.mxfp8_wgrad_rate.value
    )


def test_constants_of_a_transport_grow_with_the_links():
    def constant(cluster, name, key):
        problem = moesim.from_names("qwen3-235b", cluster)
        kept = problem.software.sustained
        shares = {"nvlink_bandwidth": kept.nvlink.value, "rdma_bandwidth": kept.network.value}
        share = next((share for end, share in shares.items() if key.endswith(end)), 1.0)
        return problem.machine.transports[name][key] / share

    fitted = get("transports", "deepep").constants["intra_dispatch_nvlink_bandwidth"].value
    assert constant("hgx-h100:4", "deepep", "intra_dispatch_nvlink_bandwidth") == pytest.approx(fitted)
    assert constant("hgx-b200:4", "deepep", "intra_dispatch_nvlink_bandwidth") == pytest.approx(2 * fitted)
    rdma = get("transports", "deepep").constants["inter_dispatch_rdma_bandwidth"].value
    assert constant("hgx-b300:4", "deepep", "inter_dispatch_rdma_bandwidth") == pytest.approx(2 * rdma)  # 800 Gb/s
    for key in ("num_sms", "norm", "intra_dispatch_base"):
        assert constant("hgx-b300:4", "deepep", key) == constant("hgx-h100:4", "deepep", key)


def test_software_may_set_the_sms_of_a_transport():
    mcore, bridge = (
        moesim.from_names("qwen3-235b", "gb200-nvl72:16", software).machine.transports["hybridep"]["num_sms"]
        for software in ("megatron-core", "megatron-bridge")
    )
    assert (mcore, bridge) == (16, 32)


def test_a_rack_is_one_nvlink_domain():
    rack = moesim.from_names("deepseek-v3", "gb200-nvl72:64")
    assert rack.machine.num_gpus == 256
    assert rack.machine.nvlink_domain == 64
    mesh = rack.plan(rack.strategy.replace(ep=64, pp=4, layout="count-embedding-and-loss", schedule="1f1b")).mesh
    assert rack.machine.group(mesh, "ep").nodes == 1


def test_an_illegal_strategy_has_no_plan(qwen: Problem):
    with pytest.raises(SpecError) as error:
        qwen.plan(qwen.strategy.replace(ep=64, micro_batch=3))
    assert len(error.value.issues) == 2


def test_blame_lies_with_what_was_changed(qwen: Problem):
    where = {
        str(issue.where).rpartition("/")[2]
        for changes in ({"etp": 3}, {"ep": 64}, {"global_batch": 2047})
        for issue in _issues(qwen.with_changes(changes))
    }
    assert where == {"--set etp", "--set ep", "--set global_batch"}
    (issue,) = _issues(qwen, qwen.strategy.replace(ep=64))
    assert issue.where.endswith("qwen3-235b-h100x256.yaml:16")
    assert issue.path == "strategy.ep"


def _issues(problem, strategy=None):
    with pytest.raises(SpecError) as error:
        problem.plan(strategy)
    return error.value.issues


def test_the_public_names_resolve():
    for name in moesim.__all__:
        assert getattr(moesim, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = moesim.nothing
