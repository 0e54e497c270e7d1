"""Rows of published runs: each becomes a problem that is answered, or is refused with its reason.

``runs.csv`` holds the facts of some eighteen runs with their sources: routed and dense models, FSDP and ZeRO-3, FP8 and
MXFP8, blank fields, a part of a node, and what is refused by name.
"""

import csv
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from moesim.base.errors import SpecError
from moesim.evaluator import evaluate
from moesim.spec.library import root
from moesim.studies.run_table import Refused, Run, read_runs, run_of
from moesim.workload.strategy import FIELDS

FILE = Path(__file__).with_name("runs.csv")
with FILE.open(encoding="utf-8") as file:
    ROWS = {row["run_id"]: row for row in csv.DictReader(file)}
GIB = 2**30

REFUSED = {
    "MBSK-007": ("not-modelled-yet", "unsupported:hybrid-mamba"),
    "MB25.09-008": ("expert-ranks", "etp*ep*pp = 512 does not divide 256 GPUs: a stage has 32 ranks for ep*etp = 64"),
    "MB26.02.01-001": (
        "state-does-not-fit",
        "impossible as printed: training state alone takes 347 GiB of a GPU",
    ),
    "SWF-006": ("refused-by-name", "unknown-80gb is not modelled: its source does not say which GPU of 80 GB it is"),
}
TOO_LARGE = {"STAS-006"}
"""A run of DeepSpeed with sequences so long that it computes the loss tile by tile, which is not modelled."""
ANSWERED = [name for name in ROWS if name not in REFUSED]
each_run = pytest.mark.parametrize("name", ANSWERED)


@pytest.fixture(scope="module")
def runs() -> dict[str, Run | Refused]:
    return {one.run_id: one for one in read_runs(FILE)}


def changed(name: str, **values: str) -> Run | Refused:
    return run_of(ROWS[name] | values)


def test_every_row_is_answered_or_refused_with_its_reason(runs):
    assert list(runs) == list(ROWS)
    found = {name: (one.rule, one.reason) for name, one in runs.items() if isinstance(one, Refused)}
    assert found == REFUSED
    assert all(row["source"] and row["source_url"] for row in ROWS.values())


@each_run
def test_a_run_has_a_finite_answer(runs, name):
    run = runs[name]
    answer = evaluate(run.problem, [run.problem.strategy])
    assert answer.legal.all()
    assert np.isfinite(answer.step_time_s).all()
    assert answer.step_time_s[0] > 0
    assert run.step_time_s == float(ROWS[name]["step_time_s"])
    printed = ROWS[name]["peak_mem_gib"]
    assert run.peak_bytes == (float(printed) * GIB if printed else None)


@each_run
def test_a_run_has_the_degrees_and_the_batch_of_its_row(runs, name):
    row, problem = ROWS[name], runs[name].problem
    assert problem.machine.num_gpus == int(row["num_gpus"])
    assert problem.sequence_length == int(row["seq_len"])
    assert problem.global_batch == int(row["global_batch"])
    for field in ("tp", "pp", "vpp", "cp", "ep", "etp", "micro_batch"):
        if row[field]:
            assert getattr(problem.strategy, field) == int(row[field])
    for field in ("dp_sharding", "transport", "schedule", "routing", "grad_dtype"):
        if row[field]:
            assert getattr(problem.strategy, field) == {"zb-1p": "zb-h1"}.get(row[field], row[field])


@each_run
def test_what_a_row_leaves_blank_is_listed(runs, name):
    row, run = ROWS[name], runs[name]
    columns = ("dp_sharding", "recompute", "grad_dtype", "overlap_grad_reduce", "overlap_tp", "transport", "precision")
    for field in columns:
        if field in FIELDS and not row[field]:
            assert f"strategy.{field}" in run.assumed, field
        if row[field] and row[field] != "fp8":
            assert f"strategy.{field}" not in run.assumed, field


def test_a_part_of_a_node(runs):
    problem = runs["TT-047"].problem
    assert problem.machine.num_gpus == 4
    assert problem.machine.gpus_per_node == 8
    assert runs["TT-047"].row["gpu"] == "b200-class-184gib"  # an alias
    assert problem.machine.gpu.name == "b200-sxm"


def test_a_rack_is_one_domain(runs):
    machine = runs["MB26.08-002"].problem.machine
    assert machine.gpus_per_node == 4
    assert machine.nvlink_domain == 64  # 16 of 18 trays, so that EP64 stays inside
    assert not runs["MB26.08-002"].problem.check()


@pytest.mark.parametrize(
    ("name", "software"),
    [
        ("MB26.08-002", "megatron-bridge-2606"),
        ("MB25.09-001", "megatron-bridge-2025"),
        ("MPT-001", "llm-foundry-pure"),  # 512 GPUs
        ("TT-001", "torchtitan-eager-2024"),  # not compiled
        ("SC21-011", "deepspeed-2021"),
        ("VTM-001", "vtrain"),
        ("SMX-001", "simumax-bench"),
    ],
)
def test_the_software_is_that_of_the_stack_and_its_version(runs, name, software):
    assert runs[name].problem.software.name == software


def test_llm_foundry_shards_by_another_precision_on_some_gpus():
    assert changed("MPT-001", gpu="a100-sxm-80gb", nvlink_domain_size="8").problem.software.name == "llm-foundry-pure"
    for other in ({"gpu": "a100-sxm-80gb", "model": "mpt-30b"}, {"num_gpus": "64"}):
        assert changed("MPT-001", **other).problem.software.name == "llm-foundry"


def test_fp8_of_unknown_kind_is_delayed_on_hopper_and_current_on_blackwell(runs):
    assert runs["MB25.09-001"].problem.strategy.precision == "fp8-current"
    assert "strategy.precision" in runs["MB25.09-001"].assumed
    hopper = changed("MB25.09-001", gpu="h100-sxm-80gb", gpus_per_node="8", nvlink_domain_size="8")
    assert hopper.problem.strategy.precision == "fp8-delayed"


def test_main_weights_that_are_said_to_be_whole(runs):
    assert not runs["MBSK-001"].problem.machine.runtime.main_param_remainders
    silent = changed("MBSK-001", notes="")
    assert silent.problem.machine.runtime.main_param_remainders
    assert runs["MBSK-001"].problem.strategy.overlap_shared_expert
    assert not silent.problem.strategy.overlap_shared_expert


def test_layers_that_do_not_divide_follow_the_rule_of_the_software(runs):
    run = runs["MB26.08-002"]
    assert run.problem.strategy.layout == run.problem.software.runtime.placement.value == "count-embedding-and-loss"
    assert "strategy.layout" in run.assumed
    printed = changed("MB26.08-002", notes="pp_layout=Et*4|(t*4|)*14tmL", pp="4", vpp="4")
    assert printed.problem.strategy.layout == "Et*4|(t*4|)*14tmL"
    assert "strategy.layout" not in printed.assumed


def test_a_recomputation_that_is_not_printed_is_one_that_fits(runs):
    """The cheapest of a list where the default of the software does not fit; the printed one is never touched."""
    run = runs["MB26.08-002"]
    assert "strategy.recompute" in run.assumed
    assert evaluate(run.problem, [run.problem.strategy]).fits.all()
    nothing = run.problem.strategy.replace(recompute=())
    if run.problem.strategy.recompute:
        assert not evaluate(run.problem, [nothing]).fits.any()
    assert changed("MB26.08-002", recompute="none").problem.strategy.recompute == ()


@pytest.mark.parametrize(
    ("values", "rule", "reason"),
    [
        ({"gpu": "mi300x"}, "refused-by-name", "mi300x is not modelled: an AMD GPU"),
        ({"gpu": "h10"}, "unknown-gpu", "no GPU 'h10'"),
        ({"model": "qwen4"}, "unknown-model", "no model 'qwen4'"),
        ({"model": "qwen3-next-80b-a3b"}, "refused-by-name", "hybrid"),
        ({"global_batch": ""}, "not-printed", "global_batch is not printed"),
        ({"model": "", "gpu": ""}, "not-printed", "model, gpu is not printed"),
        ({"global_batch": "2047"}, "batch", "does not divide"),
        ({"num_gpus": "12"}, "invalid-row", "12 GPUs are not whole nodes of 8"),
        ({"nic_gbps_per_gpu": "13"}, "invalid-row", "no node of h100-sxm-80gb has"),
        ({"precision": "nvfp4"}, "precision-of-the-gpu", "no rate for precision nvfp4"),
        ({"schedule": "dualpipe", "vpp": "1"}, "megatron-core: schedules", "no schedule 'dualpipe' in this framework"),
        ({"cuda_graph": "attn+mamba"}, "not-modelled-yet", "CUDA graphs of Mamba layers (cuda_graph attn+mamba)"),
        ({"cuda_graph": "full"}, "cuda-graph-syncs", "row counts that transport deepep has"),
        ({"transport": "pigeons"}, "known-transport", "no transport 'pigeons'"),
    ],
)
def test_why_a_row_is_refused(values, rule, reason):
    refused = changed("MCP-004", **values)
    assert isinstance(refused, Refused)
    assert refused.rule == rule
    assert reason in refused.reason


def test_a_table_without_the_columns_is_no_table(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text("run_id,model\na,b\n")
    with pytest.raises(SpecError, match="columns global_batch, gpu, num_gpus, seq_len are missing"):
        list(read_runs(path))


TABLE = root().parent / "shared" / "data" / "runs_dev.csv"
NOT_YET = ("CUDA graphs of Mamba", "unsupported")


@pytest.mark.skipif(not TABLE.is_file(), reason="the whole table is not part of the project")
def test_every_row_of_the_whole_table_is_answered_or_refused():
    runs = list(read_runs(TABLE))
    refused = [one for one in runs if isinstance(one, Refused)]
    counts = Counter(one.rule for one in refused)
    print(f"{len(runs)} rows, refused: {dict(counts)}")
    assert {one.run_id: one.rule for one in refused}["MB25.09-008"] == "expert-ranks"
    assert set(counts) <= {
        "not-modelled-yet",
        "not-printed",
        "refused-by-name",
        "expert-ranks",
        "overlap-shared-expert",
        "state-does-not-fit",
    }
    # 70 B parameters with TP 1, PP 1 and ZeRO-1: the printed layout cannot hold its training state
    assert [one.run_id for one in refused if one.rule == "state-does-not-fit"] == ["MB26.02.01-001"]
    assert all(any(word in one.reason for word in NOT_YET) for one in refused if one.rule == "not-modelled-yet")
    assert len(refused) - counts["not-modelled-yet"] <= 5
    too_large = set()
    for run in runs:
        if isinstance(run, Run):
            answer = evaluate(run.problem, [run.problem.strategy])
            assert answer.legal.all(), run.run_id
            assert np.isfinite(answer.step_time_s).all(), run.run_id
            if run.row["status"] == "ok" and not answer.fits.all():
                too_large.add(run.run_id)
    assert too_large == TOO_LARGE


def test_adapters_and_offload_are_estimated_with_what_the_row_does_not_say(runs):
    lora, moved = runs["MB26.06-037"], runs["MB26.04.01-001"]
    assert (lora.problem.strategy.adapter, lora.problem.strategy.adapter_targets) == ("lora:32", "linear")
    assert {"strategy.adapter", "strategy.adapter_targets"} <= set(lora.assumed)
    share = moved.problem.strategy.activation_offload
    assert 0 < share <= 1
    assert "strategy.activation_offload" in moved.assumed
    less = moved.problem.strategy.replace(activation_offload=share - 0.25)
    assert share == 0.25 or not evaluate(moved.problem, [less]).fits.all()
    assert changed("MPT-001", offload="optimizer").problem.strategy.optimizer_offload == 1


def test_a_row_may_say_which_memory_it_prints():
    own = changed("MPT-001", peak_mem_gib="40")
    told = changed("MPT-001", peak_mem_gib="40", peak_mem_kind="active")
    assert (own.peak_kind, told.peak_kind) == ("reserved", "active")
    refused = changed("MPT-001", peak_mem_kind="activ")
    assert isinstance(refused, Refused)
    assert "did you mean 'active'" in refused.reason


def test_batches_of_one_configuration_share_it():
    one, twice = changed("MPT-001"), changed("MPT-001", global_batch="8192")
    assert one.configuration == twice.configuration
    assert one.configuration != changed("MPT-001", micro_batch="4").configuration
