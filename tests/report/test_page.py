"""The page of a scenario: what it says, and what a browser makes of it."""

import re
from html.parser import HTMLParser

import pytest

import moesim
from moesim.report.estimate import seconds
from moesim.report.page import html, report, used_sources, verdict, warnings


@pytest.fixture(scope="module")
def found(small):
    return report(small, "moesim report small.yaml -o small.html")


@pytest.fixture(scope="module")
def page(found):
    return html(found)


class Text(HTMLParser):
    """Words, tags and what they refer to."""

    def __init__(self):
        super().__init__()
        self.words, self.open, self.loads, self.ids, self.links = [], [], [], [], []

    def handle_starttag(self, tag, attributes):
        told = dict(attributes)
        if tag not in ("meta", "link", "i", "u", "path", "br"):
            self.open.append(tag)
        self.loads += [value for name, value in attributes if name in ("src", "srcset", "data", "poster")]
        self.loads += [told["href"]] if tag == "link" else []
        self.links += [told["href"]] if tag == "a" else []
        self.ids += [told["id"]] if "id" in told else []

    def handle_startendtag(self, tag, attributes):
        assert tag == "path"

    def handle_endtag(self, tag):
        if tag in ("i", "u"):
            return
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


@pytest.fixture(scope="module")
def read(page):
    parser = Text()
    parser.feed(page)
    return parser


def test_the_page_is_whole_and_loads_nothing(page, read):
    assert read.open == []
    assert read.loads == ["data:,"]
    assert "<script" not in page
    assert not re.search(r"@import|url\(", page)


def test_every_link_inside_has_an_end(read):
    inside = [link for link in read.links if link.startswith("#")]
    assert inside
    assert {link[1:] for link in inside} <= set(read.ids)


def test_it_says_what_the_estimate_says(found, read):
    answer, text = found.answer, " ".join("".join(read.words).split())
    assert seconds(answer.step_time_s) in text
    assert f"{answer.memory.peak_bytes / 2**30:.2f} GiB" in text
    assert answer.interval.holds in text
    for constant in answer.constants[:5]:
        assert constant.setting in text
    for key, source in used_sources(answer):
        assert key in text
        assert " ".join(source.title.split()) in text
    for value in (value for value in answer.breakdown_s.values() if value):
        assert seconds(value) in text
    assert "moesim report small.yaml -o small.html" in text
    assert moesim.__version__ in text


def test_names_of_a_scenario_are_text(small_file):
    odd = report(moesim.load(small_file).with_changes({"name": "a-b"}), "x <b>&</b>")
    assert "x &lt;b&gt;&amp;&lt;/b&gt;" in html(odd)


def test_what_does_not_fit_is_said_at_the_top(small):
    tight = report(small.with_changes({"gpu.memory_capacity": "2 GiB"}), "x")
    answer = tight.answer
    assert not answer.feasible
    assert "It does not fit: the fullest GPU lacks" in verdict(answer)
    assert warnings(answer)[0].startswith("does not fit: pipeline rank 0")
    assert "over" in html(tight)


def test_a_measured_step_stands_beside(small):
    beside = report(small, "x", measured_s=1.0)
    assert "Measured were 1 s: the estimate is" in verdict(beside.answer)


def test_numbers_by_hand_are_named(small):
    changed = report(small.with_changes({"gpu.memory_bandwidth": "5 TB/s"}), "x")
    assert any(line.startswith("set by hand") and "gpu.memory_bandwidth" in line for line in warnings(changed.answer))


def test_data_of_the_page(found):
    plain = found.to_dict()
    assert plain["estimate"]["step_time_s"] == found.answer.step_time_s
    assert next(iter(plain["resources"])) == found.answer.binding["resource"]
    assert set(plain["sources"]) == {key for key, _ in used_sources(found.answer)}


@pytest.mark.parametrize("dark", [False, True])
def test_a_browser_shows_it(page, look, dark):
    seen = look(page, dark)
    assert seen.taken == seen.wanted  # nothing wider than a phone, nothing wider than a desktop
    assert seen.resources == []
    assert seen.console == []
    assert min(seen.bars) > 0
    ((ink, paper), *_) = seen.colours
    assert (_light(ink) > _light(paper)) is dark


def _light(colour):
    return sum(int(part) for part in re.findall(r"\d+", colour)[:3])


def test_the_browser_would_see_what_is_wrong(look):
    picture = "http://127.0.0.1:9/a.svg"
    broken = f'<div style="width:2000px">wide</div><img src="{picture}"><script>console.error("no")</script>'
    seen = look(f"<!doctype html><body>{broken}</body>")
    assert all(taken > wanted for taken, wanted in zip(seen.taken, seen.wanted, strict=True))
    assert any(name.endswith("a.svg") for name in seen.resources)
    assert any("no" in line for line in seen.console)
