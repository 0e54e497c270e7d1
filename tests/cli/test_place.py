"""``moesim place``: orders of the axes."""

import pytest


def test_place(moesim):
    answer = moesim("place", "qwen3-235b-h100x256", "--set", "ep=8", "--top", 3, "--json").json
    assert answer["usual"]["expert_order"] == "ep-edp-pp"
    assert (
        0 <= answer["saved_s"] < 0.002 * answer["usual"]["step_time_s"]
    )  # experts inside a node are as good as the best
    assert answer["usual"]["attention_order"] == "tp-dp-pp"
    assert answer["saved_s"] == pytest.approx(answer["usual"]["step_time_s"] - answer["best"]["step_time_s"])
    assert len(answer["ranked"]) == 3 < answer["orders"]
    steps = [row["step_time_s"] for row in answer["ranked"]]
    assert steps == sorted(steps)


def test_as_people_read_it(moesim):
    shown = moesim("place", "qwen3-235b-h100x256", "--measured", "19.7s")
    assert shown.code == 0
    for words in ("rail-ndr400", "tp-dp-pp", "ep-pp", "none is faster", "measured 19.7 s"):
        assert words in " ".join(shown.out.split())


def test_the_usual_order_is_shown_though_it_is_not_among_the_best(moesim):
    """Where the host hides messages of tensor parallelism, the order of its ranks costs next to nothing."""
    changes = ["cp=4", "ep=16"]
    arguments = ["place", "qwen3-235b-h100x256", *(word for change in changes for word in ("--set", change))]
    answer = moesim(*arguments, "--top", 1, "--json").json
    assert answer["best"]["attention_order"] != "tp-cp-dp-pp" == answer["usual"]["attention_order"]
    assert answer["best"]["step_time_s"] < answer["usual"]["step_time_s"]
    shown = " ".join(moesim(*arguments, "--top", 1).out.split())
    assert "tp-cp-dp-pp" in shown
    assert "the best saves" in shown


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["qwen3-235b"], "no scenario 'qwen3-235b'"),
        (["qwen3-235b-h100x256", "--top", "0"], "Invalid value for '--top'"),
        (["qwen3-235b-h100x256", "--set", "ep=7"], "--set ep: "),
    ],
)
def test_bad_input(moesim, arguments, line):
    found = moesim("place", *arguments).lines
    assert found[0].startswith(line)
