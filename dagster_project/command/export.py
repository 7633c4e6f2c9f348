"""The command ``export``: measures of heads as files.

For ``--format headvis`` the text of a study is read again by its model, so that examples show every query.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError
from tqdm import tqdm

from dagster_project.study.home import Home
from extract.settings import SYNTHETIC, ExtractionSettings
from extract.texts.decoding import name_tokens
from geometry.arrays import F64, I64
from reports.queries import ask
from reports.scores import headvis
from reports.scores.files import Choice, refuse_missing, write
from storage.errors import UserError
from storage.files.staging import explain_unwritable, recover_folder, stage_folder
from storage.files.user_paths import refuse_existing
from storage.warehouse.connection import connect
from storage.warehouse.dataset import drop_folders

if TYPE_CHECKING:
    from extract.effects.losses import OpenedModel

logger = logging.getLogger(__name__)

Texts = Sequence[Sequence[str]]
"""Of each token of each sequence, (S, K)."""


def export_heads(home: Home, study: str, path: Path, choice: Choice, *, overwrite: bool = False) -> list[Path]:
    """Write one measure of every head, or all measures; return the files that were written.

    ``UserError`` as ``reports.scores.files.write`` or ``export_headvis``.
    """
    if choice.form == "headvis" and choice.measure is not None:
        raise UserError(f"The format 'headvis' holds its own metrics, not '{choice.measure}' alone; leave out --by")
    with closing(connect(home.warehouse, studies=[study], described=False)) as connection:
        if choice.form == "headvis":
            refuse_missing(connection, study)
            return export_headvis(connection, study, path, overwrite=overwrite)
        return write(connection, study, choice, path, overwrite=overwrite)


def export_headvis(connection: duckdb.DuckDBPyConnection, study: str, folder: Path, *, overwrite: bool) -> list[Path]:
    """Write the folder that HeadVis reads, of a landed study; return it.

    The model reads every sequence twice: for what is measured over all rows, and for the examples, which are chosen by
    it. Memory in addition to the model's: ``extract.effects.rows.read_rows`` and the largest weights of one
    sequence; of the study, a few numbers for each head and sequence, and its tokens.

    ``UserError`` if the study is synthetic or landed by another version, its model has changed or cannot be loaded, or
    the folder has other files, exists and is not to be overwritten, or cannot be written. It is as it was then.
    """
    places = [(row["layer"], row["head"]) for row in ask(connection, "heads", study=study).rows()]
    provenance = json.loads(ask(connection, "studies", study=study).rows()[0]["provenance"])
    settings = read_settings(study, provenance)
    with explain_unwritable(folder):
        recover_folder(folder)
        _refuse_other_files(folder, overwrite=overwrite)
    import torch

    from extract.effects.losses import open_model
    from geometry.patterns import find_earlier_copies

    ids, texts = _read_tokens(connection, study)
    opened = open_model(settings, provenance["inputs"], ids)
    sums, largest = _measure_rows(opened)
    with explain_unwritable(folder), stage_folder(folder) as new:
        (new / "heads").mkdir()
        _write_heads(new / "heads", opened, texts, largest, places)
        layer, head = np.array(places).T
        matched: I64 = np.array([(find_earlier_copies(one) >= 0).sum() for one in torch.from_numpy(ids)])
        columns = {
            **headvis.average_rows(sums[:, layer, head], matched, ids.shape[1]),
            **headvis.read_estimates(connection, study, places),
        }
        left_out = headvis.write_tables(new, places, columns, _describe(study, provenance, opened))
    if left_out:
        logger.warning("left out, since the study did not measure them: %s", ", ".join(left_out))
    return [folder]


def read_settings(study: str, provenance: Mapping[str, Any]) -> ExtractionSettings:
    """The settings by which the landed sequences were read; ``UserError`` as for ``export_headvis``."""
    try:
        settings = ExtractionSettings.model_validate(provenance["settings"])
    except ValidationError as error:
        raise UserError(
            f"The study '{study}' was landed by another version; run it again: attention-geometry run {study}"
        ) from error
    if settings.model.id == SYNTHETIC:
        raise UserError(
            f"The study '{study}' is synthetic: there is no model whose rows could be shown; choose another"
        )
    return settings


def _refuse_other_files(folder: Path, *, overwrite: bool) -> None:
    """Refuse a folder with files that are not of an earlier export, or any unless they may be overwritten."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file; name a folder")
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink() or not (path.is_dir() or headvis.FILES.fullmatch(name)):
            raise UserError(
                f"The folder {folder} holds '{name}', which no export for HeadVis writes; name a new folder"
            )
        if not path.is_dir():
            refuse_existing([path], overwrite=overwrite)


def _read_tokens(connection: duckdb.DuckDBPyConnection, study: str) -> tuple[NDArray[np.int32], Texts]:
    """The token ids of all sequences, (S, K), and their texts."""
    table = ask(connection, "tokens", study=study).table
    sequences = int(table["sequence"].to_numpy()[-1]) + 1
    ids: NDArray[np.int32] = table["token_id"].to_numpy().astype(np.int32).reshape(sequences, -1)
    texts, keys = table["token"].to_pylist(), ids.shape[1]
    return ids, [texts[first : first + keys] for first in range(0, len(texts), keys)]


def _measure_rows(opened: "OpenedModel") -> tuple[F64, F64]:
    """Sums over the rows of each sequence, (S, L, H, 6), and the largest weights, (S, L, H)."""
    import torch

    from extract.effects.rows import RowSums, read_rows

    layers, heads = len(opened.attention.layers), max(size.heads for size in opened.attention.layers)
    found = []
    for ids in tqdm(torch.from_numpy(opened.tokens), "rows", unit="sequence", disable=None):
        found.append(RowSums.begin(ids, layers, heads))
        read_rows(opened.model, opened.attention, ids, found[-1].take)
    return np.stack([one.sums for one in found]), np.stack([one.largest for one in found])


def _write_heads(folder: Path, opened: "OpenedModel", texts: Texts, largest: F64, places: headvis.Places) -> None:
    """Write the files of heads: first the examples as lines, sequence by sequence, then each file from its lines."""
    import torch

    from extract.effects.rows import LargestWeights, read_rows

    intervals = headvis.choose_examples(len(texts))[headvis.rank_sequences(largest)]
    read = zip(torch.from_numpy(opened.tokens), texts, intervals, largest, strict=True)
    for sequence, (ids, tokens, interval, most) in enumerate(
        tqdm(read, "examples", len(texts), unit="sequence", disable=None)
    ):
        rows = LargestWeights(len(tokens), interval > 0)
        read_rows(opened.model, opened.attention, ids, rows.take)
        for place in places:
            if interval[place]:
                found = rows.join(*place)
                example = headvis.encode_example(sequence, int(interval[place]), tokens, *found, float(most[place]))
                with (folder / f"{_name_head(*place)}.lines").open("ab") as file:
                    file.write(example)
    names = [name_tokens(tokens) for tokens in texts]
    for layer, head in places:
        lines = folder / f"{_name_head(layer, head)}.lines"
        with lines.open("rb") as file:
            headvis.write_head(lines.with_suffix(".json"), file, names, largest[:, layer, head])
        lines.unlink()


def _name_head(layer: int, head: int) -> str:
    return f"L{layer}H{head}"


def _describe(study: str, provenance: Mapping[str, Any], opened: "OpenedModel") -> dict[str, Any]:
    """The fields of ``config.json`` on what was read, and how, without the folders of local models and texts."""
    from extract.effects.rows import LARGEST, LEAST, LEAST_INDUCTION

    sequences, keys = opened.tokens.shape
    read = {
        "n_sequences": sequences,
        "seq_len": keys,
        "dtype": str(opened.attention.dtype).removeprefix("torch."),
        "attn_implementation": opened.attention.path,
        "sparse_topk_per_row": LARGEST,
        "sparse_threshold": LEAST,
        "induction_attention_threshold": LEAST_INDUCTION,
        "made_by": "attention-geometry",
        "study": study,
        **{name: provenance[name] for name in ("settings", "inputs", "versions")},
    }
    told = {
        "model_name": provenance["settings"]["model"]["id"],
        "np_model_id": None,
        "dataset_name": provenance["settings"]["corpus"]["id"],
        "n_layers": len(opened.attention.layers),
        "n_heads": max(size.heads for size in opened.attention.layers),
        "n_intervals": min(headvis.INTERVALS, sequences),
        "pipeline_config": read,
    }
    return {name: drop_folders(value) for name, value in told.items()}
