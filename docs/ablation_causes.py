"""Why pairs of docs/accuracy_ablations.md are missed: text for `make_accuracy_ablations.py`."""

HOST = (
    "Host. What recomputation repeats here is launches. The published step of these runs is 1.8 times the "
    "predicted one, which asks for "
    "about twice the host time a launch."
)
GB200_HOST = (
    "Host. The source names launches as what binds these steps (no pinned cores, kernels of quantisation apart, a "
    "router of 72 kernels): {} "
    "The estimate is of the software at the end of its list, whose steps are bound by kernels."
)
POWER = (
    "Clock. {} These GPUs are limited to 500 W, and the predicted kernels take two thirds of the time that "
    "they must have taken: {}"
)
ROUTING = (
    "Load of the experts. How uneven the natural routing of these runs was is not published; the hottest rank is "
    "taken at 1.2 of the mean, "
    "from another model. With 1.5 to 1.7 the sizes would be those published."
)
V_SHAPE = (
    "Slots. What lengthens F and B and not W (the exchange of experts, kernels of attention below the rate of "
    "products, sends) costs a V "
    "schedule of low memory most, whose W fill every gap; slots know FLOP only."
)
INTERLEAVED = (
    "Interleaving. A third of what the smaller bubble gains is lost in the runs: sends of three times as many "
    "chunks wait for both sides "
    "and for the host, and are priced as the wire alone."
)
CAUSES = {
    "ABL-078": "Host. With the host time that steps of this software ask for, the run in MXFP8 is bound by launches, and what "
    "faster products save does not show.",
    "ABL-098": "Host. With the host time that steps of this software ask for, the overlapped pairs are bound by launches, so that "
    "hiding the exchange gains little.",
    "ABL-265": "Factors of the stack on memory and network, fitted without these runs, slow both layouts by more than they differ.",
    "ABL-001|ABL-009": HOST,
    "ABL-044": "Which inputs the source keeps in FP8 is not said. Here all of them are; the routed rows alone, as "
    "they are dispatched, make two "
    "thirds of what is saved.",
    "ABL-088": GB200_HOST.format(
        "DeepEP brings the kernels of router and preprocessing from 31 to 17, and no gain on the wire, as it "
        "says. Here it changes the "
        "wire only, where it is slower than NCCL inside a rack, as the source says too."
    ),
    "ABL-089": GB200_HOST.format("the repeated up-projection costs its launches, not its products."),
    "ABL-090": GB200_HOST.format("graphs take away more launches than the estimate has exposed."),
    "ABL-095": "Exchange. DeepEP inside a rack was not measured by anybody: what it does in a node of eight H100 is carried over to 32 "
    "ranks and to twice the NVLink, and comes out a fourteenth of the step slower than HybridEP, where an eighth was measured.",
    "ABL-099": "Pipeline of 32 ranks with one layer a chunk: predicted 17.6 s, measured 24.2 s. Host and uneven "
    "ranks, see `zoo-004` in "
    "accuracy.md. The side with FSDP, 17.6 s, is predicted within 5 %.",
    "ABL-10[0-3]": ROUTING,
    "ABL-116": "The side with ZeRO-3, 91 s, is predicted at 9 s. ZeRO-3 gathers the parameters of 128 experts one "
    "by one and splits them "
    "again, and the MoE blocks of Transformers index tokens on the host; only the products of the experts are "
    "priced one by one.",
    "ABL-118": "Host. The captured steps differ by waits for row counts and by what runs between two graphs, "
    "which the estimate hides behind "
    "kernels.",
    "ABL-1(38|41)": "Eager and compiled side are both predicted too fast, the eager one by more: of what eager PyTorch "
    "does, norms, rotation and activations are priced operator by operator, casts and copies around products are not.",
    "ABL-1(39|42)": "The FP8 side is predicted too fast by more than the BF16 side, as other FP8 runs of this framework: "
    "scaling and quantisation in kernels of their own around every product, under a limit of 500 W.",
    "ABL-14[03]": "Both peaks fall on the loss, which runs eagerly on both sides. What the compiler saves in the "
    "blocks lies below it; the "
    "rest is fragmentation, for which both sides have the same share.",
    "ABL-15[12]": POWER.format(
        "Hidden messages save 0.31 s a step, published 0.25 s; it is a larger share of a shorter step.",
        "1.8 s of 2.8 s.",
    ),
    "ABL-153": POWER.format(
        "Hidden messages save 0.3 s a step, published 0.17 s.",
        "1.7 s of 3.3 s. Row-wise scaled products of that time were slower than BF16, which is not priced.",
    ),
    "ABL-16[12]": "Quantisation. The source casts, scales and swizzles both operands in kernels of their own in "
    "every product; a cast of one "
    "pass is priced, and the rate of the product is that of a library for inference.",
    "ABL-163": "FP8 side: predicted 1.8 times the published rate, as other FP8 runs of this framework are too "
    "fast (`tt-032` in accuracy.md); the "
    "BF16 side 1.3 times. In `ABL-138` and `ABL-139` the same two changes gain 48 % together, here 16 %.",
    "ABL-17[26]": V_SHAPE,
    "ABL-174": "Slots. The LM head, which 1F1B has alone on its last rank and the V beside the first layers, is "
    "no part of slots; with a tenth of "
    "a rank's work, as here, V-Half gains 4 %.",
    "ABL-230": "Both peaks are printed in whole GB: 32 and 33.",
    "ABL-2(39|45|47)": INTERLEAVED,
    "ABL-264": "The side without FSDP. 1,254 TFLOP/s is below what nearly the same layout reaches in other "
    "releases (1,474 on B200 in "
    "25.02, 1,593 in 25.09); its recipe of FP8 is not printed.",
    "OABL-03[34]": "FSDP runs of another MoE block and optimizer than the one that is priced, as the report says.",
    "OABL-038": "Row-wise exchange of a small model: rows of 2,048 values are copied at the rate of a micro-benchmark that copies whole "
    "blocks, and with the shared experts beside it the exchange makes a fifth of the step.",
}
"""Why the direction or the size of an effect is missed, by the name of the pair; an expression stands for several."""
