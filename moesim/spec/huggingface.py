"""From the ``config.json`` of a Hugging Face model to a model spec.

Keys and their defaults are those of the configuration classes of transformers. What a layer list cannot say is
refused, with the key that prevents it. Biases have no place in a spec: they are left out, and the note says so.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from moesim.base.errors import Collector, SpecError
from moesim.spec.huggingface_families import FAMILIES, REFUSED_KEYS, Family, MoeKeys
from moesim.spec.model import ModelSpec, in_share
from moesim.spec.validation import validate
from moesim.spec.yaml_file import Document, display_name, read_text

SOURCE = "huggingface-transformers"


def model_from_config(path: str | Path, name: str | None = None) -> ModelSpec:
    """Return the spec of the model in a ``config.json``; raises a `SpecError` for what cannot be expressed."""
    return validate(ModelSpec, Document(display_name(Path(path)), model_data(path, name)))


def model_data(path: str | Path, name: str | None = None) -> dict[str, Any]:
    """Return the same as plain data, checked, in the order of the shipped files and without fields at their default."""
    file = Path(path)
    config = _read(file)
    data = convert(config, name or default_name(config, file), display_name(file))
    validate(ModelSpec, Document(display_name(file), data))
    return data


def yaml_text(data: Mapping[str, Any]) -> str:
    """Return plain data as the text of a YAML file."""
    text = io.StringIO()
    yaml = YAML()
    yaml.width = 116
    yaml.dump(dict(data), text)
    return text.getvalue()


def default_name(config: Mapping[str, Any], file: Path) -> str:
    """Return a name for a model: as the config calls it, or else its folder, or else its type."""
    called = str(config.get("_name_or_path") or "").rstrip("/").rpartition("/")[2]
    folder = file.absolute().parent.name
    return (called or folder or str(config.get("model_type") or "model")).lower().replace(" ", "-")


def convert(config: Mapping[str, Any], name: str, where: str = "config.json") -> dict[str, Any]:
    """Return the data of a spec from that of a ``config.json``.

    Parameters
    ----------
    config
        The contents of the file. Of a multimodal model the ``text_config`` is read.
    name
        What to call the model.
    where
        What messages call the file.
    """
    inner = config.get("text_config")
    if isinstance(inner, Mapping):
        outer = {key: config[key] for key in ("tie_word_embeddings",) if key in config}
        data = convert({**outer, **inner}, name, where)
        return data | {"note": f"{data['note']}; the text model alone, without its encoders"}
    family = _family(config, where)
    return _Conversion(config, family, where).data(name)


def _read(file: Path) -> dict[str, Any]:
    where = display_name(file)
    text = read_text(file)
    try:
        config = json.loads(text)
    except json.JSONDecodeError as error:
        raise SpecError.single(f"{where}:{error.lineno}", "", f"not valid JSON: {error.msg}") from None
    if not isinstance(config, dict):
        raise SpecError.single(where, "", "the file is not an object", "give the config.json of a model")
    return config


def _family(config: Mapping[str, Any], where: str) -> Family:
    problems = Collector()
    for key, reason in REFUSED_KEYS.items():
        if config.get(key):
            problems.add(where, key, f"cannot be expressed: {reason}")
    kind = config.get("model_type")
    if kind is None:
        problems.add(where, "model_type", "is missing", "give the config.json of a model")
    elif kind not in FAMILIES:
        problems.add(where, "model_type", f"'{kind}' cannot be expressed", "known: " + ", ".join(sorted(FAMILIES)))
    problems.raise_if_any()
    return FAMILIES[str(kind)]


class _Conversion:
    """One config on its way to a spec; notes every problem and raises them together."""

    def __init__(self, config: Mapping[str, Any], family: Family, where: str) -> None:
        renamed = {ours: config[theirs] for ours, theirs in family.names.items() if theirs in config}
        self.config: dict[str, Any] = {**family.defaults, **config, **renamed}
        self.family = family
        self.where = where
        self.problems = Collector()

    def data(self, name: str) -> dict[str, Any]:
        family = self.family
        num_layers, hidden = self.count("num_hidden_layers"), self.count("hidden_size")
        tied = self.config.get("tie_word_embeddings")
        data: dict[str, Any] = {"schema": 1, "name": name, "summary": f"{name}, {num_layers} layers"}
        data |= {"num_layers": num_layers, "hidden_size": hidden, "vocab_size": self.count("vocab_size")}
        data["tie_embeddings"] = family.tied if tied is None else bool(tied)
        if self.learned_positions():
            data["learned_positions"] = True
        if family.norms != 2:
            data["norms"] = family.norms
        data["attention"] = self.latent_attention() if family.latent else self.grouped_attention(hidden)
        for field, layer_type in (("window", "sliding_attention"), ("chunk", "chunked_attention")):
            data["attention"] |= self.shares(field, layer_type, num_layers)
        moe = self.moe(family.moe, num_layers) if family.moe else None
        if moe is None or "first_k_dense" in moe or "every" in moe:
            data["ffn"] = {"size": self.dense_size(hidden), "gated": family.gated}
        if moe:
            data["moe"] = moe
            data["summary"] += f", {moe['num_experts']} experts, {moe['top_k']} a token"
        mtp = self.config.get("num_nextn_predict_layers", self.config.get("num_mtp_layers")) or 0
        if mtp:
            data["mtp_layers"] = mtp
        data["source"] = SOURCE
        data["note"] = f"from a config.json of model_type {self.config['model_type']}"
        if family.biased or any(self.config.get(key) for key in ("attention_bias", "mlp_bias")):
            data["note"] += "; biases are not counted"
        self.problems.raise_if_any()
        return data

    def count(self, key: str) -> int:
        """Return a whole number of at least one, or note the problem and return 1."""
        value = self.config.get(key)
        shown = self.family.names.get(key, key)
        if value is None:
            self.problems.add(self.where, shown, "is missing")
        elif isinstance(value, bool) or not isinstance(value, int) or value < 1:
            self.problems.add(self.where, shown, f"must be a whole number of at least one, not {value!r}")
        else:
            return value
        return 1

    def refuse(self, key: str, what: str) -> None:
        self.problems.add(self.where, key, f"cannot be expressed: {what}")

    def learned_positions(self) -> bool:
        """Whether a position table is learned; alibi and rope of MPT replace it."""
        chosen = self.config.get("attn_config")
        replaced = isinstance(chosen, Mapping) and (chosen.get("alibi", True) or chosen.get("rope"))
        return self.family.learned_positions and not replaced

    def grouped_attention(self, hidden: int) -> dict[str, Any]:
        heads = self.count("num_attention_heads")
        kv_heads = self.config.get("num_key_value_heads") or heads
        chosen = self.config.get("attn_config")
        if isinstance(chosen, Mapping):  # MPT
            kv_heads = 1 if chosen.get("attn_type") == "multiquery_attention" else chosen.get("kv_n_heads") or heads
        head_dim = self.config.get("head_dim")
        if head_dim is None and hidden % heads:
            self.problems.add(self.where, "num_attention_heads", f"{heads} heads do not divide a width of {hidden}")
        attention: dict[str, Any] = {"kind": "mha" if kv_heads == heads else "gqa", "num_heads": heads}
        if kv_heads != heads:
            attention["num_kv_heads"] = kv_heads
        attention["head_dim"] = head_dim or hidden // heads
        normed = self.config.get(self.family.qk_norm_key, False) if self.family.qk_norm_key else self.family.qk_norm
        if normed:
            attention["qk_norm"] = True
        return attention

    def latent_attention(self) -> dict[str, Any]:
        attention: dict[str, Any] = {"kind": "mla", "num_heads": self.count("num_attention_heads")}
        if self.config.get("q_lora_rank"):
            attention["q_rank"] = self.count("q_lora_rank")
        keys = {"kv_rank": "kv_lora_rank", "nope_dim": "qk_nope_head_dim", "rope_dim": "qk_rope_head_dim"}
        keys["value_dim"] = "v_head_dim"
        return attention | {ours: self.count(theirs) for ours, theirs in keys.items()}

    def shares(self, field: str, layer_type: str, num_layers: int) -> dict[str, Any]:
        """Return the window or chunk and the layers that have it."""
        key = {"window": "sliding_window", "chunk": "attention_chunk_size"}[field]
        size, types = self.config.get(key), self.config.get("layer_types")
        unknown = set(types or ()) - {"full_attention", "sliding_attention", "chunked_attention"}
        if unknown and field == "window":
            self.refuse("layer_types", ", ".join(sorted(unknown)))
        if not size or (field == "window" and self.config.get("use_sliding_window") is False):
            return {}
        if types:
            flags = [kind == layer_type for kind in types]
        else:
            rule = getattr(self.family, field)
            if rule is None:
                self.refuse(key, "it is not clear which layers it is meant for; layer_types would say so")
                return {}
            flags = rule(self.config, num_layers)
        if not any(flags):
            return {}
        share = _share(flags)
        if share is None:
            self.refuse("layer_types" if types else key, f"layers with a {field} that are not the first N of every M")
        return {field: size} if all(flags) else {field: size, f"{field}_layers": share}

    def moe(self, keys: MoeKeys, num_layers: int) -> dict[str, Any]:
        size = self.count(keys.size)
        moe = {"num_experts": self.count(keys.experts), "top_k": self.count(keys.top_k), "ffn_size": size}
        moe["gated"] = True
        if keys.biased:
            moe["bias"] = True
        shared = self.config.get(keys.shared_size) or 0 if keys.shared_size else 0
        number = self.config.get(keys.shared_experts) or 0 if keys.shared_experts else int(shared > 0)
        if number:
            moe |= {"num_shared_experts": number, "shared_ffn_size": shared or number * size}
        groups = self.config.get(keys.groups) or 1 if keys.groups else 1
        if groups > 1 and self.config.get("topk_method") != "greedy":
            moe |= {"expert_groups": groups, "groups_per_token": self.config.get("topk_group") or groups}
        dense = self.config.get("first_k_dense_replace") or 0
        only = sorted(self.config.get("mlp_only_layers") or ())
        if only and only != list(range(len(only))):
            self.refuse("mlp_only_layers", "dense layers that are not the first ones")
        if self.config.get("moe_layer_freq", 1) not in (1, [0] * dense + [1] * (num_layers - dense)):
            self.refuse("moe_layer_freq", "routed layers other than all after the first dense ones")
        every = self.config.get("decoder_sparse_step") or self.config.get("interleave_moe_layer_step") or 1
        routed = self.config.get("moe_layers")
        if routed and list(routed) != [i for i in range(num_layers) if (i + 1) % every == 0]:
            self.refuse("moe_layers", f"routed layers other than every {every}th")
        if dense or only:
            moe["first_k_dense"] = dense or len(only)
        if every > 1:
            moe["every"] = every
        return moe

    def dense_size(self, hidden: int) -> int:
        """Return the size of the dense feed-forward; GPT-2 and MPT may give it as a multiple of the width."""
        key = self.family.moe.dense if self.family.moe else "intermediate_size"
        ratio = self.config.get("expansion_ratio")
        if self.config.get(key) is None and ratio:
            return int(hidden * ratio)
        return self.count(key)


def _share(flags: Sequence[bool]) -> str | None:
    """Return ``N of M`` where flags hold for the first N of every M places.

    Examples
    --------
    >>> _share([True, True, True, False] * 2), _share([False, True])
    ('3 of 4', None)
    """
    first = next((place for place, flag in enumerate(flags) if not flag), len(flags))
    for period in range(max(first, 1), len(flags) + 1):
        share = f"{first} of {period}"
        if first and all(in_share(share, place) == flag for place, flag in enumerate(flags)):
            return share
    return None
