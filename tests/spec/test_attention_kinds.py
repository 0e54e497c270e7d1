"""Another attention in the place of a model's: heads, widths, windows, and what is refused."""

import pytest

import moesim
from moesim.base.errors import SpecError
from moesim.problem import from_names
from moesim.spec import library
from moesim.spec.attention_kinds import with_attention


def test_everything_but_the_attention_stays():
    model = library.get("models", "moe-d5120")
    latent = with_attention(model, "mla:qk192:q2048")
    assert latent.model_dump(exclude={"attention", "published"}) == model.model_dump(exclude={"attention", "published"})
    found = latent.attention
    assert (found.num_heads, found.window, found.window_layers) == (40, 2048, "3 of 4")
    assert (found.nope_dim, found.rope_dim, found.value_dim, found.kv_rank, found.q_rank) == (128, 64, 128, 512, 2048)


def test_the_published_order_of_grouped_and_latent_attention():
    # marin-7201: 333,601 and 316,351 tokens/s of the cluster against 330,958 with grouped queries
    changes = {"ep": 64, "global_batch": 1024, "sequence_length": 4096, "software": "torchtitan"}
    base = from_names("moe-d5120", "gb200-nvl72:16").with_changes(changes)
    grouped, narrow, wide = (
        moesim.estimate(base.with_changes({"attention": text} if text else {})).tokens_per_s_per_gpu
        for text in ("", "mla:qk128:q2048", "mla:qk192:q2048")
    )
    assert narrow / grouped == pytest.approx(1.008, abs=0.04)
    assert wide / grouped == pytest.approx(0.956, abs=0.04)


def test_grouped_queries_with_the_heads_of_the_model_change_nothing():
    plain = from_names("qwen3-30b-a3b", "hgx-h100:1")
    same = plain.with_changes({"attention": "gqa:4"})
    assert moesim.estimate(same).step_time_s == moesim.estimate(plain).step_time_s


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("linear", "linear attention is not modelled, neither its kernels nor its state; write gqa:8, mha"),
        ("square", "'square' is no attention; write gqa:8, mha, mla:qk192"),
        ("mla:qk64", "more than the 64 of the position"),
        ("gqa:3", "do not group over 3 KV heads"),
    ],
)
def test_what_is_no_attention(text, message):
    with pytest.raises(SpecError, match=message):
        from_names("qwen3-30b-a3b", "hgx-h100:1").with_changes({"attention": text})
