"""``moesim calibrate collectives`` and ``transport``: a fit that repeats itself, and one line where there is none."""

import pytest

from moesim.calibrate.collective_overlay import links_of
from moesim.cost.collectives import collective_time
from moesim.cost.from_spec import transport_constants
from moesim.cost.machine import Group
from moesim.cost.transports.deduplicated import leg_seconds
from moesim.problem import load
from moesim.spec import library
from moesim.spec.calibration import CalibrationSpec
from moesim.spec.spellings import node_of
from moesim.spec.validation import validate
from moesim.spec.yaml_file import read_document
from moesim.workload.ops import ExpertLeg

HEADER = "gpu,op,size_bytes,nranks,gpus_per_node,time_us,notes\n"
FLAGGED = "H100 SXM,all_gather,1073741824,8,8,9e6,ANOMALY: slow\nH100 SXM,all_gather,1073741824,16,8,9e6,\n"
SIZES = [2**power for power in range(16, 30)]


def rows(scale=1.0, gpu="H100 SXM", sizes=SIZES):
    """All-gathers on 8 GPUs of a node as the price has them, times a factor."""
    links = links_of("hgx-h100")
    times = [1e6 * scale * float(collective_time("all-gather", float(size), Group(8.0, 8.0), links)) for size in sizes]
    lines = [f"{gpu},all_gather,{size},8,8,{time:.4f}," for size, time in zip(sizes, times, strict=True)]
    return HEADER + "\n".join(lines) + "\n"


@pytest.fixture
def table(tmp_path, monkeypatch):
    """Write a table into the working directory."""
    monkeypatch.chdir(tmp_path)

    def write(text):
        (tmp_path / "rows.csv").write_text(text)
        return "rows.csv"

    return write


def test_the_same_rows_give_the_same_file(moesim, table, tmp_path):
    call = ("calibrate", "collectives", "--gpu", "h100", "--from", table(rows(1.2) + FLAGGED))
    found = moesim(*call, "--out", "a.yaml")
    assert found.code == 0
    assert "rows: 16 read, 14 used\ndropped 1: another scope\ndropped 1: flagged as an anomaly\n" in found.err
    text = (tmp_path / "a.yaml").read_text()
    assert moesim(*call, "-o", "a.yaml").code == 0
    assert (tmp_path / "a.yaml").read_text() == text
    assert "command: moesim calibrate collectives --node hgx-h100 --from rows.csv --out a.yaml" in text
    assert "used: 14" in text
    assert "note:" not in text
    names = [line.strip().split(":")[0] for line in text.split("constants:\n")[1].split("rows:\n")[0].splitlines()]
    assert names
    assert all(name.startswith("all-gather-ring-") for name in names)


def test_rows_that_agree_change_nothing(moesim, table):
    """The fit starts from what the node has; --fresh starts from NCCL."""
    call = ("calibrate", "collectives", "--gpu", "h100", "--from", table(rows()))
    assert "constants: {}" in moesim(*call).out
    assert "all-gather-ring-simple-node-latency" in moesim(*call, "--fresh").out


def test_large_messages_tell_nothing_of_the_start_of_small_ones(moesim, table):
    call = (
        "calibrate",
        "collectives",
        "--gpu",
        "h100",
        "--from",
        table(rows(1.1, sizes=[2**p for p in range(25, 34)])),
    )
    text = moesim(*call).out
    assert "all-gather-ring-simple-node-bandwidth" in text
    assert "ring-ll-" not in text


def test_slow_rows_are_fitted_and_told(moesim, table):
    found = moesim("calibrate", "collectives", "--node", "hgx-h100", "--from", table(rows(2.0)))
    assert found.code == 0
    line = found.err.splitlines()[0]
    assert "times as long as the links need: sizes in elements, slow runs or other links" in line
    assert "note: 'messages take 2." in found.out


EXCHANGES = "gpu,num_ranks,library,mode,op,tokens_per_rank,hidden,topk,num_experts,dtype,num_sms,time_us,notes"


def exchanges(scale, gpu="h200-sxm-141gb", tokens=range(7, 17)):
    """Dispatches in a node as the price of DeepEP has them, times a factor; and two rows that are not to be fitted."""
    node = library.get("nodes", node_of(gpu) or "")
    constants = transport_constants(
        library.get("transports", "deepep"), library.get("gpus", gpu), node, library.get("nics", node.nic)
    )
    lines = [EXCHANGES]
    for power in tokens:
        leg = ExpertLeg("dispatch", 2.0**power, 8, 256, 7168 * (1 + 4 / 128))
        time = scale * 1e6 * float(leg_seconds(leg, Group(8.0, 8.0), constants))
        row = f"{gpu},8,DeepEP,normal,dispatch,{2**power},7168,8,256,fp8,{constants['num_sms']:g}"
        lines.append(f"{row},{time:.4f},")
    return "\n".join([*lines, f"{row},{1e3 * time},ANOMALY", f"{row},{time / 1e3},"]) + "\n"


@pytest.mark.parametrize("gpu", ["h200-sxm-141gb", "b200-sxm"])
def test_a_transport_is_fitted_to_a_table(moesim, table, tmp_path, gpu):
    call = ("calibrate", "transport", "--gpu", gpu, "--from", table(exchanges(1.3, gpu)), "--out", "own.yaml")
    found = moesim(*call)
    assert found.code == 0
    assert "dropped 1: faster than NVLink" in found.err
    assert "dropped 1: flagged as an anomaly" in found.err
    made = validate(CalibrationSpec, read_document(tmp_path / "own.yaml"))
    assert made.family == "transport"
    assert made.rows == {"read": 12, "used": 10}
    assert made.scores["intra dispatch, every third row held out"].median < 0.1
    assert all(name.startswith("intra_dispatch_") for name in made.constants)
    again = load("qwen3-235b-h100x256").with_changes({"calibrations": str(tmp_path / "own.yaml")})
    assert again.machine.residuals["transport-deepep"].quantiles["intra-dispatch"][0] <= 0


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (exchanges(1.0, tokens=range(7, 12)), "fewer than 9 of dispatch (intra) (5)"),
        (
            exchanges(1.0).replace("h200-sxm-141gb", "H100 SXM"),
            "no rows of deepep on h200-sxm-141gb to fit: another GPU",
        ),
        (exchanges(1.0).replace(",normal,", ",low-latency,"), "transport is not priced (12)"),
        (exchanges(1.0).replace("num_experts", "experts"), "no column num_experts"),
    ],
)
def test_exchanges_without_a_fit_are_one_line(moesim, table, text, told):
    (line,) = moesim("calibrate", "transport", "--gpu", "H200", "--from", table(text)).lines
    assert told in line


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (rows(0.4), "times as fast as the links"),
        (rows(sizes=SIZES[:3]), "give at least 6 rows"),
        (rows(gpu="H200"), "another GPU (14)"),
        (rows(gpu="MI300X"), "unknown GPU (14)"),
        (rows().replace(",8,8,", ",16,8,"), "another scope (14)"),
        (rows().replace("size_bytes", "message_size"), "message_size counts elements"),
        (HEADER, "a header and no rows"),
        ("", "is empty"),
    ],
)
def test_rows_without_a_fit_are_one_line(moesim, table, text, told):
    (line,) = moesim("calibrate", "collectives", "--node", "hgx-h100", "--from", table(text)).lines
    assert told in line


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("collectives", "--from", "a.csv"), "one of --node and --gpu"),
        (("collectives", "--gpu", "h100", "--node", "hgx-h100", "--from", "a.csv"), "one of --node and --gpu"),
        (("collectives", "--node", "hgx-h10", "--from", "a.csv"), "no node 'hgx-h10'"),
        (("collectives", "--gpu", "h100", "--from", "a.csv"), "no such file"),
        (("collectives", "--gpu", "h100", "--from", "."), "is a folder"),
        (("collectives", "--gpu", "h100", "--from", "rows.csv", "--op", "alltoal"), "did you mean 'alltoall'"),
        (("collectives", "--gpu", "h100", "--from", "rows.csv", "--op", "alltoall"), "is for logs"),
        (("collectives", "--gpu", "h100", "--from", "aiconfigurator-core", "--op", "alltoall"), "is for logs"),
        (("collectives", "--gpu", "h100", "--from", "aiconfigurator-core", "--fresh"), "always starts so"),
        (("transport", "--from", "rows.csv"), "no column tokens_per_rank"),
        (("transport", "--transport", "hybridep", "--from", "aiconfigurator-core"), "they are of deepep"),
    ],
)
def test_what_is_wrong_is_one_line(moesim, table, words, told):
    table(rows())
    (line,) = moesim("calibrate", *words).lines
    assert told in line
