"""Tables of measured collectives: what is used, what is refused by reason, and files that hold none."""

import pytest

from moesim.base.errors import SpecError
from moesim.traces.collective_files import read_collective_file

HEADER = "gpu,op,size_bytes,nranks,gpus_per_node,time_us,algbw_gbps,notes\n"


def test_rows_are_used_or_counted_by_reason(tmp_path):
    path = tmp_path / "rows.csv"
    lines = [
        "H100 SXM,all_gather,1e+06,8,8,20,50,",
        "H100 SXM,All-Gather,2097152,8,8,N/A,N/A,",
        "H100 SXM,all_gather,N/A,8,8,20,50,",
        "H100 SXM,all_gather,0,8,8,20,0,",
        "H100 SXM,all_gather,1048576,1,1,20,50,",
        "H100 SXM,all_gather,1048576,8,8,0,0,",
        "H100 SXM,broadcast,1048576,8,8,20,50,",
        "H100 SXM,all_gather,16777216,8,8,100,335.5,",  # 16 Mi elements of two bytes
        "H100 SXM,all_gather,1048576,8,8,20,52,#wrong is non-zero",
        "H100 SXM,all_gather,1048576",
    ]
    path.write_text(HEADER + "\n".join(lines) + "\n")
    table = read_collective_file(path)
    assert [(row.size, row.time, row.wrong) for row in table.rows] == [
        (1e6, pytest.approx(20e-6), False),
        (2097152, None, False),
        (1048576, pytest.approx(20e-6), True),
    ]
    assert table.refused == {
        "no size": 1,
        "size is zero": 1,
        "no ranks to talk to": 2,
        "time is zero": 1,
        "operation 'broadcast' is not priced": 1,
        "size_bytes over time_us is not algbw_gbps: sizes in elements, or another unit of time": 1,
    }


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.csv", b"", "is empty"),
        ("a.log", b"  \n", "is empty"),
        ("a.csv", b"\xff\xfe\x00\x01,\x00", "is no text"),
        ("a.log", b"\x89PNG\r\n\x1a\n\x00\x00", "is no text"),
        ("a.csv", b"gpu,op,nranks\nH100,all_gather,8\n", "no column size_bytes"),
        ("a.csv", b"gpu,op,message_size,nranks\nH100,all_gather,8,8\n", "message_size counts elements"),
        ("a.csv", HEADER.encode(), "a header and no rows"),
        ("a.json", b'{"results": [', "neither a log nor JSON"),
    ],
)
def test_a_file_that_holds_none_is_one_line(tmp_path, name, content, told):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(SpecError, match=told) as raised:
        read_collective_file(path)
    assert "\n" not in str(raised.value)


def test_no_file_and_a_folder(tmp_path):
    with pytest.raises(SpecError, match="no such file"):
        read_collective_file(tmp_path / "none.csv")
    with pytest.raises(SpecError, match="is a folder"):
        read_collective_file(tmp_path)
