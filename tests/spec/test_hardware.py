"""Facts of the machines that come with moesim."""

import pytest

from moesim.base.errors import SpecError
from moesim.spec import library
from moesim.spec.load import load_specs, scenario_from_names

GIB = 2**30
GPUS = library.names("gpus")

# name: BF16, FP8 and FP4 dense [TFLOP/s], capacity that the driver reports [MiB], HBM [TB/s], NVLink per direction [GB/s], W
FACTS = {
    "h100-sxm-80gb": (989.4, 1978.9, None, 81559, 3.35, 450, 700),
    "h100-sxm-96gb-hbm2e": (989.4, 1978.9, None, 97871, 2.4, 450, 500),
    "h800-sxm-80gb": (989.4, 1978.9, None, 81559, 3.35, 200, 700),
    "h800-pcie-80gb": (756, 1513, None, 81559, 2.0, 64, 350),
    "h200-sxm-141gb": (989.4, 1978.9, None, 143771, 4.8, 450, 700),
    "h20-96gb": (148, 296, None, 91553, 4.0, 450, 400),
    "gh200": (989.4, 1978.9, None, 97871, 4.0, 450, 900),
    "a100-sxm-40gb": (312, None, None, 40960, 1.555, 300, 400),
    "a100-sxm-80gb": (312, None, None, 81920, 2.039, 300, 400),
    "a800-sxm-80gb": (312, None, None, 81920, 2.039, 200, 400),
    "b200-sxm": (2250, 4500, 9000, 183359, 8, 900, 1000),
    "gb200": (2500, 5000, 10000, 189471, 8, 900, 1200),
    "b300": (2250, 4500, 13500, 275040, 8, 900, 1100),
    "rtx-4090": (165.2, None, None, 24564, 1.008, 32, 450),
    "gb300": (2500, 5000, 15000, 284208, 8, 900, 1400),
}


def test_every_gpu_has_its_facts_here() -> None:
    assert sorted(FACTS) == GPUS


@pytest.mark.parametrize("name", FACTS)
def test_facts(name: str) -> None:
    bf16, fp8, fp4, capacity, hbm, nvlink, power = FACTS[name]
    gpu = library.get("gpus", name)
    peaks = {key: rate.value for key, rate in gpu.peak_flop_rate.items()}
    assert peaks["bf16"] == peaks["fp16"] == pytest.approx(bf16 * 1e12)
    assert peaks.get("fp8") == (fp8 and pytest.approx(fp8 * 1e12))
    assert peaks.get("fp4") == (fp4 and pytest.approx(fp4 * 1e12))
    assert gpu.memory_capacity.value == capacity * 2**20
    assert gpu.memory_bandwidth.value == pytest.approx(hbm * 1e12)
    assert gpu.nvlink_bandwidth.value == pytest.approx(nvlink * 1e9)
    assert gpu.power.value == power


@pytest.mark.parametrize("name", GPUS)
def test_low_precision_is_faster_and_reaches_less_of_its_peak(name: str) -> None:
    gpu = library.get("gpus", name)
    kernels, peaks = gpu.kernels, gpu.peak_flop_rate
    bf16 = peaks["bf16"].value * kernels.gemm_efficiency.value
    formats = {"fp8": ("fp8_efficiency", "fp8_blockwise_efficiency", "mxfp8_efficiency"), "fp4": ("fp4_efficiency",)}
    for peak, constants in formats.items():
        for constant in constants:
            efficiency = getattr(kernels, constant)
            if efficiency is not None:
                assert bf16 < peaks[peak].value * efficiency.value < peaks[peak].value
    assert (kernels.fp8_efficiency is None) == ("fp8" not in peaks) == name.startswith(("a", "rtx"))
    assert (kernels.mxfp8_efficiency is None) == (kernels.fp4_efficiency is None) == ("fp4" not in peaks)


def test_what_one_gpu_takes_from_another_says_so() -> None:
    base, other = (library.get("gpus", name).kernels.attention_diagonal for name in ("h100-sxm-80gb", "b200-sxm"))
    assert (other.value, other.kind) == (base.value, "assumed")
    assert other.note
    assert other.note.startswith("as h100-sxm-80gb; no measurement")
    h200 = library.get("gpus", "h200-sxm-141gb")
    assert h200.num_sms.kind == "derived"
    assert h200.memory_bandwidth.source == "nvidia-h200"


@pytest.mark.parametrize("name", library.names("nodes"))
def test_a_node_is_whole(name: str) -> None:
    specs = load_specs(scenario_from_names("qwen3-235b-a22b", f"{name}:2"))
    links, gpu = specs.node.links, specs.gpu
    assert links.nvlink_usable_bandwidth.value < gpu.nvlink_bandwidth.value
    assert links.p2p_bandwidth.value < gpu.nvlink_bandwidth.value
    assert links.alltoall_bandwidth.value < gpu.nvlink_bandwidth.value
    assert specs.node.nvlink_domain % specs.node.gpus_per_node == 0


def test_a_job_takes_16_of_the_18_trays_of_a_rack() -> None:
    node = library.get("nodes", "gb200-nvl72")
    assert (node.gpus_per_node, node.nvlink_domain, node.nvlink_domain_wired) == (4, 64, 72)
    assert node.note
    assert node.note.startswith("assumed")
    assert load_specs(scenario_from_names("deepseek-v3", "gb200-nvl72:64")).num_gpus == 256


def test_one_preferred_node_a_gpu() -> None:
    nodes = [library.get("nodes", name) for name in library.names("nodes")]
    assert sorted(node.gpu for node in nodes if node.preferred) == GPUS


@pytest.mark.parametrize("name", ["mi300x", "MI355X", "unknown-80gb"])
def test_refused_gpus_tell_why(name: str) -> None:
    with pytest.raises(SpecError, match="is not modelled: "):
        library.get("gpus", name)
