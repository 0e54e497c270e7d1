"""Factors on the numbers of software: declared, laid over, beaten by what is set, refused where nothing asks for them."""

from pathlib import Path

import pytest

from moesim.base.errors import SpecError
from moesim.problem import load
from moesim.spec import library, steps
from moesim.spec.calibration import DERIVED_SPREAD, CalibrationSpec
from moesim.spec.validation import validate
from moesim.spec.yaml_file import read_document

SCENARIO = "qwen3-235b-h100x256"
OWN = """schema: 1
name: mine
summary: my steps
gpu: software
family: steps
source: own.csv
command: moesim calibrate runs --runs own.csv
constants:
  megatron-core.host.framework_per_kernel: 2
  megatron-core.sustained.tensor: 0.9
  llm-foundry.sustained.tensor: 0.5
rows: {read: 40, used: 30}
residuals:
  all: {count: 30, q05: -0.32898, q50: 0.0, q95: 0.32898}
  megatron-core-moe: {count: 20, q05: -0.16449, q50: 0.0, q95: 0.16449}
  field-rank_imbalance: {count: 20, q05: -0.16449, q50: 0.0, q95: 0.16449}
  field-overlap_tp: {count: 20, q05: -0.016449, q50: 0.0, q95: 0.016449}
"""


@pytest.fixture
def own(tmp_path):
    def write(text=OWN):
        path = tmp_path / "own.yaml"
        path.write_text(text)
        return str(path)

    return write


def test_at_most_a_dozen_numbers_each_of_a_software():
    fits = steps.step_fits()
    assert 1 <= len(fits.parameters) <= steps.MOST
    for one in fits.parameters:
        section, _, name = one.path.partition(".")
        assert name in steps.SECTIONS[section]


def test_every_family_is_of_known_software_and_none_in_two():
    members = [name for family in steps.step_fits().families.values() for name in family]
    assert len(members) == len(set(members))
    assert set(members) <= set(library.names("software"))
    assert "olmo-core" not in members
    assert "olmo-core" in steps.step_fits().never


def test_the_own_overlay_is_laid_over_the_software(own):
    before = load(SCENARIO)
    plain = library.get("software", before.software.name)
    after = before.with_changes({"calibrations": own()})
    assert after.software.host.framework_per_kernel.value == 2 * plain.host.framework_per_kernel.value
    assert after.machine.gpu.rates["bf16"] == pytest.approx(
        0.9 / before.software.sustained.tensor.value * before.machine.gpu.rates["bf16"]
    )
    told = after.machine.provenance["software.host.framework_per_kernel"]
    assert (told.kind, told.source) == ("derived", "own.csv")
    assert "mine" in str(told.note)


def test_what_is_set_wins(own):
    changes = {"calibrations": own(), "software.host.framework_per_kernel": "7 us"}
    assert load(SCENARIO).with_changes(changes).software.host.framework_per_kernel.value == 7e-6


def test_a_step_is_known_as_well_as_others_of_its_kind(own):
    one = load(SCENARIO).with_changes({"calibrations": own()})
    assert one.machine.step_errors == pytest.approx({"steps": 0.1, "overlap_tp": 0.01, "rank_imbalance": 0.1}, rel=1e-3)
    spec = validate(CalibrationSpec, read_document(Path(own())))
    assert steps.spreads(spec, "xtuner", is_moe=True)["steps"] == pytest.approx(DERIVED_SPREAD * 0.2, rel=1e-3)
    assert "rank_imbalance" not in steps.spreads(spec, "xtuner", is_moe=False)
    assert steps.spreads(None, "xtuner", is_moe=True) == {}


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            "megatron-core.sustained.tensor",
            "megatron-core.sustained.tensors",
            "did you mean 'megatron-core.sustained.tensor'",
        ),
        ("tensor: 0.9", "tensor: -1", "out of range"),
        ("gpu: software", "gpu: megatron-core", "a calibration of steps is one of 'software'"),
    ],
)
def test_what_nothing_asks_for_is_refused(own, old, new, words):
    with pytest.raises(SpecError, match=words.replace(".", r"\.")):
        load(SCENARIO).with_changes({"calibrations": own(OWN.replace(old, new))})


def test_a_software_keeps_less_of_its_rates_when_told_so():
    before = load(SCENARIO)
    changed = before.with_changes({f"software.sustained.{name}": "0.5" for name in ("memory", "network", "nvlink")})
    now, then = changed.machine, before.machine
    kept = before.software.sustained
    assert now.links.nic_bandwidth == pytest.approx(0.5 / kept.network.value * then.links.nic_bandwidth)
    assert now.links.nvlink_bandwidth == pytest.approx(0.5 / kept.nvlink.value * then.links.nvlink_bandwidth)
    ratio = now.gpu.kernels.memory_efficiency / then.gpu.kernels.memory_efficiency
    assert ratio == pytest.approx(0.5 / kept.memory.value)
    name = "inter_dispatch_rdma_bandwidth"
    assert now.transports["deepep"][name] == pytest.approx(0.5 / kept.network.value * then.transports["deepep"][name])
