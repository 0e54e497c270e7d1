"""How fast a search is: plans a second over a large space, beside a loop of single estimates in the same run."""

import resource
import sys
import time
from dataclasses import replace

import moesim
from moesim.studies.search.search import Search

VARY = {
    "tp": [1, 2, 4, 8],
    "cp": [1, 2, 4, 8],
    "pp": [1, 2, 4, 8, 16],
    "vpp": [1, 2, 4],
    "ep": "auto",
    "etp": [1, 2, 4, 8],
    "micro_batch": "auto",
    "schedule": "auto",
    "layout": ["count-embedding-and-loss"],
    "recompute": [[], ["full"], ["moe_act"], ["mla_up_proj"], ["core_attn"], ["mlp"]],
    "transport": ["deepep", "hybridep", "nccl-alltoall"],
}
"""Degrees, schedules, recomputation and transports of DeepSeek-V3."""
SMALL = VARY | {"recompute": [[], ["full"]], "transport": ["deepep"]}
TOP = 50
SINGLES = 20


def problem() -> moesim.Problem:
    """DeepSeek-V3 on 2,048 H100, with a framework that has every schedule."""
    named = moesim.from_names("deepseek-v3", "hgx-h100:256").with_changes(
        {"global_batch": 15360, "sequence_length": 4096}
    )
    rules = tuple(rule for rule in named.software.rules if rule.name != "schedules")
    return replace(named, software=named.software.model_copy(update={"rules": rules}))


def main() -> None:
    """Print a line for each measurement."""
    job = problem()
    started = time.process_time()
    found: Search = moesim.search(job, SMALL if "--small" in sys.argv else VARY, top=TOP)
    busy = time.process_time() - started
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"{found.plans_total:,} plans of {job.model.name} on {job.machine.num_gpus:,} GPUs: {found.plans_legal:,} legal, "
        f"{found.plans_fitting:,} fit, {found.runs:,} run exactly for the best {TOP}; {found.seconds:.1f} s, "
        f"{found.plans_per_s:,.0f} plans/s ({busy:.1f} s of one core with the estimates of the best), {found.plans_legal / found.seconds:,.0f} legal ones/s; {memory:.2f} GiB at most"
    )
    chosen = [one.plan.strategy for one in found.top[:SINGLES]]
    started = time.perf_counter()
    for strategy in chosen:
        moesim.estimate(job, strategy)
    single = (time.perf_counter() - started) / len(chosen)
    print(
        f"one estimate: {1e3 * single:.0f} ms; a legal plan of the search is {found.plans_legal * single / found.seconds:,.0f} times as fast"
    )


if __name__ == "__main__":
    main()
