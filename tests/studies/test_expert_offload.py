"""Experts that come from the host: what hides, what does not."""

import pytest

from moesim.base.errors import SpecError
from moesim.problem import from_names
from moesim.studies.expert_offload import expert_offload


@pytest.fixture(scope="module")
def found(qwen):
    return expert_offload(qwen, [450e9, 176e9, 1e9]).links


def test_the_copy_is_that_of_the_experts_of_a_rank(qwen, found):
    """128 experts of three matrices of 4096 x 1536 in BF16 over 32 ranks."""
    num_bytes = 128 / 32 * 3 * 4096 * 1536 * 2
    assert [one.copy_s for one in found] == pytest.approx([num_bytes / rate for rate in (450e9, 176e9, 1e9)])


def test_the_rows_of_an_expert(found):
    """One sequence of 4,096 tokens on two ranks, 32 ranks exchange, 8 of 128 experts each."""
    assert {one.rows for one in found} == {4096 / 2 * 32 * 8 / 128}


def test_the_break_even_is_the_rate_of_the_products_over_the_link(qwen, found):
    """A row of an expert takes 2 FLOP for each weight, which comes in 2 B: rows = FLOP/s over B/s, whatever its size."""
    assert found[1].break_even_rows / found[0].break_even_rows == pytest.approx(450 / 176)
    reached = found[0].break_even_rows * 450e9
    assert 0.4 * qwen.machine.gpu.bf16_flop_rate < reached < qwen.machine.gpu.bf16_flop_rate


def test_a_slower_link_never_hides_more(found):
    exposed = [one.exposed_forward_s + one.exposed_backward_s for one in found]
    assert exposed == sorted(exposed)
    assert [one.hidden for one in found] == [True, True, False]
    assert found[0].added_s == 0
    slow = found[2]
    assert slow.exposed_forward_s == pytest.approx(slow.copy_s - slow.forward_s)
    assert slow.added_s > 0


def test_no_link_is_that_of_the_gpu(qwen):
    (own,) = expert_offload(qwen).links
    assert own.rate == pytest.approx(64e9 * 0.84)


def test_a_model_without_experts_is_refused():
    with pytest.raises(SpecError, match="--offload: llama3-8b has no experts"):
        expert_offload(from_names("llama3-8b", "hgx-h100:1"))
