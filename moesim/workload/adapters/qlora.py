"""QLoRA: LoRA beside weights in 4-bit NormalFloat, which are brought back to BF16 before each product.

Half a byte a parameter, and 0.127 bit of it for the scales of 64 parameters, which are quantised themselves: 0.516 B.
"""

from moesim.workload.adapters import Adapter, adapters

adapters.add(
    "qlora",
    Adapter(frozen_bytes=(4 + 0.127) / 8),
    summary="QLoRA, qlora:R: LoRA beside weights in 4-bit NormalFloat with quantised scales.",
    source="dettmers2023-qlora",
)
