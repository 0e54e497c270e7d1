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
        ({"family": "collectives"}, "is a calibration of collectives; one of gemm, grouped-gemm"),
        ({"gpu": "h9000"}, "no GPU 'h9000'"),
    ],
)
def test_what_is_not_of_these_gpus_is_refused(moesim, file, options, message):
    (line,) = moesim("estimate", SCENARIO, "--set", f"calibrations={file(**options)}").lines
    assert message in line


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
