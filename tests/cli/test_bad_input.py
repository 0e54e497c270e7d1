"""Bad input through the command line: one line a problem, exit code 2, nothing written."""

import subprocess
import sys
from pathlib import Path

import pytest

EDITS = [
    # unknown key
    ("  tp: 2", "  ttp: 2", ["s.yaml:10: strategy.ttp: unknown key; did you mean 'tp'?"]),
    ("model:", "modl:", ["s.yaml:4: modl: unknown key; did you mean 'model'? (known: "]),
    # unit missing, or of another dimension
    ("19.7 s", "19.7", ["s.yaml:27: measured.step_time: '19.7' has no unit; write for example '"]),
    ("19.7 s", "19.7 GB", ["s.yaml:27: measured.step_time: '19.7 GB' is not a time [s]; write for example '"]),
    # YAML syntax
    ("{node: hgx-h100, count: 32}", "{node: hgx-h100, count: 32", ["s.yaml:6: not valid YAML: "]),
    # names that nobody knows
    ("qwen3-235b-a22b", "qwen4", ["s.yaml:4: model: no model 'qwen4'; did you mean 'qwen3-14b'?"]),
    (
        "qwen3-235b-a22b",
        "qwen3-235-a22b",
        ["s.yaml:4: model: no model 'qwen3-235-a22b'; did you mean 'qwen3-235b-a22b'?"],
    ),
    (
        "node: hgx-h100",
        "node: hgx-h10",
        ["s.yaml:5: cluster.node: no node 'hgx-h10'; did you mean 'hgx-h100'?"],
    ),
    (
        "schedule: interleaved-1f1b",
        "schedule: interleaved",
        [
            "s.yaml:14: strategy.schedule: no pipeline schedule 'interleaved' [known-schedule]; did you mean 'interleaved-1f1b'? (known: 1f1b, 1f1b-v, "
        ],
    ),
    (
        "schedule: interleaved-1f1b",
        "schedule: zbv",
        [
            "s.yaml:14: strategy.schedule: no pipeline schedule 'zbv' [known-schedule]; did you mean 'zb-v'? (known: 1f1b, "
        ],
    ),
    (
        "transport: deepep",
        "transport: deepp",
        [
            "s.yaml:23: strategy.transport: no transport 'deepp' [known-transport]; did you mean 'deepep'? (known: deepep, deepep-nvshmem, deepep-v2, hybridep, nccl-alltoall, nccl-hierarchical, nvshmem-rowwise, uccl)"
        ],
    ),
    # degrees that do not fit the GPUs
    (
        "  pp: 8",
        "  pp: 7",
        ["s.yaml:12: strategy.pp: pp = 7 does not divide 256 GPUs [pipeline-ranks]; legal: pp in 1, 2, 4, 8, "],
    ),
    # ep that does not divide the experts, and does not fit either
    (
        "  ep: 32",
        "  ep: 24",
        [
            "s.yaml:16: strategy.ep: etp*ep*pp = 192 does not divide 256 GPUs: a stage has 32 ranks for ep*etp = 24 [expert-ranks]; legal: ep in 1, 2, 4, 8, 16, 32",
            "s.yaml:16: strategy.ep: ep = 24 does not divide 128 experts [experts]; legal: ep in 1, 2, 4, 8, 16, 32, 64, 128",
        ],
    ),
    # ep * etp that does not fit a stage's ranks
    (
        "  etp: 1",
        "  etp: 2",
        [
            "s.yaml:16: strategy.ep: etp*ep*pp = 512 does not divide 256 GPUs: a stage has 32 ranks for ep*etp = 64 [expert-ranks]; legal: ep in 1, 2, 4, 8, 16"
        ],
    ),
    # a global batch that does not divide
    (
        "global_batch: 2048",
        "global_batch: 2047",
        [
            "s.yaml:8: global_batch: a global batch of 2047 does not divide by dp*micro_batch = 16*1 [batch]; legal: global_batch a multiple of 16"
        ],
    ),
    # rules of the framework, named as such
    (
        "  tp: 2",
        "  tp: 8",
        [
            "s.yaml:10: strategy.tp: 4 KV heads are not a multiple of tp 8 [megatron-core: kv-heads-divide-by-tp]; legal: tp a divisor of 4"
        ],
    ),
    (
        "micro_batch: 1",
        "micro_batch: 32",
        [
            "s.yaml:12: strategy.pp: 4 micro-batches are not a multiple of pp 8, as interleaving needs [megatron-core: interleaving-needs-micro-batches-by-pp]; legal: "
        ],
    ),
    # layers that do not divide
    (
        "layout: count-embedding-and-loss",
        "layout: even",
        [
            "s.yaml:15: strategy.layout: 94 layers do not divide over 32 stages (pp*vpp) [layers-per-stage]; legal: pp*vpp in 1, 2, 47, 94, or layout: count-embedding-and-loss, "
        ],
    ),
    # what is not modelled is refused, never ignored
    (
        "precision: bf16",
        "precision: fp8",
        [
            "s.yaml:21: strategy.precision: no precision 'fp8' [known-precision]; did you mean 'mxfp8'? (known: bf16, fp16, "
        ],
    ),
    (
        "  cp: 1",
        "  cp: 1\n  cuda_graph: whole",
        ["s.yaml:19: strategy.cuda_graph: no cuda_graph 'whole' [known-cuda_graph]; known: attn, full, mlp, moe, "],
    ),
    (
        "  cp: 1",
        "  cp: 3",
        [
            "s.yaml:18: strategy.cp: tp*cp*pp = 48 does not divide 256 GPUs: a stage has 32 ranks for tp*cp = 6 [ranks]; legal: cp in 1, 2, 4, 8, 16",
            "s.yaml:18: strategy.cp: tp*cp = 6 does not divide sequences of 4096 [sequence]; legal: cp in 1, 2, 4, ",
        ],
    ),
    # what the GPU cannot do
    (
        "precision: bf16",
        "precision: nvfp4",
        [
            "s.yaml:21: strategy.precision: this GPU has no rate for precision nvfp4 [precision-of-the-gpu]; legal: precision in bf16, "
        ],
    ),
    # GPUs of another maker, by name
    (
        "node: hgx-h100",
        "node: mi300x",
        ["s.yaml:5: cluster.node: mi300x is not modelled: an AMD GPU; "],
    ),
]


def edited(scenario: Path, *pairs: tuple[str, str]) -> None:
    text = scenario.read_text()
    for old, new in pairs:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    scenario.write_text(text)


@pytest.mark.parametrize(("old", "new", "expected"), EDITS)
def test_bad_input_is_one_line_a_problem_and_writes_nothing(moesim, scenario, old, new, expected):
    edited(scenario, (old, new))
    found = moesim("estimate", scenario, "-o", "answer.json", "--timeline", "step.json").lines
    assert len(found) == len(expected), found
    for line, start in zip(found, expected, strict=True):
        assert line.startswith(start)
    assert [path.name for path in Path().iterdir()] == ["s.yaml"]


def test_two_problems_at_once_are_two_lines(moesim, scenario):
    edited(scenario, ("  ep: 32", "  ep: 64"), ("micro_batch: 1", "micro_batch: 3"))
    found = moesim("estimate", scenario).lines
    assert [line.split(":")[1] for line in found] == ["16", "19"]
    edited(scenario, ("  ep: 64", "  eep: 64"), ("19.7 s", "19.7"))
    found = moesim("estimate", scenario).lines
    assert [line.split(":")[1] for line in found] == ["16", "27"]


def test_an_unknown_gpu_of_a_node_and_an_unknown_model_are_two_lines(moesim, scenario):
    edited(scenario, ("qwen3-235b-a22b\n", "qwen4\n"), ("software: megatron-core", "software: megatron"))
    assert len(moesim("estimate", scenario).lines) == 1  # 'megatron' is an alias
    edited(scenario, ("software: megatron", "software: megatrons"))
    assert [line.split(":")[1] for line in moesim("estimate", scenario).lines] == ["4", "6"]
    (line,) = moesim("specs", "gpus", "h10").lines
    assert line.startswith("no GPU 'h10'; did you mean 'h100'?")


@pytest.mark.parametrize("text", ["", "\n", "# only a comment\n"])
def test_an_empty_file(moesim, scenario, text):
    scenario.write_text(text)
    assert moesim("estimate", scenario).lines == ["s.yaml: the file is empty; start it with 'schema: 1'"]


def test_no_such_file_and_no_such_name(moesim, scenario):
    assert moesim("estimate", "other.yaml").lines == ["other.yaml: there is no such file"]
    (line,) = moesim("estimate", "zoo-0002").lines
    assert line.startswith("no scenario 'zoo-0002'; ")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--set", "ttp=2"], ["--set ttp: nothing is called 'ttp'; did you mean 'tp'?"]),
        (["--set", "ep"], ["--set ep: is not PATH=VALUE; write for example --set ep=16"]),
        (["--set", "ep=8", "--set", "ep=16"], ["--set ep: is given twice; give each path once"]),
        (["--set", "ep=33"], ["--set ep: etp*ep*pp = 264 does not divide", "--set ep: ep = 33 does not divide 128 experts"]),
        (["--set", "tp=two"], ["--set tp: must be a valid integer, not 'two'"]),
        (["--set", "gpu.memory_bandwidth=4"], ["--set gpu.memory_bandwidth: '4' has no unit; write for example '"]),
        (["--set", "gpu.memory_bandwidth=4 TB"], ["--set gpu.memory_bandwidth: '4 TB' is not a bandwidth [B/s]; write "]),
        (["--set", "gpu.memry_bandwidth=4 TB/s"], ["--set gpu.memry_bandwidth: nothing is called 'memry_bandwidth'; did "]),
        (["--set", "global_batch=2047"], ["--set global_batch: a global batch of 2047 does not divide by dp*micro_batch "]),
        (["--set", "model=qwen4"], ["--set model: no model 'qwen4'; did you mean 'qwen3-14b'?"]),
        (["--set", "cluster=hgx-h100"], ["--set cluster: 'hgx-h100' is not NODE:count; write for example 'hgx-h100:32'"]),
        (["--vary", "ep=33,34"], ["--vary ep: etp*ep*pp = 264", "--vary ep: ep = 33", "--vary ep: etp*ep*pp = 272", "--vary ep: ep = 34"]),
        (["--vary", "eep=8,16"], ["--vary eep: nothing is called 'eep'; did you mean 'ep'?"]),
        (["--measured", "19.7"], ["--measured: '19.7' has no unit; write for example '"]),
        (["--measured", "19.7 GB"], ["--measured: '19.7 GB' is not a time [s]; write for example '"]),
        (["--measured", "0s"], ["--measured: '0s' is no duration; write for example 19.7s"]),
        (["--model", "qwen3-235b"], ["--model: does not go with a scenario; write --set model=qwen3-235b"]),
        (["--cluster", "hgx-h100:8"], ["--cluster: does not go with a scenario; write --set cluster=hgx-h100:8"]),
        (["--jsn"], ["No such option: --jsn"]),
        (["more"], ["Got unexpected extra argument(s) (more)"]),
    ],
)  # fmt: skip
def test_bad_options(moesim, scenario, options, expected):
    found = moesim("estimate", scenario, *options).lines
    assert len(found) == len(expected), found
    for line, start in zip(found, expected, strict=True):
        assert line.startswith(start)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], "what to estimate is missing; give SCENARIO, or --model M --cluster NODE:COUNT"),
        (["--model", "qwen3-235b"], "what to estimate is missing; give SCENARIO, or --model M --cluster NODE:COUNT"),
        (["--model", "qwen3-235b", "--cluster", "hgx-h100"], "--cluster: 'hgx-h100' is not NODE:count; write "),
        (["--model", "qwen3-235b", "--cluster", "hgx-h10:4"], "--cluster: no node 'hgx-h10'; did you mean 'hgx-h100'?"),
        (["--model", "qwen4", "--cluster", "hgx-h100:4"], "--model: no model 'qwen4'; did you mean 'qwen3-14b'?"),
        (["--model", "qwen3-235b", "--cluster", "hgx-h100:0"], "--cluster: must be at least 1, not 0"),
    ],
)
def test_bad_names(moesim, options, expected):
    (line,) = moesim("estimate", *options).lines
    assert line.startswith(expected)


def test_an_unknown_verb(moesim):
    (line,) = moesim("estimat", "s.yaml").lines
    assert "'estimat'" in line
    assert "estimate" in line.replace("'estimat'", "")


def test_a_shell_sees_the_same(scenario):
    """Once for real: a process of its own, its exit code and its streams."""
    edited(scenario, ("  ep: 32", "  ep: 24"), ("micro_batch: 1", "micro_batch: 3"))
    command = [sys.executable, "-m", "moesim.cli.main", "estimate", str(scenario), "--json", "-o", "answer.json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 3
    assert all(line.startswith("s.yaml:") for line in done.stderr.splitlines())
    assert not Path("answer.json").exists()


def test_a_closed_pipe_is_no_error():
    shell = f"{sys.executable} -m moesim.cli.main specs --json | head -1"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("{\n", "")
