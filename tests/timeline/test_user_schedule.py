"""Schedules from a CSV of slots, and what is said about one that cannot run."""

import numpy as np
import pytest

from moesim.base.errors import SpecError
from moesim.timeline.run import run
from moesim.timeline.schedule import Op, program_slots
from moesim.timeline.schedules import find_schedule, schedules
from moesim.timeline.step import step_graph

LETTERS = {Op.F: "F", Op.BW: "B", Op.B: "I", Op.W: "W"}
ONE_PIPELINE = [name for name in schedules.names() if schedules.get(name).pipelines == 1 and name != "none"]


def written(programs):
    """A schedule as PyTorch writes it."""
    lines = []
    for program in programs:
        cells, slots = [], iter(program_slots(program))
        for slot in slots:
            text = f"{slot.stage}{LETTERS[slot.op]}{slot.micro_batch}"
            if slot.paired:
                behind = next(slots)
                text = f"({text};{behind.stage}{LETTERS[behind.op]}{behind.micro_batch})OVERLAP_F_B"
            cells += [text, ""]
        lines.append(",".join(cells))
    return "\n".join(lines) + "\n"


@pytest.fixture
def file(tmp_path):
    def write(text):
        path = tmp_path / "slots.csv"
        path.write_text(text)
        return str(path)

    return write


@pytest.mark.parametrize("name", ONE_PIPELINE)
def test_every_schedule_survives_its_file(name, file):
    schedule = schedules.get(name)
    shape = (4, 8, schedule.chunks or 2)
    read = find_schedule(file(written(schedule.order(*shape))))
    assert read.constraints(*shape) == []
    assert (read.chunks, read.splits, read.pairs) == (schedule.chunks or 2, schedule.splits, schedule.pairs)
    assert read.stage_rank(4, shape[2]) == schedule.stage_rank(4, shape[2])
    assert read.in_flight(*shape) == schedule.in_flight(*shape)
    for merged in (False, True):
        steps = [step_graph(one, *shape, merge_pairs=merged, optimizer=False) for one in (schedule, read)]
        assert steps[0].rows == steps[1].rows
        seconds = np.linspace(1, 2, steps[0].num_rows)
        assert run(steps[0].graph, seconds).makespan == run(steps[1].graph, seconds).makespan


def test_a_file_fits_its_own_shape_only(file):
    path = file("0F0,0F1,,,0B0,,0B1,\n,1F0,1B0,,1F1,1B1\n")
    found = [(one.rule, one.legal) for one in find_schedule(path).constraints(4, 8, 2)]
    assert found == [
        ("schedule-file-pp", "pp 2"),
        ("schedule-file-micro-batches", "micro-batches 2"),
        ("schedule-file-vpp", "vpp 1"),
    ]
    assert path in find_schedule(path).constraints(4, 2, 1)[0].message


def test_a_file_is_read_again_when_it_has_changed(file):
    assert find_schedule(file("0F0,0B0\n")).in_flight(1, 1, 1) == (1,)
    assert find_schedule(file("0F0,0F1,0B0,0B1\n")).in_flight(1, 2, 1) == (2,)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("0F0,0X0\n1F0,1B0\n", ["1: cell 2 '0X0' is no slot; cells such as 0F3"]),
        ("0F0,0B0\n1F0,1SEND_F0,1B0\n", ["2: cell 2 '1SEND_F0' is no slot; cells such as 0F3"]),
        ("0F0,0B\n", ["1: cell 2 '0B' is no slot; cells such as 0F3"]),
        ("0F1234567,0B0\n", ["1: cell 1 '0F1234567' is no slot; cells such as 0F3"]),
        ("0F0,0B0,0F0\n", ["1: cell 3 runs the forward of stage 0, micro-batch 0 again; it is in line 1, cell 1"]),
        ("0F0,0I0,0W0,0B0\n", ["1: cell 4 runs the backward of stage 0, micro-batch 0 again; it is in line 1, cell 2"]),
        (
            "0F0,0F1,0B0\n1F0,1F1,1B0,1B1\n",
            ["1: the backward of stage 0, micro-batch 1 is missing; write 0B1"],
        ),
        ("0F0,0B0,0B1\n", ["1: the forward of stage 0, micro-batch 1 is missing; write 0F1"]),
        ("0F0,0I0\n", ["1: the weight gradient of stage 0, micro-batch 0 is missing; write 0W0"]),
        ("0F0,0B0,0W0\n", ["1: the backward of stage 0, micro-batch 0 is whole and has a W beside; I and W, or B"]),
        ("0B0,0F0\n", ["1: cell 1 runs the backward of stage 0, micro-batch 0 before its forward; the forward first"]),
        (
            "0F0,0W0,0I0\n",
            ["1: cell 2 runs the weight gradient of stage 0, micro-batch 0 before its backward; the backward first"],
        ),
        (
            "0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n",
            [
                "1: deadlock: cell 2, the backward of stage 0, micro-batch 0, waits for the backward of stage 1, "
                "micro-batch 0, which waits for this rank"
            ],
        ),
        (
            "0F0,0B0\n0F1,0B1\n",
            [f"2: cell {cell} runs stage 0, which is on the rank of line 1" for cell in (1, 2)],
        ),
        ("0F0,0B0\n2F0,2B0\n", [" has no stage 1 of 3; stages from 0 without gaps"]),
        (
            "0F0,2F0,2B0,0B0\n1F0,1B0\n",
            ["1: this rank has 2 of 3 stages on 2 ranks", "2: this rank has 1 of 3 stages on 2 ranks"],
        ),
        ("\n", [" has no slots"]),
    ],
)
def test_each_mistake_is_one_line_with_its_place(text, lines, file):
    path = file(text)
    with pytest.raises(SpecError) as caught:
        find_schedule(path)
    found = str(caught.value).splitlines()
    assert len(found) == len(lines)
    for line, expected in zip(found, lines, strict=True):
        assert line.startswith(f"{path}:{expected}")


def test_micro_batches_need_not_come_in_order(file):
    read = find_schedule(file("0F0,0F1,0B0,0B1\n1F1,1B1,1F0,1B0\n"))
    step = step_graph(read, 2, 2, 1, optimizer=False)
    assert run(step.graph, np.ones(step.num_rows)).makespan == 8


def test_files_that_cannot_be_read(tmp_path):
    for name, words in {"none.csv": "No such file", "folder.csv": "directory"}.items():
        if name == "folder.csv":
            (tmp_path / name).mkdir()
        with pytest.raises(SpecError, match=words):
            find_schedule(str(tmp_path / name))
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe0F0")
    with pytest.raises(SpecError, match="no text in UTF-8"):
        find_schedule(str(tmp_path / "binary.csv"))
