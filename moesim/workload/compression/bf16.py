"""Gradients are cast to BF16 for their reduction and back behind it: half the bytes of FP32."""

from moesim.workload.compression import Compression, compressions

compressions.add("bf16", Compression(2.0), summary="FP32 gradients are reduced in BF16.", source="pytorch-ddp-hooks")
