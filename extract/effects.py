"""What heads do, measured on a study: losses when heads are replaced, and under policies of sparse attention.

Holds what is called to measure: the study's model opened again, ``head_ablation`` and ``sparsified_losses``, each of
which gives its results piece by piece, so that whoever stores them can go on where it was stopped. What does not belong
here: how a pass is changed (``extract.interventions``, ``extract.ablation``, ``extract.sparsity``), budgets
(``extract.budgets``), and storage of the results.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from extract import corpora, models
from extract.ablation import LayerEffects, ablate, mean_of_others, mean_outputs
from extract.budgets import SHARES, Heads
from extract.capture import Attention, probe
from extract.extraction import PROBE_TOKENS
from extract.hub import quiet
from extract.identity import OTHER_FILES
from extract.interventions import Kind, Watched, check_heads, intervening, refuse_two_passes
from extract.policies import Policy
from extract.resuming import Resumable
from extract.settings import SYNTHETIC, CorpusSettings, ExtractionSettings
from extract.sparsity import PolicyLosses, mean_keys_of_mass, policy_losses
from storage.errors import UserError
from storage.zarr.sequences import SequenceStore


@dataclass(frozen=True)
class Opened:
    """A study's model in memory, and the sequences that the study has read."""

    model: PreTrainedModel
    attention: Attention
    tokenizer: PreTrainedTokenizerBase
    corpus: CorpusSettings
    """That of the study, a hub dataset at the commit that was read."""
    seed: int
    tokens: NDArray[np.int32]
    """Token ids of all sequences of the study, (sequences, keys)."""

    def ids(self, sequences: int) -> Tensor:
        """Token ids of the first sequences, int64 (sequences, keys).

        Raises
        ------
        UserError
            If the study has fewer.
        """
        if not 1 <= sequences <= len(self.tokens):
            msg = f"Effects are asked for on {sequences} sequences, the study has {len(self.tokens)}; ask for fewer"
            raise UserError(msg)
        return torch.from_numpy(self.tokens[:sequences].astype(np.int64))

    def held_out(self, count: int) -> NDArray[np.int32]:
        """So many sequences of the corpus that the study has not read, int32 (count, keys).

        Raises
        ------
        UserError
            If the corpus has fewer.
        """
        return corpora.held_out(self.corpus, self.tokenizer, self.tokens, self.seed, count)


@quiet()
def open_study(settings: ExtractionSettings, store: SequenceStore) -> Opened:
    """Load the model that a study's tensors were captured from; of a hub id, the commit that was read.

    Raises
    ------
    UserError
        If the study is synthetic or not extracted whole, or its model has changed since or cannot be loaded.
    UneditableError
        If the model is read in two passes, so that its heads cannot be changed.
    """
    if settings.model.id == SYNTHETIC:
        msg = "A synthetic study has no model, whose heads could be changed; leave out effects"
        raise UserError(msg)
    inputs, tokens = store.whole().provenance["inputs"], store.read("tokens", slice(None))
    description = models.describe(_as_read(settings, inputs["model"].get("commit")))
    for name, now in description.provenance["model"].items():
        unrecorded = name == OTHER_FILES and name not in inputs["model"]
        if name != "id" and not unrecorded and now != inputs["model"].get(name):
            msg = f"The model '{settings.model.id}' is not what the study was extracted from ({name} has changed); "
            raise UserError(msg + "extract it again with --fresh")
    model = models.load(description)
    attention = probe(model, torch.from_numpy(tokens[:1, :PROBE_TOKENS]))
    refuse_two_passes(model, attention)
    read = inputs["corpus"].get("revision")
    corpus = settings.corpus.model_copy(update={"revision": read}) if read else settings.corpus
    return Opened(model, attention, description.tokenizer, corpus, settings.seed, tokens)


def head_ablation(
    opened: Opened,
    *,
    sequences: int,
    kinds: Sequence[Kind],
    heads: Sequence[tuple[int, int]] | None = None,
    done: Collection[tuple[int, int]] = (),
) -> Iterator[tuple[int, LayerEffects]]:
    """Replace every head in turn, over the first sequences of a study, layer by layer.

    Memory beside the model's as ``extract.ablation.ablate`` says, and layers * S * heads * head size float32 numbers of
    means where they are asked for.

    Parameters
    ----------
    sequences
        How many sequences of the study.
    kinds
        What z of a head becomes: ``zero``, ``mean`` (over the positions of the other sequences of the study, all of
        them), ``sink``.
    heads
        Heads to do, each as (layer, head); all if None.
    done
        Pieces that are there already, each as (sequence, layer); they are not computed again.

    Yields
    ------
    tuple of int and LayerEffects
        The sequence, and what one of its layers does, as soon as it is known. A piece is the same whichever others are
        done.

    Raises
    ------
    UserError
        If the study has fewer sequences, only one where means are asked for, a head does not exist, or memory does not
        suffice.
    """
    ids, attention = opened.ids(sequences), opened.attention
    check_heads(attention, heads or ())
    attending = {layer for layer, size in enumerate(attention.layers) if size.heads}
    chosen = attending if heads is None else {layer for layer, _ in heads}
    missing = {
        sequence: layers
        for sequence in range(sequences)
        if (layers := sorted(layer for layer in chosen if (sequence, layer) not in done))
    }
    resumable, means = Resumable(opened.model, attention, ids[0]), None
    if "mean" in kinds and missing:
        means = mean_outputs(opened.model, attention, opened.ids(len(opened.tokens)))
    for sequence, layers in missing.items():
        others = None if means is None else mean_of_others(means, sequence)
        found = ablate(resumable, attention, ids[sequence], kinds=kinds, means=others, layers=layers, heads=heads)
        yield from ((sequence, effects) for effects in found)


def known_heads(opened: Opened, *, sequences: int) -> Heads:
    """What the first sequences of a study tell of its heads beside landed tables: keys in reach, and keys of mass.

    Two plain passes for each sequence. Elbows, Recall and scores are for the caller to add, by ``dataclasses.replace``.

    Raises
    ------
    UserError
        If the study has fewer sequences.
    """
    ids, layers, watched = opened.ids(sequences), opened.attention.layers, Watched()
    with intervening(opened.model, opened.attention, watched), torch.inference_mode():
        opened.model.base_model(input_ids=ids[:1].to(opened.model.device), use_cache=False)
    counts = np.zeros((len(layers), ids.shape[1]), np.int64)
    for layer, count in watched.counts.items():
        counts[layer] = count.cpu().numpy()
    heads = np.array([size.heads for size in layers])
    present = np.arange(heads.max()) < heads[:, None]
    return Heads(present, counts, mass_keys=mean_keys_of_mass(opened.model, opened.attention, ids, SHARES.tolist()))


def sparsified_losses(
    opened: Opened,
    held_out: NDArray[np.int32],
    policies: Sequence[Policy],
    *,
    renormalised: bool = True,
    done: Collection[int] = (),
) -> Iterator[tuple[int, PolicyLosses]]:
    """Let a study's model read sequences with full attention and under each policy, sequence by sequence.

    Memory beside the model's as ``extract.sparsity.policy_losses`` says.

    Parameters
    ----------
    held_out
        Token ids, int32 (sequences, keys), of sequences that no budget was taken from: see ``Opened.held_out``.
    policies
        Such as ``extract.budgets.policies_at`` gives for each budget.
    renormalised
        Whether the weights of the keys that are kept sum to 1 again.
    done
        Sequences that are there already; they are not computed again.

    Yields
    ------
    tuple of int and PolicyLosses
        The sequence, and what each policy loses over it.

    Raises
    ------
    UserError
        If memory does not suffice.
    """
    for sequence, ids in enumerate(torch.from_numpy(held_out.astype(np.int64))):
        if sequence not in done:
            yield sequence, policy_losses(opened.model, opened.attention, ids, policies, renormalised=renormalised)


def _as_read(settings: ExtractionSettings, commit: str | None) -> ExtractionSettings:
    """The settings with the commit of a hub id that was read, should its branch have moved on."""
    if commit is None:
        return settings
    return settings.model_copy(update={"model": settings.model.model_copy(update={"revision": commit})})
