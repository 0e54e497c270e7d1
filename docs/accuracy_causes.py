"""Why runs of docs/accuracy.md are missed: text for `make_accuracy.py`, by the name of the run."""

HOST = (
    "Host. {} of host time a routed layer, forward and backward, in place of the 9 ms of 264 launches at 33 us: Python "
    "between the launches costs about twice what is assumed. 60 us a launch would do."
)
EXCHANGE = (
    "Network of DeepSpeed in 2021. The time beyond the GEMMs does not shrink with the micro-batch, {}: what three passes "
    "over the FP16 weights take at the rate of one 200 Gb/s NIC a node, {}. Here they use all eight, behind the GEMMs."
)
ATTENTION = (
    "Attention of PyTorch at that time. The runs of this table with long sequences ask for 0.21 to 0.30 of the peak, "
    "the constant (newer kernels) is 0.5."
)
CAUSES = {
    "mbsk-": HOST.format("16 ms") + " The load of the router on mock data is in it too.",
    "mb26.04.01-023": HOST.format("19 ms"),
    "sc21-01[123]": EXCHANGE.format("36 to 55 s", "42 s"),
    "sc21-01[456]": EXCHANGE.format("111 to 150 s", "127 s"),
    "tt-009": ATTENTION,
    "tt-001": ATTENTION + " The rest perhaps pointwise kernels without compilation, and the clock at 500 W (assumed).",
    "tt-00[2356]": ATTENTION + " The rest perhaps the clock at 500 W (assumed).",
    "tt-053": "Unknown. The rate is the same with 4 and 8 FSDP ranks and with 16 and 32 sequences, so it is neither the "
    "network nor the host. Eager DTensor copies what it gathers along the sequence, which is not priced.",
    "zoo-003": "FSDP, an error of the model: the gather for the next layer waits for the gradient reduction of this one, so "
    "that nothing hides in the backward. In the order of a real run the estimate is 24 s.",
    "zoo-004": "Partly unknown. Main branch of Megatron in 2025, one layer a chunk; with 60 us a launch, as the Moonlight "
    "runs ask for, it comes out 19 % too slow. On the last rank the LM head binds.",
    "tt-032": "Partly unknown. FP8 GEMMs are priced as measured in an inference library, 1,340 to 1,400 TFLOP/s, and nothing "
    "slows over a step at the power limit; the scaling of torchao is a cast of one pass here. Two clusters of this "
    "framework in FP8 miss alike, with 32 GPUs as with 64, so it is not the network.",
    "mpt-0(61|77)": "Unknown. Of this framework, the smallest models with the shortest sequences miss most, on A100 too: "
    "unfused pointwise kernels are a candidate.",
    "olmo-8l0[34]": "Another MoE block and optimizer than the one that is priced, as the report says.",
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
    "rows of expressible": "Offload of optimizer and activations (21) and LoRA (11) of a run table are refused, with the reason; "
    "the rest cannot be as printed.",
    "memory,": "See the weakest stacks.",
    "step: KOR": "Unfused attention of 2022.",
    "order of layouts": "See the jobs below.",
    "90 % intervals": "See the families.",
    "time of all rows": "0.03 s of one core to read a row and 0.08 s for its estimate with the interval: runs of one shape are "
    "not priced together. Taken on two cores shared with other work.",
}
"""Why a target is missed, by the beginning of its line."""
