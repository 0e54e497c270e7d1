"""Why runs of docs/accuracy.md are missed: text for `make_accuracy.py`, by the name of the run."""

CAUSES = {
    "sc21-01[23456]": "DeepSpeed of 2021. Gathers that stop the step, tensor by tensor, are priced; the runs still ask for about "
    "30 GB/s of every rank during them, which neither NCCL nor the NICs of that machine explain.",
    "tt-009": "Tensor parallelism in eager PyTorch. The runs of this framework with TP 8 are all predicted 30 to 50 % too fast; "
    "the copies of DTensor and the clock at 500 W are priced, what else its dispatch does between kernels is not.",
}
"""Why a step time is a miss, by the name of the run; an expression stands for several."""
MEMORY_CAUSES = {
    "tt-": "Loss in PyTorch. FP32 logits, their log-softmax and two gradients, 12 bytes a logit or more; counted are 6 "
    "without compilation and 2 with, though only blocks, not the loss, were compiled in 2024.",
}
TARGET_CAUSES = {
    "step: MoE on H100": "Host of routed layers. Qwen3-235B of Megatron-Bridge is 21 to 29 % too slow with the host time that "
    "its other runs ask for, above all gpt-oss-120b; ZOO-005 of Megatron-Core 26 %; one of another report, MLMR-006, 29 % too fast.",
    "step: MoE on B200": "gpt-oss-120b of Megatron-Bridge in BF16, seven runs 27 to 34 % too fast on B200 and GB200: 8 to 12 ms a layer "
    "and micro-batch, and as many on H100, whose micro-batches are a quarter as long, so neither its bytes nor its products. "
    "MB26.06.01-004, 38 %, has a regression that its release notes name: the gradient of the bias beside the grouped product took "
    "ten times its time (megatron-bridge-v0.5.1, cudnn-frontend-322).",
    "step: dense on H100": "torchtitan, 21 runs, most of them on 96 GB parts at 500 W, 16 % too fast also when fitted; the ZeRO-3 "
    "runs of 2021; llm-foundry on H100 with 8,192 to 65,536 tokens, 11 to 37 % too slow: the rate of the first FlashAttention on "
    "Hopper is carried over from A100, 149 TFLOP/s both ways, and these runs ask for 176 to 187. No table of it at hand.",
    "Olmo-core ratios": "Two small ratios 3 points too large; the signs are right.",
    "step: ZeRO-3 of 2021": "Network of DeepSpeed in 2021: the time beyond the GEMMs does not shrink with the micro-batch, as if "
    "all gathers of a node went through one of its NICs. One pair, measured 2 % apart, comes out the other way round.",
    "memory, reserved": "`TT-045` on B200, 47 % too high, and three runs of Qwen3-32B in torchtitan, 11 to 20 % too low: what "
    "the allocator holds beside tensors is one share for all.",
    "runs that fitted": "STAS-006, 262,144 tokens a GPU: 0.52 MB a token come out, its source fits 0.46 (0.00043 GiB). What Liger's "
    "kernels write over their inputs in the layer that is recomputed is not priced.",
    "memory,": "See the weakest stacks.",
    "step: KOR": "Unfused attention of 2022.",
    "order of layouts": "See the jobs below.",
    "90 % intervals": "See the families.",
    "time of all rows": "0.03 s of one core to read a row and 0.08 s for its estimate with the interval: runs of one shape are "
    "not priced together. Taken on two cores shared with other work.",
}
"""Why a target is missed, by the beginning of its line."""
