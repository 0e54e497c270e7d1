"""What comes with moesim is whole: it loads, its sources resolve, its numbers are those of their documents."""

from pathlib import Path

import pytest

from moesim.base.errors import SpecError
from moesim.spec import check as checks
from moesim.spec import library
from moesim.spec.provenance import Sourced

EVERYTHING = [(kind, name) for kind in library.KINDS for name in library.names(kind)]


def test_no_problem_in_the_library() -> None:
    assert [str(issue) for issue in checks.check()] == []


@pytest.mark.parametrize(("kind", "name"), EVERYTHING)
def test_every_file_loads_and_has_a_summary(kind: str, name: str) -> None:
    spec = library.get(kind, name)
    assert spec.name == name
    assert spec.summary
    for alias in spec.aliases:
        assert library.get(kind, alias) is spec


def test_every_number_names_its_evidence() -> None:
    numbers = {
        f"{kind}.{name}.{path}": number
        for kind, name in EVERYTHING
        for path, number in library.get(kind, name).provenance().items()
    }
    assert len(numbers) > 80
    for path, number in numbers.items():
        assert isinstance(number, Sourced)
        assert number.note if number.kind == "assumed" else number.source, path


def test_the_h100_is_the_one_of_its_datasheet() -> None:
    gpu = library.get("gpus", "h100-sxm-80gb")
    assert gpu.peak_flop_rate["bf16"].value == 989.4e12
    assert gpu.memory_capacity.value == 81559 * 2**20
    assert gpu.memory_capacity.kind == "measured"
    assert gpu.memory_bandwidth.value == 3.35e12
    assert gpu.nvlink_bandwidth.value == 450e9
    nic = library.get("nics", "infiniband-ndr400")
    assert nic.bandwidth.value * nic.usable_share.value == pytest.approx(48.5e9)


def test_provenance_is_flat() -> None:
    numbers = library.get("gpus", "h100").provenance("gpu")
    assert numbers["gpu.memory_bandwidth"].text == "3.35 TB/s"
    assert numbers["gpu.kernels.attention_backward_rate"].text == "0.84"
    assert numbers["gpu.kernels.gemm_efficiency"].kind == "measured"  # laid over by the calibration
    assert numbers["gpu.peak_flop_rate.bf16"].source == "nvidia-h100"


def test_unknown_names_and_kinds() -> None:
    with pytest.raises(SpecError, match="no GPU 'h10'; did you mean 'h100'"):
        library.get("gpus", "h10")
    with pytest.raises(SpecError, match=r"no GPU '\.\./gpus/h100-sxm-80gb'"):
        library.get("gpus", "../gpus/h100-sxm-80gb")
    with pytest.raises(SpecError, match="no kind of spec 'gpu'; did you mean 'gpus'"):
        library.names("gpu")


def test_summaries() -> None:
    (gpu,) = [line for line in library.summary("gpus") if line.name == "h100-sxm-80gb"]
    assert "H100" in gpu.summary
    assert Path(gpu.file).name == "h100-sxm-80gb.yaml"


@pytest.fixture
def own_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    import shutil

    for folder in ("hardware_specs", "scenarios"):
        shutil.copytree(library.root() / folder, tmp_path / folder)
    monkeypatch.setattr(library, "root", lambda: tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("file", "old", "new", "problem"),
    [
        ("gpus/h100-sxm-80gb", "source: nvidia-h100,", "source: nvidia-h10,", "no source 'nvidia-h10'; did you mean 'nvidia-h100'?"),
        ("gpus/h100-sxm-80gb", "name: h100-sxm-80gb", "name: h100-sxm", "the name is 'h100-sxm' but the file is"),
        ("nodes/hgx-h100", "gpu: h100-sxm-80gb", "gpu: h100-sxm-96gb", "no GPU 'h100-sxm-96gb'"),
        ("nodes/hgx-h100", "aliases: [", "aliases: [hgx-h100, ", "'hgx-h100' is also a name of hgx-h100"),
        ("software/megatron-core", "num_heads % tp == 0", "num_head % tp == 0", "'num_head' is not a name that rules know; did you mean 'num_heads'?"),
        ("software/megatron-core", "num_heads % tp == 0", "open('x')", "\"open('x')\" is not allowed"),
        ("software/megatron-core", "{when: vpp > 1, value: true}, {value: false}", "{when: vpp > 1, value: true}", "the last case still has a condition"),
        ("software/megatron-core", "  cuda_graph: {", "  cuda_grph: {", "'cuda_grph' is not a strategy field; did you mean 'cuda_graph'?"),
        ("sources", "date: 2022-03-22\n", "\n", "a source needs a version or a date"),
    ],
)  # fmt: skip
def test_check_finds(own_library: Path, file: str, old: str, new: str, problem: str) -> None:
    path = own_library / "hardware_specs" / f"{file}.yaml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    library._read.cache_clear()
    found = [str(issue) for issue in checks.check()]
    assert any(problem.replace('"', "'") in line.replace('"', "'") for line in found), found
    assert any(line.startswith(f"hardware_specs/{file}.yaml:") for line in found), found
