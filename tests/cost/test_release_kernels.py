"""What a release of a software does to kernels and messages: its libraries, its copies, its gathers."""

from dataclasses import replace

import pytest

import moesim
from moesim.cost.attention import attention_time
from moesim.cost.blocks import price_blocks
from moesim.cost.exchanges import behind
from moesim.spec import library
from moesim.studies.step_factors import at_factors
from moesim.workload.ops import AttentionCore


def problem(software, **changes):
    found = moesim.from_names("llama3-8b", "hgx-h100:2", software)
    return found.with_changes({"global_batch": 64, "micro_batch": 1, "sequence_length": 4096} | changes)


def seconds(found, ending, part="forward"):
    """Time of the operations of a layer whose names end so."""
    blocks = price_blocks(found.plan())
    layer = next(block for name, block in blocks.items() if not isinstance(name, str))
    return sum(float(one.seconds) for one in getattr(layer, part) if one.op.name.endswith(ending))


def changed(found, **runtime):
    return replace(found, machine=replace(found.machine, runtime=replace(found.machine.runtime, **runtime)))


def test_the_first_library_multiplies_16_bit_matrices_slower_and_no_others():
    early, late = (at_factors(problem(name), {}).machine.gpu.rates for name in ("llm-foundry", "torchtitan"))
    share = library.get("gpus", "h100-sxm-80gb").kernels.gemm_first_library.value
    assert early["bf16"] == pytest.approx(share * late["bf16"])
    assert early["fp8"] == pytest.approx(late["fp8"], rel=1e-12)


def test_attention_by_generation():
    gpu = problem("torchtitan").machine.gpu
    core = AttentionCore(1, 32, 32, 8192, 4096, 128, 128)
    first, second, latest = (
        attention_time(replace(core, kernel=kernel), gpu) for kernel in ("flash1", "flash2", "fused")
    )
    assert first > second > latest > attention_time(replace(core, kernel="latest"), gpu)
    assert (first - gpu.kernels.attention_fixed) * gpu.kernels.attention_flash1 == pytest.approx(
        latest - gpu.kernels.attention_fixed
    )


@pytest.mark.parametrize(
    ("software", "cluster", "kernel"),
    [
        ("torchtitan", "hgx-h100:2", "flash2"),
        ("torchtitan", "hgx-b200:2", "latest"),
        ("torchtitan", "hgx-b300:2", "latest"),
        ("torchtitan-2024", "hgx-h100:2", "flash2"),
        ("deepspeed", "hgx-h200:2", "latest"),
        ("deepspeed-2021", "dgx-a100:2", "unfused"),
        ("megatron-bridge", "hgx-b200:2", "latest"),
        ("megatron-bridge-2025", "hgx-b200:2", "fused"),
        ("megatron-core", "hgx-h100:2", "fused"),
    ],
)
def test_attention_is_what_the_release_has_for_the_gpu(software, cluster, kernel):
    assert moesim.from_names("llama3-8b", cluster, software).machine.runtime.fusion.attention == kernel


@pytest.mark.parametrize("backward", [False, True])
def test_latent_and_fp8_attention_of_2026(backward):
    gpu = moesim.from_names("llama3-8b", "hgx-b200:1", "megatron-bridge").machine.gpu
    kernels = gpu.kernels
    wide, latent = (AttentionCore(1, 32, 32, 8192, 4096, width, 128, backward) for width in (128, 192))

    def rate(core, kernel):
        """Of a kernel over that of the calibrated one; both are bound by their products."""
        times = (float(attention_time(replace(core, kernel=name), gpu)) for name in ("fused", kernel))
        plain, other = (time - float(kernels.attention_fixed) for time in times)
        return plain / other

    gain = kernels.attention_fp8_backward_speedup if backward else kernels.attention_fp8_speedup
    assert rate(wide, "latest") == pytest.approx(kernels.attention_latest)
    assert rate(latent, "latest") == pytest.approx(kernels.attention_latest_latent)
    assert gain is not None
    assert rate(wide, "fp8") == pytest.approx(float(kernels.attention_latest) * float(gain))


def test_gathers_along_the_sequence_are_copied_unless_they_overlap():
    plain = problem("torchtitan", tp=8)
    silent = changed(plain, sequence_copies=False)
    assert seconds(plain, "enter") > 1.2 * seconds(silent, "enter")
    overlapped = plain.with_changes({"overlap_tp": True})
    assert seconds(overlapped, "enter") == seconds(changed(overlapped, sequence_copies=False), "enter")


@pytest.mark.parametrize("nodes", [2, 4])
def test_shards_that_are_copied_one_by_one_cost_by_the_rank(nodes):
    plain = problem("deepspeed", **{"cluster.count": nodes})
    copied = changed(plain, shard_copies=3e-5)
    assert seconds(copied, "weights-dense") - seconds(plain, "weights-dense") == pytest.approx(nodes * 8 * 3e-5)


def test_gathers_that_block_are_exposed():
    plain = problem("deepspeed")
    blocked = moesim.estimate(changed(plain, blocking_gathers=True))
    free = moesim.estimate(plain)
    assert blocked.exposed_s["dp"] > free.exposed_s["dp"] + 0.01
    assert blocked.step_time_s > free.step_time_s


def test_collectives_take_sms_from_the_kernels_beside_them():
    plain = problem("torchtitan")
    links = plain.machine.links
    alone = replace(plain, machine=replace(plain.machine, links=replace(links, collective_sms=0.0)))
    with_, without = (moesim.evaluate(one, [one.strategy]).step_time_s[0] for one in (plain, alone))
    share = float(plain.plan().gather_share("BW"))
    assert without < with_ < (1 + share) * without
    engines = replace(links, nccl=replace(links.nccl, copy_engine=True))
    copied = replace(plain, machine=replace(plain.machine, links=engines)).plan()
    assert copied.gather_share("F") == 0
    assert copied.gather_share("BW") == pytest.approx(share / 2)


def test_gathers_across_nodes_take_as_many_sms_as_they_have_channels():
    inside, across = (
        moesim.from_names("llama3-8b", f"hgx-h100:{nodes}", "torchtitan").plan().gather_share("F") for nodes in (1, 4)
    )
    assert inside == pytest.approx(24 / 132)
    assert across == pytest.approx(16 / 132)


def test_what_hides_behind_a_chunk_slows_it_by_its_share():
    assert behind(10.0, 100.0, 10.0, 0.0) == 1.0
    assert behind(10.0, 100.0, 10.0, 0.2) == pytest.approx(1 + 0.2 * 9)
