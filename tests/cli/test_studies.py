"""Verbs that ask a question of several estimates."""

import pytest

JOB = "qwen3-235b-h100x256"


def test_scale(moesim):
    found = moesim("scale", JOB, "--nodes", "16,32,64", "--json").json
    assert [point["nodes"] for point in found["points"]] == [16, 32, 64]
    assert "refused" in found["points"][0]
    shown = moesim("scale", JOB, "--nodes", "16,32,64").out
    assert "16 nodes refused" in shown
    assert "100.0%" in shown


def test_budget(moesim):
    call = ("budget", JOB, "--tokens", "2T", "--price", "2.5/h", "--nodes", "32,64", "--deadline", "30d")
    found = moesim(*call, "--json").json
    assert [cost["meets"] for cost in found["costs"]] == [cost["time_s"] <= 30 * 86400 for cost in found["costs"]]
    assert all(cost["money"] == pytest.approx(2.5 * cost["gpu_hours"]) for cost in found["costs"])
    shown = moesim(*call).out
    assert "missed by" in shown
    assert "MWh: the GPUs at their power limit, x 1.1 for the facility" in shown
    assert "GPU MWh" not in shown


def test_recompute(moesim):
    found = moesim("recompute", JOB, "--set", "recompute=none", "--target-free", "6GiB", "--json").json
    assert found["peak_bytes"] - found["chosen_peak_bytes"] >= found["target_bytes"] == 6 * 2**30
    assert "to free 6.00 GiB: add" in moesim("recompute", JOB, "--set", "recompute=none", "--target-free", "6GiB").out


def test_max_seq(moesim):
    (found,) = moesim("max-seq", JOB, "--json").json
    assert found["sequence_length"] >= 4096
    assert f"{found['sequence_length']:,}" in moesim("max-seq", JOB).out


def test_sensitivity(moesim, tmp_path):
    picture = tmp_path / "tornado.svg"
    found = moesim("sensitivity", JOB, "--json", "--plot", picture).json
    sizes = [abs(one["elasticity"]) for one in found["elasticities"]]
    assert sizes == sorted(sizes, reverse=True)
    assert all(one["low_s"] <= found["step_time_s"] <= one["high_s"] for one in found["swings"])
    assert picture.read_text().startswith("<?xml")
    assert "what is not known well" in moesim("sensitivity", JOB).out


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (("scale", JOB, "--nodes", "two"), "--nodes: 'two' is no list of node counts"),
        (("scale", JOB, "--nodes", "32", "--fixed", "gbs"), "--fixed: 'gbs' is nothing to keep"),
        (
            ("scale", JOB, "--nodes", "32", "--beside", "ep=16", "--plot", "a.svg"),
            "--plot: draws the job as it stands",
        ),
        (("scale", JOB, "--nodes", "32", "--measured", "soon"), "--measured: 'soon'"),
        (("budget", JOB, "--tokens", "many"), "--tokens: 'many' is no number of tokens"),
        (("budget", JOB, "--tokens", "1T", "--deadline", "-3d"), "--deadline: "),
        (("budget", JOB, "--tokens", "1T", "--price", "hgx-h100=2/h"), "--price: 'hgx-h100=2/h' is for several"),
        (("recompute", JOB, "--target-free", "six"), "--target-free: "),
        (("sensitivity", JOB, "--plot", "a.txt"), "--plot: 'a.txt' is no picture"),
    ],
)
def test_bad_input_is_one_line(moesim, call, message):
    (line,) = moesim(*call).lines
    assert line.startswith(message)


def test_budget_of_a_measured_step(moesim):
    job = ("budget", "qwen3-235b-h100x256", "--tokens", "8.388608T")
    (cost,) = moesim(*job, "--measured", "20s", "--json").json["costs"]
    assert cost["time_s"] == pytest.approx(1e6 * 20)
    assert cost["low_s"] == cost["high_s"] == cost["time_s"]
    (line,) = moesim(*job, "--measured", "20s", "--nodes", "16,32").lines
    assert line.startswith("--measured: was measured on one number of nodes")


def test_the_update_on_the_cpu_has_its_own_column(moesim):
    call = ("offload", JOB, "--what", "optimizer", "--h2d", "64GB/s")
    (link,) = moesim(*call, "--json").json["links"]
    shown = moesim(*call).out
    assert "update on the CPU" in shown
    assert f"{link['update']['computing_s']:.4g} s" in shown
    assert f"{link['update']['copied_bytes'] / 2**30:.2f}" in shown


@pytest.mark.parametrize(
    ("verb", "options", "variant"),
    [
        ("sweep", ("--vary", "ep=8,16"), "ep=16"),
        ("search", ("--vary", "ep=16"), "ep=16"),
        ("pareto", ("--vary", "ep=16"), "ep=16"),
        ("dispatch", ("--vary", "ep=16"), "ep=16"),
        ("place", ("--vary", "ep=16"), "ep=16"),
        ("schedule", ("--schedule", "interleaved-1f1b:2"), "schedule=interleaved-1f1b, vpp=2"),
        ("max-seq", (), "sequence_length="),
        ("offload", ("--what", "optimizer"), ""),
    ],
)
def test_the_step_under_an_answer_is_that_of_its_variant(moesim, verb, options, variant):
    name = "zoo-002"
    told = f"a step of {name} with {variant}" if variant else f"a step of {name}:"
    assert told in " ".join(moesim(verb, name, *options).out.split())
    plain = moesim(verb, name, *options, "--json").json
    plain = plain[0] if isinstance(plain, list) else plain.get("cases", [plain])[0]
    assert plain["basis"]["variant"].startswith(variant)


def test_no_published_step_stands_beside_a_broken_machine(moesim):
    call = ("sweep", "zoo-002", "--vary", "fault=slow:node3=0.5")
    assert moesim(*call, "--json").json["basis"]["measured"] is None
    assert "measured" not in moesim(*call).out


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (("search", "zoo-002", "--vary", "ep=16"), "1 plan: 1 legal"),
        (("sweep", "zoo-002", "--vary", "ep=16"), "1 combination: 1 legal"),
        (("sweep", "zoo-002", "--vary", "ep=8,16"), "2 combinations: 2 legal"),
    ],
)
def test_one_is_not_many(moesim, call, words):
    assert words in moesim(*call).out
