"""The command ``inspect``: what the heads of a model do with a text, without a study and without a data root."""

import io
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from dagster_project.command.output import build_table, escape_control_codes, make_console, write_object
from dagster_project.study.studies import COMMAND_LINE, parse_study
from extract.checks import check_device, check_hub, check_inputs
from extract.decoding import name_tokens
from extract.settings import EMBEDDED, SYNTHETIC, TEXT_BYTES, ExtractionSettings
from storage.errors import UserError

if TYPE_CHECKING:
    from rich.text import Text
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from attention_geometry import Analysis

RANKS = {
    "recall": "recall",
    "precision": "precision",
    "specificity": "specificity",
    "sink": "sink_weight",
    "rho_0": "rho_0",
    "effective_keys": "effective_keys",
    "n_90": "n_90",
    "top_weight": "top_weight",
}
"""Columns of ``Analysis.heads`` that heads are ranked by, by the names of ``--by``."""

LOOKED_AT = ("previous", "self", "local", "duplicate", "induction")
"""Patterns of ``Analysis.patterns``, over all queries of the text, by which heads are ranked too."""

SHOWN = ("label", "recall", "precision", "sink_weight", "effective_keys", "n_90")
"""Columns of ``Analysis.heads`` that the ranking shows."""

AT_EVERY_TOKEN = (
    "recall_level",
    "specificity_level",
    "effective_keys",
    "sink_weight",
    "top_weight",
    "error_renormalised_16",
)
"""Columns of ``Analysis.queries`` that are shown."""

KEYS = 5
"""Keys of each head that the ranking shows."""

SHADES = ((0.5, "black on bright_yellow"), (0.2, "black on yellow"), (0.05, "black on cyan"), (0.01, "cyan"))
"""Least weights and the styles of keys that have them, from the largest."""


CONTINUED = "·"
"""A key that continues a character of several tokens."""


@dataclass(frozen=True)
class Inspection:
    """What is asked of every text."""

    by: str
    head: tuple[int, int] | None
    """Layer and head whose keys are shown; None: the ranking."""
    top: int
    """Heads, or keys of the head, that are shown."""
    n: int | None
    """None: 4, or all keys of a shorter text."""
    query: int | None
    every: bool
    """Whether the queries of the head are shown, at every token."""
    as_json: bool


def parse_inspection(
    *, by: str, head: str | None, top: int, n: int | None, query: int | None, every: bool, as_json: bool
) -> Inspection:
    """Check the options.

    Raises
    ------
    UserError
        If one has a value that it may not have.
    """
    if by not in {*RANKS, *LOOKED_AT}:
        raise UserError(f"Heads cannot be ranked by '{by}'; choose from {', '.join([*RANKS, *LOOKED_AT])}")
    for name, given in (("top", top), ("n", n), ("query", query)):
        if given is not None and given < 1:
            raise UserError(f"--{name} is {given}; give a whole number from 1")
    place = None
    if head is not None:
        layer, _, number = head.partition(".")
        if not (layer.isdecimal() and number.isdecimal()):
            raise UserError(f"--head {head} does not name a head; write layer and head, as in --head 3.1")
        place = int(layer), int(number)
    if every and place is None:
        raise UserError("--every shows what one head selects at every token; name it, as in --head 3.1")
    return Inspection(by, place, top, n, query, every, as_json)


def inspect_texts(settings: Mapping[str, Any], texts: Iterable[str], inspection: Inspection, *, go_on: bool) -> bool:
    """Load a model and print what its heads do with each text; return whether all texts could be measured.

    Parameters
    ----------
    settings
        Settings of the model as in ``studies.yaml``: ``model``, ``bos``, ``dtype`` and ``device``.
    texts
        Read one at a time, after the one before is printed.
    go_on
        Whether a text that cannot be measured is named on standard error, and the next one is read.

    Raises
    ------
    UserError
        If the model cannot be loaded, or a text cannot be measured and ``go_on`` is False.
    """
    known = parse_study("text", {**settings, "corpus": EMBEDDED, "context_length": 2}, COMMAND_LINE)
    if known.model.id == SYNTHETIC:
        raise UserError("The model 'synthetic' reads no text; choose another --model")
    check_inputs(known)
    check_device(known.device)
    check_hub(known)
    _announce(f"reading the model {known.model.name}")
    from attention_geometry.analysis import analyze

    model, tokenizer = _load(known)
    failed, text = False, None
    for text in texts:
        try:
            n, query, every = inspection.n, inspection.query, inspection.every
            analysis = analyze(model, tokenizer, text, n=n, query=query, bos=known.bos, every=every)
            _print(analysis, text, inspection)
        except (UserError, ValueError) as error:  # of numbers that are out of range for the text
            if not go_on:
                raise UserError(str(error)) from error
            failed = True
            _announce(str(error))
    if text is None:
        _announce("there was no text on standard input; give one, or a line for each")
    return not failed and text is not None


def read_lines() -> Iterator[str]:
    """The lines of standard input that are not blank, without their ends and a byte order mark, as they arrive.

    Raises
    ------
    UserError
        At a line of more than ``TEXT_BYTES`` characters, of which no more are read, since it may have no end.
    """
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="surrogateescape")  # what is no text is refused as one text, not as all
    if sys.stdin.isatty():
        _announce("reading texts, one per line; Ctrl-D ends")
    for number, line in enumerate(iter(partial(sys.stdin.readline, TEXT_BYTES + 1), ""), start=1):
        if len(line) > TEXT_BYTES:
            raise UserError(f"Line {number} of standard input has more than {TEXT_BYTES:,} bytes; give shorter texts")
        if line.strip():
            yield line.removeprefix("\ufeff").rstrip("\r\n")


def _announce(what: str) -> None:
    """Print a line to standard error at once."""
    sys.stderr.write(f"inspect: {escape_control_codes(what)}\n")
    sys.stderr.flush()


def _load(settings: ExtractionSettings) -> "tuple[PreTrainedModel, PreTrainedTokenizerBase]":
    """Load the model and its tokenizer."""
    from extract.models import describe, load

    described = describe(settings, identify=False)
    return load(described), described.tokenizer


def _print(analysis: "Analysis", text: str, inspection: Inspection) -> None:
    """Print the ranking of the heads, or the keys of one."""
    if inspection.head is None:
        ranked = _rank(analysis, inspection.by)[: inspection.top]
        if inspection.as_json:
            write_object({"text": text, **_describe(analysis), "by": inspection.by, "heads": ranked})
        else:
            _print_ranking(analysis, ranked, inspection.by)
        return
    keys = [row for row in analysis.top_keys.to_pylist() if (row.pop("layer"), row.pop("head")) == inspection.head]
    if not keys:
        layer, head = inspection.head
        raise UserError(f"{analysis.model} has no head {layer}.{head}; choose one of {_describe_heads(analysis)}")
    shown = {"top_keys": keys[: inspection.top]}
    if analysis.queries is not None:
        queries = analysis.queries.to_pylist()
        shown = {"queries": [row for row in queries if (row.pop("layer"), row.pop("head")) == inspection.head]}
    if inspection.as_json:
        write_object({"text": text, **_describe(analysis), "head": list(inspection.head), **shown})
    elif inspection.every:
        _print_queries(analysis, shown["queries"], inspection)
    else:
        _print_keys(analysis, keys, inspection)


def _describe(analysis: "Analysis") -> dict[str, Any]:
    """Model, query and N of an analysis."""
    return {"model": analysis.model, "query": analysis.query, "n": analysis.n, "tokens": analysis.tokens.num_rows}


def _describe_heads(analysis: "Analysis") -> str:
    """The first and the last head."""
    first, last = (analysis.heads.slice(row, 1).to_pylist()[0] for row in (0, analysis.heads.num_rows - 1))
    return f"{first['layer']}.{first['head']} to {last['layer']}.{last['head']}"


def _rank(analysis: "Analysis", by: str) -> list[dict[str, Any]]:
    """The heads in falling order of a column, those without a value last; with the chance of a pattern.

    Of heads with equal values, as many have a Recall of 1, those whose weight lies on fewer keys come first.
    """
    column, heads = RANKS.get(by, by), analysis.heads.to_pylist()
    if by in LOOKED_AT:
        of_pattern = (row for row in analysis.patterns.to_pylist() if row["pattern"] == by)
        heads = [
            head | {by: row["value"], "chance": row["chance"]} for head, row in zip(heads, of_pattern, strict=True)
        ]
    return sorted(heads, key=lambda row: (row[column] is None, -(row[column] or 0.0), row["effective_keys"]))


def _print_ranking(analysis: "Analysis", ranked: Sequence[dict[str, Any]], by: str) -> None:
    """Print heads with their keys of largest weight."""
    import pyarrow as pa

    keys: dict[tuple[int, int], list[str]] = {}
    for row in analysis.top_keys.to_pylist():
        if row["rank"] <= KEYS:
            keys.setdefault((row["layer"], row["head"]), []).append(f"{row['token']!r} {row['weight']:.2f}")
    shown = dict.fromkeys((RANKS[by], *SHOWN) if by in RANKS else (by, "chance", *SHOWN))
    rows = [
        {"head": f"{row['layer']}.{row['head']}"}
        | {name: round(row[name], 3) if isinstance(row[name], float) else row[name] for name in shown}
        | {"keys of largest weight": ", ".join(keys[row["layer"], row["head"]])}
        for row in ranked
    ]
    of_all = f"the {len(ranked)} of {analysis.heads.num_rows} heads of largest {by}"
    column = RANKS.get(by)
    equal = analysis.heads[column].to_pylist().count(ranked[0][column]) if column else 1
    of_all += f" ({equal} have the largest; those of fewer effective keys first)" if equal > 1 else ""
    title = f"{analysis.model}: {of_all}, {_describe_query(analysis)}"
    place = make_console()
    place.print(title, markup=False)
    place.print(build_table(pa.Table.from_pylist(rows)))
    place.file.flush()


def _print_keys(analysis: "Analysis", keys: Sequence[dict[str, Any]], inspection: Inspection) -> None:
    """Print the text shaded by the weights of a head, and its keys of largest weight."""
    import pyarrow as pa

    place = make_console()
    name = ".".join(map(str, inspection.head or ()))
    place.print(f"{analysis.model}, head {name}, {_describe_query(analysis)}", markup=False)
    place.print(_shade_text(analysis, {row["position"]: row for row in keys}), soft_wrap=True)
    rounded = [
        {key: round(value, 4) if isinstance(value, float) else value for key, value in row.items()}
        for row in keys[: inspection.top]
    ]
    place.print(build_table(pa.Table.from_pylist([row | {"token": repr(row["token"])} for row in rounded])))
    place.file.flush()


def _print_queries(analysis: "Analysis", queries: Sequence[dict[str, Any]], inspection: Inspection) -> None:
    """Print what a head selects at every token of the text."""
    import pyarrow as pa

    place, name = make_console(), ".".join(map(str, inspection.head or ()))
    place.print(f"{analysis.model}, head {name}, every token as the query", markup=False)
    tokens = name_tokens(analysis.tokens["token"].to_pylist())
    rows = [
        {"position": row["position"], "token": repr(tokens[row["position"]])}
        | {column: row[column] and round(row[column], 3) for column in AT_EVERY_TOKEN}
        | {"largest weight on": repr(tokens[row["top_position"]])}
        for row in queries
    ]
    place.print(build_table(pa.Table.from_pylist(rows)))
    place.file.flush()


def _describe_query(analysis: "Analysis") -> str:
    """The query and N in words."""
    token = name_tokens(analysis.tokens["token"].to_pylist())[analysis.query]
    return f"query {analysis.query} {token!r}, N = {analysis.n}"


def _shade_text(analysis: "Analysis", keys: Mapping[int, dict[str, Any]]) -> "Text":
    """The tokens in order, shaded by weight; those within r_min are underlined, the query is bold."""
    from rich.text import Text

    shaded = Text()
    for position, token in enumerate(analysis.tokens["token"].to_pylist()):
        row = keys.get(position)
        style = "bold " if position == analysis.query else ""
        if row is not None:
            with suppress(StopIteration):
                style += next(shade for least, shade in SHADES if row["weight"] >= least)
            style += " underline" if row["within_r_min"] else ""
        shaded.append(escape_control_codes(token) or (CONTINUED if row else ""), style=style.strip())
    return shaded
