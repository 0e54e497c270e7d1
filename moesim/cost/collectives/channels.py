"""How many SMs a collective takes: one a channel."""

import numpy as np

from moesim.base.numeric import Numeric
from moesim.cost.collectives.elementwise import larger, pick, smaller
from moesim.cost.machine import Group

THREADS = {"ll": 512, "ll128": 640, "simple": 512}
BYTES_PER_THREAD = {"ll": 8, "ll128": 8, "simple": 64}
NODE, NET, NVLS = 24.0, 16.0, 16.0
"""Channels of a communicator inside a node, across nodes, and of NVLS."""


def num_channels(algorithm: str, protocol: str, size: Numeric, group: Group) -> Numeric:
    r"""Channels, each on an SM of its own, that a collective uses. [-]

    .. math:: c = \mathrm{clip}\left(\left\lfloor \frac{S}{threads \cdot threshold} \right\rfloor, 1, c_{max}\right)

    References
    ----------
    nccl-2.30.7 (enqueue.cc): channels are dropped while each would get less than its threads' threshold.
    """
    if algorithm == "copy-engine":
        return 0.0 * size
    most = NVLS if algorithm in ("nvls", "nvlstree") else pick(group.nodes > 1, NET, NODE)
    threshold = BYTES_PER_THREAD[protocol] * THREADS[protocol]
    if (algorithm, protocol) == ("ring", "ll"):
        return larger(1.0, smaller(most, np.floor(size / (threshold * group.size))))
    return larger(1.0, smaller(most, np.floor(size / threshold)))
