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
    "step: MoE on H100": "Host of routed layers. Qwen3-235B of Megatron-Bridge is 14 to 32 % too slow with the host time that "
    "its other runs ask for, ZOO-005 of Megatron-Core 38 %; one of another report, MLMR-006, 29 % too fast.",
    "step: MoE on B200": "gpt-oss-120b of Megatron-Bridge, nine runs 27 to 50 % too fast on B200 and GB200, and the six MoE runs "
    "of SimuMax on B200, 28 %, from one cluster and too few to fit. What slows gpt-oss there is not known.",
    "step: dense on H100": "torchtitan, 21 runs, most of them on 96 GB parts at 500 W, 17 % too fast also when fitted; "
    "Megatron-Bridge on H100, seven runs, 19 %; the ZeRO-3 runs of 2021. llm-foundry alone is at 6.8 and 17.2 %.",
    "Olmo-core ratios": "Two small ratios 3 points too large; the signs are right.",
    "step: ZeRO-3 of 2021": "Network of DeepSpeed in 2021: the time beyond the GEMMs does not shrink with the micro-batch, as if "
    "all gathers of a node went through one of its NICs. One pair, measured 2 % apart, comes out the other way round.",
    "memory, reserved": "`TT-045` on B200, 47 % too high, and three runs of Qwen3-32B in torchtitan, 11 to 20 % too low: what "
    "the allocator holds beside tensors is one share for all.",
    "runs that fitted": "Qwen3-30B-A3B and Qwen3-235B-A22B with MXFP8: the rows say that nothing is recomputed, and the "
    "activations as priced do not fit beside the state. What such runs keep in fewer bits is not printed.",
    "memory,": "See the weakest stacks.",
    "step: KOR": "Unfused attention of 2022.",
    "order of layouts": "See the jobs below.",
    "90 % intervals": "See the families.",
    "time of all rows": "0.03 s of one core to read a row and 0.08 s for its estimate with the interval: runs of one shape are "
    "not priced together. Taken on two cores shared with other work.",
}
"""Why a target is missed, by the beginning of its line."""
