"""``moesim matrix``: signs, sizes, evidence, files, refusals."""

import csv
import io
import re

import pytest

SCENARIO = "qwen3-235b-h100x256"
FEW = ("--methods", "ep,recompute", "--bottlenecks", "dispatch-traffic,saved-activations,permutations")


def test_a_scenario_of_ones_own(moesim):
    found = moesim("matrix", "--scenario", SCENARIO, *FEW, "--json").json
    assert found["scenario"] == SCENARIO
    assert found["agreement"] is None
    signs = {(cell["method"], cell["bottleneck"]): cell["sign"] for cell in found["cells"]}
    assert signs["ep", "dispatch-traffic"] == "-"
    assert signs["ep", "saved-activations"] == ""
    assert signs["recompute", "saved-activations"] == "+"


def test_the_table_names_signs_and_rows(moesim):
    shown = moesim("matrix", "--scenario", SCENARIO, *FEW)
    assert (shown.code, shown.err) == (0, "")
    for words in ("dispatch-traffic", "Gen. EP", "Recomp", "+ reduces, - adds", "△", "integration complexity *"):
        assert words in shown.out


def test_sizes_stand_in_place_of_signs(moesim):
    out = moesim("matrix", "--scenario", SCENARIO, *FEW, "--size").out
    row = next(line for line in out.splitlines() if "saved-activations" in line)
    assert re.search(r"x0\.\d+", row)
    assert re.search(r"\+[\d.]+ [kMGT]?i?B", next(line for line in out.splitlines() if "dispatch-traffic" in line))


def test_the_evidence_of_a_cell_names_sources_scenarios_and_terms(moesim):
    shown = moesim("matrix", "--scenario", SCENARIO, "--cell", "ep,dispatch-traffic").out
    for words in (
        "Gen. EP and Expert dispatch/combine traffic: -",
        "olmo-core-report",
        SCENARIO,
        "all experts on every rank",
    ):
        assert words in shown
    found = moesim("matrix", "--scenario", SCENARIO, "--cell", "ep,dispatch-traffic", "--json").json
    (cell,) = found["cells"]
    sample = cell["against"][0]["ways"][0]["samples"][0]
    assert sample["with"][0] == pytest.approx(sum(one[0] for one in sample["terms_with"].values()))
    assert sample["without"] == [0.0]


def test_a_cell_is_derived_from_the_ensemble_where_no_scenario_is_given(moesim):
    found = moesim("matrix", "--cell", "1f1b-v,retention-imbalance", "--json").json
    assert found["scenarios"] > 50
    assert found["cells"][0]["sign"] == "+"
    assert found["agreement"]["cells"] == 1


def test_csv_is_written_as_the_published_file_is(moesim, tmp_path):
    path = tmp_path / "m.csv"
    assert moesim("matrix", "--scenario", SCENARIO, *FEW, "-o", path).code == 0
    table = list(csv.reader(io.StringIO(path.read_text())))
    assert table[0] == ["bottleneck", "Gen. EP", "Recomp"]
    assert [row[0] for row in table[1:]][-1] == "Integration complexity"
    assert {cell for row in table[1:] for cell in row[1:]} <= {"+", "-", "△", ""}


def test_the_page_has_a_section_for_every_cell_that_its_links_open(moesim, tmp_path):
    path = tmp_path / "m.html"
    assert moesim("matrix", "--scenario", SCENARIO, *FEW, "-o", path).code == 0
    text = path.read_text()
    links, sections = re.findall(r'href="#([^"]+)"', text), re.findall(r'<section id="([^"]+)"', text)
    back = [link for link in links if link == "matrix"]
    assert sorted(link for link in links if link != "matrix") == sorted(sections)
    assert len(sections) == len(back) == 6
    assert 'id="matrix"' in text
    assert "judged, not derived" in text


def test_the_figure_shows_every_title(moesim, tmp_path):
    path = tmp_path / "m.svg"
    assert moesim("matrix", "--scenario", SCENARIO, *FEW, "-o", path).code == 0
    text = path.read_text()
    for words in ("Gen. EP", "Recomp", "Saved activation memory", "Integration complexity", "reduces the bottleneck"):
        assert words in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--methods", "mxpf8"), "--methods: no method 'mxpf8'; did you mean 'mxfp8'?"),
        (("--bottlenecks", "bufers"), "--bottlenecks: no bottleneck 'bufers'; did you mean 'buffers'?"),
        (("--cell", "ep"), "--cell: 'ep' is not METHOD,BOTTLENECK"),
        (("--cell", "ep,bufers"), "--cell: no bottleneck 'bufers'; did you mean 'buffers'?"),
        (("--cell", "ep,buffers", "--methods", "ep"), "--cell: names one method and one bottleneck"),
        (("--methods", ","), "--methods: names no method"),
        (("--set", "ep=8"), "--set: changes a scenario; give --scenario"),
        (("-o", "matrix.docx"), "--out: no answer of the kind '.docx'"),
        (("--scenario", "no-such"), "no-such"),
        (("--scenario", SCENARIO, "--set", "ep=48"), "48"),
    ],
)
def test_bad_input_is_refused_in_a_line(moesim, arguments, words):
    lines = moesim("matrix", *arguments).lines
    assert any(words in line for line in lines), lines


def test_two_unknown_names_are_two_lines(moesim):
    assert len(moesim("matrix", "--methods", "mxpf8", "--bottlenecks", "bufers").lines) == 2
