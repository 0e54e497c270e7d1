"""What is told twice or leads nowhere is refused before anything is computed: nothing is dropped in silence."""

import pytest

JOB = "qwen3-235b-h100x256"


@pytest.mark.parametrize(
    ("call", "start"),
    [
        (("search", JOB, "--set", "ep=16", "--vary", "ep=8"), "--set ep: --vary ep replaces it"),
        (("sweep", JOB, "--set", "strategy.ep=16", "--vary", "ep=8"), "--set strategy.ep: --vary ep replaces it"),
        (("estimate", JOB, "--set", "ep=16", "--vary", "ep=8"), "--set ep: --vary ep replaces it"),
        (("pareto", JOB, "--set", "ep=16", "--vary", "ep=8"), "--set ep: --vary ep replaces it"),
        (("max-seq", JOB, "--set", "cluster.count=16", "--vary", "cluster=hgx-h200:8"), "--set cluster.count: --vary "),
        (("min-gpus", JOB, "--nodes", "8", "--set", "ep=16", "--each", "ep=8"), "--set ep: --each ep replaces it"),
        (
            ("search", JOB, "--vary", "cluster.count=32", "--vary", "cluster=hgx-h100:32"),
            "--vary cluster: sets what --vary cluster.count sets too",
        ),
        (("compare", JOB, "--vary", "cluster.count=32", "--vary", "cluster=hgx-h100:32"), "--vary cluster: sets what "),
        (("whatif", JOB, "--change", "ep=16;strategy.ep=8"), "--change strategy.ep: sets what --change ep sets too"),
        (
            ("whatif", JOB, "--change", "ep=16", "--reoptimise", "ep"),
            "--change ep: is also searched, by --reoptimise ep",
        ),
        (
            ("compare", JOB, "--vary", "ep=16", "--reoptimise", "tp,ep"),
            "--vary ep: is also searched, by --reoptimise ep",
        ),
        (("scale", JOB, "--nodes", "32", "--beside", "cluster.count=16"), "--beside cluster.count: --nodes says"),
        (("estimate", JOB, "--fault", "rail:1", "--vary", "fault=rail:2"), "--fault: --vary fault replaces it"),
        (("diagnose", JOB, "--measured", "17s", "--convention", "full"), "--convention: is how FLOPs are counted"),
        (("diagnose", JOB, "--measured", "900 tok/s", "--convention", "full"), "--convention: is how FLOPs are"),
    ],
)
def test_what_another_option_leaves_no_room_for(moesim, call, start):
    (line,) = moesim(*call).lines
    assert line.startswith(start)


def test_a_measured_step_stands_beside_each_of_several(moesim):
    call = ("estimate", JOB, "--measured", "17s", "--vary", "ep=16,32")
    errors = [row["measured"]["error"] for row in moesim(*call, "--json").json]
    shown = moesim(*call).out
    assert all(f"{error:+.1%}" in shown for error in errors)


def test_a_base_may_be_set_and_refined(moesim):
    call = ("estimate", JOB, "--json", "--set")
    (row,) = moesim(*call, "cluster=hgx-h200:16", "--vary", "cluster.count=32").json
    assert row["step_time_s"] == moesim(*call, "cluster=hgx-h200:32").json["step_time_s"]


BAD_VALUES = [
    ("estimate", "--vary", "ep=8,foo", "--vary ep: must be a valid integer, not 'foo'"),
    ("sweep", "--vary", "ep=8,foo", "--vary ep: must be a valid integer, not 'foo'"),
    ("compare", "--vary", "ep=8,foo", "--vary ep: must be a valid integer, not 'foo'"),
    ("dispatch", "--vary", "ep=8,foo", "--vary ep: must be a valid integer, not 'foo'"),
    ("max-seq", "--vary", "ep=8,foo", "--vary ep: must be a valid integer, not 'foo'"),
    ("place", "--vary", "ep=8,foo", "--vary ep: must be a valid integer, not 'foo'"),
    ("sweep", "--vary", "transport=deepep,depep", "--vary transport: no transport 'depep'"),
    ("sweep", "--vary", "gpu.memory_bandwidth=x1,4", "--vary gpu.memory_bandwidth: '4' has no unit"),
    ("sweep", "--vary", "fault=rail:1,rall:2", "--fault rall:2: no kind of fault 'rall'; did you mean 'rail'?"),
    ("compare", "--vary", "model=qwen3-235b-a22b,qwen4", "--vary model: no model 'qwen4'; did you mean 'qwen3-14b'?"),
]


@pytest.mark.parametrize(("verb", "option", "value", "start"), BAD_VALUES)
def test_a_bad_value_beside_a_good_one(moesim, verb, option, value, start):
    (line,) = moesim(verb, JOB, option, value).lines
    assert line.startswith(start)


@pytest.mark.parametrize(
    ("call", "start"),
    [
        (("whatif", JOB, "--change", "ep=foo", "--change", "ep=16"), "--change ep: must be a valid integer, not 'foo'"),
        (("whatif", JOB, "--change", "ep=16", "--fault", "rall:2"), "--fault rall:2: no kind of fault 'rall'"),
        (("scale", JOB, "--nodes", "32", "--beside", "foo=1"), "--beside foo: nothing is called 'foo'"),
    ],
)
def test_a_bad_change_beside_a_good_one(moesim, call, start):
    (line,) = moesim(*call).lines
    assert line.startswith(start)


def test_a_value_that_is_only_illegal_here_stays_a_refused_row(moesim):
    rows = moesim("estimate", JOB, "--vary", "ep=32,24", "--json").json
    assert ["refused" in row for row in rows] == [False, True]


def test_a_value_that_has_a_meaning_beside_another_is_no_bad_value(moesim):
    base = ("sweep", JOB, "--set", "transport=nccl-alltoall", "--vary")
    assert moesim(*base, "comm_sms=12,24", "--vary", "sequence_length=4096").lines
    assert moesim("sweep", JOB, "--vary", "comm_sms=12,24", "--vary", "transport=nccl-alltoall,deepep").code == 0


NO_ROWS = [
    ("estimate", "--vary", "ep=16"),
    ("compare", "--vary", "ep=16"),
    ("whatif", "--change", "ep=16"),
    ("fit",),
    ("budget", "--tokens", "1T"),
    ("scale", "--nodes", "32"),
    ("checkpoint",),
    ("place",),
    ("min-gpus", "--nodes", "32"),
    ("dispatch",),
    ("offload",),
    ("schedule",),
    ("sensitivity",),
    ("diagnose", "--measured", "20s"),
    ("explain",),
]


@pytest.mark.parametrize("ending", [".csv", ".xyz"])
@pytest.mark.parametrize("call", NO_ROWS, ids=lambda call: call[0])
def test_an_answer_without_rows_is_no_table(moesim, tmp_path, call, ending):
    (line,) = moesim(call[0], JOB, *call[1:], "-o", tmp_path / f"q{ending}").lines
    assert line == f"--out: no answer of the kind '{ending}'; end it in .json, .txt"
    assert not list(tmp_path.iterdir())


def test_a_kernel_is_no_table(moesim, tmp_path):
    call = ("kernel", "gemm", "--gpu", "h100-sxm-80gb", "-m", 64, "-n", 64, "-k", 64)
    (line,) = moesim(*call, "-o", tmp_path / "q.csv").lines
    assert line == "--out: no answer of the kind '.csv'; end it in .json, .txt"


ALLREDUCE = ("collective", "allreduce", "--cluster", "hgx-h100:2", "--size", "1GiB")


@pytest.mark.parametrize(
    ("call", "start"),
    [
        (("checkpoint", JOB, "--storage", "foo"), "--storage: no storage 'foo'"),
        (("checkpoint", JOB, "--save-bw", "1B/s"), "--save-bw: a failure every"),
        (("checkpoint", JOB, "--writer-bw", "1B/s", "--writers", "8"), "--writer-bw: a failure every"),
        (("checkpoint", JOB, "--mtbf-gpu", "10min"), "--mtbf-gpu: a failure every"),
        (("exchange", "dispatch", "--cluster", "foo:2"), "--cluster: no node 'foo'"),
        ((*ALLREDUCE, "--fabric", "foo"), "--fabric: no fabric 'foo'"),
        ((*ALLREDUCE, "--fabric", "rail-ndr400:0"), "--fabric: '0' in 'rail-ndr400:0' is not an oversubscription"),
        (("collective", "foo", *ALLREDUCE[2:]), "COLLECTIVE: no collective 'foo'"),
        (("kernel", "gemm", "--gpu", "foo", "-m", 64, "-n", 64, "-k", 64), "--gpu: no GPU 'foo'"),
        (("whatif", JOB, "--change", "cluster.count=16", "--reoptimise", "epp"), "--reoptimise epp: a search varies"),
        (("pareto", JOB, "--of", "step,foo", "--vary", "ep=8"), "--of: 'foo' is no objective"),
        (("search", JOB, "--pareto", "step,foo", "--vary", "ep=8"), "--pareto: 'foo' is no objective"),
        (("sweep", JOB, "--vary", "sequence_length=auto"), "--vary sequence_length: auto has no list of its values"),
        (
            ("sweep", JOB, "--vary", "eep=auto"),
            "--vary eep: a search varies fields of the strategy; did you mean 'ep'?",
        ),
        (("budget", JOB, "--tokens", "1T", "--deadline", "3"), "--deadline: '3' has no unit; write for example '30 d'"),
        (("estimate", JOB, "--measured", "foo"), "--measured: 'foo' is not a quantity; write for example '19.7 s'"),
        (("checkpoint", JOB, "--interval", "3"), "--interval: '3' has no unit; write for example '10 min'"),
        (("estimate", JOB, "-o", "x.xyz"), "--out: no answer of the kind '.xyz'"),
        (("estimate", JOB, "-o", "nowhere/x.json"), "--out: there is no folder 'nowhere'"),
        (("report", JOB, "-o", "x.xyz"), "--out: 'x.xyz' is no page"),
        (("roofline", JOB, "-o", "x.xyz"), "--out: 'x.xyz' is no picture"),
        (("estimate", JOB, "-o", "/dev/full"), "/dev/full: No space left on device"),
    ],
)
def test_the_option_that_is_wrong_is_named(moesim, call, start):
    (line,) = moesim(*call).lines
    assert line.startswith(start)


def test_auto_of_a_field_by_its_whole_path(moesim):
    assert moesim("sweep", JOB, "--vary", "strategy.overlap_grad_reduce=auto", "--json").json["rows"]


@pytest.mark.parametrize("call", [("scale", JOB), ("budget", JOB, "--tokens", "1T")], ids=lambda call: call[0])
def test_a_number_of_nodes_that_is_not_legal_is_that_of_the_option(moesim, call):
    lines = moesim(*call, "--nodes", "31").lines
    assert lines
    assert all(line.startswith("--nodes 31: ") for line in lines)


@pytest.mark.parametrize("verb", ["estimate", "whatif"])
def test_help_names_every_kind_of_fault(moesim, verb):
    from moesim.fabric.faults import KINDS

    shown = moesim(verb, "--help").out
    assert all(f"{kind}:" in shown for kind in (*KINDS, "slow"))
