"""One text and one model in memory: the tables of a study of one sequence and one query, without any file.

Holds ``analyze``. Attention is captured as for a study, measured by the same kernels, and the rows go through the same
tables, views and macros, in a database in memory.
"""

import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache, partial
from html import escape
from types import NoneType
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, overload

import duckdb
import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

import sql
from attention_geometry.compilation import tell_of_compilation
from extract.capture.batches import check_row, is_finite, read_alone
from extract.capture.buffers import Buffers
from extract.capture.one_pass import PROBE_TOKENS, Capture, capture, probe
from extract.hub import ProcessContext, silence_libraries
from extract.models.architectures import check_wrapper, find_most_tokens, lock_model, unwrap
from extract.settings import TEXT_BYTES, Bos
from extract.stopping import check_stopped, run_stoppable
from extract.texts.corpora import MOST_LOST
from extract.texts.decoding import decode_sequences, encode_text, name_tokens
from extract.texts.tokenization import find_start, make_counter, spell_tokens
from geometry.layers import make_outputs, measure_layer
from geometry.quantities import PATTERNS, TOP_KEYS, QueryMeasures, list_declared
from geometry.selection.metrics import follow_cosines
from geometry.selection.top_keys import top_keys
from reports.findings.numbers import count
from reports.queries import read_query
from storage.errors import UserError
from storage.warehouse import rows
from storage.warehouse.landing import insert, join_parts
from storage.warehouse.relations import create_relations, create_tables, fill
from storage.zarr.layers import list_attending_layers

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from reports.rendering import TextPage

logger = logging.getLogger(__name__)

STUDY = "text"
"""Name of the only study in the database in memory."""

USUAL = 4
"""N if none is chosen."""

DERIVED = ("kinds_by_sequence", "head_taxonomy")
"""Tables computed from the others, in this order."""


@dataclass(frozen=True, repr=False)
class Analysis:
    """What every head of a model does at one query of a text; all tables are tables of Apache Arrow.

    ``to_pandas()`` of a table, or ``polars.from_arrow(table)``, gives it to other libraries. Descriptions of columns
    are in the metadata of their fields.
    """

    model: str
    """Class of the model."""
    query: int
    """Position of the query."""
    n: int
    """N at which ``heads`` and ``top_keys`` are measured."""
    tokens: pa.Table
    """The text as the model read it: ``position``, ``token_id``, ``token``; position 0 is the sink. A character of
    several tokens stands at the first, and ``token`` is empty at the others."""
    heads: pa.Table
    """One row per head: its kind, Precision, Recall and specificity at N, the sink's weight, effective keys."""
    selection: pa.Table
    """One row per head and N = 1, 2, …: every quantity of the view ``selection`` of a study."""
    top_keys: pa.Table
    """One row per head and key, up to 16 keys a head by falling weight: position, token, weight, contribution ‖α v‖,
    distance from s_N over ‖s_N‖, and whether it is within r_min."""
    patterns: pa.Table
    """One row per head and pattern of ``geometry.quantities.PATTERNS``: its mean weight over all queries of the text,
    or normalised entropy, as ``value``, and what uniform weights give as ``chance``; NULL where no query has such a
    key."""
    taxonomy: pa.Table
    """One row per head: kind, nearest kind, scores, and every condition with the value and threshold compared."""
    queries: pa.Table | None = None
    """One row per head and position from 1 on, as the query: its token and ``geometry.quantities.QueryMeasures``; None
    unless asked for."""

    def page(self, layer: int | None = None, head: int | None = None) -> "TextPage":
        """The heads as HTML that Jupyter shows, with the text shaded by the weights of one head if it is named.

        Raises
        ------
        ValueError
            If the model has no such head, or only one of both is given.
        """
        from reports.rendering import render_text

        if (layer is None) != (head is None):
            raise ValueError(f"a head is named by its layer and its number, got layer = {layer} and head = {head}")
        chosen = None if layer is None or head is None else (layer, head)
        return render_text(self.model, self.query, self.n, self.tokens, self.heads, self.top_keys, chosen)

    def _repr_html_(self) -> str:
        """Model, query, sizes and kinds of heads, as notebooks show it; ``page()`` shows every head."""
        kinds = Counter(self.heads["label"].to_pylist())
        listed = ", ".join(f"{number} {label}" for label, number in kinds.most_common())
        return f"<p>{escape(repr(self))}</p><p>{escape(listed)}; <code>.page()</code> shows each head.</p>"

    def __repr__(self) -> str:
        """Model, query and sizes."""
        sizes = f"{count(self.heads.num_rows, 'head')}, {count(self.tokens.num_rows, 'token')}"
        return f"Analysis({self.model}, {sizes}, query {self.query}, N = {self.n})"


class Options(TypedDict, total=False):
    """What is asked of ``analyze`` beside model and text."""

    n: int | None
    query: int | None
    count: int
    bos: Bos
    every: bool


@overload
def analyze(
    model: torch.nn.Module, tokenizer: "PreTrainedTokenizerBase", text: str, **options: Unpack[Options]
) -> Analysis: ...


@overload
def analyze(
    model: torch.nn.Module,
    tokenizer: "PreTrainedTokenizerBase",
    text: list[str] | tuple[str, ...],
    **options: Unpack[Options],
) -> list[Analysis]: ...


def analyze(
    model: torch.nn.Module,
    tokenizer: "PreTrainedTokenizerBase",
    text: str | list[str] | tuple[str, ...],
    *,
    n: int | None = None,
    query: int | None = None,
    count: int = TOP_KEYS,
    bos: Bos = "auto",
    every: bool = False,
) -> Analysis | list[Analysis]:
    """Measure what every attention head of a model selects at one query of a text.

    Other threads may call it with the same model, and wait for one another, or let the model generate meanwhile. Only
    models that call no replaceable attention function, such as GPT-J, compute eager attention for them meanwhile.

    Parameters
    ----------
    model
        A causal language model that transformers has loaded, on any device, in any type, or a wrapper of it that
        computes the same, as PEFT's of LoRA does. It is left as it was, also by Ctrl-C; what ``torch.compile`` made of
        its parts is not used.
    tokenizer
        Its tokenizer. The model reads what it puts before a text, and the tokens of the text.
    text
        At least one token; or a list of such texts, which are read one after the other.
    n
        N, the number of selected keys, at which ``heads`` and ``top_keys`` are measured; at most the number of keys
        before the query, and by default 4, or that number if it is smaller.
    query
        Position of the query; by default the last token.
    count
        Most rows of ``top_keys`` for each head.
    bos
        ``always``: the text begins with BOS even if the tokenizer puts none before it; ``never``: with nothing.
    every
        Whether every position of the text is measured as a query too, in ``queries``. Takes some d n² log₂ n
        multiply-adds for each head of size d and text of n tokens, on a CUDA device if the model is there, and up to
        64 MB for each of PyTorch's threads.

    Returns
    -------
    Analysis or list of Analysis
        Of the text, or of each text of a list, in its order.

    Raises
    ------
    UserError
        If the model's attention cannot be captured, its weights are not loaded, a wrapper computes something else than
        the model inside, numbers are not finite, or the text is too short or too long for the model, or not Unicode.
    TypeError
        If an argument is of another type.
    ValueError
        If ``n``, ``query`` or ``count`` is out of range, or the list is empty.
    KeyboardInterrupt
        If it is interrupted, at the end of the layer or statement that is being computed.

    Examples
    --------
    A small model that is part of the distribution; any name of the Hugging Face hub will do.

    >>> from importlib.resources import files
    >>> from transformers import AutoModelForCausalLM, AutoTokenizer
    >>> where = files("extract") / "embedded" / "model"
    >>> model, tokenizer = AutoModelForCausalLM.from_pretrained(where), AutoTokenizer.from_pretrained(where)

    >>> import attention_geometry
    >>> analysis = attention_geometry.analyze(model, tokenizer, "A list can be used as a stack, and a list as a queue.")
    >>> analysis.heads.num_rows == analysis.taxonomy.num_rows == model.config.num_hidden_layers * 8
    True
    >>> analysis.top_keys.select(["layer", "head", "rank", "position", "token", "weight"]).num_rows > 0
    True
    >>> analysis.selection.filter(analysis.selection["n"].to_numpy() == 4).num_rows == analysis.heads.num_rows
    True
    """
    _check_arguments(model, text, n=n, query=query, count=count)
    analyze_one = partial(_analyze, model, tokenizer, n=n, query=query, count=count, bos=bos, every=every)
    if isinstance(text, str):
        return run_stoppable(lambda: analyze_one(text))
    return run_stoppable(lambda: list(_analyze_each(analyze_one, text)))


def _check_arguments(model: object, text: object, **numbers: object) -> None:
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model must be a model that transformers has loaded, got {type(model).__name__}")
    texts = text if isinstance(text, list | tuple) else (text,)
    if wrong := [type(one).__name__ for one in texts if not isinstance(one, str)]:
        raise TypeError(
            f"text must be a str, or a list of them, got {f'a list with {wrong[0]}' if texts is text else wrong[0]}"
        )
    if not texts:
        raise ValueError("text must be a str, or a list of at least one, got an empty list")
    for name, number in numbers.items():
        if isinstance(number, bool) or not isinstance(number, int | np.integer | NoneType):
            raise TypeError(f"{name} must be a whole number, got {number!r}")
        if number is not None and number < 1:
            raise ValueError(f"{name} must be at least 1, got {number}")


def _analyze_each(analyze_one: Callable[[str], Analysis], texts: Sequence[str]) -> Iterator[Analysis]:
    """The analysis of each text; errors say which it is."""
    for number, text in enumerate(texts, start=1):
        try:
            yield analyze_one(text)
        except (UserError, ValueError) as error:
            kind = UserError if isinstance(error, UserError) else ValueError
            raise kind(f"{error} (text {number} of {len(texts)})") from error


def _analyze(
    model: torch.nn.Module,
    tokenizer: "PreTrainedTokenizerBase",
    text: str,
    *,
    n: int | None,
    query: int | None,
    count: int,
    bos: Bos,
    every: bool,
) -> Analysis:
    inner = unwrap(model)
    ids = _encode(inner, tokenizer, text, bos)
    at = len(ids) - 1 if query is None else int(query)
    if not 1 <= at < len(ids):
        raise ValueError(f"query must be from 1 to {len(ids) - 1}, the last position of the text, got {query}")
    size = min(USUAL, at) if n is None else int(n)
    if size > at:
        raise ValueError(f"n must be from 1 to {at}, the number of keys before the query, got {n}")
    captured = _read(model, inner, ids, at, every=every)
    tokens = next(rows.build_token_rows(ids[None], decode_sequences(tokenizer, [ids])))
    tables = _build_tables(captured, tokens, at, size)
    ranked = _rank_keys(captured, name_tokens(tokens["token"].to_pylist()), at, n=size, count=count)
    measures = captured.tensors.get("query_measures")
    queries = None if measures is None else _list_queries(captured, measures, tokens["token"])
    patterns = _list_patterns(captured)
    return Analysis(type(inner).__name__, at, size, **tables, top_keys=ranked, patterns=patterns, queries=queries)


def _encode(model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase", text: str, bos: Bos) -> NDArray[np.int32]:
    """The token ids that the model reads, int32 (K,), as in a study."""
    try:
        size = max(len(text), len(text[:TEXT_BYTES].encode()))
    except UnicodeEncodeError as error:
        raise UserError(f"The text is not UTF-8 at character {error.start + 1}; encode it as UTF-8") from error
    if size > TEXT_BYTES:
        raise UserError(f"The text has more than {TEXT_BYTES:,} bytes; give a shorter text")
    start = find_start(tokenizer, bos)
    ids = [*start, *encode_text(tokenizer, text)]
    config = model.config.get_text_config(decoder=True)
    most = find_most_tokens(model)
    if len(ids) < 2:
        before = f" with {' '.join(spell_tokens(tokenizer, start))} before it" if start else ""
        raise UserError(
            f"The text has {count(len(ids), 'token')}{before}, but a query needs a key before it; give a longer text"
        )
    if most is not None and len(ids) > most:
        raise UserError(
            f"The text has {len(ids)} tokens, but {type(model).__name__} reads at most {most}; give a shorter text"
        )
    if max(ids) >= config.vocab_size:
        msg = f"The tokenizer gives token id {max(ids)}, but the model knows {config.vocab_size} tokens; "
        raise UserError(msg + "load the tokenizer that belongs to it")
    if lost := make_counter(tokenizer)(text, ids[len(start) :]):
        said = f"The tokenizer has no token for {lost} of the {len(text)} characters of the text"
        if lost > MOST_LOST * len(text):
            raise UserError(f"{said}; choose a model whose tokenizer knows them")
        logger.warning("%s: they are unknown to the model, or not in its tokens", said)
    return np.array(ids, np.int32)


def _read(
    given: torch.nn.Module, model: "PreTrainedModel", ids: NDArray[np.int32], query: int, *, every: bool
) -> Capture:
    """Let the model inside what is given read the tokens and capture one query."""
    batch = torch.from_numpy(ids)[None]
    _refuse_missing_weights(model)
    with lock_model(model), silence_libraries(), _pause_training(given), _pause_compilation(given):
        check_wrapper(given, model, batch[:, :PROBE_TOKENS])
        attention = probe(model, batch[:, :PROBE_TOKENS])
        alone = read_alone(model, attention, ids, query) if query + 1 < len(ids) else None
        buffers = Buffers(attention.layers, batch=1, queries=1, keys=len(ids), dtype=attention.dtype, every_query=every)
        captured = capture(model, attention, batch, [query], buffers, every_query=every)
    captured.wait()
    if alone is not None:
        check_row(type(model).__name__, alone, captured["attention"][:, 0, 0], len(ids), captured["values"].dtype)
    for layer in range(len(captured.layers)):
        if not is_finite(captured, layer):
            raise UserError(
                f"{type(model).__name__} computes numbers that are not finite in layer {layer}; load it in float32"
            )
    return captured


def _refuse_missing_weights(model: torch.nn.Module) -> None:
    """Refuse a model with weights on the device ``meta``, unless a hook of accelerate loads them for each pass."""
    for name, module in model.named_modules():
        if not hasattr(module, "_hf_hook") and any(weight.is_meta for weight in module.parameters(recurse=False)):
            raise UserError(
                f"{type(model).__name__} has no weights in its part '{name}', which is on the device meta; load them"
            )


def _pause_compilation(model: torch.nn.Module) -> AbstractContextManager[object]:
    """Run what ``torch.compile`` has made of a model's parts as it was before; loads no compiler if there is none."""
    compiled = any(
        hasattr(part, "_orig_mod")
        or getattr(part, "_compiled_call_impl", None) is not None
        or hasattr(vars(part).get("forward"), "_torchdynamo_orig_callable")
        for part in model.modules()
    )
    return _uncompiled if compiled else nullcontext()


@contextmanager
def _run_uncompiled() -> Iterator[None]:
    with torch.compiler.set_stance("force_eager"):
        yield


_uncompiled = ProcessContext(_run_uncompiled)


@contextmanager
def _pause_training(model: torch.nn.Module) -> Iterator[None]:
    """Switch all modules to evaluation, without dropout, and those that were not back at the end."""
    training = [module for module in model.modules() if module.training]
    try:
        model.eval()
        yield
    finally:
        for module in training:
            module.training = True


def _measure(captured: Capture, query: int) -> dict[int, Mapping[str, NDArray[Any]]]:
    """Measure all layers that attend, one on each core at a time; the quantities of each."""
    tell_of_compilation()

    def measure(layer: int) -> Mapping[str, NDArray[Any]]:
        size = captured.layers[layer]
        sizes = {"query": 1, "head": size.heads, "kv_head": size.kv_heads, "key": captured["attention"].shape[-1]}
        arrays = make_outputs(sizes | {"n": query, "kappa": 1})
        arrays["learned_sink"][:] = captured["learned_sink"][layer, 0, :, : size.heads].numpy()
        out = {name: array for name, array in arrays.items() if name != "learned_sink"}
        weights, values = _take_layer(captured, layer)
        measure_layer(weights, values, captured.first_key[:, layer].tolist(), [query], out)
        return arrays

    measured, layers = {}, list_attending_layers(captured)
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as workers:
        for layer, arrays in zip(layers, workers.map(measure, layers), strict=True):
            check_stopped()
            measured[layer] = arrays
    return measured


def _take_layer(captured: Capture, layer: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Weights (query, head, key) and value states (kv_head, key, head_dim) of one layer, float32."""
    size = captured.layers[layer]
    weights = captured["attention"][layer, 0, :, : size.heads]
    values = captured["values"][layer, 0, : size.kv_heads, :, : size.head_dim]
    return weights.numpy(), values.float().contiguous().numpy()


def _build_tables(captured: Capture, tokens: pa.RecordBatch, query: int, n: int) -> dict[str, pa.Table]:
    """The tables of ``Analysis`` that SQL computes, by name."""
    measured, parameters = _measure(captured, query), {"study": STUDY, "query": query}
    settings: dict[str, Any] = {"sequence": 0, "queries": [query], "kappas": [0.5], "scale": "unit"}
    landed = [("heads", batch) for batch in rows.build_head_rows(captured.layers)]
    for layer, arrays in measured.items():
        landed += rows.build_measured_rows(arrays, layer=layer, **settings)
        landed += _build_level_rows(arrays, layer, query)
    with closing(duckdb.connect()) as connection:
        create_tables(connection)
        create_relations(connection, described=False)
        parts: dict[str, list[pa.RecordBatch]] = {}
        for table, batch in landed:
            parts.setdefault(table, []).append(batch)
        for table in filter(parts.__contains__, sql.list_names("schema")):
            check_stopped()
            insert(connection, table, STUDY, join_parts(sql.read_statement("schema", table), parts))
        for table in DERIVED:
            check_stopped()
            fill(connection, sql.read_statement("derived", table), STUDY)
        selection = "SELECT * EXCLUDE (study, sequence, query) FROM selection ORDER BY layer, head, n"
        asked_for = {
            "heads": (read_query("text_heads").text, parameters | {"n": n}),
            "selection": (selection, {}),
            "taxonomy": (read_query("text_kinds").text, parameters),
        }
        tables = {
            name: connection.sql(text, params=given).to_arrow_table() for name, (text, given) in asked_for.items()
        }
    described = {name: _describe_columns(table, _list_comments()) for name, table in tables.items()}
    return described | {"tokens": pa.Table.from_batches([tokens]).drop_columns("sequence")}


def _build_level_rows(
    arrays: Mapping[str, NDArray[Any]], layer: int, query: int
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of ``head_levels`` of a layer, of which only the course of the cosines is needed."""
    if (last := int(arrays["n_keys"][0]) - 1) > 0:
        course = follow_cosines(*(arrays[name][:, :, :last] for name in ("cos_sink", "cos_last", "a_0")))
        place = rows.index_columns(course["cos_sink_max"].shape, "sequence", "head", query=query, layer=layer)
        yield "head_levels", rows.build_batch(place | {name: column.ravel() for name, column in course.items()})


def _describe_columns(table: pa.Table, known: Mapping[str, str]) -> pa.Table:
    """The table with descriptions of its columns as metadata of its fields."""
    fields = [field.with_metadata({"description": known.get(field.name, "")}) for field in table.schema]
    return table.cast(pa.schema(fields))


@cache
def _list_comments() -> dict[str, str]:
    """The comments of the warehouse's columns by name."""
    relations = ("head_taxonomy", "kinds_by_sequence", "value_scales", "attention_rows", "heads")
    known = {name: text for one in relations for name, text in sql.read_statement("schema", one).columns.items()}
    return known | sql.read_statement("views", "selection").columns


def _list_patterns(captured: Capture) -> pa.Table:
    batches = []
    for layer in list_attending_layers(captured):
        heads = captured.layers[layer].heads
        place = rows.index_columns((heads, len(PATTERNS)), "head", "pattern", layer=layer)
        pattern = place["pattern"]
        columns = place | {
            "pattern": pa.array([PATTERNS[index] for index in pattern]),
            "value": captured["head_patterns"][layer, 0, :heads].numpy().ravel(),
            "chance": captured["pattern_chance"][layer, 0].numpy()[pattern],
        }
        batches.append(rows.build_batch(columns))
    return pa.Table.from_batches(batches)


def _list_queries(captured: Capture, every_query: Tensor, tokens: pa.Array) -> pa.Table:
    batches, declared = [], list_declared(QueryMeasures)
    for layer in list_attending_layers(captured):
        measures = every_query[layer, 0, : captured.layers[layer].heads, 1:].numpy()
        columns: dict[str, Any] = rows.index_columns(measures.shape[:2], "head", "position", layer=layer)
        columns["position"] += 1
        columns["token"] = tokens.take(pa.array(columns["position"]))
        for quantity, column in zip(declared.values(), np.moveaxis(measures, -1, 0), strict=True):
            columns[quantity.name] = column.ravel().astype(quantity.dtype)
        batches.append(rows.build_batch(columns))
    table = pa.Table.from_batches(batches)
    return _describe_columns(table, {name: quantity.describe() for name, quantity in declared.items()})


def _rank_keys(captured: Capture, tokens: list[str], query: int, *, n: int, count: int) -> pa.Table:
    batches = []
    for layer in list_attending_layers(captured):
        check_stopped()
        weights, values = _take_layer(captured, layer)
        first = int(captured.first_key[0, layer])
        seen, at_n = slice(first, query + 1), min(n, query + 1 - first)
        grouped = weights[0, :, seen].reshape(len(values), -1, query + 1 - first)
        heaviest = top_keys(grouped, values[:, None, seen], n=at_n, count=count)
        batches.append(rows.build_top_key_rows(vars(heaviest), layer=layer, first=first, n=at_n))
    ranked = pa.Table.from_batches(batches)
    text = pa.array([tokens[position] for position in ranked["position"].to_pylist()], pa.string())
    place = ranked.column_names.index("position")
    return ranked.drop_columns(["n", "within_r_min_at"]).add_column(place, "token", text)
