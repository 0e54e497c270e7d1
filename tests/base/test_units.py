import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moesim.base.units import DIMENSIONS, format_quantity, parse_quantity


@pytest.mark.parametrize(
    ("text", "dimension", "value"),
    [
        ("989.4 TFLOP/s", "flop_rate", 989.4e12),
        ("1 PFLOPS", "flop_rate", 1e15),
        ("3.35 TB/s", "bandwidth", 3.35e12),
        ("3.35TB/s", "bandwidth", 3.35e12),
        ("400 Gb/s", "bandwidth", 50e9),
        ("400 Gbps", "bandwidth", 50e9),
        ("2 GiB/s", "bandwidth", 2 * 2**30),
        ("81559 MiB", "bytes", 81559 * 2**20),
        ("64 GiB", "bytes", 64 * 2**30),
        ("80 GB", "bytes", 80e9),
        ("14 us", "time", 14e-6),
        ("14 µs", "time", 14e-6),
        ("19.7s", "time", 19.7),
        ("41.3 ms", "time", 0.0413),
        ("700 W", "power", 700.0),
        ("100 GFLOP", "flop", 1e11),
        ("1.98 GHz", "frequency", 1.98e9),
        ("2.5 USD", "money", 2.5),
    ],
)
def test_quantities_become_si(text: str, dimension: str, value: float) -> None:
    assert parse_quantity(text, dimension) == pytest.approx(value, rel=1e-15)


@pytest.mark.parametrize(
    ("text", "dimension", "message"),
    [
        ("400", "bandwidth", "'400' has no unit; write for example '400 Gb/s'"),
        ("80 G", "bytes", "'80 G' has a prefix but no unit; write for example '80 GiB'"),
        ("80 Gb", "bytes", "'80 Gb' is not a number of bytes [B]; write for example '80 GiB'"),
        ("700 W", "bandwidth", "'700 W' is not a bandwidth [B/s]; write for example '400 Gb/s'"),
        ("3.35 TB", "bandwidth", "'3.35 TB' is not a bandwidth [B/s]; write for example '400 Gb/s'"),
        ("2 mins", "time", "'2 mins' is not a time [s]; write for example '14 us'"),
        ("fast", "time", "'fast' is not a quantity; write for example '14 us'"),
        ("", "time", "'' is not a quantity; write for example '14 us'"),
        ("nan s", "time", "'nan s' is not finite; write for example '14 us'"),
    ],
)
def test_what_is_wrong_and_what_to_write(text: str, dimension: str, message: str) -> None:
    with pytest.raises(ValueError, match=rf"\A{re.escape(message)}\Z"):
        parse_quantity(text, dimension)


@pytest.mark.parametrize(
    ("value", "dimension", "text"),
    [
        (0.0413, "time", "41.3 ms"),
        (0.0, "time", "0 s"),
        (1e-12, "time", "0.001 ns"),
        (0.99999, "time", "1 s"),
        (0.00099999, "time", "1 ms"),
        (19.7, "time", "19.7 s"),
        (85520809984.0, "bytes", "79.65 GiB"),
        (512.0, "bytes", "512 B"),
        (245.12e12, "flop_rate", "245.1 TFLOP/s"),
        (50e9, "bandwidth", "50 GB/s"),
        (-0.002, "time", "-2 ms"),
    ],
)
def test_what_people_read(value: float, dimension: str, text: str) -> None:
    assert format_quantity(value, dimension) == text


@given(st.floats(1e-9, 1e20), st.sampled_from(sorted(DIMENSIONS)))
def test_what_is_written_is_read_again(value: float, dimension: str) -> None:
    assert parse_quantity(format_quantity(value, dimension, digits=12), dimension) == pytest.approx(value, rel=1e-3)
