"""``moesim import``: configurations as people publish them become scenarios that estimate."""

from pathlib import Path
from typing import Any

import pytest

import moesim as package

CONFIGS = Path(__file__).parents[1] / "studies" / "imports"
VARIABLES = {"TP": 2, "PP": 16, "EP": 64, "CP": 1, "MBS": 1, "GBS": 8192, "SEQ_LEN": 4096}
DEFINED = [word for name, value in VARIABLES.items() for word in ("--define", f"{name}={value}")]
RUNS = {
    "mixtral": ("megatron", "mixtral-8x7b.sh", "hgx-h100:8"),
    "deepseek": ("megatron", "deepseek-v3.yaml", "hgx-h100:128", *DEFINED),
    "bridge": ("megatron-bridge", "bridge-deepseek-v3.yaml", "hgx-h100:128"),
    "titan": ("torchtitan", "deepseek-16b.toml", "hgx-b200:1"),
    "eager": ("torchtitan", "qwen3-30b.toml", "hgx-h100:2"),
}
EXPECTED = {
    "mixtral": ("mixtral-8x7b", 256, {"pp": 4, "vpp": 2, "ep": 8, "dp_sharding": "zero1", "recompute": ()}),
    "deepseek": (
        "deepseek-v3",
        8192,
        {"tp": 2, "vpp": 2, "etp": 1, "transport": "deepep", "layout": "Et*3|(tt|)*29m|L"},
    ),
    "bridge": (
        "deepseek-v3",
        8192,
        {"vpp": 4, "precision": "fp8-blockwise", "transport": "hybridep", "grad_dtype": "bf16"},
    ),
    "titan": ("deepseek-v3-16b-torchtitan", 32, {"micro_batch": 4, "ep": 8, "recompute": ("op-selective",)}),
    "eager": ("qwen3-30b-a3b", 16, {"micro_batch": 1, "dp_sharding": "fsdp", "recompute": ("full",)}),
}


def words(run: str) -> list[object]:
    framework, file, cluster, *more = RUNS[run]
    return ["import", framework, CONFIGS / file, "--cluster", cluster, *more]


@pytest.mark.parametrize("run", RUNS)
def test_becomes_a_scenario_that_estimates(run: str, moesim: Any, tmp_path: Path) -> None:
    written = tmp_path / "run.yaml"
    assert moesim(*words(run), "-o", written).code == 0
    problem = package.load(str(written))
    model, batch, fields = EXPECTED[run]
    assert (problem.model.name, problem.global_batch) == (model, batch)
    assert {name: getattr(problem.strategy, name) for name in fields} == fields
    assert package.estimate(problem).step_time_s > 0


def test_what_is_not_understood_is_told(moesim: Any) -> None:
    out = moesim(*words("mixtral")).out
    assert "# Not understood: --no-window-of-mine\n" in out
    assert "--fp16" not in out  # commented out in the script
    assert "# Note: left to the profile megatron-core: cross_entropy_loss_fusion" in moesim(*words("deepseek")).out


def test_every_open_variable_is_named_at_its_line(moesim: Any) -> None:
    framework, file, cluster, *_ = RUNS["deepseek"]
    lines = moesim("import", framework, CONFIGS / file, "--cluster", cluster).lines
    assert len(lines) == len(VARIABLES)
    assert "deepseek-v3.yaml:6: --tensor-model-parallel-size: '${TP}' is not set in the file; give it with" in lines[0]


def test_an_own_architecture_becomes_a_model_file(moesim: Any, tmp_path: Path) -> None:
    text = (CONFIGS / "mixtral-8x7b.sh").read_text().replace("--num-layers 32", "--num-layers 16")
    (tmp_path / "own.sh").write_text(text)
    call = ("import", "megatron", tmp_path / "own.sh", "--cluster", "hgx-h100:8")
    assert "says nothing of the vocabulary" in moesim(*call, "-o", tmp_path / "own.yaml").lines[0]
    assert "give -o FILE" in moesim(*call, "--vocab-size", 32000).lines[0]
    assert not (tmp_path / "own.yaml").exists()
    assert moesim(*call, "--vocab-size", 32000, "-o", tmp_path / "own.yaml").code == 0
    problem = package.load(str(tmp_path / "own.yaml"))
    assert (len(problem.model.layers), problem.model.moe is not None) == (16, True)


@pytest.mark.parametrize(
    ("framework", "text", "message"),
    [
        ("megatron", "echo nothing\n", "holds no option of a training run"),
        (
            "megatron",
            "x --num-layers many --hidden-size 64 --num-attention-heads 4\n",
            ":1: --num-layers: 'many' is no",
        ),
        ("megatron", "x --num-layers 2\n", "hidden_size: is missing"),
        ("torchtitan", "[model\n", "not valid TOML"),
        ("torchtitan", '[model]\nname = "llama9"\nflavor = "8B"\n', ":3: model.flavor: no model 'llama9 8B' is known"),
        ("megatron-bridge", "a: 1\n", "has none of the sections of a ConfigContainer"),
    ],
)
def test_bad_input_gets_a_line(framework: str, text: str, message: str, moesim: Any, tmp_path: Path) -> None:
    path = tmp_path / {"torchtitan": "c.toml", "megatron-bridge": "c.yaml"}.get(framework, "c.sh")
    path.write_text(text)
    assert message in "\n".join(moesim("import", framework, path, "--cluster", "hgx-h100:1").lines)


def test_degrees_that_do_not_fill_the_cluster_are_refused(moesim: Any) -> None:
    call = ("import", "torchtitan", CONFIGS / "deepseek-16b.toml", "--cluster", "hgx-b200:2")
    assert "8 shards by 1 of the other degrees are not 16 GPUs; name a --cluster of 8 GPUs" in moesim(*call).lines[0]


def test_a_model_may_stand_in_for_the_architecture(moesim: Any) -> None:
    out = moesim(*words("mixtral"), "--model", "mixtral-8x22b").out
    assert "model: mixtral-8x22b\n" in out
    assert "# Note: the architecture in the file is not read: mixtral-8x22b was asked for" in out
    assert "num-layers" not in out
    assert "# Not understood: model" not in moesim(*words("titan"), "--model", "deepseek-v3-16b-torchtitan").out


def test_what_is_priced_otherwise_is_told(moesim: Any, tmp_path: Path) -> None:
    text = (CONFIGS / "mixtral-8x7b.sh").read_text().replace("--bf16", "--bf16 --hidden-dropout 0.1")
    (tmp_path / "d.sh").write_text(text)
    out = moesim("import", "megatron", tmp_path / "d.sh", "--cluster", "hgx-h100:8").out
    assert "# Note: hidden_dropout: dropout is not modelled" in out
    text = (CONFIGS / "qwen3-30b.toml").read_text().replace("lr = 3e-4", 'implementation = "foreach"')
    (tmp_path / "f.toml").write_text(text)
    out = moesim("import", "torchtitan", tmp_path / "f.toml", "--cluster", "hgx-h100:2").out
    assert "# Note: optimizer.implementation = foreach: priced as fused" in out


def test_branches_of_a_script_are_told(moesim: Any, tmp_path: Path) -> None:
    text = (CONFIGS / "mixtral-8x7b.sh").read_text()
    (tmp_path / "b.sh").write_text(text.replace("GPUS_PER_NODE=8", "if [ $A = 1 ]; then\nB=2\nfi"))
    out = moesim("import", "megatron", tmp_path / "b.sh", "--cluster", "hgx-h100:8").out
    assert "# Note: the script branches at line 3: every branch was read as if it held" in out
