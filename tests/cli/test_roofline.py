"""``moesim roofline``."""

import json


def test_table_picture_and_json(moesim, scenario, tmp_path):
    shown = moesim("roofline", scenario, "-o", "r.svg")
    assert shown.code == 0
    assert (tmp_path / "r.svg").read_text().startswith("<?xml")
    for word in ("expert-up", "tensor-cores", "989 TFLOP/s", "a multiply-add is 2"):
        assert word in shown.out, word
    plain = moesim("roofline", scenario, "--json").json
    assert set(plain) == {"name", "gpu", "step_time_s", "flop_roofs", "byte_roofs", "points", "convention"}
    point = plain["points"][0]
    for name in ("calls", "flop", "hbm_bytes", "intensity", "seconds", "rate", "share_of_roof", "bound", "stages"):
        assert name in point
    json.dumps(plain, allow_nan=False)


def test_bad_input_is_one_line(moesim, scenario, tmp_path):
    (tmp_path / "folder.svg").mkdir()
    for arguments, told in (
        ((scenario, "-o", "r.bmp"), "'r.bmp' is no picture; end it in .svg, .png, .pdf"),
        ((scenario, "-o", "r"), "'r' is no picture"),
        ((scenario, "-o", "none/r.svg"), "there is no folder 'none'"),
        ((scenario, "-o", "folder.svg"), "is a folder"),
        (("no-such-scenario",), "no-such-scenario"),
        ((scenario, "--set", "ep=7"), "ep"),
        ((), "what to estimate is missing"),
    ):
        lines = moesim("roofline", *arguments).lines
        assert told in lines[0], lines
        assert len(lines) == 1 or arguments[1:2] == ("--set",)
    assert not (tmp_path / "r.bmp").exists()
