"""Why runs of docs/accuracy.md are missed: text for `make_accuracy.py`, by the name of the run."""

CAUSES = {
    "sc21-01[2356]": "DeepSpeed of 2021. Gathers that stop the step, tensor by tensor, are priced; the runs still ask for about "
    "30 GB/s of every rank during them, which neither NCCL nor the NICs of that machine explain.",
    "tt-009": "Tensor parallelism in eager PyTorch. The runs of this framework with TP 8 are all predicted 30 to 50 % too fast; "
    "the copies of DTensor and the clock at 500 W are priced, what else its dispatch does between kernels is not.",
}
"""Why a step time is a miss, by the name of the run; an expression stands for several."""
MEMORY_CAUSES = {
    "tt-": "Loss in PyTorch. FP32 logits, their log-softmax and two gradients, 12 bytes a logit or more; counted are 6 "
    "without compilation and 2 with, though only blocks, not the loss, were compiled in 2024.",
}
TARGET_CAUSES: dict[str, str] = {}
"""Why a target is missed, by the beginning of its line."""
