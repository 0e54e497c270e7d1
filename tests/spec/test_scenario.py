from pathlib import Path
from typing import Any

import pytest

from moesim.base.errors import SpecError
from moesim.spec import library
from moesim.spec.load import load_scenario, load_specs, scenario_from_names
from moesim.spec.overrides import with_overrides
from moesim.spec.scenario import STRATEGY_FIELDS


def test_a_scenario_knows_its_lines(small: Path) -> None:
    scenario = load_scenario(small)
    assert scenario.line("strategy.ep") == 10
    assert scenario.where("strategy.ep") == "small.yaml:10"
    assert scenario.line("strategy.pp") == 7  # not written: where the strategy begins
    assert scenario.strategy.given == {"tp": 2, "sequence_parallel": True, "ep": 16}
    assert scenario.assumed == ()


def test_a_scenario_of_the_library_is_found_by_name() -> None:
    assert load_scenario("qwen3-235b-h100x256").measured.run_id == "ZOO-001"
    assert load_scenario("zoo-004").strategy.pp == 32
    with pytest.raises(SpecError, match="no scenario 'qwen3-235b-h100x25'; did you mean 'qwen3-235b-h100x256'"):
        load_scenario("qwen3-235b-h100x25")


@pytest.mark.parametrize(
    ("name", "step_time", "tflop"), [("qwen3-235b-h100x256", 19.7, 245), ("zoo-002", 17.6, 276), ("zoo-004", 24.2, 200)]
)
def test_measurements_are_those_of_the_run_table(name: str, step_time: float, tflop: float) -> None:
    measured = load_scenario(name).measured
    assert (measured.step_time, measured.tflop_per_s_per_gpu) == (step_time, tflop)
    assert measured.flops_convention == "causal"


def test_specs_of_a_scenario(small: Path) -> None:
    specs = load_specs(load_scenario(small))
    assert specs.num_gpus == 32
    assert specs.gpu.name == "h100-sxm-80gb"
    assert specs.fabric.name == "rail-ndr400"
    assert specs.transport("deepep").value("num_sms") == 20
    assert specs.provenance["node.links.p2p_latency"].value == 7e-6
    assert specs.provenance["software.host.kernel_launch"].source


def test_a_model_of_ones_own(small: Path) -> None:
    text = (library.root() / "scenarios/models/qwen3-235b-a22b.yaml").read_text()
    Path("own.yaml").write_text(text.replace("num_layers: 94", "num_layers: 4").replace("top_k: 8", "top_k: 256"))
    small.write_text(small.read_text().replace("qwen3-235b-a22b", "own.yaml"))
    with pytest.raises(SpecError) as error:
        load_specs(load_scenario(small))
    assert str(error.value) == "own.yaml:15: moe: top_k 256 is more than 128 experts; at most 128"
    Path("own.yaml").write_text(text.replace("num_layers: 94", "num_layers: 4"))
    assert load_specs(load_scenario(small)).model.num_layers == 4


def test_from_names() -> None:
    scenario = scenario_from_names("qwen3-235b", "hgx-h100:32")
    assert (scenario.cluster.node, scenario.cluster.count) == ("hgx-h100", 32)
    assert (scenario.sequence_length, scenario.global_batch) == (4096, 2048)
    assert scenario.assumed == ("sequence_length", "global_batch")
    assert with_overrides(scenario, {"global_batch": "64"}).assumed == ("sequence_length",)
    assert with_overrides(scenario, {"cluster.count": "2"}).cluster.node == "hgx-h100"


@pytest.mark.parametrize(
    ("model", "cluster", "message"),
    [
        ("qwen3", "hgx-h100:4", "--model: no model 'qwen3'; did you mean 'qwen3-8b'?"),
        ("qwen3-235b", "hgx-h10:4", "--cluster: no node 'hgx-h10'; did you mean 'hgx-h100'?"),
        ("qwen3-235b", "hgx-h100", "--cluster: 'hgx-h100' is not NODE:count; write for example 'hgx-h100:32'"),
        ("qwen3-235b", "hgx-h100:0", "--cluster: must be at least 1, not 0"),
    ],
)
def test_names_that_do_not_work(model: str, cluster: str, message: str) -> None:
    with pytest.raises(SpecError) as error:
        load_specs(scenario_from_names(model, cluster))
    assert str(error.value).startswith(message)
    assert len(error.value.issues) == 1


@pytest.mark.parametrize(
    ("path", "text", "value"),
    [
        ("ep", "8", 8),
        ("strategy.ep", "8", 8),
        ("overlap_ep", "true", True),
        ("transport", "nccl-alltoall", "nccl-alltoall"),
        ("recompute", "[layernorm, moe_act]", ("layernorm", "moe_act")),
        ("recompute", "layernorm,moe_act", ("layernorm", "moe_act")),
        ("recompute", "layernorm;moe_act", ("layernorm", "moe_act")),
        ("recompute", "full", ("full",)),
        ("recompute", "none", ()),
        ("layout", "[12, 12, 10]", (12, 12, 10)),
        ("layout", "Et*4|(tttt|)*14tmL", "Et*4|(tttt|)*14tmL"),
        ("tp", "~", None),
        ("tp", 4, 4),
    ],
)
def test_set_a_field_of_the_strategy(small: Path, path: str, text: Any, value: Any) -> None:
    scenario = with_overrides(load_scenario(small), {path: text})
    assert getattr(scenario.strategy, path.removeprefix("strategy.")) == value
    assert scenario.where(f"strategy.{path.removeprefix('strategy.')}") == f"--set {path}"
    assert scenario.strategy.sequence_parallel is True


def test_set_other_fields(small: Path) -> None:
    before = load_scenario(small)
    changes = {"sequence_length": "8192", "cluster": "hgx-h100:16", "measured.step_time": "3 s", "measured.source": "x"}
    after = with_overrides(before, changes)
    assert (after.sequence_length, after.cluster.count, after.measured.step_time) == (8192, 16, 3.0)
    assert (before.sequence_length, before.cluster.count, before.measured) == (4096, 4, None)


def test_set_a_number_of_the_hardware(small: Path) -> None:
    changes = {"gpu.memory_bandwidth": "4 TB/s", "transports.deepep.num_sms": "24", "node.links.p2p_latency": "3 us"}
    scenario = with_overrides(load_scenario(small), changes)
    specs = load_specs(scenario)
    number = specs.gpu.memory_bandwidth
    assert (number.value, number.kind, number.note) == (4e12, "assumed", "set by --set gpu.memory_bandwidth")
    assert specs.transport("deepep").value("num_sms") == 24
    assert specs.node.links.p2p_latency.value == pytest.approx(3e-6)
    assert library.get("gpus", "h100").memory_bandwidth.value == 3.35e12
    assert load_specs(with_overrides(scenario, {"cluster.count": "2"})).gpu.memory_bandwidth.value == 4e12


@pytest.mark.parametrize(
    ("changes", "lines"),
    [
        ({"strategy.eq": "3"}, ["--set strategy.eq: unknown key; did you mean 'ep'?"]),
        ({"sequence_lenght": "3"}, ["--set sequence_lenght: nothing is called 'sequence_lenght'; did you mean 'sequence_length'?"]),
        ({"ep": "many"}, ["--set ep: must be a valid integer, not 'many'"]),
        ({"ep": "many", "tpp": "1"}, ["--set tpp: nothing is called 'tpp'; did you mean 'tp'?", "--set ep: must be a valid integer, not 'many'"]),
        ({"cluster.nod": "x"}, ["--set cluster.nod: unknown key; did you mean 'node'? (known: count, fabric, gpus, node)"]),
        ({"cluster.node": "x"}, ["--set cluster.node: no node 'x'; known: "]),
        ({"gpu.memory_bandwidth": "4"}, ["--set gpu.memory_bandwidth: '4' has no unit; write for example '400 Gb/s'"]),
        ({"gpu.memory_bandwidht": "4"}, ["--set gpu.memory_bandwidht: nothing is called 'memory_bandwidht'; did you mean 'memory_bandwidth'?"]),
        ({"transports.deepep.num_sms": "0"}, ["--set transports.deepep.num_sms: a kernel that copies by SMs needs one; legal: 1 to 132"]),
        ({"transports.nccl-alltoall.num_sms": "133"}, ["--set transports.nccl-alltoall.num_sms: 133 SMs, and h100-sxm-80gb has 132; legal: 0 to 132"]),
        ({"node.links.collective_sms": "140"}, ["--set node.links.collective_sms: 140 SMs, and h100-sxm-80gb has 132; legal: 0 to 132"]),
        ({"comm_sms": "200"}, ["--set comm_sms: 200 SMs, and h100-sxm-80gb has 132; legal: 1 to 132"]),
        ({"gpu.kernels": "4"}, ["--set gpu.kernels: 'kernels' is a group; name one of gemm_efficiency, "]),
    ],
)  # fmt: skip
def test_what_cannot_be_set(small: Path, changes: dict[str, str], lines: list[str]) -> None:
    with pytest.raises(SpecError) as error:
        load_specs(with_overrides(load_scenario(small), changes))
    found = str(error.value).splitlines()
    assert len(found) == len(lines), found
    for text, start in zip(found, lines, strict=True):
        assert text.startswith(start)


def test_the_strategy_fields_are_those_of_the_workload() -> None:
    workload = pytest.importorskip("moesim.workload.strategy")
    assert sorted(STRATEGY_FIELDS) == sorted(workload.FIELDS)
