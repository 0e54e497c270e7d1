r"""What NCCL's tuner knows: latencies of its algorithms and protocols, limits of a channel, and corrections fitted on top.

NCCL predicts each algorithm as :math:`t = \alpha + w S / B` and takes the fastest. Its predictions are 7-13 % off inside a
node and more between nodes, so every algorithm carries three corrections that measurements replace:

.. math:: T = \left[(\lambda \alpha)^p + \left(\frac{w S}{\epsilon B}\right)^p\right]^{1/p} + \kappa \gamma \sqrt{S / 1\,\mathrm{MB}}

Without measurements they are 1, 1 and the ramp of the node. A fourth, the power of a norm in the place of the sum, lets the
start hide behind the transfer, as it does on Blackwell. They are kept by collective, algorithm, protocol and scope: ``pair``, ``quad`` and
``node`` for groups of two, up to four and more GPUs of one NVLink domain, ``net`` across domains and ``two`` across two of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from moesim.base.numeric import Numeric
from moesim.cost.collectives.elementwise import PLAIN, larger, pick, root
from moesim.cost.machine import Group, Links

MEGABYTE = 1e6
MICROSECOND = 1e-6
PROTOCOLS = ("ll", "ll128", "simple")
ALGORITHMS = (
    "ring",
    "tree",
    "nvls",
    "nvlstree",
    "pat",
    "collnet",
    "pairwise",
    "hierarchical",
    "symmetric",
    "copy-engine",
    "torus",
)
SCOPES = ("pair", "quad", "node", "net", "two")

BASE = {"tree": {"ll": 6.8, "ll128": 14.0, "simple": 8.4}, "ring": {"ll": 6.6, "ll128": 14.0, "simple": 8.4}}
"""Start of a collective; 8 for PAT, 0 for NVLS, NVLSTree and CollNet. [us]"""
NVLINK_HOP = {"tree": {"ll": 0.6, "ll128": 1.25, "simple": 4.0}, "ring": {"ll": 0.6, "ll128": 1.9, "simple": 3.4}}
"""One hop over NVLink. [us]"""
NET_HOP = {"tree": {"ll": 5.0, "ll128": 8.5, "simple": 14.0}, "ring": {"ll": 2.7, "ll128": 4.0, "simple": 14.0}}
"""One hop over the network; a fabric that says what a hop of the Simple protocol takes scales them. [us]"""
NVLS_HOP, NVLSTREE_NET_HOP = 25.0, 20.9
SIMPLE_NET_HOP = 14.0
EAGER = "net-eager-bytes"
"""Correction that tells up to which size a network sends without asking first; beyond, the start takes ``late`` times as long."""
LL_SHARE = 141 / 360
"""Bus bandwidth of LL in one node over that of Simple: 141 of 360 GB/s on Hopper, 282 of 722 on Blackwell. [-]"""
LL_NET_BANDWIDTH = {"two": 39e9, "more": 20.4e9}
"""Bus bandwidth of LL over two nodes and over more; the host CPU sets it. [B/s]"""
NIC_OF_A_CHANNEL = 48.5e9
LL128_SHARE = 0.92
LL128_CHANNEL = 36.7e9
"""What one channel carries in LL128. [B/s]"""


def factor(links: Links, name: str, term: str, group: Group, default: float) -> Numeric:
    """Fitted correction of one term; a scope without a fit takes that of ``node`` or ``net``, else the default."""
    fits = links.fits
    if not fits:
        return default
    if isinstance(group.size, PLAIN) and isinstance(group.nodes, PLAIN):
        if group.nodes > 1:
            found = fits.get(f"{name}-two-{term}") if group.nodes == 2 else None
            return found if found is not None else fits.get(f"{name}-net-{term}", default)
        scope = "node" if group.size > 4 else "quad" if group.size > 2 else "pair"
        found = fits.get(f"{name}-{scope}-{term}")
        return found if found is not None else fits.get(f"{name}-node-{term}", default)
    key = (name, term, id(fits))
    if key not in group.fitted:
        group.fitted[key] = (fits, _by_scope(fits, name, term, group, default))  # kept, so that no other gets its id
    factors: Numeric = group.fitted[key][1]
    return factors


def _by_scope(fits: Mapping[str, Numeric], name: str, term: str, group: Group, default: float) -> Numeric:
    """The correction of one term for groups of several sizes."""
    node, net = fits.get(f"{name}-node-{term}", default), fits.get(f"{name}-net-{term}", default)
    pair, quad = fits.get(f"{name}-pair-{term}", node), fits.get(f"{name}-quad-{term}", node)
    inside = pick(group.size > 4, node, pick(group.size > 2, quad, pair))
    across = pick(group.nodes > 2, net, fits.get(f"{name}-two-{term}", net))
    return pick(group.nodes > 1, across, inside)


def corrected(
    name: str, size: Numeric, latency: Numeric, seconds: Numeric, group: Group, links: Links, ramp: Numeric = 0.0
) -> Numeric:
    """Time with the corrections of measurements laid over what NCCL predicts. [s]

    Parameters
    ----------
    name
        Collective, algorithm and protocol: ``all-gather-ring-simple``.
    size
        Bytes, S. [B]
    latency, seconds
        Predicted start, and predicted transfer. [s]
    ramp
        Time beyond these at 1 MB where no fit gives one; it grows with the square root of the size. [s]
    """
    if not links.fits:
        return latency + seconds + ramp * root(size / MEGABYTE)
    start = factor(links, name, "latency", group, 1.0) * latency
    if EAGER in links.fits:
        start = start * pick(size > links.fits[EAGER], factor(links, name, "late", group, 1.0), 1.0)
    bulk = seconds / factor(links, name, "bandwidth", group, 1.0)
    norm = factor(links, name, "norm", group, 1.0)
    both = start + bulk if isinstance(norm, PLAIN) and norm == 1 else (start**norm + bulk**norm) ** (1 / norm)
    return both + factor(links, name, "ramp", group, 1.0) * ramp * root(size / MEGABYTE)


def enabled(links: Links, algorithm: str, protocol: str = "simple") -> bool:
    """Whether the settings allow an algorithm with a protocol."""
    nccl = links.nccl
    if nccl.algorithms is not None and algorithm not in nccl.algorithms:
        return False
    return nccl.protocols is None or protocol in nccl.protocols


def rails(group: Group, links: Links, pattern: Literal["ring", "tree", "grid-share"] = "ring") -> Numeric:
    """What the NICs of the group's ranks in one node carry together, as far as the network lets them. [B/s]"""
    return group.per_node * links.nic_bandwidth * links.nic_ring_efficiency * group.reach.of(pattern)


def lanes(group: Group, links: Links) -> Numeric:
    """Channels of the search graph across nodes: one for every 400 Gb/s of the NICs in use. [-]"""
    return group.per_node * larger(1.0, links.nic_bandwidth / NIC_OF_A_CHANNEL)


def ll_net_bandwidth(group: Group) -> Numeric:
    """Bus bandwidth of LL across nodes. [B/s]"""
    return pick(group.nodes > 2, LL_NET_BANDWIDTH["more"], LL_NET_BANDWIDTH["two"])


def net_hop(algorithm: str, protocol: str, links: Links) -> Numeric:
    """One hop over the network: NCCL's table scaled by what the fabric takes for a Simple hop. [s]"""
    return NET_HOP[algorithm][protocol] / SIMPLE_NET_HOP * links.nic_latency
