"""The expert exchange of a job by transport and SMs, and what the host holds of experts."""

import math

import pytest

import moesim
from moesim.base.errors import SpecError
from moesim.problem import from_names
from moesim.spec import library
from moesim.spec.overrides import sm_driven
from moesim.studies.basis import basis
from moesim.studies.dispatching import exchanges
from moesim.studies.offloading import offloading


@pytest.fixture(scope="module")
def efa():
    changes = {"ep": 16, "global_batch": 128, "sequence_length": 2048, "transport": "uccl"}
    return from_names("qwen3-30b-a3b", "p6-b300:4").with_changes(changes)


def test_an_exchange_without_a_profile_is_refused_where_it_leaves_the_domain(efa):
    found = exchanges(efa, [{"transport": name} for name in ("nccl-alltoall", "uccl", "deepep", "hybridep")])
    assert [one.transport for one in found.cases] == ["nccl-alltoall", "uccl"]
    assert [dict(case)["transport"] for case, _ in found.refused] == ["deepep", "hybridep"]
    for _, (why,) in found.refused:
        assert "no profile of transport" in why
        assert "over efa" in why
    inside = exchanges(efa, [{"transport": "deepep", "ep": 8}])
    assert inside.cases[0].domains == 1


def test_a_profile_of_efa_is_none_of_infiniband_and_ends_where_it_was_seen_to_end(efa):
    with pytest.raises(SpecError, match="transport-network"):
        moesim.estimate(from_names("qwen3-30b-a3b", "hgx-h100:4").with_changes({"ep": 16, "transport": "uccl"}))
    wide = from_names("qwen3-30b-a3b", "p6-b300:16").with_changes({"ep": 128, "transport": "deepep-nvshmem"})
    assert [broken.violation.rule for broken in wide.check()] == ["transport-ranks"]
    assert wide.with_changes({"ep": 64}).check() == []


def test_the_legs_add_up_to_the_exchange_of_a_step(efa):
    (one,) = exchanges(efa, [{}]).cases
    layers, times = 48, efa.plan().num_micro_batches
    assert one.total_s == pytest.approx(layers * times * sum(one.leg_s.values()), rel=1e-9)
    assert 0 < one.exposed_s <= one.total_s * (1 + 1e-9)
    assert one.to_dict()["basis"]["low_s"] < one.answer.step_time_s < one.to_dict()["basis"]["high_s"]


def test_more_sms_exchange_faster_and_slow_kernels_more():
    problem = moesim.load("zoo-002")
    few, many = exchanges(problem, [{"comm_sms": 4}, {"comm_sms": 24}]).cases
    assert (few.num_sms, many.num_sms) == (4, 24)
    assert few.total_s > 2 * many.total_s
    assert few.kernel_slowdown < many.kernel_slowdown


def test_comm_sms_asks_for_a_transport_that_copies_by_sms_and_for_a_number(small):
    assert [name for name in library.names("transports") if not sm_driven(name)] == [
        "nccl-alltoall",
        "nccl-hierarchical",
        "nvshmem-rowwise",
    ]
    with pytest.raises(SpecError, match="do not depend on its SMs"):
        small.with_changes({"transport": "nccl-alltoall", "comm_sms": 8})
    for text in ("0", "-4", "many", "2.5"):
        with pytest.raises(SpecError, match="is no number of SMs"):
            small.with_changes({"transport": "deepep", "comm_sms": text})


def test_a_model_without_experts_exchanges_nothing():
    with pytest.raises(SpecError, match="has no experts"):
        exchanges(from_names("llama3-8b", "hgx-h100:1"), [{}])


def test_a_measured_number_lies_inside_or_not(small):
    answer = moesim.estimate(small)
    told = basis(answer, answer.step_time_s * 1.01)
    assert told["measured"]["ratio"] == pytest.approx(1.01)
    assert told["measured"]["inside"]
    assert not basis(answer, answer.high_s * 1.01)["measured"]["inside"]
    assert basis(answer)["measured"] is None


def test_a_link_hides_experts_or_does_not(small):
    found = offloading(small, "experts", ["1 TB/s", "1 GB/s"])
    fast, slow = found.links
    assert all(chunk.exposed_s == 0 for chunk in fast.chunks)
    assert fast.added_s == pytest.approx(0, abs=1e-12)
    assert all(chunk.exposed_s == pytest.approx(chunk.copying_s - chunk.computing_s) for chunk in slow.chunks)
    assert slow.added_s > 0
    assert fast.freed_bytes == pytest.approx(slow.freed_bytes)
    assert fast.break_even_tokens
    assert slow.break_even_tokens == pytest.approx(1000 * fast.break_even_tokens)
    copied = 8 / 4 * 32 / 8 * 3 * 2048 * 768 * 2  # layers of a stage x experts of a rank x three matrices in BF16
    assert {chunk.copied_bytes for chunk in fast.chunks} == {copied}
    efficiency = small.machine.gpu.kernels.pcie_efficiency
    assert slow.chunks[0].copying_s == pytest.approx(copied / (1e9 * float(efficiency)))


def test_weights_of_experts_leave_the_gpu_for_the_host(small):
    away = moesim.estimate(small.with_changes({"expert_offload": 1, "optimizer_offload": 0}))
    kept = moesim.estimate(small)
    moved = 8 / 4 * 32 / 8 * 3 * 2048 * 768 * 2
    before, after = (answer.memory.stages[0]["weights_bytes"] for answer in (kept, away))
    assert before - after == pytest.approx(moved)
    assert away.memory.host_bytes_per_node == pytest.approx(8 * moved)


@pytest.mark.parametrize(
    ("what", "links", "message"),
    [
        ("expert", (), "'expert' cannot be offloaded"),
        ("experts", ("fast",), "--h2d"),
        ("experts", ("0 GB/s",), "--h2d"),
    ],
)
def test_bad_offloads(small, what, links, message):
    with pytest.raises(SpecError, match=message):
        offloading(small, what, links)


def test_experts_of_a_dense_model_cannot_be_offloaded():
    with pytest.raises(SpecError, match="expert-offload-model"):
        offloading(from_names("llama3-8b", "hgx-h100:1"))
    assert math.isfinite(offloading(from_names("llama3-8b", "hgx-h100:1"), "optimizer").links[0].optimizer_s)


def test_experts_of_4_bits_cannot_be_offloaded(small):
    broken = small.check(small.strategy.replace(expert_offload=1.0, adapter="qlora:16"))
    assert "expert-offload-adapter" in {one.violation.rule for one in broken}
    broken = small.check(small.strategy.replace(expert_offload=1.0, adapter="lora:16"))
    assert "expert-offload-adapter" not in {one.violation.rule for one in broken}


def test_the_update_on_the_host_is_apart_from_its_copies(small):
    slow, fast = (one.update for one in offloading(small, "optimizer", ["1 GB/s", "100 TB/s"]).links)
    assert slow.computing_s == fast.computing_s > 0
    assert slow.copied_bytes == fast.copied_bytes > 0
    assert slow.copying_s == pytest.approx(1e5 * fast.copying_s)
    assert 0 < slow.exposed_s <= slow.copying_s
    assert fast.exposed_s < 1e-3 * fast.computing_s
    plain = offloading(small, "optimizer", ["1 GB/s"]).links[0].to_dict()
    assert not plain["hidden"]
    assert plain["optimizer_s"] == pytest.approx(slow.computing_s + slow.exposed_s)
    assert plain["update"]["copied_bytes"] == slow.copied_bytes
