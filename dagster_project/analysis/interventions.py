"""The steps of interventions: a model run with heads replaced one by one, and with fewer keys for every query.

Holds their rows, and the statistics of heads from which sparse attention takes its budgets. The forward passes are in
``extract.effects.losses``.

A step that is stopped is resumed: the results of each layer, or each sequence, are kept until the step is complete.
"""

import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

import sql
from dagster_project.analysis.memory import check_memory
from dagster_project.analysis.sources import Rows, Sources
from dagster_project.study.settings import EffectsSettings
from geometry.arrays import F64
from geometry.statistics.intervals import POSITIVE, estimate_mean
from storage.errors import UserError
from storage.files.parts import read_part
from storage.files.pieces import Pieces
from storage.warehouse.rows import build_batch, fill_columns, index_columns
from storage.zarr.layers import list_attending_layers

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from extract.effects.losses import OpenedModel
    from extract.effects.policies import Heads, Policy

logger = logging.getLogger(__name__)

PIECES_VERSION = 5  # Version of the numbers of pieces; raised when the forward passes change


def compute_head_ablation(sources: Sources) -> Rows:
    """The increase of the model's loss when a head's output is replaced, for every head, with intervals.

    Yields nothing unless the study asks for effects, nor, with a warning, for a model whose attention cannot be edited.
    The losses of all heads over all sequences are in memory.
    """
    settings = sources.study.analysis.effects
    if settings is None or not settings.ablation:
        return
    pieces = _open_pieces(sources, "head_ablation")
    layers = list_attending_layers(sources.tensors)
    done = {(int(sequence), int(layer)) for sequence, layer in (name.split("-") for name in pieces.contents)}
    if len(done) < settings.sequences * len(layers):
        from extract.effects.ablation import estimate_ablation_bytes

        opened = _open_model(sources, estimate_ablation_bytes)
        if opened is None:
            return
        _ablate(opened, sources, settings, pieces, done)
    for layer in layers:
        effects = [pieces.contents[f"{sequence}-{layer}"] for sequence in range(settings.sequences)]
        yield from _build_ablation_rows(settings, effects, layer)
    pieces.remove()


def _ablate(
    opened: "OpenedModel", sources: Sources, settings: EffectsSettings, pieces: Pieces, done: set[tuple[int, int]]
) -> None:
    """Compute the missing pieces, layer by layer."""
    from tqdm import tqdm

    from extract.effects.losses import ablate_heads

    total = settings.sequences * len(list_attending_layers(sources.tensors))
    ablated = ablate_heads(opened, sequences=settings.sequences, kinds=settings.ablation, done=done)
    unit = " layers of sequences"
    for sequence, effects in tqdm(ablated, "head ablation", total - len(done), unit=unit, disable=None):
        content = {"plain_loss": effects.plain_loss, "loss": effects.loss.tolist(), "kl": effects.kl.tolist()}
        pieces.write(f"{sequence}-{effects.layer}", content)


def _build_ablation_rows(settings: EffectsSettings, effects: Sequence[Mapping[str, Any]], layer: int) -> Rows:
    """The rows of ``head_ablation`` for one layer, from the effects in every sequence, and of these."""
    plain = np.array([one["plain_loss"] for one in effects])
    loss, kl = (np.array([one[name] for one in effects], np.float64) for name in ("loss", "kl"))
    delta, shape = (loss - plain[:, None, None]).reshape(len(plain), -1), loss.shape[1:]
    place = index_columns(shape, "kind", "head", layer=layer)  # kind by kind
    place["kind"] = np.array(settings.ablation, object)[place["kind"]]
    means = {
        **fill_columns(delta.shape[1], sequences=settings.sequences),
        "plain_loss": np.full(delta.shape[1], plain.mean()),
        **estimate_mean(delta).name_ends("delta_loss"),
        **estimate_mean(kl.reshape(delta.shape), POSITIVE).name_ends("kl"),
    }
    yield "head_ablation", build_batch(place | means)
    by_sequence = {
        **{name: np.tile(column, len(plain)) for name, column in place.items()},
        "sequence": np.arange(len(plain), dtype=np.int32).repeat(delta.shape[1]),
        "plain_loss": plain.repeat(delta.shape[1]),
        "delta_loss": delta.ravel(),
        "kl": kl.ravel(),
    }
    yield "head_ablation_by_sequence", build_batch(by_sequence)


def compute_sparsified_loss(sources: Sources) -> Rows:
    """The increase of the model's loss when queries attend to fewer keys, by policy and budget, on held-out sequences.

    Yields nothing unless the study asks for effects, nor, with a warning, for a model whose attention cannot be edited.
    The losses of all policies over all sequences are in memory.
    """
    settings = sources.study.analysis.effects
    if settings is None or not settings.budgets:
        return
    from tqdm import tqdm

    from extract.effects.sparsity import estimate_policy_bytes, measure_policy_losses

    opened = _open_model(sources, estimate_policy_bytes)
    if opened is None:
        return
    policies = _list_policies(opened, sources, settings)
    pieces = _open_pieces(sources, "sparsified_loss")
    done, held_out = {int(name) for name in pieces.contents}, opened.select_held_out(settings.held_out)
    missing = [sequence for sequence in range(len(held_out)) if sequence not in done]
    for sequence in tqdm(missing, "sparsified loss", unit="sequence", disable=None):
        given = opened.model, opened.attention, held_out[sequence]
        pieces.write(f"{sequence}", measure_policy_losses(*given, [policy for _, _, policy in policies]))
    of_sequences = [pieces.contents[f"{sequence}"] for sequence in range(settings.held_out)]
    yield from _build_sparsified_rows(policies, of_sequences)
    pieces.remove()


def _list_policies(
    opened: "OpenedModel", sources: Sources, settings: EffectsSettings
) -> list[tuple[float, int, "Policy"]]:
    """The budget as a share, its number of keys, and the policies of that cost."""
    from extract.effects.policies import build_policies, count_keys

    heads, seed = describe_heads(opened, sources, settings), sources.study.seed
    context = opened.tokens.shape[1]
    policies = [
        (budget, keys, policy)
        for budget in sorted(settings.budgets)
        for keys in (count_keys(budget, context),)
        for policy in build_policies(keys, heads, draws=settings.draws, seed=seed)
    ]
    if not settings.policies:
        return policies
    names = sorted({policy.name for _, _, policy in policies})
    if unknown := sorted({*settings.policies}.difference(names)):
        raise UserError(
            f"There is no policy {', '.join(unknown)} (analysis.effects.policies); there are {', '.join(names)}"
        )
    return [one for one in policies if one[2].name in {"same_n", *settings.policies}]


def describe_heads(opened: "OpenedModel", sources: Sources, settings: EffectsSettings) -> "Heads":
    """Statistics of heads that budgets are taken from: the study's sequences, its last query, and elbows as in SQL."""
    from extract.effects.losses import measure_heads

    heads = measure_heads(opened, sequences=settings.sequences)
    recall = _read_last_query(sources, heads.present, "SELECT layer, head, n, recall FROM selection_means")["recall"]
    recall = np.where(heads.present[..., None] & np.isnan(recall), 1, recall)  # of all keys
    elbows = _read_last_query(sources, heads.present, "SELECT layer, head, elbow_n FROM elbows_of(selection_means)")
    budgets = "SELECT layer, head, n_90, n_renormalised_10, n_mean_10 FROM key_budgets"
    n_90, error, error_mean = _read_last_query(sources, heads.present, budgets).values()
    effective = np.full(heads.present.shape, np.nan)
    for layer in list_attending_layers(sources.tensors):
        keys = sources.metrics.read("effective_keys", layer, query=len(sources.queries) - 1)
        effective[layer, : keys.shape[1]] = np.nanmean(keys, axis=0)
    return dataclasses.replace(
        heads,
        numbers={"elbow": elbows["elbow_n"], "n_90": n_90, "error": error, "error_mean": error_mean},
        recall=recall,
        scores={"elbow": elbows["elbow_n"], "mass": effective},
    )


def _read_last_query(sources: Sources, present: NDArray[np.bool_], statement: str) -> dict[str, F64]:
    """Columns of an answer of small tables at the last query, (layers, heads), with N if it has n; NaN without one."""
    import duckdb

    with duckdb.connect() as connection:
        connection.execute(sql.read_statement("macros", "elbows_of").text)
        for table in ("selection_means", "key_budgets"):
            last = (part.filter(pc.equal(part["query"], sources.query)) for part in read_part(sources.parts[table]))
            connection.register(table, pa.Table.from_batches(last))
        columns = connection.execute(statement).fetchnumpy()
    shape, place = list(present.shape), [columns.pop("layer"), columns.pop("head")]
    if "n" in columns:
        shape.append(max(sources.query, 1))
        place.append(columns.pop("n") - 1)
    arrays = {name: np.full(shape, np.nan) for name in columns}
    for name, column in columns.items():
        arrays[name][tuple(place)] = np.ma.filled(column.astype(np.float64), np.nan)
    return arrays


def _build_sparsified_rows(
    policies: Sequence[tuple[float, int, "Policy"]], losses: Sequence[Mapping[str, Any]]
) -> Rows:
    """The rows of both tables of policies; excess is over the same N for all heads at the same budget."""
    names = {
        "policy": np.array([policy.name for _, _, policy in policies], object),
        "setting": np.array([policy.setting for _, _, policy in policies], object),
        "budget": np.array([budget for budget, _, _ in policies]),
    }
    plain = np.array([one["plain_loss"] for one in losses])
    loss, kl, kept = (np.array([one[name] for one in losses], np.float64) for name in ("loss", "kl", "keys_kept"))
    same = {keys: index for index, (_, keys, policy) in enumerate(policies) if policy.name == "same_n"}
    reference = loss[:, [same[keys] for _, keys, _ in policies]]
    means = {
        "keys": np.array([keys for _, keys, _ in policies], np.int32),
        "needs": np.array([policy.needs for _, _, policy in policies], object),
        "rest": np.array([policy.rest for _, _, policy in policies], object),
        **fill_columns(len(policies), sequences=len(losses)),
        "keys_kept": kept.mean(axis=0),
        "plain_loss": np.full(len(policies), plain.mean()),
        **estimate_mean(loss - plain[:, None]).name_ends("delta_loss"),
        **estimate_mean(kl, POSITIVE).name_ends("kl"),
        **estimate_mean(loss - reference).name_ends("excess_loss"),
    }
    yield "sparsified_loss", build_batch(names | means)
    for sequence, (of_plain, of_policies) in enumerate(zip(plain, loss, strict=True)):
        place = names | fill_columns(len(policies), sequence=sequence)
        columns = {"plain_loss": np.full(len(policies), of_plain), "loss": of_policies}
        yield "sparsified_loss_by_sequence", build_batch(place | columns)


def _open_model(sources: Sources, bytes_of: "Callable[[PreTrainedModel, int], int]") -> "OpenedModel | None":
    """The study's model and the sequences that it has read; None, with a warning, if its attention cannot be edited.

    ``UserError`` if the model computes on the CPU and less memory is free than ``bytes_of`` the model and the number of
    tokens.
    """
    from extract.effects.interventions import UneditableError
    from extract.effects.losses import open_study

    logger.info("%s: loading the model again, to measure effects of its heads", sources.name)
    try:
        opened = open_study(sources.study.select_extraction(), sources.tensors)
    except UneditableError as error:
        logger.warning("%s: effects of heads are not measured: %s", sources.name, error)
        return None
    if opened.model.device.type == "cpu":
        needed = bytes_of(opened.model, opened.tokens.shape[1])
        what = f"Measuring effects of heads of '{sources.name}'"
        check_memory(what, needed, "leave out effects, or close other programs")
    return opened


def _open_pieces(sources: Sources, step: str) -> Pieces:
    """Open the stored results of a step; those of another version, other settings or other metrics are removed."""
    made_from = {
        "version": PIECES_VERSION,
        "settings": sources.study.analysis.model_dump(mode="json", include={"effects"}),
        "metrics": sources.metrics.made_of,
    }
    return Pieces(sources.folder.path / f"{step}.pieces", made_from)
