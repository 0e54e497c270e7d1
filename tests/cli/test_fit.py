"""``moesim fit``: verdict, exit code, remedies."""

import pytest


def test_it_fits(moesim, small_file):
    found = moesim("fit", small_file)
    assert (found.code, found.err) == (0, "")
    assert "small: fits" in found.out
    assert moesim("fit", small_file, "--json").json["remedies"] == []


def test_it_does_not(moesim, small_file):
    found = moesim("fit", small_file, "--set", "gpu.memory_capacity=3 GB")
    assert (found.code, found.err) == (1, "")
    for words in ("DOES NOT FIT", "GiB too much", "tightest: pipeline rank", "the fewest changes", "recompute="):
        assert words in found.out


def test_the_host(moesim, small_file):
    offload = ("fit", small_file, "--set", "optimizer_offload=1.0")
    assert "--host-memory says whether that fits" in moesim(*offload).out
    assert moesim(*offload, "--host-memory", "1 TiB").code == 0
    small_host = moesim(*offload, "--host-memory", "1 MiB")
    assert small_host.code == 1
    assert "TOO MUCH" in small_host.out


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (("fit",), "what to estimate is missing"),
        (("fit", "zoo-002", "--host-memory", "2"), "--host-memory: '2' has no unit"),
        (("fit", "zoo-002", "--set", "micro_batch=3"), "--set micro_batch: "),
    ],
)
def test_bad_input_is_one_line(moesim, call, message):
    (line,) = moesim(*call).lines
    assert line.startswith(message)
