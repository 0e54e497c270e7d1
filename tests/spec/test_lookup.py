"""Published runs find their node and their software."""

from typing import Any

import pytest

from moesim.base.errors import SpecError
from moesim.spec.lookup import Hardware, hardware_for, software_for


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (("a100-sxm-40gb", 128, 8, 8, 200, "roce"), Hardware("hgx-a100-40gb", 16)),
        (("a100-sxm-40gb", 16, 8, 8, 50, "efa"), Hardware("p4d-a100-40gb", 2)),
        (("a100-sxm-80gb", 64, 8, 8, 200, "infiniband"), Hardware("dgx-a100", 8)),
        (("a100-sxm-80gb", 32, 8, 8, None, "roce"), Hardware("hgx-a100-roce200", 4)),
        (("a800-sxm-80gb", 8, 8, 8, None, "nvlink"), Hardware("hgx-a800", 1)),
        (("h100-sxm-80gb", 1024, 8, 8, None, ""), Hardware("hgx-h100", 128, assumed=("nic",))),
        (("h100-sxm-80gb", 16, 8, 8, 400, "efa"), Hardware("p5-h100", 2)),
        (("h100-sxm-96gb-hbm2e", 128, 8, 8, 400, "rdma"), Hardware("hgx-h100-96gb", 16)),
        (("h200-sxm-141gb", 64, 8, 8, 400, "rdma"), Hardware("hgx-h200", 8)),
        (("b200-class-184gib", 4, None, None, None, ""), Hardware("hgx-b200", 1, 4)),
        (("b300", 4, 4, 8, None, "nvlink"), Hardware("hgx-b300", 1, 4)),
        (("b300", 512, 8, 8, 800, "infiniband"), Hardware("hgx-b300", 64)),
        (("gb200", 256, 4, 72, None, ""), Hardware("gb200-nvl72", 64, assumed=("nic",))),
        (("gb200", 72, 4, 72, None, "nvlink"), Hardware("gb200-nvl72", 18, None, {"node.nvlink_domain": 72}, ("nic",))),
        (("gb300", 64, 4, 72, None, "nvlink"), Hardware("gb300-nvl72", 16)),
        (("h100", 1, 8, 8, None, "nvlink"), Hardware("hgx-h100", 1, 1)),
    ],
)  # fmt: skip
def test_hardware(run: tuple[Any, ...], expected: Hardware) -> None:
    assert hardware_for(*run) == expected


def test_what_no_node_has_is_told() -> None:
    with pytest.raises(SpecError, match=r"no node of h100-sxm-80gb has .* 100 Gb/s a GPU.*known: hgx-h100"):
        hardware_for("h100", 16, 8, 8, 100, "infiniband")
    with pytest.raises(SpecError, match="12 GPUs are not whole nodes of 8"):
        hardware_for("h100", 12, 8, 8)
    with pytest.raises(SpecError, match="unknown-80gb is not modelled"):
        hardware_for("unknown-80gb", 8)


@pytest.mark.parametrize(
    ("stack", "version", "expected"),
    [
        ("megatron-bridge", "26.02.01/v0.3.1", "megatron-bridge"),
        ("megatron-bridge", "25.11/v0.2.0", "megatron-bridge-2025"),
        ("megatron-bridge", "2026-08-12", "megatron-bridge"),
        ("megatron-core", "2026-03", "megatron-core"),
        ("megatron-core", "MCore v0.9", "megatron-core"),
        ("nemo", "24.07", "nemo"),
        ("paper", "2022", "paper"),
        ("paper", "2023-11", "paper-2023"),
        ("vtrain", "MICRO 2024 artifact", "vtrain"),
        ("simumax-bench", "megatron-lm@23e00ed0", "simumax-bench"),
        ("deepspeed", "2021", "deepspeed-2021"),
        ("deepspeed", "2026", "deepspeed"),
        ("llm-foundry", "main snapshot", "llm-foundry"),
        ("olmo-core", "report Oct 2026 / v3.0.0", "olmo-core"),
    ],
)
def test_software(stack: str, version: str, expected: str) -> None:
    assert software_for(stack, version) == expected
