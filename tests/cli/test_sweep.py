"""``moesim sweep`` and ``moesim whatif``: shapes of answers, files, refusals."""

import pandas as pd
import pytest


@pytest.fixture
def swept(small_file):
    return ("sweep", small_file, "--vary", "ep=4,8,3", "--vary", "transports.deepep.num_sms=8,24")


def test_a_ranked_table_with_reasons_and_curves(moesim, swept):
    shown = moesim(*swept, "--show", "exposed,terms", "--show", "memory,routing,interval")
    assert (shown.code, shown.err) == (0, "")
    for words in (
        "6 combinations: 4 legal, 4 fit",
        "refused ep=3",
        "and 1 more",
        "ep: best at",
        "num_sms: best at",
        "90 %",
    ):
        assert words in shown.out
    assert "waits for each class" in shown.out


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_rows_of_files_are_those_of_the_answer(moesim, swept, tmp_path, name):
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    found = moesim(*swept, "--json").json
    assert found["counts"] == {"fits": 4, "does not fit": 0, "refused": 2}
    assert [one["axis"] for one in found["curves"]] == ["ep", "transports.deepep.num_sms"]
    path = tmp_path / name
    assert moesim(*swept, "-o", path).code == 0
    frame = pd.read_csv(path) if name.endswith("csv") else pd.read_parquet(path)
    assert frame["state"].tolist() == ["fits"] * 4 + ["refused"] * 2
    assert frame["step_time_s"][0] == pytest.approx(found["rows"][0]["step_time_s"])
    assert frame["rules"].iloc[-1]
    assert len(moesim(*swept, "--top", 2, "--json").json["rows"]) == 2


def test_a_number_of_the_transport_in_use(moesim, small_file):
    call = ("sweep", small_file, "--vary", "transport=deepep,hybridep", "--vary", "transport.num_sms=8,20")
    rows = moesim(*call, "--json").json["rows"]
    for row in rows:
        paths = {"transport": row["set"]["transport"]}
        paths[f"transports.{row['set']['transport']}.num_sms"] = row["set"]["transport.num_sms"]
        options = [word for path, value in paths.items() for word in ("--set", f"{path}={value}")]
        assert moesim("estimate", small_file, *options, "--json").json["step_time_s"] == row["step_time_s"]
    assert len({row["step_time_s"] for row in rows}) > 1


def test_what_if(moesim, small_file):
    call = ("whatif", small_file, "--change", "ep=4; micro_batch=2", "--fault", "nic:node3.rail5")
    found = moesim(*call, "--json").json
    assert [case["case"] for case in found["cases"]][1:3] == ["ep=4, micro_batch=2", "fault=nic:node3.rail5"]
    assert found["together"] is True
    shown = moesim(*call).out
    for words in ("speed-up", "all at once", "groups that suffer", "what the step would lose without each class"):
        assert words in shown


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (("sweep", "zoo-002"), "--vary: nothing is varied"),
        (("sweep", "zoo-002", "--vary", "ep="), "--vary ep=: is not PATH=VALUE"),
        (("sweep", "zoo-002", "--vary", "ep=8", "--show", "expose"), "--show: 'expose' is no column; did you mean 'exposed'?"),
        (("sweep", "zoo-002", "--vary", "ep=8", "--by", "mfuu"), "--by: 'mfuu' is no objective"),
        (("sweep", "zoo-002", "--vary", "ep=8", "-o", "a.xlsx"), "--out: no answer of the kind '.xlsx'"),
        (("sweep", "zoo-002", "--vary", "eep=8,16"), "--vary eep: nothing is called 'eep'; did you mean 'ep'?"),
        (("whatif", "zoo-002"), "nothing changes; give --change PATH=VALUE or --fault KIND:TARGET"),
        (("whatif", "zoo-002", "--change", "ep"), "--change ep: is not PATH=VALUE"),
        (("whatif", "zoo-002", "--change", "ep=8; ep=16"), "--change ep: is given twice"),
        (("whatif", "zoo-002", "--fault", "nic"), "--fault nic: "),
        (("estimate", "zoo-002", "--fault", "rail:5", "--fault", "slow:node3=0.3"),
         "--fault: rail:5, slow:node3=0.3 are not priced together; give one, or ask moesim whatif"),
        (("dispatch", "zoo-002", "--vary", "comm_sms=133"), "--vary comm_sms: 133 SMs, and h100-sxm-80gb has 132; legal: 1 to 132"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(moesim, call, message):
    (line,) = moesim(*call).lines
    assert line.startswith(message)


def test_a_sweep_over_faults_has_a_base_without_one(moesim, small_file):
    rows = moesim("sweep", small_file, "--vary", "fault=none,slow:node1=0.5", "--json").json["rows"]
    base, slow = sorted(rows, key=lambda row: row["step_time_s"])
    assert (base["set"], slow["set"]) == ({"fault": "none"}, {"fault": "slow:node1=0.5"})
    plain = moesim("estimate", small_file, "--json").json
    assert base["step_time_s"] == plain["step_time_s"]
    assert moesim("estimate", small_file, "--fault", "none", "--json").json == plain
    assert slow["step_time_s"] > base["step_time_s"]
