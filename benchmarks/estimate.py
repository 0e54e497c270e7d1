"""How long estimates take: one with everything around it, scalar calls, and a batch of the same strategies."""

import statistics
import time
from collections.abc import Callable
from itertools import product

import moesim

NAMES = ("qwen3-235b-h100x256", "zoo-002", "zoo-004")


def seconds(call: Callable[[], object], repeats: int = 5) -> float:
    """Median of a few calls, after one that fills the caches."""
    call()
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def main() -> None:
    """Print a line for each measurement."""
    for name in NAMES:
        problem = moesim.load(name)
        graph = moesim.estimate(problem).timeline.graph.graph
        print(f"one estimate of {name}: {1e3 * seconds(lambda p=problem: moesim.estimate(p)):.0f} ms, "
              f"{graph.num_tasks:,} tasks")  # fmt: skip
    problem = moesim.load(NAMES[0])
    degrees = product((1, 2, 4, 8, 16, 32), (1, 2, 4, 8, 16, 32))
    shapes = [{"ep": ep, "etp": etp} for ep, etp in degrees if ep * etp <= 32]
    strategies = [problem.strategy.replace(**shape) for shape in shapes]
    assert moesim.evaluate(problem, strategies).legal.all()
    scalar = seconds(lambda: [moesim.evaluate(problem, [strategy]) for strategy in strategies], repeats=3)
    print(f"{len(strategies)} strategies of one shape, one by one: {1e3 * scalar / len(strategies):.1f} ms each")
    for times in (1, 8, 64):
        many = strategies * times
        batch = seconds(lambda m=many: moesim.evaluate(problem, m), repeats=3)
        ratio = scalar / len(strategies) / (batch / len(many))
        print(f"{len(many):,} in one batch: {1e6 * batch / len(many):.0f} us each, {ratio:.0f} times as fast")


if __name__ == "__main__":
    main()
