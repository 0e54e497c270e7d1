"""LoRA: y = x W + (x A) B with W frozen, A of (d_in, r) and B of (r, d_out): r (d_in + d_out) parameters a matrix."""

from moesim.workload.adapters import Adapter, adapters

adapters.add(
    "lora", Adapter(), summary="LoRA, lora:R: two matrices of rank R beside each frozen one.", source="hu2021-lora"
)
