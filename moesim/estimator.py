"""One estimate, from a problem and a strategy to an answer. This page calls; the layers below compute."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from moesim.base.checked import optional
from moesim.cost.blocks import plan_blocks, repriced
from moesim.cost.memory import plan_memory
from moesim.cost.perturb import constants, perturbed
from moesim.cost.pipeline import CLASSES, step_times
from moesim.cost.plan import Plan
from moesim.cost.uncertainty import PriceErrors, families
from moesim.intervals import evidence_grade, interval
from moesim.problem import Named, Problem, as_problem
from moesim.reading import (
    breakdown,
    elasticities,
    memory_answer,
    out_of_memory,
    plain_strategy,
    routing_answer,
    strongest_need,
)
from moesim.result import Estimate, Timeline
from moesim.timeline.run import run_columns
from moesim.timeline.walk import busy_seconds, idle_fraction, last_rank
from moesim.workload.strategy import Strategy


def estimate(problem: Named, strategy: Strategy | None = None, measured_s: float | None = None) -> Estimate:
    """Estimate one training step.

    Parameters
    ----------
    problem
        From :func:`moesim.load`, or what that takes.
    strategy
        Left out: the scenario's own.
    measured_s
        A measured step time to set beside the answer. [s]

    Raises
    ------
    SpecError
        With one issue per rule that the strategy breaks. A strategy that does not fit in memory is an answer.
    """
    problem = as_problem(problem, "estimate")
    measured_s = optional("estimate", "measured_s", measured_s)
    plan = problem.plan(strategy)
    memory = plan_memory(plan)

    paths = list(constants(plan.machine, plan.strategy.transport))
    names = families(plan.machine, plan.strategy.transport)
    varied, keep, errors = _with_columns(plan, paths, names)
    times = step_times(varied, repriced(plan_blocks(plan), varied), keep)
    makespan, first = run_columns(times.graph.graph, times.durations, times.delays)
    step_time, *others = makespan.tolist()
    exposed, moved = others[: len(CLASSES)], others[len(CLASSES) : len(CLASSES) + len(paths)]
    raised = {name: (makespan[all_], makespan[far]) for name, (all_, far) in errors.columns.items()}

    seconds = breakdown(times, first)
    needs = elasticities(problem.machine, paths, moved, step_time)
    spread = interval(
        plan.machine, step_time, raised, needs, tuple(errors.outside), tuple(errors.uncalibrated), problem.assumed
    )
    answer = memory_answer(memory, problem.machine)
    tokens = problem.global_batch * problem.sequence_length
    flop_per_token = plan.flop_per_token
    flop_rate = flop_per_token * tokens / problem.machine.num_gpus / step_time
    violations = out_of_memory(answer, problem.machine)
    return Estimate(
        name=problem.name,
        feasible=not violations,
        violations=violations,
        step_time_s=step_time,
        tokens_per_s_per_gpu=tokens / step_time / problem.machine.num_gpus,
        model_flop_per_token=flop_per_token,
        flops_convention="causal",
        tflop_per_s_per_gpu=flop_rate / 1e12,
        mfu=flop_rate / problem.machine.gpu.bf16_flop_rate,
        bubble_fraction=float(idle_fraction(times.graph, first)),
        walked_stage=last_rank(times.graph, first),
        busy_s=busy_seconds(times.graph, first),
        sustained_clock=float(np.ravel(plan_blocks(plan).clock)[0]) if plan.machine.gpu.power else None,
        breakdown_s=seconds,
        exposed_s={name: step_time - without for name, without in zip(CLASSES, exposed, strict=True)},
        low_s=spread.low_s,
        high_s=spread.high_s,
        interval=spread,
        memory=answer,
        binding=strongest_need(needs),
        evidence=evidence_grade(spread, needs),
        assumed=problem.assumed,
        layout=str(plan.strategy.layout),
        routing=routing_answer(plan),
        measured=_beside(problem if plan.strategy == problem.strategy else None, measured_s, step_time),
        strategy=plain_strategy(plan.strategy),
        constants=needs,
        timeline=Timeline(times.graph, first),
    )


def _with_columns(
    plan: Plan, paths: list[str], names: tuple[str, ...]
) -> tuple[Plan, dict[str, np.ndarray], PriceErrors]:
    """The plan in columns: as it is, without each class, with each constant raised, with each family's prices raised."""
    start = 1 + len(CLASSES) + len(paths)
    columns = start + 2 * len(names)
    machine = perturbed(plan.machine, paths, 1 + len(CLASSES), columns)
    keep = {name: np.ones(columns) for name in CLASSES}
    for column, name in enumerate(CLASSES, start=1):
        keep[name][column] = 0.0
    raised = {name: (start + 2 * place, start + 2 * place + 1) for place, name in enumerate(names)}
    errors = PriceErrors(plan.machine, plan.strategy.transport, raised, columns)
    return replace(plan, machine=machine, shape=(columns,), errors=errors), keep, errors


def _beside(problem: Problem | None, measured_s: float | None, step_time: float) -> dict[str, object] | None:
    """The measured step beside the predicted one; the error is signed, (predicted - measured) / measured.

    ``problem`` where the strategy is its own: what its scenario measured says nothing about another one,
    nor about a machine with a fault.
    """
    spec = problem.measured if problem and problem.slow is None else None
    value = measured_s if measured_s is not None else (spec.step_time if spec else None)
    if value is None:
        return None
    origin = "--measured" if measured_s is not None else (spec.source if spec else "")
    return {"step_time_s": value, "error": step_time / value - 1, "source": origin}
