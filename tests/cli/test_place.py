"""``moesim place``: orders of the axes."""

import pytest


def test_place(moesim):
    answer = moesim("place", "qwen3-235b-h100x256", "--set", "ep=8", "--top", 3, "--json").json
    assert answer["best"]["expert_order"] == "ep-edp-pp"
    assert answer["usual"]["attention_order"] == "tp-dp-pp"
    assert answer["saved_s"] == pytest.approx(answer["usual"]["total_s"] - answer["best"]["total_s"])
    assert len(answer["ranked"]) == 3 < answer["orders"]
    totals = [row["total_s"] for row in answer["ranked"]]
    assert totals == sorted(totals)


def test_as_people_read_it(moesim):
    shown = moesim("place", "qwen3-235b-h100x256")
    assert shown.code == 0
    for words in ("rail-ndr400", "tp-dp-pp", "ep-pp", "no order is cheaper"):
        assert words in " ".join(shown.out.split())


def test_the_usual_order_is_shown_though_it_is_not_among_the_best(moesim):
    """On a torus, experts strided over whole nodes beat sixteen neighbours on two of them."""
    arguments = ["place", "qwen3-235b-h100x256", "--set", "cluster.fabric=torus3d", "--set", "ep=16", "--set", "tp=4"]
    answer = moesim(*arguments, "--top", 1, "--json").json
    assert answer["best"]["expert_order"] == "edp-ep-pp"
    assert answer["best"]["total_s"] < answer["usual"]["total_s"]
    shown = " ".join(moesim(*arguments, "--top", 1).out.split())
    assert "ep-edp-pp" in shown
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
