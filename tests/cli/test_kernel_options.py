"""Options of ``moesim kernel``: verdicts, routing, masks, own calibrations, and what does not go together."""

import pytest

GEMM = ("gemm", "--gpu", "h100", "-m", "4096", "-n", "7168", "-k", "2048")
ROUTED = (
    "grouped-gemm",
    "--gpu",
    "h100",
    "--tokens",
    "8192",
    "--top-k",
    "8",
    "--experts",
    "128",
    "--ep",
    "8",
    "-n",
    "4096",
    "-k",
    "2048",
)
ATTENTION = ("attention", "--gpu", "h100", "--length", "4096", "--heads", "32")


@pytest.fixture
def price(moesim):
    return lambda *arguments: moesim("kernel", *arguments, "--json").json


@pytest.mark.parametrize(
    ("measured", "word"),
    [
        ("160us", "healthy"),
        ("750TFLOP/s", "healthy"),
        ("400us", "slow"),
        ("5000TFLOP/s", "impossible"),
        ("135us", "fast"),
    ],
)
def test_a_measurement_gets_a_verdict(price, moesim, measured, word):
    told = price(*GEMM, "--measured", measured)["verdict"]
    assert told["verdict"] == word
    assert bool(told["causes"]) == (word in ("slow", "fast"))
    assert f"verdict     {word}" in moesim("kernel", *GEMM, "--measured", measured).out


def test_names_of_gpus_and_formats_are_read_in_any_case(price):
    assert price("gemm", "--gpu", "H100", "--dtype", "BF16", *GEMM[3:]) == price(*GEMM)


def test_routing_gives_groups_and_rows(price):
    plain = ("grouped-gemm", "--gpu", "h100", "--groups", "16", "-m", "512", "-n", "4096", "-k", "2048")
    assert price(*ROUTED) == price(*plain)


def test_skew_and_the_alternatives_of_one_kernel(price):
    even, skewed, loop = (price(*ROUTED, *how)["time_s"] for how in ((), ("--skew", "1.2"), ("--form", "loop")))
    padded = [price(*ROUTED, "--form", "padded", "--capacity", rows)["time_s"] for rows in (512, 1024)]
    assert skewed > even
    one = price("gemm", "--gpu", "h100", "-m", "512", "-n", "4096", "-k", "2048")
    assert loop == pytest.approx(16 * one["time_s"])
    assert padded[1] > 1.5 * padded[0]


def test_masks_and_heads_of_attention(price):
    causal, full, window, latent = (
        price(*ATTENTION, *how) for how in ((), ("--full",), ("--window", "512"), ("--mla",))
    )
    assert full["flop_per_s"] * full["time_s"] == pytest.approx(2 * causal["flop_per_s"] * causal["time_s"])
    assert window["time_s"] < causal["time_s"] < full["time_s"]
    assert [one["evidence"] for one in (causal, full, window, latent)] == [
        "calibrated",
        "datasheet",
        "datasheet",
        "calibrated",
    ]
    dims = ("--head-dim", "192", "--value-dim", "128")
    assert latent == price(*ATTENTION, *dims)
    assert price(*ATTENTION, "--window", "9999") == causal


def test_what_is_not_a_copy_is_less_sure(price):
    copy, norm = (price("memory", "--gpu", "h100", "--size", "1GiB", *how) for how in ((), ("--kernel", "norm")))
    assert copy["time_s"] == norm["time_s"]
    assert norm["high_s"] > 1.3 * copy["high_s"]
    assert (copy["evidence"], norm["evidence"]) == ("calibrated", "datasheet")
    assert "no measurement of its kind" in norm["why"][0]


def test_far_away_the_interval_says_so(price):
    near, far = (price("gemm", "--gpu", "h100", "-m", size, "-n", size, "-k", size) for size in (8192, 10**9))
    assert far["high_s"] / far["time_s"] > 1.5 > near["high_s"] / near["time_s"]
    assert far["evidence"] == "datasheet"


CALIBRATION = """schema: 1
name: own
gpu: h100-sxm-80gb
family: gemm
source: own.csv
command: moesim calibrate gemm
constants: {constants}
rows: {{used: 10}}
residuals: {residuals}
"""
SPREAD = "{all: {count: 10, q05: -0.1, q50: 0.0, q95: 0.1}}"


@pytest.fixture
def overlay(tmp_path):
    def write(constants="{gemm_efficiency: 0.5}", residuals=SPREAD):
        path = tmp_path / "own.yaml"
        path.write_text(CALIBRATION.format(constants=constants, residuals=residuals))
        return path

    return write


def test_an_own_calibration_changes_the_price(price, overlay):
    assert price(*GEMM, "--calibrations", overlay())["time_s"] > 1.4 * price(*GEMM)["time_s"]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            {"constants": "{gemm_efficiency: 5.0}"},
            "gemm_efficiency: 5 is out of range; write a finite value of more than 0, at most 1",
        ),
        ({"constants": "{gemm_norm: 0}"}, "gemm_norm: 0 is out of range"),
        ({"constants": "{gemm_eficiency: 0.5}"}, "no constant of kernels 'gemm_eficiency'"),
        ({"residuals": "{all: {count: 10, q05: 0.2, q50: 0.0, q95: 0.1}}"}, "are not in order"),
        ({"residuals": "{all: {count: 10, q05: -.inf, q50: 0.0, q95: 0.1}}"}, "q05"),
        ({"residuals": "{}"}, "residuals has no 'all'"),
    ],
)
@pytest.mark.parametrize("verb", [("kernel", *GEMM, "--calibrations"), ("estimate", "qwen3-235b-h100x256", "--set")])
def test_a_calibration_that_cannot_be_is_refused_in_its_own_file(moesim, overlay, verb, change, told):
    path = overlay(**change)
    (line,) = moesim(*verb, f"calibrations={path}" if verb[-1] == "--set" else path).lines
    assert "own.yaml" in line
    assert told in line


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((*GEMM, "--measured", "5"), "--measured: '5' says no time"),
        ((*GEMM, "--measured", "0us"), "--measured: '0us' says no time"),
        ((*ROUTED, "--groups", "16"), "--tokens: does not go with -m and --groups"),
        ((*ROUTED, "--skew", "1.2", "--form", "loop"), "--skew: is not modelled for --form loop"),
        ((*ROUTED, "--form", "padded"), "--capacity: goes with --form padded"),
        ((*ROUTED, "--form", "padded", "--capacity", "64"), "64 rows do not hold the 512 of a group"),
        ((*ROUTED, "--ep", "7"), "128 experts do not spread over 7 ranks"),
        ((*ATTENTION, "--mla", "--head-dim", "64"), "--mla: does not go with"),
        ((*ATTENTION, "--full", "--window", "64"), "--window: does not go with --full"),
        ((*ATTENTION, "--dtype", "fp8"), "attention in 'fp8' is not modelled"),
        (("gemm", "--from", "t.csv", "-m", "5"), "-m: does not go with --from"),
        (("gemm", "--from", "t.csv", "--dtype", "bf16"), "--dtype: does not go with --from"),
        (("memory", "--from", "t.csv", "--cast"), "--cast: does not go with --from"),
        (("memory", "--gpu", "h100", "--size", "1GiB", "--kernel", "sort"), "no kernel 'sort'"),
        ((*GEMM, "-o", "/no/such/x.json"), "there is no folder '/no/such'"),
    ],
)
def test_what_does_not_go_is_one_line(moesim, arguments, told):
    (line,) = moesim("kernel", *arguments).lines
    assert told in line


def test_a_table_without_times_is_priced(moesim, tmp_path):
    path = tmp_path / "shapes.csv"
    path.write_text("gpu,m,n,k,error,time_s\nH100,4096,4096,4096,mine,7\n")
    out = moesim("kernel", "gemm", "--from", path, "--json").json
    assert out["summary"] == {"count": 1, "timed": 0, "refused": {}}
    (row,) = out["rows"]
    assert (row["given_error"], row["given_time_s"], row["error"], row["time_s"]) == ("mine", 7, None, None)
    assert row["predicted_time_s"] > 0


@pytest.mark.parametrize(
    ("family", "text", "refused"),
    [
        ("gemm", "gpu,m,n,k,tflops\nH100,4096,4096,4096,700\nH100,4096,4096,4096,5000", "faster than the datasheet"),
        (
            "grouped-gemm",
            "gpu,kind,m,n,k,groups,tflops,notes\nH100,grouped,512,4096,4096,8,500,\nH100,grouped fwd+bwd,9,4096,9,8,5,",
            "not one product forward",
        ),
        (
            "grouped-gemm",
            "gpu,m,n,k,groups,tflops\nH100,512,4096,4096,8,500\nH100,512,4096,4096,1.5,500",
            "size is no whole number",
        ),
        (
            "attention",
            "gpu,batch,seq_q,heads_q,heads_kv,head_dim_qk,tflops\nH100,1,4096,32,8,128,400\nH100,1,4096,32,7,128,400",
            "heads do not share",
        ),
        (
            "attention",
            "gpu,batch,seq_q,heads_q,heads_kv,head_dim_qk,causal\nH100,1,4096,32,8,128,True\nH100,1,4096,32,8,128,",
            "not a causal forward or backward pass, or it does not say",
        ),
        ("memory", "gpu,bytes,gbs\nH100,1e9,3000\nH100,1e9,30000", "faster than the datasheet allows"),
    ],
)
def test_rates_stand_for_times_and_odd_rows_are_counted(moesim, tmp_path, family, text, refused):
    path = tmp_path / "own.csv"
    path.write_text(text + "\n")
    out = moesim("kernel", family, "--from", path, "--json").json
    assert out["summary"]["count"] == 1
    ((reason, count),) = out["summary"]["refused"].items()
    assert (count, refused in reason) == (1, True), reason
