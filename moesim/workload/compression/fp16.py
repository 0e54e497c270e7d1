"""Gradients are cast to FP16 for their reduction and back behind it: half the bytes of FP32."""

from moesim.workload.compression import Compression, compressions

compressions.add("fp16", Compression(2.0), summary="FP32 gradients are reduced in FP16.", source="pytorch-ddp-hooks")
