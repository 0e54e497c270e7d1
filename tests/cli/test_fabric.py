"""``moesim fabric``: show and groups."""

import pytest

FORMS = [
    ("rail-ndr400", 64),
    ("fat-tree:3", 40),
    ("rail-only", 16),
    ("nvl72-ndr400", 64),
    ("tree", 8),
    ("torus3d", 27),
    ("torus2d", 12),
    ("mesh2d", 400),
    ("ring", 9),
    ("fully-connected", 6),
    ("dragonfly", 300),
    ("wan", 16),
    ("nvlink-domain", 1),
    ("pcie-node", 1),
]


def test_show(moesim):
    shown = moesim("fabric", "show", "rail-ndr400", "--nodes", 128)
    assert shown.code == 0
    for words in ("1,024 GPUs in 128 nodes of hgx-h100", "100% of what one half can send", "6 links", "spine"):
        assert words in shown.out


def test_show_as_json(moesim):
    fabric = moesim("fabric", "show", "fat-tree:3", "--nodes", 36, "--json").json
    assert [tier["name"] for tier in fabric["tiers"]] == ["nvlink", "leaf", "spine"]
    assert fabric["tiers"][2]["oversubscription"] == pytest.approx(3)
    assert fabric["full_bisection_share"] == pytest.approx(1 / 3)
    assert fabric["num_gpus"] == 288
    assert fabric["diameter_links"] == 6


@pytest.mark.parametrize(("name", "nodes"), FORMS)
def test_a_drawing_of_every_kind(moesim, tmp_path, name, nodes):
    pytest.importorskip("matplotlib")
    file = tmp_path / "fabric.svg"
    assert moesim("fabric", "show", name, "--nodes", nodes, "--plot", file).code == 0
    text = file.read_text()
    assert text.rstrip().endswith("</svg>")
    assert text.count("<path") > 5


def test_a_fault(moesim):
    arguments = ["fabric", "show", "rail-only", "--nodes", 8, "--fault", "nic:node3.rail5"]
    effects = {(row["groups_of"], row["pattern"]): row for row in moesim(*arguments, "--json").json["fault_effects"]}
    rails = effects["one GPU of each node", "all-to-all"]
    assert rails["after_bytes_per_s"] == pytest.approx(rails["before_bytes_per_s"] * 7 / 8)
    inside = effects["the GPUs of a node", "ring"]
    assert (inside["after_bytes_per_s"], inside["groups_suffering"]) == (inside["before_bytes_per_s"], 0)
    assert "nic:node3.rail5" in moesim(*arguments).out


def test_a_slow_tier_of_a_large_fabric(moesim):
    arguments = ["fabric", "show", "rail-ndr400", "--nodes", 2048, "--fault", "degrade:spine=0.25", "--json"]
    effects = moesim(*arguments).json["fault_effects"]
    slowed = [row for row in effects if row["after_bytes_per_s"] < row["before_bytes_per_s"]]
    assert {row["groups_of"] for row in slowed} == {"one GPU of each node", "all GPUs"}


def test_groups(moesim):
    rows = {row["axis"]: row for row in moesim("fabric", "groups", "qwen3-235b-h100x256", "--json").json["groups"]}
    assert rows["tp"]["tiers"] == ["nvlink"]
    assert rows["ep"]["tiers"] == ["nvlink", "leaf"]
    assert (rows["ep"]["ranks"], rows["ep"]["stride"], rows["ep"]["binding"]) == (32, 1, "nic")
    assert rows["ep"]["bandwidth_bytes_per_s"] == pytest.approx(48.5e9 * 31 / 24)
    assert rows["ep"]["tier_bytes"]["leaf"] == pytest.approx(rows["ep"]["step_bytes"] * 24 / 31)
    shown = moesim("fabric", "groups", "qwen3-235b-h100x256")
    assert "dense-shard" in shown.out


def test_groups_on_another_fabric(moesim):
    found = {}
    for fabric in ("fat-tree:1", "fat-tree:3", "rail-only", "torus3d"):
        answer = moesim("fabric", "groups", "qwen3-235b-h100x256", "--set", f"cluster.fabric={fabric}", "--json").json
        found[fabric] = {row["axis"]: row["bandwidth_bytes_per_s"] for row in answer["groups"]}
    assert found["fat-tree:1"]["pp"] > found["fat-tree:3"]["pp"] > found["torus3d"]["pp"]
    assert found["rail-only"]["ep"] == pytest.approx(found["fat-tree:1"]["ep"])
    assert len({axes["tp"] for axes in found.values()}) == 1


def test_one_number_of_the_hardware(moesim):
    change = ["--set", "nic.bandwidth=200 Gb/s", "--json"]
    rows = {r["axis"]: r for r in moesim("fabric", "groups", "qwen3-235b-h100x256", *change).json["groups"]}
    assert rows["pp"]["bandwidth_bytes_per_s"] == pytest.approx(24.25e9)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["show", "rail-ndr40", "--nodes", "8"], "no fabric 'rail-ndr40'; did you mean 'rail-ndr400'?"),
        (["show", "fat-tree:x", "--nodes", "8"], "'x' in 'fat-tree:x' is not an oversubscription; write fat-tree:2"),
        (["show", "ring", "--nodes", "0"], "--nodes: 0 is not a number of nodes; 1 or more"),
        (["show", "ring", "--nodes", "8", "--node", "hgx-h10"], "no node 'hgx-h10'; did you mean 'hgx-h100'?"),
        (["show", "fully-connected", "--nodes", "99"], "fabric: radix: 99 nodes need 98 links each"),
        (
            ["show", "ring", "--nodes", "8", "--plot", "ring.txt"],
            "--plot: 'ring.txt' is no drawing; a file that ends in",
        ),
        (
            ["show", "ring", "--nodes", "8", "--fault", "nic:node8.rail0"],
            "--fault nic:node8.rail0: no NIC 'node8.rail0'",
        ),
        (["groups", "qwen3-235b-h100x256", "--set", "cluster.fabric=fat-tre:2"], "--set cluster.fabric: no fabric"),
        (["groups"], "what to estimate is missing"),
    ],
)
def test_bad_input(moesim, arguments, line):
    (found,) = moesim("fabric", *arguments).lines
    assert found.startswith(line)


def step(moesim, *changes):
    options = [word for change in changes for word in ("--set", change)]
    return moesim("estimate", "qwen3-235b-h100x256", *options, "--json").json["step_time_s"]


def test_the_fabric_changes_the_step(moesim):
    rail = step(moesim)
    assert step(moesim, "cluster.fabric=fat-tree:1") == rail == step(moesim, "cluster.fabric=rail-only")
    twice, four = (step(moesim, f"cluster.fabric=fat-tree:{ratio}") for ratio in (2, 4))
    assert rail < twice < four < step(moesim, "cluster.fabric=torus3d")


def test_wiring_that_a_fabric_leaves_open_can_be_set(moesim):
    even = step(moesim, "cluster.fabric=torus3d", "fabric.topology.sides=[2, 4, 4]")
    flat = step(moesim, "cluster.fabric=torus3d", "fabric.topology.sides=[1, 1, 32]")
    assert even == step(moesim, "cluster.fabric=torus3d") != flat
    assert step(moesim, "cluster.fabric=wan-2x800g", "fabric.topology.wan_bandwidth=80 Gb/s") > step(
        moesim, "cluster.fabric=wan-2x800g"
    )
    (line,) = moesim("estimate", "qwen3-235b-h100x256", "--set", "fabric.topology.side=[2]").lines
    assert line.startswith("--set fabric.topology.side: nothing is called 'topology.side'; did you mean 'sides'?")
    (line,) = moesim(
        "estimate", "qwen3-235b-h100x256", "--set", "cluster.fabric=torus3d", "--set", "fabric.topology.sides=[3, 3, 3]"
    ).lines
    assert line.startswith("fabric: sides: 3 x 3 x 3 is 27, not 32 nodes")
