"""``--plot``: the verbs that draw, and what they refuse."""

import re

import pytest

DRAWN = {
    "explain": (["explain", "{}"], "peak memory [GiB]"),
    "compare": (["compare", "{}", "--vary", "ep=16,48"], "time of a step [s]"),
    "scale": (["scale", "{}", "--nodes", "32,64"], "tokens/s of the whole job"),
    "sensitivity": (["sensitivity", "{}", "--top", "4"], "at both ends of the 90 % interval"),
    "schedule": (["schedule", "{}", "--schedule", "interleaved-1f1b"], "time ["),
}


def arguments(verb, scenario):
    return [word.format(scenario) for word in DRAWN[verb][0]]


@pytest.mark.parametrize("verb", DRAWN)
def test_a_picture_is_drawn_and_the_answer_stays(moesim, scenario, verb):
    without = moesim(*arguments(verb, scenario), "--json").json
    assert moesim(*arguments(verb, scenario), "--json", "--plot", "a.svg").json == without
    words = re.sub(r"<[^>]+>", " ", scenario.with_name("a.svg").read_text())
    assert DRAWN[verb][1] in words


@pytest.mark.parametrize("verb", DRAWN)
@pytest.mark.parametrize(("name", "words"), [("a.gif", "a.gif"), ("none/a.svg", "there is no folder 'none'")])
def test_what_cannot_be_drawn_is_refused(moesim, scenario, verb, name, words):
    (line,) = moesim(*arguments(verb, scenario), "--plot", name).lines
    assert line.startswith("--plot")
    assert words in line
