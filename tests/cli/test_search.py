"""The search on the command line."""

import csv
import json
import re
from contextlib import contextmanager
from dataclasses import replace

import pandas as pd
import pytest

from moesim.studies.search.search import search

ARGUMENTS = ("--vary", "tp=1,2", "--vary", "ep=auto", "--vary", "recompute=none,[layernorm, moe_act]", "--top", "3")


def test_the_best_plans_as_json(moesim, small_file):
    answer = moesim("search", str(small_file), *ARGUMENTS, "--json").json
    assert answer["plans_total"] == 24
    assert answer["axes"]["ep"] == [1, 2, 4, 8, 16, 32]
    assert answer["axes"]["recompute"] == [[], ["layernorm", "moe_act"]]
    assert answer["plans_legal"] + sum(answer["refused"].values()) == answer["plans_total"]
    steps = [one["step_time_s"] for one in answer["top"]]
    assert steps == sorted(steps)
    assert len(steps) == 3
    best = answer["top"][0]
    assert best["low_s"] <= best["step_time_s"] <= best["high_s"]
    assert best["binding"]["resource"]
    told = moesim("estimate", str(small_file), "--json", *settings(best["varied"])).json
    assert told["step_time_s"] == pytest.approx(best["step_time_s"], rel=1e-9)
    assert told["memory"]["peak_bytes"] == pytest.approx(best["peak_bytes"], rel=1e-9)


def settings(varied):
    """The varied fields as options of an estimate."""
    for name, value in varied.items():
        yield "--set"
        yield f"{name}=[{', '.join(value)}]" if isinstance(value, list) else f"{name}={value}"


def test_a_table_and_a_file(moesim, small_file, tmp_path):
    shown = moesim("search", str(small_file), *ARGUMENTS).out
    assert "24 plans" in shown
    assert "slower by" in shown
    moesim("search", str(small_file), *ARGUMENTS, "-o", str(tmp_path / "best.csv"))
    with (tmp_path / "best.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3
    assert float(rows[0]["step_time_s"]) <= float(rows[1]["step_time_s"])


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (("--vary", "tpp=1"), "a search varies fields of the strategy"),
        (("--vary", "global_batch=128"), "a search varies fields of the strategy"),
        (("--vary", "schedule=1f1c"), "no pipeline schedule '1f1c'"),
        (("--vary", "tp=x"), "tp"),
        (("--objective", "money"), "no objective"),
        (("--pareto", "step,cost"), "'cost' is no objective"),
        (("--pareto", "step"), "is not several objectives"),
        (("--pareto", "step,memory", "--top", "3"), "--top: does not go with --pareto"),
        (("--top", "0"), "--top"),
        (("-o", "best.xml"), "no answer of the kind"),
    ],
)
def test_bad_input_is_one_line(moesim, small_file, options, what):
    (line,) = moesim("search", str(small_file), *options).lines
    assert what in line


def test_the_fewest_nodes_on_which_a_job_fits(moesim, small_file):
    options = ("min-gpus", str(small_file), "--nodes", "8,1,2", "--vary", "tp=1,2", "--vary", "pp=1,2,4")
    heavy = ("--set", "cluster.node=hgx-h100", "--set", "model=qwen3-30b-a3b", "--set", "ep=8")
    answer = moesim(*options, *heavy, "--json").json
    tried = answer["tried"]
    assert [one["nodes"] for one in tried] == sorted(one["nodes"] for one in tried)
    assert all(not one["plans_fitting"] for one in tried[:-1])
    assert answer["nodes"] == tried[-1]["nodes"]
    assert tried[-1]["plans_fitting"] > 0
    shown = moesim(*options, *heavy, "--measured", "9s").out
    assert str(answer["nodes"]) in shown
    assert "measured 9 s" in shown


@pytest.mark.parametrize("verb", ["search", "pareto"])
def test_where_nothing_is_legal_each_rule_says_so(moesim, verb):
    lines = moesim(verb, "zoo-002", "--vary", "ep=7", "--vary", "schedule=auto", "--vary", "pp=4,5").lines
    counts = [re.search(r" \((\d+) of (\d+) plans refused by it first\)", line).groups() for line in lines]
    (total,) = {of for _, of in counts}
    assert sum(int(count) for count, _ in counts) == int(total)
    starts = [line.partition(":")[0] for line in lines]
    assert starts.count("--vary schedule") == len(lines) - 2
    (ranks,) = (line for line in lines if "[pipeline-ranks]" in line)
    assert ranks.startswith("--vary pp: pp = 5 does not divide 256 GPUs")
    assert "; legal: pp in 1, 2, 4," in ranks


FEWEST = ("min-gpus", "--model", "qwen3-235b-a22b", "--cluster", "hgx-h100:8", "--vary", "ep=8")


def test_the_fewest_nodes_where_nothing_is_legal(moesim):
    first, second = moesim(*FEWEST, "--nodes", "3,5", "--vary", "pp=2").lines
    assert first.startswith("--nodes 3: --vary ep: ")
    assert "[expert-ranks] (1 of 1 plans refused by it first); legal: ep in 1, 2, 3, 4, 6, 12" in first
    assert second.startswith("--nodes 5: --vary ep: ")


def test_what_the_closest_layout_lacks(moesim):
    options = (*FEWEST, "--nodes", "3,8", "--vary", "pp=2", "--vary", "recompute=none,full")
    none, close = moesim(*options, "--json").json["tried"]
    assert (none["plans_legal"], none["lacking_bytes"]) == (0, None)
    assert none["refused"] == {"expert-ranks": 2}
    assert "legal: ep in 1, 2, 3, 4, 6, 12" in none["refusals"][0]
    assert close["refusals"] == []
    peaks = [
        row["memory"]["peak_bytes"] - row["memory"]["capacity_bytes"]
        for row in moesim("estimate", *FEWEST[1:], "--vary", "pp=2", "--vary", "recompute=none,full", "--json").json
    ]
    assert close["lacking_bytes"] == pytest.approx(min(peaks), rel=1e-9)
    assert min(peaks) > 0
    shown = moesim(*options).out
    assert f"lacks {min(peaks) / 2**30:.2f} GiB with ep 8, pp 2" in shown
    assert "3 nodes: --vary ep: " in shown


LAYOUTS = ("--vary", "tp=1,2", "--vary", "ep=2,8", "--vary", "recompute=none,full")


def test_machines_by_tokens_per_dollar(moesim, small_file, tmp_path):
    options = ("search", str(small_file), *LAYOUTS, "--vary", "cluster=hgx-h100:4,hgx-h200:8", "--top", "16")
    money = ("--objective", "tokens-per-dollar", "--price", "hgx-h100=2/h,hgx-h200=3.5/h")
    path = tmp_path / "best.csv"
    moesim(*options, *money, "-o", str(path))
    rows = pd.read_csv(path)
    assert set(rows["cluster"]) == {"hgx-h100:4", "hgx-h200:8"}
    assert list(rows["tokens_per_dollar"]) == sorted(rows["tokens_per_dollar"], reverse=True)
    hourly = rows["num_gpus"] * rows["cluster"].map({"hgx-h100:4": 2.0, "hgx-h200:8": 3.5})
    tokens = 128 * 2048
    assert list(rows["tokens_per_dollar"]) == pytest.approx(list(tokens / (rows["step_time_s"] * hourly / 3600)))
    assert "tokens/$" in moesim(*options, *money).out
    answer = moesim(*options, *money, "--json").json
    assert answer["objective"] == "tokens-per-dollar"
    assert answer["axes"]["cluster"] == ["hgx-h100:4", "hgx-h200:8"]
    first = answer["top"][0]
    told = moesim("estimate", str(small_file), "--json", *settings(first["varied"])).json
    assert told["step_time_s"] == pytest.approx(first["step_time_s"], rel=1e-9)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (("--objective", "tokens-per-dollar"), "needs the price of a GPU"),
        (("--price", "cheap"), "--price: 'cheap' is no price of a GPU for an hour"),
        (("--price", "0/h"), "is no price"),
        (("--price", "inf"), "is no price"),
        (("--price", "2/h,3/h"), "is no price"),
        (("--price", "hgx-h100=2/h,hgx-h100=3/h"), "is no price"),
        (("--price", "hgx-h200=2/h"), "has none for"),
        (("--workers", "0"), "--workers: 0 processes are none"),
        (("--workers", "2", "--scheduler", "tcp://x:1"), "does not go with --scheduler"),
        (("--scheduler", "foo"), "--scheduler: 'foo' is no address of a Dask scheduler; write for example"),
        (("--scheduler", "tcp://login1"), "--scheduler: 'tcp://login1' is no address of a Dask scheduler"),
        (("--scheduler", "tcp://login1:99999"), "--scheduler: 'tcp://login1:99999' is no address of a Dask scheduler"),
        (("--scheduler", "foo:bar:12"), "--scheduler: 'foo:bar:12' is no address of a Dask scheduler"),
        (("--checkpoint", "no/such/s.jsonl"), "--checkpoint: there is no folder"),
    ],
)
def test_how_to_search_is_checked(moesim, small_file, options, what):
    lines = moesim("search", str(small_file), "--vary", "tp=1,2", *options).lines
    assert any(what in line for line in lines)


def test_what_is_found_is_written_when_a_user_stops_it(moesim, small_file, tmp_path, monkeypatch):
    def stop(progress):
        if progress.best:
            raise KeyboardInterrupt

    @contextmanager
    def stopping():
        yield stop

    monkeypatch.setattr("moesim.report.search.shown_progress", stopping)
    options = ("search", str(small_file), *LAYOUTS, "--checkpoint", str(tmp_path / "s.jsonl"))
    assert moesim(*options, "-o", str(tmp_path / "best.json")).code == 130
    found = json.loads((tmp_path / "best.json").read_text())
    assert not found["complete"]
    assert 0 < found["plans_done"] <= found["plans_total"]


def test_what_a_stopped_search_has_not_looked_at(moesim, small_file, tmp_path, monkeypatch):
    def stop(_):
        raise KeyboardInterrupt

    @contextmanager
    def stopping():
        yield stop

    monkeypatch.setattr("moesim.report.search.shown_progress", stopping)
    options = ("search", str(small_file), *LAYOUTS, "--vary", "pp=3,4")
    stopped = moesim(*options)
    assert stopped.code == 130
    told = " ".join(stopped.out.split())
    assert re.search(r"stopped after [\d.]+ s; of 16 plans 0 looked at, of which 0 fit, 0 run;", told)
    counted = re.search(r"at: (\d+) refused by rules, 0 left out by a bound; (\d+) not reached", told)
    refused, open_ = map(int, counted.groups())
    assert refused + open_ == 16
    assert open_ > 0
    path = tmp_path / "best.csv"
    assert moesim(*options, "-o", path).code == 130
    assert path.read_text() == "tp,ep,recompute,pp,num_gpus,step_time_s,low_s,high_s,peak_bytes,binding\n"


def test_a_front_and_its_picture(moesim, small_file, tmp_path):
    options = ("pareto", str(small_file), *LAYOUTS)
    front = moesim(*options, "--plot", str(tmp_path / "front.svg"), "--json").json
    assert front["objective"] == "step,memory"
    pairs = [(one["step_time_s"], one["peak_bytes"]) for one in front["top"]]
    assert pairs == sorted(pairs)
    assert [peak for _, peak in pairs] == sorted((peak for _, peak in pairs), reverse=True)
    assert 1 < len(pairs) < front["plans_fitting"]
    searched = moesim("search", str(small_file), *LAYOUTS, "--pareto", "step,memory", "--json").json
    assert searched["top"] == front["top"]
    picture = (tmp_path / "front.svg").read_text()
    assert "step time [s]" in picture
    assert "peak of the largest rank [GiB]" in picture
    assert f"{len(pairs)} of {front['plans_legal']} legal layouts" in picture


def test_a_front_of_time_memory_and_money(moesim, small_file, tmp_path):
    options = ("pareto", str(small_file), "--vary", "cluster.count=4,16", "--vary", "ep=2,8", "--price", "2.5/h")
    front = moesim(*options, "--of", "step,tokens-per-dollar,memory", "--plot", str(tmp_path / "f.png"), "--json").json
    assert {one["varied"]["cluster.count"] for one in front["top"]} == {"4", "16"}
    assert (tmp_path / "f.png").stat().st_size > 0


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (("--of", "step"), "--of: 'step' is not several objectives"),
        (("--of", "step,speed"), "'speed' is no objective"),
        (("--of", "step,tokens-per-dollar"), "needs the price of a GPU"),
        (("--plot", "front.txt"), "is no picture"),
    ],
)
def test_a_front_that_cannot_be(moesim, small_file, options, what):
    (line,) = moesim("pareto", str(small_file), *options).lines
    assert what in line


@pytest.mark.parametrize(
    ("call", "module"),
    [
        (("min-gpus", "--nodes", "1,2", "--vary", "tp=1,2"), "fewest"),
        (("compare", "--vary", "tp=1,2", "--reoptimise", "ep"), "compare"),
    ],
)
def test_a_stopped_search_inside_another_question_ends_it(moesim, small_file, monkeypatch, call, module):
    def stopped(*arguments, **options):
        return replace(search(*arguments, **options), complete=False)

    monkeypatch.setattr(f"moesim.studies.{module}.search", stopped)
    verb, *options = call
    told = moesim(verb, small_file, *options)
    assert (told.code, told.out) == (130, "")
