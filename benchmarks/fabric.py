"""How long it takes to resolve a fabric of 102,400 GPUs, what memory that needs, and to score orders of axes."""

import resource
import time

import moesim
from moesim.fabric.builders import builders
from moesim.fabric.layout import PATTERNS
from moesim.fabric.shape import Shape
from moesim.fabric.tiers import group_bandwidth
from moesim.studies.placed_groups import step_times_of
from moesim.studies.placement import legal_orders, placements

LAYOUTS = ((102_400, 1), (8, 1), (64, 1), (12_800, 8), (32, 8), (16, 6_400))


def main() -> None:
    """Print a line for each measurement."""
    started = time.perf_counter()
    fabric = builders.get("fat-tree").reduced(Shape(102_400, 8, 8, radix=128, oversubscription=(2.0,)))
    for size, stride in LAYOUTS:
        for pattern in PATTERNS:
            group_bandwidth(fabric, size, stride, pattern)
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    layouts = len(LAYOUTS) * len(PATTERNS)
    print(f"{fabric.world:,} GPUs, {len(fabric.tiers)} tiers, {layouts} layouts: {seconds:.2f} s, peak {peak:.0f} MiB")

    problem = moesim.load("qwen3-235b-h100x256").with_changes({"cp": 2, "etp": 2, "ep": 4})
    started = time.perf_counter()
    orders = len(placements(problem).ranked)
    seconds = time.perf_counter() - started
    print(f"{orders} orders of the axes on {problem.machine.num_gpus} GPUs: {seconds:.2f} s")

    for name in ("rail-ndr400", "fat-tree:3"):
        plan = problem.with_changes({"cluster.fabric": name}).plan()
        many = (legal_orders(plan.mesh) * 1000)[:1000]
        started = time.perf_counter()
        step_times_of(plan, many)
        seconds = time.perf_counter() - started
        print(f"{len(many):,} orders as steps on {name}: {seconds:.2f} s")


if __name__ == "__main__":
    main()
