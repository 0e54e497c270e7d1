"""How well prices of collectives and legs are known: by regime, wider outside what was measured, marked there."""

import numpy as np
import pytest

from moesim.cost.certainty import (
    NET,
    NODE,
    OUTSIDE,
    UNCALIBRATED,
    collective_certainty,
    leg_certainty,
    quantiles,
)
from moesim.cost.machine import Group, Residuals
from moesim.workload.ops import ExpertLeg

NORMAL = 2 * 1.6449
KNOWN = {
    NODE: Residuals(
        {"all-gather-node-large": (-0.1, 0, 0.1), "all-gather-node-small": (-0.3, 0, 0.1)},
        {"size_bytes": (1024, 2**30), "ranks": (2, 8)},
    ),
    NET: Residuals({"all-gather-net-large": (-0.2, 0, 0.2)}, {"size_bytes": (2**25, 2**34), "nodes": (10, 10)}, 1.5),
    "transport-deepep": Residuals({"inter-dispatch": (-0.1, 0, 0.2)}, {"tokens": (1, 1e5), "nodes": (1, 4)}),
}


@pytest.mark.parametrize(
    ("size", "group", "sigma", "covered"),
    [
        (2**25, Group(8.0, 8.0), 0.2 / NORMAL, True),
        (2**10, Group(8.0, 8.0), 0.4 / NORMAL, True),
        (2**32, Group(8.0, 8.0), OUTSIDE * 0.2 / NORMAL, False),
        (2**32, Group(80.0, 8.0), 1.5 * 0.4 / NORMAL, True),
        (2**32, Group(16.0, 8.0), 1.5 * 0.4 / NORMAL, False),  # carried over already: not widened twice
        (2**10, Group(80.0, 8.0), UNCALIBRATED.sigma(), False),
        (2**40, Group(8.0, 8.0), OUTSIDE ** np.log10(2**10) * 0.2 / NORMAL, False),  # the further, the wider
        (2**32, Group(8e6, 8.0), OUTSIDE**5 * 0.4 / NORMAL, False),
        (2**10, Group(8e6, 8.0), OUTSIDE**5 * UNCALIBRATED.sigma(), False),
        (2**32, Group(1.0, 1.0), 0.0, True),
        (0.0, Group(8.0, 8.0), 0.0, True),
    ],
)
def test_certainty_of_a_collective(size, group, sigma, covered):
    found = collective_certainty("all-gather", size, group, KNOWN)
    assert found.sigma == pytest.approx(sigma)
    assert bool(found.covered) == covered


def test_columns_are_what_scalars_are():
    sizes, groups = np.array([2.0**10, 2**25, 2**32]), [Group(8.0, 8.0), Group(1.0, 1.0), Group(80.0, 8.0)]
    columns = Group(np.array([one.size for one in groups]), np.array([one.per_node for one in groups]))
    found = collective_certainty("all-gather", sizes, columns, KNOWN)
    alone = [collective_certainty("all-gather", size, one, KNOWN) for size, one in zip(sizes, groups, strict=True)]
    assert found.sigma.tolist() == [float(one.sigma) for one in alone]
    assert found.covered.tolist() == [bool(one.covered) for one in alone]


def test_nothing_measured_is_wide_and_marked():
    found = collective_certainty("all-reduce", 2**30, Group(8.0, 8.0), {})
    assert found.sigma == pytest.approx(UNCALIBRATED.sigma())
    assert not found.covered
    assert quantiles(None, "all-reduce-node-large", {}) == (-0.5, 0.35, False)


@pytest.mark.parametrize(
    ("transport", "leg", "group", "sigma", "covered"),
    [
        ("deepep", ("dispatch", 4096), Group(32.0, 8.0), 0.3 / NORMAL, True),
        ("deepep", ("dispatch", 4096), Group(64.0, 8.0), OUTSIDE * 0.3 / NORMAL, False),
        ("deepep", ("combine", 4096), Group(32.0, 8.0), UNCALIBRATED.sigma(), False),
        ("hybridep", ("dispatch", 4096), Group(32.0, 8.0), UNCALIBRATED.sigma(), False),
        ("deepep", ("dispatch", 4096), Group(1.0, 1.0), 0.0, True),
    ],
)
def test_certainty_of_a_leg(transport, leg, group, sigma, covered):
    direction, tokens = leg
    found = leg_certainty(transport, ExpertLeg(direction, tokens, 8, 256, 7392), group, KNOWN)
    assert found.sigma == pytest.approx(sigma)
    assert bool(found.covered) == covered


def test_a_block_exchange_is_known_as_its_collective():
    leg, group = ExpertLeg("dispatch", 4096, 8, 256, 14336), Group(8.0, 8.0)
    residuals = {NODE: Residuals({"all-to-all-node-large": (-0.1, 0, 0.3)})}
    expected = collective_certainty("all-to-all", 4096 * 8 * 14336, group, residuals)
    assert leg_certainty("nccl-alltoall", leg, group, residuals) == expected
    assert expected.covered


def test_a_machine_carries_the_residuals_of_its_links(small):
    known = small.machine.residuals
    assert known[NODE].stretch == known[NET].stretch == known["transport-deepep"].stretch == 1
    assert "all-gather-node-large" in known[NODE].quantiles
    carried = small.with_changes({"nic.bandwidth": "800 Gb/s"}).machine.residuals
    assert carried["transport-deepep"].stretch > 1
