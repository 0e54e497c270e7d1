"""PAT: all-gather and reduce-scatter along binomial trees, for groups with one rank a node."""

from functools import partial

from moesim.base.numeric import Numeric
from moesim.cost.collectives import Algorithm, algorithms
from moesim.cost.collectives.elementwise import floor_log2, never, pick
from moesim.cost.collectives.nccl import MICROSECOND, corrected, enabled, rails
from moesim.cost.machine import Group, Links

BASE = 8 * MICROSECOND
PER_RANK = 2.8 * MICROSECOND
SHARE = 0.75


def pat_time(collective: str, size: Numeric, group: Group, links: Links) -> Numeric:
    r"""Time of a PAT all-gather or reduce-scatter; infinite unless each node has one rank. [s]

    .. math:: T = \lambda \left(\alpha_0 + \lfloor \log_2 N \rfloor \frac{h_{net}}{3.5} + 2.8\,\mu s \, n\right)
              + \frac{S}{0.75 \epsilon \beta}

    References
    ----------
    nccl-2.30.7 (tuning.cc)
    """
    if not enabled(links, "pat"):
        return never(size, group.size)
    latency = BASE + floor_log2(group.nodes) * links.nic_latency / 3.5 + PER_RANK * group.size
    time = corrected(f"{collective}-pat-simple", size, latency, size / (SHARE * rails(group, links)), group, links)
    return pick((group.nodes < 2) | (group.per_node > 1), never(size, group.size), time)


for _collective in ("all-gather", "reduce-scatter"):
    algorithms.add(
        f"pat-{_collective}",
        Algorithm(_collective, partial(pat_time, _collective), "pat"),
        summary=f"{_collective.capitalize()} along binomial trees, one rank a node.",
        source="nccl-2.30.7",
    )
