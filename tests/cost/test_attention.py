"""Time of the attention core: limits, causality, backward, scalar and array."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moesim.cost.attention import attention_time
from moesim.workload.ops import AttentionCore


def core(length, batch=1, heads=32, kv_heads=4, causal=True, backward=False):
    columns = length / 2 if causal else length
    return AttentionCore(batch, heads, kv_heads, length, columns, 128, 128, backward)


def no_power_limit(gpu):
    return replace(gpu, kernels=replace(gpu.kernels, attention_power_slope=0.0))


def test_a_long_sequence_runs_at_the_efficiency_less_the_softmax(gpu):
    work, kernels = core(131_072), gpu.kernels
    ceiling = gpu.rates["bf16"] * kernels.attention_efficiency * 256 / (256 + kernels.attention_softmax)
    assert 0.95 * ceiling < work.flop / attention_time(work, no_power_limit(gpu)) < ceiling


def test_narrow_heads_are_slow_because_the_softmax_is_the_same(gpu):
    rates = []
    for head_dim in (64, 128):
        work = AttentionCore(1, 32, 4, 65_536, 32_768, head_dim, head_dim)
        rates.append(work.flop / attention_time(work, no_power_limit(gpu)))
    expected = (128 / (128 + gpu.kernels.attention_softmax)) / (256 / (256 + gpu.kernels.attention_softmax))
    assert rates[0] / rates[1] == pytest.approx(expected, rel=0.01)


def test_the_causal_mask_nearly_halves_a_long_sequence(gpu):
    full, causal = (attention_time(core(65_536, causal=flag), gpu) for flag in (False, True))
    assert 1.9 < full / causal < 2.1


def test_a_short_sequence_takes_the_fixed_time_and_a_tile(gpu):
    assert gpu.kernels.attention_fixed < attention_time(core(1, heads=1), gpu) < 2 * gpu.kernels.attention_fixed


def test_time_grows_with_the_square_of_a_long_sequence(gpu):
    assert attention_time(core(131_072), gpu) / attention_time(core(65_536), gpu) == pytest.approx(4, rel=0.05)


def test_the_backward_repeats_a_product_at_a_lower_rate(gpu):
    kernels = gpu.kernels
    forward, backward = (attention_time(core(65_536, backward=flag), gpu) for flag in (False, True))
    ratio = (backward - kernels.attention_fixed) / (forward - kernels.attention_fixed)
    assert ratio == pytest.approx(2.5 / kernels.attention_backward_rate, rel=1e-12)
    assert core(4096, backward=True).flop == 2 * core(4096).flop  # model FLOPs leave the repeated product out


def test_few_heads_wait_for_the_longest_tile(gpu):
    one, many = (attention_time(core(8192, heads=heads), gpu) - gpu.kernels.attention_fixed for heads in (1, 64))
    assert many < 0.8 * 64 * one


def test_a_window_costs_its_columns_and_not_the_sequence(gpu):
    wide = core(65_536)
    window = AttentionCore(1, 32, 4, 65_536, 512, 128, 128)
    added = gpu.kernels.attention_diagonal + gpu.kernels.attention_prologue
    fixed = gpu.kernels.attention_fixed
    ratio = (attention_time(wide, gpu) - fixed) / (attention_time(window, gpu) - fixed)
    assert ratio == pytest.approx((32_768 + added) / (512 + added), rel=0.25)  # the power limit slows the long one


def test_half_of_the_queries_of_a_ring_take_half_the_time(gpu):
    whole = core(65_536)
    half = AttentionCore(1, 32, 4, 32_768, 32_768, 128, 128)
    fixed = gpu.kernels.attention_fixed
    assert half.flop == whole.flop / 2
    assert attention_time(half, gpu) - fixed == pytest.approx((attention_time(whole, gpu) - fixed) / 2, rel=0.05)


def test_wide_query_heads_of_latent_attention_cost_their_width(gpu):
    latent = AttentionCore(1, 32, 32, 65_536, 32_768, 192, 128)
    assert latent.flop == core(65_536).flop * (192 + 128) / 256
    assert attention_time(latent, gpu) > attention_time(core(65_536), gpu)


def test_grouped_keys_are_read_once_for_their_queries(gpu):
    assert core(4096, kv_heads=32).hbm_bytes == pytest.approx(core(4096, kv_heads=4).hbm_bytes * 64 / 36)


@given(length=st.integers(1, 40_000), heads=st.integers(1, 64), backward=st.booleans(), factor=st.floats(1, 10))
@settings(max_examples=60, deadline=None)
@pytest.mark.parametrize("name", ["rates", "memory_bandwidth"])
def test_a_faster_gpu_is_never_slower(gpu, faster, name, length, heads, backward, factor):
    work = core(length, heads=heads, backward=backward)
    assert attention_time(work, faster(**{name: factor})) <= attention_time(work, gpu) * (1 + 1e-12)
    assert attention_time(work, gpu) >= work.flop / gpu.rates["bf16"]


def test_the_scalar_time_is_the_entry_of_the_array(gpu):
    lengths = np.array([1.0, 128.0, 500.0, 4096.0, 16_384.0])
    together = attention_time(core(lengths, heads=np.array([1.0, 32.0, 7.0, 64.0, 2.0])), gpu)
    heads = (1, 32, 7, 64, 2)
    alone = [attention_time(core(*pair[:1], heads=pair[1]), gpu) for pair in zip(lengths, heads, strict=True)]
    assert together == pytest.approx(alone, rel=1e-13)
