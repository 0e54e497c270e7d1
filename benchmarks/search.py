"""How fast a search is: plans a second over a large space, beside a loop of single estimates in the same run."""

import resource
import sys
import time
from dataclasses import replace

import moesim
from moesim.studies.search.pool import Pool
from moesim.studies.search.space import space
from moesim.studies.search.walk import Walk

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
    """Print a line for each measurement; seconds are of the processor, so that others on the machine do not count."""
    job = problem()
    whole, started = space(job, SMALL if "--small" in sys.argv else VARY), time.process_time()
    pool = Pool(job, TOP)
    walk = Walk(whole, pool)
    walk.run()
    busy, counts = time.process_time() - started, walk.counts
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"{whole.size:,} plans of {job.model.name} on {job.machine.num_gpus:,} GPUs: {counts.legal:,} legal, "
        f"{counts.bounded:,} of them left out by a bound, {counts.fitting:,} of the others fit, {pool.runs:,} run exactly "
        f"for the best {TOP}; {busy:.1f} s of one core, {whole.size / busy:,.0f} plans/s, {counts.legal / busy:,.0f} legal "
        f"ones/s; {memory:.2f} GiB at most"
    )
    chosen = [one.strategy for one in pool.best[:SINGLES]]
    started = time.process_time()
    for strategy in chosen:
        moesim.estimate(job, strategy)
    single = (time.process_time() - started) / len(chosen)
    print(
        f"one estimate: {1e3 * single:.0f} ms; a plan of the search is {whole.size * single / busy:,.0f} times as fast, a "
        f"legal one {counts.legal * single / busy:,.0f} times"
    )


if __name__ == "__main__":
    main()
