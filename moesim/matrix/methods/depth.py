"""Layers and sequences spread over ranks."""

from moesim.matrix.bottlenecks import FAMILIES
from moesim.matrix.methods import Knob, Method, Pair, methods
from moesim.matrix.methods.state import LAYOUT_FILES, WHOLE_FILES
from moesim.matrix.situation import Formula, Own

REPORT = "olmo-core-report"
STAGES = Own("pp", 4)
ONE_CHUNK = {"pp": STAGES, "vpp": 1, "schedule": "1f1b"}
INTERLEAVED = {"pp": STAGES, "vpp": 2, "schedule": "interleaved-1f1b"}
V_SHAPE = {"pp": STAGES, "vpp": 2, "schedule": "1f1b-v"}
WIDE = Formula("max(cp, min(16, num_gpus / (tp * pp)))")
SENDS = (Knob("sends that block"), Knob("sends beside the next chunk", both={"overlap_p2p": True}))

methods.add(
    "pp",
    Method(
        "Gen. PP",
        "sequence and depth",
        7,
        (Pair("no pipeline", ONE_CHUNK, {"pp": 1, "vpp": 1, "schedule": "none"}),),
        (
            SENDS[0],
            Knob("sends beside the next chunk", on={"overlap_p2p": True}),
            Knob("two chunks a rank", on=INTERLEAVED),
            LAYOUT_FILES,
            WHOLE_FILES,
        ),
        classes=("pp",),
    ),
    summary="Layers spread over pipeline ranks, 1F1B.",
    source=REPORT,
)
methods.add(
    "interleaved-1f1b",
    Method(
        "I-1F1B",
        "sequence and depth",
        8,
        (
            Pair("1F1B", INTERLEAVED, ONE_CHUNK, families=tuple(one for one in FAMILIES if one != "balance")),
            Pair("1F1B-V", INTERLEAVED, V_SHAPE, families=("balance",)),
        ),
        SENDS,
        classes=("pp",),
    ),
    summary="Two chunks a rank in a loop.",
    source=REPORT,
)
methods.add(
    "1f1b-v",
    Method(
        "1F1B-V",
        "sequence and depth",
        9,
        (
            Pair(
                "interleaved 1F1B",
                V_SHAPE,
                INTERLEAVED,
                families=tuple(family for family in FAMILIES if family != "host"),
            ),
            Pair("1F1B", V_SHAPE, ONE_CHUNK, families=("host", "traffic")),
        ),
        SENDS,
        classes=("pp",),
    ),
    summary="Two chunks a rank on a V.",
    source=REPORT,
)
methods.add(
    "cp",
    Method(
        "CP",
        "sequence and depth",
        10,
        (Pair("whole sequences", {"cp": Own("cp", 2)}, {"cp": 1}),),
        (
            Knob("heads exchanged", both={"cp_kind": "ulysses"}),
            Knob("heads exchanged across domains", on={"cp": WIDE}, both={"cp_kind": "ulysses"}),
            Knob("keys and values in a ring across domains", on={"cp": WIDE}, both={"cp_kind": "ring"}),
        ),
        classes=("cp",),
    ),
    summary="Sequences split over ranks around attention.",
    source=REPORT,
)
