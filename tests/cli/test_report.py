"""``moesim report``."""

import pytest


def test_a_page_is_written(moesim, scenario):
    done = moesim("report", scenario, "--set", "ep=16", "-o", "r.html")
    assert (done.code, done.out, done.err) == (0, "", "")
    page = scenario.with_name("r.html").read_text()
    assert page.startswith("<!doctype html>")
    assert "moesim report s.yaml --set ep=16 -o r.html" in page


def test_the_same_question_is_the_same_file(moesim, scenario):
    for _ in range(2):
        moesim("report", scenario, "-o", "r.html")
        page = scenario.with_name("r.html").read_bytes()
        scenario.with_name("r.html").rename("before.html")
    assert scenario.with_name("before.html").read_bytes() == page


def test_data_and_page_together(moesim, scenario):
    plain = moesim("report", scenario, "--measured", "20 s", "--json", "-o", "r.html").json
    assert plain["estimate"]["measured"]["step_time_s"] == 20
    assert scenario.with_name("r.html").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "where to write the page is missing"),
        (("--json",), "where to write the page is missing; write for example -o report.html; the numbers alone are"),
        (("-o", "r.pdf"), "'r.pdf' is no page"),
        (("-o", "none/r.html"), "there is no folder 'none'"),
        (("-o", "r.html", "--measured", "0 s"), "--measured"),
        (("-o", "r.html", "--measured", "20"), "--measured"),
        (("-o", "r.html", "--set", "ep=48"), "expert"),
    ],
)
def test_bad_input_is_refused(moesim, scenario, arguments, words):
    lines = moesim("report", scenario, *arguments).lines
    assert words in lines[0]
    assert not scenario.with_name("r.html").exists()
