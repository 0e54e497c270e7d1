"""What a configuration of a framework says, and the scenario file that it becomes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from moesim.base.errors import SpecError
from moesim.spec import library
from moesim.spec.huggingface import yaml_text
from moesim.spec.model import ModelSpec
from moesim.spec.scenario import ScenarioSpec, cluster_mapping
from moesim.spec.validation import validate
from moesim.spec.yaml_file import Document

ARCHITECTURE = (
    "num_layers",
    "hidden_size",
    "tie_embeddings",
    "learned_positions",
    "attention",
    "ffn",
    "moe",
    "mtp_layers",
)


@dataclass(frozen=True)
class Imported:
    """A training run as a configuration describes it.

    Attributes
    ----------
    model
        Data of a model spec without name, or the name of a model that is shipped.
    global_batch
        None where the file does not say.
    not_understood
        Settings that may cost time or memory and that nothing reads.
    notes
        What is priced otherwise than it is written.
    ignored
        Number of settings that cost neither time nor memory.
    """

    where: str
    model: dict[str, Any] | str
    strategy: dict[str, Any]
    software: str
    sequence_length: int
    global_batch: int | None
    not_understood: tuple[str, ...]
    notes: tuple[str, ...]
    ignored: int

    def scenario(self, name: str, cluster: str, model: str, global_batch: int | None = None) -> dict[str, Any]:
        """The data of a scenario, checked.

        Parameters
        ----------
        name
            What to call it.
        cluster
            ``NODE:COUNT``.
        model
            Name or file of the model.
        global_batch
            Sequences of a step, where the file does not say.
        """
        batch = global_batch or self.global_batch
        if batch is None:
            raise SpecError.single(self.where, "", "says nothing of the global batch", "give --set global_batch=N")
        data = {
            "schema": 1,
            "name": name,
            "summary": f"{model} on {cluster}, read from {self.where}",
            "model": model,
            "cluster": cluster_mapping(cluster),
            "software": self.software,
            "sequence_length": self.sequence_length,
            "global_batch": batch,
            "strategy": self.strategy,
        }
        validate(ScenarioSpec, Document(f"scenario of {self.where}", data))
        return data

    def text(self, scenario: Mapping[str, Any]) -> str:
        """A scenario as YAML, with a comment on everything that is not in it."""
        lines = [f"# Read from {self.where}; {self.ignored} settings cost neither time nor memory of a step."]
        lines += [f"# Note: {note}." for note in self.notes]
        lines += [f"# Not understood: {setting}" for setting in self.not_understood]
        return "\n".join(lines) + "\n" + yaml_text(scenario)


def shipped_model(architecture: Mapping[str, Any]) -> str | None:
    """Name of the model that is shipped with an architecture; without a vocabulary, whatever the vocabulary."""
    keys = [*ARCHITECTURE, *(("vocab_size",) if "vocab_size" in architecture else ())]
    probe = _spec({"vocab_size": 1, **architecture})
    for name in library.names("models"):
        known = library.get("models", name)
        assert isinstance(known, ModelSpec)
        if all(getattr(known, key) == getattr(probe, key) for key in keys):
            return name
    return None


def model_spec_data(architecture: Mapping[str, Any], name: str, where: str) -> dict[str, Any]:
    """The data of a model file for an architecture that is not shipped."""
    if "vocab_size" not in architecture:
        raise SpecError.single(
            where,
            "",
            "says nothing of the vocabulary, and no shipped model has this architecture",
            "give --vocab-size N",
        )
    layers = architecture["num_layers"]
    data = {"schema": 1, "name": name, "summary": f"{name}, {layers} layers", **architecture, "source": "own"}
    _spec(architecture, data)
    return data


def _spec(architecture: Mapping[str, Any], data: Mapping[str, Any] | None = None) -> ModelSpec:
    plain = data or {"schema": 1, "name": "probe", **architecture, "source": "own"}
    return validate(ModelSpec, Document("model", dict(plain)))


def gpus_of(cluster: str) -> int:
    """GPUs of ``NODE:COUNT``."""
    try:
        mapping = cluster_mapping(cluster)
    except ValueError as error:
        what, _, fix = str(error).partition("; ")
        raise SpecError.single("--cluster", "", what, fix) from None
    return int(library.get("nodes", mapping["node"]).gpus_per_node) * int(mapping["count"])
