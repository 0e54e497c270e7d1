"""Where layers go: the rules, lists, and the layout strings of Megatron-Core."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moesim.base.errors import Violation
from moesim.workload.stages import expand_layout, place_layers

COUNT = "count-embedding-and-loss"


def counts(num_layers, num_stages, layout):
    stages = place_layers(num_layers, num_stages, layout)
    assert not isinstance(stages, Violation), stages
    assert stages[0].embedding
    assert stages[-1].loss
    assert not any(stage.embedding for stage in stages[1:])
    assert not any(stage.loss for stage in stages[:-1])
    assert [index for stage in stages for index in stage.layers] == list(range(num_layers))
    return [stage.num_layers for stage in stages]


@pytest.mark.parametrize(
    ("num_layers", "num_stages", "expected"),
    [
        (94, 32, [2] + [3] * 30 + [2]),  # 94+2 over 8 x 4: no gap
        (94, 96, [0] + [1] * 94 + [0]),  # ... and over 32 x 3
        (62, 32, [1] + [2] * 30 + [1]),
        (61, 32, [1] + [2] * 30 + [0]),  # 61+2 over 16 x 2: 63 rounds up to 64, the gap is in the last stage
        (61, 16, [3] + [4] * 14 + [2]),
        (61, 63, [0] + [1] * 61 + [0]),
        (4, 2, [2, 2]),
        (5, 1, [5]),
    ],
)
def test_embedding_and_loss_count_as_one_layer_each(num_layers, num_stages, expected):
    assert counts(num_layers, num_stages, COUNT) == expected


@pytest.mark.parametrize(("num_layers", "num_stages"), [(61, 48), (61, 64), (8, 16), (94, 40)])
def test_what_the_rule_cannot_place_is_refused_with_the_numbers(num_layers, num_stages):
    refused = place_layers(num_layers, num_stages, COUNT)
    assert isinstance(refused, Violation)
    assert f"{num_layers} layers" in refused.message
    assert str(num_stages) in refused.message
    assert refused.legal


@given(st.integers(1, 200), st.integers(1, 64))
def test_the_rule_fills_all_stages_but_the_ends_alike(num_layers, num_stages):
    stages = place_layers(num_layers, num_stages, COUNT)
    if isinstance(stages, Violation):
        return
    units = [stage.num_layers + stage.embedding + stage.loss for stage in stages]
    assert sum(units) == num_layers + 2
    assert len(set(units[:-1])) <= 1
    assert all(unit >= units[-1] for unit in units)


def test_an_even_layout_must_divide():
    assert counts(94, 2, "even") == [47, 47]
    refused = place_layers(94, 32, "even")
    assert isinstance(refused, Violation)
    assert "94 layers do not divide over 32 stages" in refused.message
    assert COUNT in refused.legal


def test_layers_of_each_stage():
    assert counts(7, 3, (2, 3, 2)) == [2, 3, 2]
    assert counts(3, 3, (0, 3, 0)) == [0, 3, 0]


@pytest.mark.parametrize("layout", [(2, 3), (2, 2, 2), (3, 3, 3), (-1, 4, 4), (7,)])
def test_layers_that_do_not_add_up_are_refused(layout):
    refused = place_layers(7, 3, layout)
    assert isinstance(refused, Violation)
    assert "3 counts" in refused.legal
    assert "7" in refused.legal


@pytest.mark.parametrize(
    ("layout", "expanded"),
    [
        ("Et*3|(tt|)*14tL", "Ettt|" + "tt|" * 14 + "tL"),
        ("E|t*2|L", "E|tt|L"),
        ("Ettt|tt,L", "Ettt|ttL"),
        ("(t|)*3", "t|t|t|"),
        ("E|(t|(t)*2|)*2L", "E|t|tt|t|tt|L"),
        ("Et|*2L", "Et||L"),
        ("t*10", "t" * 10),
    ],
)
def test_repetitions_of_a_layout_string(layout, expanded):
    assert expand_layout(layout) == expanded


@pytest.mark.parametrize(
    ("num_layers", "num_stages", "layout", "expected"),
    [
        (32, 16, "Et*3|(tt|)*14tL", [3] + [2] * 14 + [1]),
        (61, 16, "Et*3|(tttt|)*14t*2L", [3] + [4] * 14 + [2]),
        (94, 32, "Ett|(ttt|)*30ttL", [2] + [3] * 30 + [2]),
        (4, 4, "E|tt|tt|L", [0, 2, 2, 0]),
    ],
)
def test_a_megatron_layout_string(num_layers, num_stages, layout, expected):
    assert counts(num_layers, num_stages, layout) == expected


@pytest.mark.parametrize(
    ("layout", "says"),
    [
        ("Et*3|(tt|)*13tL", "has 15 chunks, 30 layers and 0 MTP modules"),
        ("Et*4|(tt|)*14tL", "has 16 chunks, 33 layers and 0 MTP modules"),
        ("t*3|(tt|)*14tL", "32 layers"),
        ("Et*3|(tt|)*14t", "32 layers"),
        ("Et*3|(tt|)*14tLL", "32 layers"),
        ("Et*3|(tt|)*14tmL", "MTP"),
        ("Et*3|(xx|)*14tL", "unknown symbols x"),
        ("evne", "unknown symbols"),
        ("E|t*3|(tt|)*13tL", "has 16 chunks"),
    ],
)
def test_a_string_that_does_not_fit_is_refused(layout, says):
    refused = place_layers(32, 16, layout)
    assert isinstance(refused, Violation)
    assert says in refused.message
    assert "16 chunks" in refused.legal


@pytest.mark.parametrize(
    ("num_stages", "layout", "expected", "modules"),
    [
        (16, COUNT, [3] + [4] * 14 + [2], {15: 1}),  # 61 + 3 over 16 x 4: no gap
        (32, COUNT, [1] + [2] * 30 + [0], {31: 1}),
        (1, "even", [61], {0: 1}),
        (16, "Et*3|(tttt|)*14t*2mL", [3] + [4] * 14 + [2], {15: 1}),
        (16, "Et*3|(tttt|)*13tttt|t*2|mL", None, {}),  # a chunk too many
        (17, "Et*3|(tttt|)*14t*2|mL", [3] + [4] * 14 + [2, 0], {16: 1}),
        (16, "Et*3|(tttt|)*14t*2L", None, {}),  # where is the module?
    ],
)
def test_a_module_for_the_second_next_token_counts_as_a_layer(num_stages, layout, expected, modules):
    stages = place_layers(61, num_stages, layout, mtp=1)
    if expected is None:
        assert isinstance(stages, Violation)
        assert "m behind them" in stages.legal or "chunks" in stages.message
        return
    assert not isinstance(stages, Violation), stages
    assert [stage.num_layers for stage in stages] == expected
    assert {index: stage.mtp for index, stage in enumerate(stages) if stage.mtp} == modules


@given(st.integers(1, 200), st.integers(1, 64))
def test_the_first_stages_take_the_remainder(num_layers, num_stages):
    found = [stage.num_layers for stage in place_layers(num_layers, num_stages, "first-stages-larger")]
    assert sum(found) == num_layers
    assert found == sorted(found, reverse=True)
    assert found[0] - found[-1] <= 1
