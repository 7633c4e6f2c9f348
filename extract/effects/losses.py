"""Effects of heads, measured on a study: losses when heads are replaced, and under policies of sparse attention.

Results are yielded piece by piece, so that a caller who stores them can resume after an interruption.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from extract.capture.one_pass import PROBE_TOKENS, Attention, probe
from extract.effects.ablation import (
    LayerEffects,
    Replacement,
    ResumableModel,
    ablate,
    compute_mean_of_others,
    compute_mean_outputs,
)
from extract.effects.interventions import Recorder, refuse_two_passes, run_base
from extract.effects.policies import SHARES, Heads
from extract.effects.sparsity import count_mass_keys
from extract.hub import silence_libraries
from extract.models import loading as models
from extract.settings import SYNTHETIC, ExtractionSettings
from extract.texts import corpora
from storage.errors import UserError
from storage.zarr.layers import list_attending_layers
from storage.zarr.sequences import SequenceStore


@dataclass(frozen=True)
class OpenedModel:
    """A study's model in memory, and the sequences that the study has read."""

    model: PreTrainedModel
    attention: Attention
    tokenizer: PreTrainedTokenizerBase
    settings: ExtractionSettings
    """Those of the study; the corpus, if it is a hub dataset, at the commit that was read."""
    tokens: NDArray[np.int32]
    """Token ids of all sequences of the study, (sequences, keys)."""

    def select_ids(self, sequences: int) -> Tensor:
        """Token ids of the first sequences, int64 (sequences, keys)."""
        if not 1 <= sequences <= len(self.tokens):
            raise UserError(
                f"Effects are requested on {sequences} sequences, but the study has {len(self.tokens)}; request fewer"
            )
        return torch.from_numpy(self.tokens[:sequences].astype(np.int64))

    def select_held_out(self, count: int) -> Tensor:
        """Token ids of ``count`` sequences that the study has not read, int32 (count, keys)."""
        given = self.settings.corpus, self.tokenizer, self.tokens, self.settings.seed, count, self.settings.bos
        return torch.from_numpy(corpora.select_held_out(*given))


@silence_libraries()
def open_study(settings: ExtractionSettings, store: SequenceStore) -> OpenedModel:
    """Load the model that a study's tensors were captured from; for a hub id, at the commit that was read."""
    if settings.model.id == SYNTHETIC:
        raise UserError("A synthetic study has no model whose heads could be changed; leave out effects")
    inputs, tokens = store.require_complete().provenance["inputs"], store.read("tokens", slice(None))
    opened = open_model(settings, inputs, tokens)
    refuse_two_passes(opened.model, opened.attention)
    return opened


@silence_libraries()
def open_model(settings: ExtractionSettings, inputs: Mapping[str, Any], tokens: NDArray[np.int32]) -> OpenedModel:
    """Load the model that read the sequences ``tokens`` from its recorded ``inputs``, as ``open_study`` does."""
    commit = inputs["model"].get("commit")  # of a hub id, in case its branch has moved
    pinned = settings.model.model_copy(update={"revision": commit} if commit else {})
    description = models.describe(settings.model_copy(update={"model": pinned}))
    for name, now in description.provenance["model"].items():
        if name != "id" and now != inputs["model"].get(name):
            msg = f"The model '{settings.model.id}' has changed since the study was extracted ({name}); "
            raise UserError(msg + "extract it again with --fresh")
    model = models.load(description)
    attention = probe(model, torch.from_numpy(tokens[:1, :PROBE_TOKENS]))
    read = inputs["corpus"].get("revision")
    corpus = settings.corpus.model_copy(update={"revision": read} if read else {})
    return OpenedModel(model, attention, description.tokenizer, settings.model_copy(update={"corpus": corpus}), tokens)


def ablate_heads(
    opened: OpenedModel,
    *,
    sequences: int,
    kinds: Sequence[Replacement],
    done: Collection[tuple[int, int]] = (),
) -> Iterator[tuple[int, LayerEffects]]:
    """Replace every head in turn over the first ``sequences`` of a study, as ``extract.effects.ablation.ablate``.

    Yields the sequence and the effects of one layer, as soon as they are measured. Existing pieces, ``done``, each as
    (sequence, layer), are not computed again; a piece does not depend on which others exist. Under ``mean``, z is that
    over all positions of all other sequences of the study, for which layers * S * heads * head size float32 numbers are
    in memory.
    """
    ids, attention = opened.select_ids(sequences), opened.attention
    attending = list_attending_layers(attention)
    missing = {
        sequence: layers
        for sequence in range(sequences)
        if (layers := [layer for layer in attending if (sequence, layer) not in done])
    }
    resumable, means = ResumableModel(opened.model, attention, ids[0]), None
    if "mean" in kinds and missing:
        means = compute_mean_outputs(opened.model, attention, opened.select_ids(len(opened.tokens)))
    for sequence, layers in missing.items():
        others = None if means is None else compute_mean_of_others(means, sequence)
        of_layers = ablate(resumable, attention, ids[sequence], kinds=kinds, means=others, layers=layers)
        yield from ((sequence, effects) for effects in of_layers)


def measure_heads(opened: OpenedModel, *, sequences: int) -> Heads:
    """Measure what the tables of a study lack on its heads: numbers of visible keys, and of keys per share of weight.

    One plain pass for each sequence, and one more for the first. The caller adds elbows, Recall and scores with
    ``dataclasses.replace``.
    """
    ids, layers, recorder = opened.select_ids(sequences), opened.attention.layers, Recorder()
    run_base(opened.model, opened.attention, recorder, ids[:1])
    counts = np.zeros((len(layers), ids.shape[1]), np.int64)
    for layer, count in recorder.counts.items():
        counts[layer] = count.cpu().numpy()
    heads = np.array([size.heads for size in layers])
    present = np.arange(heads.max()) < heads[:, None]
    return Heads(present, counts, mass_keys=count_mass_keys(opened.model, opened.attention, ids, SHARES.tolist()))
