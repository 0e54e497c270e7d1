"""Defects of files that users reported: repaired and counted, or refused with the place."""

import gzip
import json

import pytest

from moesim.base.errors import SpecError
from moesim.traces.opening import read_timeline

CUT = "file is cut: what came before is read"


@pytest.fixture
def text(made):
    for number in range(4):
        made.kernel(f"k{number}", 1000 + 10 * number, 4, launch=1000 + 10 * number - 5)
    return made.text()


CHANGES = {
    "unescaped quote": lambda text: text.replace('"k2"', '"a "quoted" k2"'),
    "unescaped backslash": lambda text: text.replace('"k2"', '"C:\\python\\x k2"'),
    "control characters in a string": lambda text: text.replace('"k2"', '"k2\x01\x02"'),
    "invalid UTF-8 replaced": lambda text: text.encode().replace(b'"k2"', b'"k2\xff\xfe"'),
    "bare words (N/A, inf, nan) read as null": lambda text: text.replace('"device": 0', '"device": N/A', 1),
    "trailing comma": lambda text: text.replace("}\n ],", "},\n ],"),
    "negative duration": lambda text: text.replace('"dur": 4,', '"dur": -4,', 1),
    "duration of more than a week": lambda text: text.replace('"dur": 4,', '"dur": 7444444444444444,', 1),
    "start and duration are zero": lambda text: text.replace('"ts": 1010,\n   "dur": 4', '"ts": 0,\n   "dur": 0'),
    "no start or no duration": lambda text: text.replace('"dur": 4,', '"nothing": 4,', 1),
    "start more than a week from the others": lambda text: text.replace('"ts": 1010,', '"ts": 99999999999999,'),
    "id beyond 64 bits": lambda text: text.replace('"External id": 50101', f'"External id": {2**70}', 1),
    "number of another type or beyond its range": lambda text: text.replace('"dur": 4,', '"dur": "4",', 1),
    CUT: lambda text: text[: text.index('"k3"') + 40],
    "object left out: no JSON": lambda text: text.replace('"name": "k2"', '"name" "k2"'),
}
LOST = {"negative duration", "duration of more than a week", "start and duration are zero", "no start or no duration"}
LOST |= {"start more than a week from the others", CUT, "object left out: no JSON"}


@pytest.mark.parametrize("defect", CHANGES)
def test_a_defect_is_counted_and_the_rest_is_read(made, text, defect):
    changed = CHANGES[defect](text)
    assert changed not in (text, text.encode())
    table = read_timeline(made.write(text=changed))
    assert dict(table.repaired) == {defect: 1}
    kernels = [table.name_of(place) for place in range(len(table)) if table.name_of(place) != "cudaLaunchKernel"]
    assert len(kernels) == (3 if defect in LOST else 4)
    assert len(table) - len(kernels) == 4


def test_an_unreadable_object_takes_no_others_with_it(made):
    for number in range(6):
        made.kernel(f"k{number}", 1000 + 10 * number, 4)
        made.events[-1] = {"unusual": 1, **made.events[-1]}  # no key that events usually start with
    text = made.text().replace('"name": "k2"', '"name" "k2"')
    table = read_timeline(made.write(text=text))
    assert [table.name_of(place) for place in range(len(table))] == ["k0", "k1", "k3", "k4", "k5"]
    assert dict(table.repaired) == {"object left out: no JSON": 1}


def test_damage_beyond_the_list_leaves_the_events(made, text):
    for changed in (text.replace('"schemaVersion": 1', '"schemaVersion": ?'), text.replace('"made.json"', '"a"b"c')):
        table = read_timeline(made.write(text=changed))
        assert len(table) == 8
        assert sum(table.repaired.values()) == 1


def test_a_cut_gzip_is_read_as_far_as_it_goes(made, text):
    packed = gzip.compress(text.encode(), compresslevel=1)
    table = read_timeline(made.write("a.gz", packed[: len(packed) - 60]))
    assert set(table.repaired) == {"compressed stream is cut: what came before is read", CUT}
    assert len(table) > 0
    many = gzip.compress(text.replace("k3", "".join(f"{number:x}" for number in range(30000))).encode())
    broken = many[: len(many) // 2] + bytes(40) + many[len(many) // 2 + 40 :]
    assert read_timeline(made.write("b.gz", broken)).repaired


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("", "is empty"),
        ("hello", "is no trace that is known"),
        ('{"traceEvents": null}', "traceEvents: is no list but 'null}'"),
        ('{"schemaVersion": 1}', "no list 'traceEvents'"),
    ],
)
def test_what_is_no_trace_is_refused_in_a_line(made, content, line):
    with pytest.raises(SpecError, match=line) as refused:
        read_timeline(made.write(text=content))
    assert len(refused.value.issues) == 1


def test_the_place_of_the_first_defect_is_told(made, text):
    changed = CHANGES["unescaped quote"](text)
    table = read_timeline(made.write(text=changed))
    assert changed[table.first["unescaped quote"] :].lstrip().startswith("{")
    assert '"a "quoted" k2"' in changed[table.first["unescaped quote"] :][:120]


def test_lists_cut_at_thirty_ranks_come_from_the_metadata(made):
    from moesim.traces.collectives import collectives, ranks_of
    from moesim.traces.summary import work_of

    made.head["distributedInfo"] |= {"pg_config": [{"pg_name": "7", "ranks": list(range(64))}]}
    told = {"Collective name": "allreduce", "In msg nelems": 8, "Out msg nelems": 8, "dtype": "Float", "Group size": 64}
    short = str(list(range(30)))[:-1] + ", ..."
    for group in ("7", "8"):
        name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
        made.kernel(name, 0, 5, **told, **{"Process Group Name": group, "Process Group Ranks": short})
    work = work_of(read_timeline(made.write()))
    assert [len(ranks_of(work.table, one)) for one in collectives(work)] == [64, 0]


def test_comms_ids_beyond_64_bits_do_no_harm(made):
    made.kernel("ncclDevKernel_SendRecv", 0, 5, **{"Comms Id": 2**65, "Collective name": "send", "dtype": "Float"})
    table = read_timeline(made.write(text=json.dumps({"traceEvents": made.events})))
    assert (len(table), dict(table.repaired)) == (1, {})
