"""Measures of a graph: bisection by minimum cut, diameter, fair shares."""

from __future__ import annotations

from collections.abc import Sequence

from moesim.fabric.graph import Topology, Vertex
from moesim.fabric.routes import Link, Loads


def bisection(topology: Topology) -> float:
    """Capacity between two halves of the fabric, each way, by minimum cut; the least over its natural halves. [B/s]

    References
    ----------
    goldberg1988, preflow-push, as in networkx.
    """
    import networkx as nx
    from networkx.algorithms.flow import preflow_push

    cuts = []
    for half in topology.fabric.halves():
        joined = topology.graph.to_directed()
        for rank, gpu in enumerate(topology.gpus):
            if rank in half:
                joined.add_edge(("source",), gpu)
            else:
                joined.add_edge(gpu, ("sink",))
        value, _ = nx.minimum_cut(joined, ("source",), ("sink",), flow_func=preflow_push)
        cuts.append(float(value))
    return min(cuts)


def diameter(topology: Topology) -> int:
    """Links on the longest of the shortest paths between two GPUs. [-]"""
    import networkx as nx

    gpus = topology.gpus
    longest = 0
    for gpu in gpus:
        away = nx.single_source_shortest_path_length(topology.graph, gpu)
        longest = max(longest, *(away[other] for other in gpus))
    return longest


def fair_shares(topology: Topology, groups: Sequence[Loads]) -> list[float]:
    """Max-min fair rates of groups that run at the same time. [B/s for each rank]

    The rates of all groups rise together; a group stops where one of its links is full. A group that uses no link has
    an infinite rate.

    References
    ----------
    bertsekas1992, section 6.5.2.
    """
    edges = topology.graph.edges
    users: dict[Link, dict[int, float]] = {}
    for number, loads in enumerate(groups):
        for link, load in loads.items():
            if load > 0:
                users.setdefault(link, {})[number] = load
    left = {link: float(edges[link]["capacity"]) for link in users}
    demand = {link: sum(shares.values()) for link, shares in users.items()}
    rates = [float("inf")] * len(groups)
    while users:
        rate, full = min((left[link] / demand[link], link) for link in users)
        for number in list(users[full]):
            rates[number] = rate
            for link, load in groups[number].items():
                if link in users and number in users[link]:
                    left[link] -= rate * load
                    demand[link] -= users[link].pop(number)
                    if not users[link]:
                        del users[link]
    return rates


def reachable(topology: Topology) -> list[set[Vertex]]:
    """GPUs that reach each other, the largest set first."""
    import networkx as nx

    parts = ({vertex for vertex in part if vertex[0] == "gpu"} for part in nx.connected_components(topology.graph))
    return sorted((part for part in parts if part), key=len, reverse=True)
