"""``moesim exchange``: a dispatch or combine, its bandwidth as DeepEP counts it, and whether a measurement is healthy."""

import pytest

ACROSS = ("exchange", "dispatch", "--cluster", "hgx-h100:4", "--node-limit", "4")


def test_the_answer(moesim):
    answer = moesim(*ACROSS, "--json").json
    assert (answer["ranks"], answer["domains"], answer["bandwidth_kind"]) == (32, 4, "RDMA, logical")
    assert answer["logical_bytes"] / answer["time_s"] == pytest.approx(answer["bandwidth_bytes_per_s"])
    reached = answer["logical_bytes"] / (4096 * 2 * 7168)
    assert 3.5 < reached < 4
    assert answer["low_s"] < answer["time_s"] < answer["high_s"]
    assert answer["sms_left_share"] == pytest.approx(1 - 20 / 132)


def test_the_table(moesim):
    shown = moesim(*ACROSS, "--measured", "30.8GB/s")
    assert shown.code == 0
    for words in ("dispatch, deepep", "32 GPUs in 4 NVLink domain(s)", "RDMA bandwidth", "sick: slower"):
        assert words in shown.out


@pytest.mark.parametrize(
    ("measured", "verdict"), [("55GB/s", "healthy"), ("10GB/s", "sick"), ("1s", "sick"), ("200GB/s", "impossible")]
)
def test_verdicts(moesim, measured, verdict):
    answer = moesim(*ACROSS, "--measured", measured, "--json").json
    assert answer["verdict"] == verdict
    assert answer["share_of_expected"] == pytest.approx(answer["time_s"] / answer["measured_s"])


def test_rows_in_fp8_with_their_scales_are_half_as_long(moesim):
    wide, narrow = (moesim(*ACROSS, "--precision", each, "--json").json for each in ("bf16", "fp8"))
    assert narrow["row_bytes"] / wide["row_bytes"] == pytest.approx((1 + 4 / 128) / 2)
    assert 0.45 < narrow["time_s"] / wide["time_s"] < 0.7


def test_more_sms_are_faster_and_take_more(moesim):
    few, many = (
        moesim("exchange", "combine", "--cluster", "hgx-h100:1", "--num-sms", each, "--json").json for each in (8, 24)
    )
    assert many["time_s"] < few["time_s"] / 2
    assert many["sms_left_share"] < few["sms_left_share"]
    assert few["bandwidth_kind"] == "NVLink, logical"


def test_deepep_v2_takes_fewer_sms_across_nodes(moesim):
    answer = moesim(*ACROSS, "--transport", "deepep-v2", "--json").json
    assert answer["num_sms"] == 6


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (("send",), "DIRECTION: 'send' is not known; known: combine, dispatch"),
        (("dispatch", "--precision", "int8"), "--precision: 'int8' is not known; known: bf16, fp8"),
        (("dispatch", "--transport", "deepp"), "--transport: 'deepp' is not known; did you mean 'deepep'?"),
        (("dispatch", "--experts", 100), "--experts: 100 experts do not divide over 32 ranks"),
        (("dispatch", "--top-k", 300), "--top-k: 300 of 256 experts"),
        (("dispatch", "--transport", "nvshmem-rowwise", "--num-sms", 4), "--num-sms: transport nvshmem-rowwise has no such number"),
        (("dispatch", "--num-sms", 500), "--num-sms transports.deepep.num_sms: 500 SMs, and h100-sxm-80gb has 132; legal: 1 to 132"),
        (("dispatch", "--measured", "fast"), "--measured: 'fast' is no rate and no time"),
    ],
)  # fmt: skip
def test_bad_input(moesim, options, line):
    (found,) = moesim("exchange", *options, "--cluster", "hgx-h100:4").lines
    assert found.startswith(line)
