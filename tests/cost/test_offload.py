"""Activations and optimizer state in host memory: bytes, hidden shares, stalls and refusals by hand."""

import pytest

import moesim
from moesim.base.errors import SpecError
from moesim.cost.blocks import price_blocks
from moesim.cost.memory import rank_memory
from moesim.cost.offload import offload_ratio, offloaded_bytes, optimizer_parts, pcie_time
from moesim.cost.pipeline import step_times
from moesim.estimator import estimate
from moesim.evaluator import evaluate

ALONE = {"pp": 1, "schedule": "none"}


def test_the_published_ratio_is_six():
    ratio = offload_ratio(3.96e9, 10.3e-3, 63e9)
    assert ratio == pytest.approx(6.1, rel=0.005)
    assert ratio * 63e9 == pytest.approx(384e9, rel=0.005)  # 3 TB/s for the eight GPUs of a host
    assert 8 * ratio * 63e9 == pytest.approx(3.0e12, rel=0.03)


def test_a_copy_reaches_53_of_63_gb_a_second_and_less_against_another(gpu):
    assert 63e9 * gpu.kernels.pcie_efficiency == pytest.approx(53e9, rel=0.005)
    assert pcie_time(1e9, gpu, both_ways=True) == pytest.approx(pcie_time(1e9, gpu) / 0.8)


def durations(problem, kind, **changes):
    plan = problem.plan(problem.strategy.replace(**changes))
    blocks = price_blocks(plan)
    times = step_times(plan, blocks)
    row = times.graph.rows[kind, 0]
    return plan, blocks, float(times.durations[row]), times.categories(row)


@pytest.mark.parametrize("kind", ["F", "BW"])
def test_what_outlasts_the_chunk_stalls(small, kind):
    _, _, plain, _ = durations(small, kind, **ALONE)
    plan, blocks, whole, parts = durations(small, kind, **ALONE, activation_offload=1.0)
    copy = pcie_time(offloaded_bytes(plan, blocks)[0], plan.machine.gpu)
    assert copy > plain
    assert whole == pytest.approx(copy, rel=1e-12)
    assert parts["pcie"] == pytest.approx(copy - plain, rel=1e-9)
    hidden = 1 / offload_ratio(copy, plain, 1.0)
    _, _, share, _ = durations(small, kind, **ALONE, activation_offload=0.999 * float(hidden))
    assert share == plain


def test_a_share_of_the_activations_leaves_the_gpu(small):
    plain, half = (
        rank_memory(plan, price_blocks(plan))[0]
        for plan in (small.plan(small.strategy.replace(activation_offload=share)) for share in (0.0, 0.5))
    )
    assert half.phases["forward"]["activations"] == pytest.approx(plain.phases["forward"]["activations"] / 2)
    assert half.host == pytest.approx(plain.phases["forward"]["activations"] / 2)
    assert half.phases["forward"]["workspace"] > 0
    assert plain.host == 0


def test_the_host_updates_what_is_offloaded(small):
    plan = small.plan(small.strategy.replace(optimizer_offload=1.0, dp_sharding="ddp", overlap_param_gather=False))
    total = plan.params[1].total
    parts = optimizer_parts(plan, 1)
    assert parts["optimizer"] == pytest.approx(total * 8 / 4.0e9)
    assert parts["pcie"] == pytest.approx(4 * total / (64e9 * 0.84))  # the weights come back beside the update
    memory = rank_memory(plan, price_blocks(plan))[1]
    assert memory.classes["optimizer"] == 0
    assert memory.host == pytest.approx(12 * total)


def test_12_bytes_a_parameter_of_qwen3_235b_take_705_gb_of_each_of_four_hosts():
    problem = moesim.from_names("qwen3-235b-a22b", "hgx-h100:4").with_changes(
        {
            "ep": 8,
            "optimizer_offload": 1,
            "sequence_length": 4096,
            "global_batch": 32,
            "pp": 4,
            "layout": "count-embedding-and-loss",
        }
    )
    plan = problem.plan()
    ranks = rank_memory(plan, price_blocks(plan))
    per_node = sum(float(rank.host) for rank in ranks) * 8 / 4
    assert per_node == pytest.approx(705e9, rel=0.01)


@pytest.mark.parametrize("field", ["activation_offload", "optimizer_offload"])
def test_more_on_the_host_takes_longer_and_fits_better(small, field):
    shares = (0.0, 0.25, 0.5, 1.0)
    found = [estimate(small, small.strategy.replace(**{field: share})) for share in shares]
    times = [one.step_time_s for one in found]
    peaks = [one.memory.peak_bytes for one in found]
    hosts = [one.memory.host_bytes_per_node for one in found]
    assert times == sorted(times)
    assert peaks == sorted(peaks, reverse=True)
    assert hosts == sorted(hosts)
    for one in found:
        assert sum(one.breakdown_s.values()) == pytest.approx(one.step_time_s, rel=1e-12)
    assert "pcie" not in found[0].breakdown_s
    assert "host_bytes_per_node" not in found[0].to_dict()["memory"]
    assert found[-1].to_dict()["memory"]["host_bytes_per_node"] > 0
    batch = evaluate(small, [small.strategy.replace(**{field: share}) for share in shares])
    assert batch.step_time_s == pytest.approx(times, rel=1e-12)


def test_a_faster_link_stalls_less(small):
    slow = estimate(small, small.strategy.replace(activation_offload=1.0))
    fast = small.with_changes({"overrides.gpu.pcie_bandwidth": "128 GB/s"})
    assert estimate(fast, fast.strategy.replace(activation_offload=1.0)).step_time_s < slow.step_time_s


def test_a_reduction_hides_beside_the_copies_too(small):
    """Without expert exchange the chunks take as long as their copies, so nothing else gets longer."""
    found = estimate(small, small.strategy.replace(activation_offload=1.0, overlap_grad_reduce=True))
    assert all(value >= 0 for value in found.exposed_s.values())
    assert found.exposed_s["ep"] == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"activation_offload": 1.5}, "is no share of the activations"),
        ({"optimizer_offload": -0.1}, "is no share of the optimizer state"),
        ({"optimizer_offload": 0.5, "optimizer": "muon"}, "optimizer-offload-products"),
        ({"optimizer_offload": "half"}, "optimizer_offload"),
    ],
)
def test_what_is_no_share_is_refused(small, changes, message):
    with pytest.raises(SpecError, match=message):
        estimate(small.with_changes(changes))
