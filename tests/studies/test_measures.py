"""What people measure of a run is one step, whatever they print of it."""

import pytest

import moesim
from moesim.base.errors import SpecError
from moesim.studies.measures import CONVENTION_WORDS, measured_step, utilisations
from moesim.workload.model import FLOPS_CONVENTIONS


@pytest.fixture(scope="module")
def answer(qwen):
    return moesim.estimate(qwen)


@pytest.fixture(scope="module")
def printed(answer):
    """The estimate as others would print it."""
    tokens = answer.tokens_per_s_per_gpu
    return {
        "time": f"{answer.step_time_s} s",
        "tokens": f"{tokens} tok/s",
        "tokens of a GPU": f"{tokens:.3f} tokens/s/GPU",
        "tokens of all": f"{tokens * 256 / 1e3:.6f}k tok/s total",
        "rate": f"{answer.tflop_per_s_per_gpu} TFLOP/s",
        "rate of a GPU": f"{answer.tflop_per_s_per_gpu} TFLOP/s per GPU",
        "mfu": f"{100 * answer.mfu} %",
        "mfu with its name": f"{100 * answer.mfu:.5f}% MFU",
    }


@pytest.mark.parametrize(
    "kind",
    ["time", "tokens", "tokens of a GPU", "tokens of all", "rate", "rate of a GPU", "mfu", "mfu with its name"],
)
def test_all_ways_to_print_a_step_are_the_same_step(qwen, answer, printed, kind):
    assert measured_step(printed[kind], qwen) == pytest.approx(answer.step_time_s, rel=1e-5)


def test_a_convention_that_counts_more_makes_the_step_longer(qwen, answer):
    """The same TFLOP/s is a longer step where all keys were counted."""
    causal, full = (measured_step("250 TFLOP/s", qwen, name) for name in ("causal", "full"))
    assert full > causal
    assert full / causal == pytest.approx(
        qwen.model.flop_per_token(4096, "full") / answer.model_flop_per_token, rel=1e-9
    )


def test_every_convention_is_told(qwen, answer):
    assert set(CONVENTION_WORDS) == set(FLOPS_CONVENTIONS)
    found = {one.convention: one for one in utilisations(qwen, answer, 2 * answer.step_time_s)}
    assert found["causal"].predicted_mfu == pytest.approx(answer.mfu)
    for one in found.values():
        assert one.measured_mfu == pytest.approx(one.predicted_mfu / 2)
        assert one.predicted_flop_rate == pytest.approx(one.predicted_mfu * 989.4e12, rel=1e-3)
    assert found["full"].predicted_mfu > found["causal"].predicted_mfu


@pytest.mark.parametrize(
    ("text", "convention", "line"),
    [
        ("24", "causal", "--measured: '24' has no unit"),
        ("0s", "causal", "--measured: '0s' is no duration"),
        ("0 tok/s", "causal", "--measured: '0 tok/s' is no duration"),
        ("120%", "causal", "--measured: an MFU of '120%' is not below 100 %"),
        ("1.2.3 tok/s", "causal", "--measured: '1.2.3 tok/s' is no number"),
        ("fast", "causal", "--measured: 'fast' "),
        ("10%", "casual", "--convention: no convention of FLOPs 'casual'; did you mean 'causal'?"),
    ],
)
def test_bad_input(qwen, answer, text, convention, line):
    with pytest.raises(SpecError) as error:
        measured_step(text, qwen, convention)
    assert str(error.value).startswith(line)
