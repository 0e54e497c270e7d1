"""Random strategies over all names: each is refused by a rule with a name, or answered with numbers that hold.

``python benchmarks/fuzz.py [COUNT [SEED]]``; 500 by default.
"""

import random
import sys
import warnings
from collections import Counter
from dataclasses import replace

import moesim
from moesim.problem import Problem
from moesim.studies.fuzz import draw, outcome, pools, used

PROBLEMS = (
    ("olmo-8l-32e", "hgx-b300:2", {"ep": 8, "micro_batch": 2, "sequence_length": 4096, "global_batch": 128}),
    ("moonlight-16b-a3b", "hgx-h100:4", {"ep": 8, "sequence_length": 4096, "global_batch": 128}),
    ("llama3-8b", "hgx-h100:2", {"tp": 2, "sequence_length": 4096, "global_batch": 64}),
    ("deepseek-v3-l4", "hgx-h200:2", {"ep": 16, "sequence_length": 2048, "global_batch": 64}),
    ("gpt-oss-120b", "gb200-nvl72:1", {"ep": 8, "sequence_length": 8192, "global_batch": 144}),
)
"""Models of several attentions, with shared experts, MTP and biases, on domains of 8 and 72 GPUs."""
SOFTWARE = ("megatron-core", "olmo-core", "torchtitan")


def problems() -> list[Problem]:
    """Each model with each framework, and with one that refuses nothing by itself."""
    found = []
    for model, cluster, changes in PROBLEMS:
        found += [moesim.from_names(model, cluster, software).with_changes(changes) for software in SOFTWARE]
        free = found[-1].software.model_copy(update={"rules": ()})
        found.extend([replace(found[-1], software=free)] * 3)
    return found


def main() -> None:
    """Draw, ask, count; an answer that does not hold ends with its strategy."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    pick = random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    asked, choices, refused, answered = problems(), pools(), Counter[str](), []
    warnings.simplefilter("error")
    for _ in range(count):
        problem = pick.choice(asked)
        strategy = draw(problem, pick, choices)
        try:
            found = outcome(problem, strategy)
        except Exception as error:
            raise RuntimeError(f"{problem}: {strategy}") from error
        if found.wrong:
            raise RuntimeError(f"{problem}: {strategy}: {', '.join(found.wrong)}")
        refused.update(found.refused)
        if not found.refused:
            answered.append(strategy)
    missing = sorted(set(choices) - used(answered))
    print(
        f"{count:,} strategies: {len(answered):,} answered, {count - len(answered):,} refused by {len(refused)} rules"
    )
    print(f"never answered away from their off setting: {', '.join(missing) or 'none'}")


if __name__ == "__main__":
    main()
