"""A user's own calibration: fitted from his CSV, laid over the shipped one in an estimate, refused where it is not his."""

import pytest

from moesim.problem import load
from moesim.spec import library

SCENARIO = "qwen3-235b-h100x256"
CALIBRATION = """schema: 1
name: mine
summary: my tensor cores
gpu: {gpu}
family: {family}
source: own.csv
command: moesim calibrate gemm --gpu h100-sxm-80gb --from own.csv
constants:
  gemm_efficiency: 0.5
  gemm_fixed: 5e-06 s
rows: {{read: 10, used: 10, held_out: 0}}
residuals:
  all: {{count: 10, q05: -0.4, q50: 0.0, q95: 0.4}}
"""


@pytest.fixture
def file(tmp_path):
    def write(gpu="h100-sxm-80gb", family="gemm", name="own.yaml"):
        path = tmp_path / name
        path.write_text(CALIBRATION.format(gpu=gpu, family=family))
        return path

    return write


def test_an_own_calibration_stands_in_for_the_shipped_one(file):
    before = load(SCENARIO)
    after = before.with_changes({"calibrations": str(file())})
    kernels = after.machine.gpu.kernels
    assert (kernels.gemm_efficiency, kernels.gemm_fixed) == (0.5, 5e-6)
    assert kernels.gemm_prologue == before.machine.gpu.kernels.gemm_prologue
    assert after.machine.residuals["gemm"].bounds()[1] == pytest.approx(1.4918, rel=1e-3)
    assert after.machine.residuals["attention"] == before.machine.residuals["attention"]
    told = after.machine.provenance["gpu.kernels.gemm_efficiency"]
    assert (told.source, told.kind) == ("own.csv", "measured")
    assert library.get("gpus", "h100-sxm-80gb").kernels.gemm_efficiency.value != 0.5


def test_a_number_that_is_set_wins_over_the_calibration(file):
    changes = {"calibrations": str(file()), "gpu.kernels.gemm_efficiency": "0.6"}
    assert load(SCENARIO).with_changes(changes).machine.gpu.kernels.gemm_efficiency == 0.6


def test_a_scenario_names_its_calibrations_beside_itself(file, tmp_path):
    file()
    text = (library.file("scenarios", SCENARIO)).read_text(encoding="utf-8")
    scenario = tmp_path / f"{SCENARIO}.yaml"
    scenario.write_text(text + "calibrations: [own.yaml]\n", encoding="utf-8")
    assert load(scenario).machine.gpu.kernels.gemm_efficiency == 0.5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gpu": "b200-sxm"}, "is a calibration of b200-sxm, and the nodes have h100-sxm-80gb"),
        ({"family": "goodput"}, "is a calibration of goodput; one of gemm, grouped-gemm"),
        ({"family": "collectives"}, "is a calibration of h100-sxm-80gb, and the nodes have hgx-h100, rail-ndr400"),
        ({"family": "collectives", "gpu": "hgx-h100"}, "constants.gemm_efficiency: no such constant"),
        ({"family": "transport", "gpu": "deeep"}, "known transports are"),
        ({"gpu": "h9000"}, "no GPU 'h9000'"),
    ],
)
def test_what_is_not_of_these_gpus_is_refused(moesim, file, options, message):
    (line,) = moesim("estimate", SCENARIO, "--set", f"calibrations={file(**options)}").lines
    assert message in line


LINKS = """schema: 1
name: mine
summary: my links
gpu: {of}
family: {family}
source: own.csv
command: moesim calibrate {family} --from own.csv
constants: {{{constant}}}
rows: {{used: 10}}
residuals: {{{regime}: {{count: 10, q05: -0.4, q50: 0.0, q95: 0.4}}}}
"""
OWN_LINKS = {
    "hgx-h100": ("collectives", "all-gather-ring-simple-node-bandwidth: 0.25", "all-gather-node-large"),
    "rail-ndr400": ("collectives", "all-to-all-pairwise-simple-net-bandwidth: 0.5", "all-to-all-net-large"),
    "deepep": ("transport", "inter_dispatch_rdma_bandwidth: 10 GB/s", "inter-dispatch"),
}


@pytest.fixture
def links(tmp_path):
    """Files of calibrations of a node, a fabric and a transport."""
    for of, (family, constant, regime) in OWN_LINKS.items():
        text = LINKS.format(of=of, family=family, constant=constant, regime=regime)
        (tmp_path / f"{of}.yaml").write_text(text)
    return {of: str(tmp_path / f"{of}.yaml") for of in OWN_LINKS}


def test_own_collectives_and_transports_stand_in_for_the_shipped_ones(links):
    before = load(SCENARIO)
    after = before.with_changes({"calibrations": ",".join(links.values())})
    for name, value in (
        ("all-gather-ring-simple-node-bandwidth", 0.25),
        ("all-to-all-pairwise-simple-net-bandwidth", 0.5),
    ):
        assert after.machine.links.fits[name] == value
        assert before.machine.links.fits[name] != value
    assert len(after.machine.links.fits) == len(before.machine.links.fits)
    kept = before.software.sustained.network.value  # what a step keeps of a rate that was measured alone
    assert after.machine.transports["deepep"]["inter_dispatch_rdma_bandwidth"] == pytest.approx(10e9 * kept)
    told = after.machine.provenance["transports.deepep.constants.inter_dispatch_rdma_bandwidth"]
    assert (told.source, told.kind) == ("own.csv", "measured")
    known, shipped = after.machine.residuals, before.machine.residuals
    for family, regime in (
        ("collectives-node", "all-gather-node-large"),
        ("collectives-net", "all-to-all-net-large"),
        ("transport-deepep", "inter-dispatch"),
    ):
        assert known[family].quantiles[regime] == (-0.4, 0.0, 0.4)
        others = {name: ends for name, ends in shipped[family].quantiles.items() if name != regime}
        assert {name: ends for name, ends in known[family].quantiles.items() if name != regime} == others


def test_slower_links_of_ones_own_make_a_slower_step_and_a_slower_collective(moesim, links):
    steps = [
        moesim("estimate", SCENARIO, "--json", *options).json["step_time_s"]
        for options in ((), ("--set", f"calibrations={links['rail-ndr400']},{links['deepep']}"))
    ]
    assert steps[1] > 1.02 * steps[0]
    call = ("collective", "alltoall", "--cluster", "hgx-h100:16", "--size", "1GiB", "--json")
    shipped, own = moesim(*call).json, moesim(*call, "--calibrations", links["rail-ndr400"]).json
    assert own["time_s"] > 1.8 * shipped["time_s"]
    assert own["high_s"] / own["time_s"] > shipped["high_s"] / shipped["time_s"]


def test_own_calibrations_of_other_links_are_refused(moesim, links):
    call = ("collective", "alltoall", "--cluster", "hgx-b200:2", "--size", "1GiB", "--calibrations")
    for files, told in (
        (links["hgx-h100"], "is a calibration of hgx-h100, and the nodes have hgx-b200"),
        (links["deepep"], "is a calibration of transport; one of collectives"),
        ("none.yaml", "there is no such file"),
    ):
        (line,) = moesim(*call, files).lines
        assert told in line


def test_a_missing_file_and_two_of_one_family_are_refused(moesim, file, tmp_path):
    for files, message in (
        (tmp_path / "none.yaml", "there is no such file"),
        (f"{file()},{file(name='other.yaml')}", "is a second calibration of gemm"),
    ):
        (line,) = moesim("estimate", SCENARIO, "--set", f"calibrations={files}").lines
        assert message in line


def test_a_slower_calibration_makes_a_slower_step(moesim, file):
    times = [
        moesim("estimate", SCENARIO, "--json", *options).json["step_time_s"]
        for options in ((), ("--set", f"calibrations={file()}"))
    ]
    assert times[1] > 1.05 * times[0]


def test_an_overlay_that_cannot_be_written_is_refused_before_the_fit(moesim, tmp_path):
    options = ("--gpu", "h100-sxm-80gb", "--from", "own.csv", "--out", tmp_path / "no" / "x")
    (line,) = moesim("calibrate", "gemm", *options).lines
    assert "there is no folder" in line
