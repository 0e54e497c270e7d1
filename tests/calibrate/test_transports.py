"""Fits of dispatch and combine on rows that are made up."""

import numpy as np
import pandas as pd
import pytest

from moesim.base.errors import SpecError
from moesim.calibrate.transports import Legs, fit_leg, usual_node, wire_bandwidth
from moesim.spec import library

CONSTANTS = {name: one.value for name, one in library.uncalibrated_transport("deepep").constants.items()}
RATE = "intra_dispatch_nvlink_bandwidth"
WIRES = 371e9


def rows(rate):
    """Dispatches of DeepEP in a node, with an NVLink rate of one's choice and SMs for which it binds in the long ones."""
    table = pd.DataFrame(
        [(2.0**power, sms) for power in range(6, 17) for sms in (8.0, 24.0, 48.0)], columns=["tokens", "num_sms"]
    ).assign(direction="dispatch", nodes=1.0, ranks=8.0, per_node=8.0, hidden=7168.0, top_k=8, num_experts=256)
    table["row_bytes"] = table.hidden * (1 + 4 / 128)
    return table.assign(time_s=Legs(table).seconds({**CONSTANTS, RATE: rate}))


@pytest.mark.parametrize("rate", [250e9, 350e9])
def test_a_fit_finds_the_rate_that_binds(rate):
    assert fit_leg(rows(rate), False, CONSTANTS, WIRES).values[RATE] == pytest.approx(
        rate, rel=0.04
    )  # priors pull a little


def test_no_fit_finds_more_than_the_wires_carry():
    free, bounded = (fit_leg(rows(450e9), False, CONSTANTS, wires).values[RATE] for wires in (1e12, WIRES))
    assert free > 1.1 * WIRES
    assert bounded <= WIRES * (1 + 1e-9)


def test_the_payload_of_the_wires_is_the_best_that_is_measured_over_them():
    assert wire_bandwidth("h100-sxm-80gb") == WIRES
    assert np.isclose(wire_bandwidth("h800-sxm-80gb"), 164.8e9)
    with pytest.raises(SpecError, match="no node of"):
        usual_node("no-such-gpu")


def test_what_is_shipped_stays_within_them():
    shipped = library.get("transports", "deepep").constants
    for name in (RATE, "intra_combine_nvlink_bandwidth"):
        assert 0.8 * WIRES < shipped[name].value < WIRES
