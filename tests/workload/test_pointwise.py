"""Norms, rotary embedding and gated activations as eager PyTorch runs them: counted operator by operator."""

import pytest

from moesim.workload.layers import layer_block
from moesim.workload.mesh import Mesh
from moesim.workload.model import Attention, Dense, Layer
from moesim.workload.precision import recipes
from moesim.workload.setting import Fusion, Setting

TOKENS, HIDDEN, INNER, HEADS, HEAD_DIM = 4096, 2048, 8192, 16, 128
ROW, WIDE, ROTATED = 2 * TOKENS * HIDDEN, 2 * TOKENS * INNER, 2 * TOKENS * 2 * HEADS * HEAD_DIM
CHAINS = {
    "input-norm": [1, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1],  # cast; square; mean; scale; cast; weight: reads and writes
    "mlp-norm": [1, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1],
    "mlp-norm-backward": [1, 1, 3, 1, 1, 2, 2, 2, 6, 2, 2, 2, 2, 2, 4, 2, 2, 1],
    "rope": [1, 2, 2, 2, 2, 1],
    "rope-backward": [1, 2, 2, 2, 2, 1],
    "mlp-activation": [1, 1, 2, 1],
    "mlp-activation-backward": [2, 1, 2, 1, 2, 1],
}
"""Units that each operator reads and writes, a unit being one BF16 copy."""


def layer(operators):
    setting = Setting(1, TOKENS, Mesh(8, 1, 1, 1, 1, 1), recipes.get("bf16"), fusion=Fusion(operators=operators))
    return layer_block(Layer(Attention(HEADS, HEADS, HEAD_DIM), Dense(INNER)), HIDDEN, setting)


def traffic(block):
    return {op.name: op.work.hbm_bytes for op in (*block.forward, *block.backward)}


@pytest.mark.parametrize("name", CHAINS)
def test_the_bytes_of_a_chain(name):
    unit = ROTATED if name.startswith("rope") else WIDE if "activation" in name else ROW
    assert traffic(layer(True))[name] == pytest.approx(sum(CHAINS[name]) * unit)


def test_nothing_else_changes():
    joined, apart = traffic(layer(False)), traffic(layer(True))
    changed = {name for name in joined if apart[name] != joined[name]}
    assert changed == {*CHAINS, "input-norm-backward"}
    assert all(apart[name] > joined[name] for name in changed)


def test_what_is_kept_more():
    joined, apart = ({saved.name: saved.num_bytes for saved in layer(one).saved} for one in (False, True))
    more = {name: apart[name] - joined[name] for name in joined if apart[name] != joined[name]}
    assert more == {"input-norm-output": 2 * ROW, "mlp-norm-output": 2 * ROW, "mlp-activation-output": WIDE}
