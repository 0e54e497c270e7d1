"""Write docs/accuracy_fabrics.md: ``python docs/make_accuracy_fabrics.py``.

Measured collectives across nodes and racks against the prices, from tests/published/multi_node.csv, and the expert exchange
inside and across an NVLink domain.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

from moesim.cost.transports import leg_time
from moesim.estimator import estimate
from moesim.problem import load
from moesim.studies.collectives import bus_factor, price, setting
from moesim.studies.step_factors import at_factors

PAGE = Path(__file__).with_name("accuracy_fabrics.md")
ROWS = PAGE.parents[1] / "tests" / "published" / "multi_node.csv"
CAUSES = {
    (
        "hgx-b200:2",
        "all-reduce",
    ): "NVLS tree over two nodes: the price takes the limit of Hopper, 57.7 GB/s for each of 8 channels, and "
    "nothing between B200 nodes is fitted",
    ("hgx-b200:2", "all-gather"): "308 of the 388 GB/s that eight NICs carry; nothing between B200 nodes is fitted",
    ("hgx-b200:2", "reduce-scatter"): "as the all-gather",
    (
        "hgx-b200:2",
        "all-to-all",
    ): "the two presets differ in environment variables alone; the slow one is a fault of settings, which no "
    "price knows, and the fast one reaches four fifths of what H100 nodes do",
    ("hgx-b200:2", "send-recv"): "as the all-to-all",
    (
        "gb200-nvl72:360",
        "all-reduce",
    ): "half of the rate of two racks; the network above the racks is not published, and 2 to 1 "
    "oversubscription there would not explain it: 64 NICs a domain then still carry more",
    (
        "hgx-h100:10",
        "send-recv",
    ): "with eight GPUs a node a message has one channel, which moves 15 GB/s; the price takes 13",
}
"""What lies behind an error of more than 12 %."""
CASES = (
    ("EP8, inside the node", "hgx-h100:32", {"ep": "8"}),
    ("EP32, four nodes", "hgx-h100:32", {}),
    ("EP64, eight nodes", "hgx-h100:32", {"ep": "64", "pp": "4", "vpp": "1", "schedule": "1f1b"}),
    (
        "EP64, inside the rack",
        "gb200-nvl72:64",
        {
            "cluster.node": "gb200-nvl72",
            "cluster.count": "64",
            "ep": "64",
            "pp": "4",
            "vpp": "1",
            "schedule": "1f1b",
            "transport": "hybridep",
        },
    ),
)


@dataclass(frozen=True)
class Row:
    """A measured call beside its price."""

    collective: str
    cluster: str
    per_node: int
    fitted: bool
    setting: str
    source: str
    measured: float
    expected: float
    algorithm: str

    @property
    def error(self) -> float:
        """Predicted over measured bus bandwidth, minus one. [-]"""
        return self.expected / self.measured - 1

    def line(self) -> str:
        """Line of the table; what is known of a large error."""
        cause = CAUSES.get((self.cluster, self.collective), "") if abs(self.error) > 0.12 else ""
        told = f"{self.measured / 1e9:.1f} | {self.expected / 1e9:.1f} | {self.error:+.1%} | {self.algorithm}"
        name = self.collective + (f" ({self.setting})" if self.setting else "")
        fitted = "yes" if self.fitted else ""
        return f"| {self.cluster} | {self.per_node} | {name} | {told} | {fitted} | {cause} | {self.source} |"


def rows() -> list[Row]:
    """Every measured call."""
    found = []
    with ROWS.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            where, size = setting(row["cluster"], int(row["gpus_per_node"])), float(row["size_bytes"])
            answer = price(row["collective"], size, where, explain=False)
            measured = bus_factor(row["collective"], where.group) * size / (float(row["time_us"]) * 1e-6)
            names = row["cluster"], int(row["gpus_per_node"]), row["fitted"] == "yes", row["setting"], row["source"]
            found.append(Row(row["collective"], *names, measured, answer.busbw, answer.algorithm))
    return found


def exchange_lines() -> list[str]:
    """One dispatch and the step of Qwen3-235B with the experts inside and across the NVLink domain, nothing fitted to steps."""
    lines = []
    for name, cluster, changes in CASES:
        problem = load("qwen3-235b-h100x256")
        problem = at_factors(problem.with_changes(changes) if changes else problem, {})
        plan, answer = problem.plan(), estimate(problem)
        leg = plan.leg
        assert leg is not None
        spent = float(leg_time(plan.transport, leg, plan.expert_group, plan.machine))
        share = answer.exposed_s["ep"] / answer.step_time_s
        told = f"{spent * 1e6:.0f} | {answer.step_time_s:.2f} | {answer.exposed_s['ep']:.2f} | {share:.1%}"
        lines.append(f"| {name} | {cluster} | {plan.strategy.transport} | {told} |")
    return lines


def page() -> str:
    """The page."""
    table = "\n".join(row.line() for row in rows())
    exchange = "\n".join(exchange_lines())
    return f"""# Accuracy across nodes and racks

Bus bandwidth of large messages (1 to 16 GiB), as nccl-tests count it, against the price. Written by
`docs/make_accuracy_fabrics.py` from `tests/published/multi_node.csv`; errors are signed, predicted over measured minus
one. Rows that a calibration was fitted to are marked: they are no validation.

| nodes | GPUs a node | collective | measured GB/s | predicted GB/s | error | chosen | fitted | what lies behind | source |
| --- | ---: | --- | ---: | ---: | ---: | --- | --- | --- | --- |
{table}

What the table says, and what the prices say too:

* An all-to-all does not add up NICs: 45-50 GB/s on ten nodes whatever the GPUs of a node.
* Rings do: 48, 97, 194 and 324 GB/s for all-gather with 1, 2, 4 and 8 GPUs a node; the last meets NVLink and channels.
* Leaving the NVLink domain takes an all-to-all from 673 GB/s in a B200 node to 42-69 between two.
* A rack of 72 keeps its all-reduce at 835-937 GB/s, as NVLS in one domain.

## Experts inside and across the NVLink domain

Qwen3-235B-A22B, 256 GPUs, one dispatch of one micro-batch, and the step:

| experts | nodes | transport | a dispatch, us | step, s | EP exposed, s | share of the step |
| --- | --- | --- | ---: | ---: | ---: | ---: |
{exchange}

Inside a node the rows of a token cross NVLink. Across nodes each token goes once to every node that holds one of its experts, over one
NIC of 48.5 GB/s: with four nodes 3.6 copies of which three quarters leave, with eight 5.3 of which seven eighths do, so a dispatch takes
3.5 and 5.8 times as long. What of it is exposed is less than the exchange where the host, not the GPU, limits the step.
A rack holds all 64 ranks in one domain: the exchange is as long as in a node, and nothing of it is exposed.
"""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
