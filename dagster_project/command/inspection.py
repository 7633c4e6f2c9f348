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
from extract.models.checks import check_device, check_hub, check_inputs
from extract.settings import EMBEDDED, SYNTHETIC, TEXT_BYTES
from extract.texts.decoding import name_tokens
from storage.errors import UserError

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.text import Text

    from attention_geometry import Analysis

COLUMNS = {"sink": "sink_weight"}
"""Columns of ``Analysis.heads`` that heads are ranked by whose names are not those of ``--by``."""

LOOKED_AT = ("previous", "self", "local", "duplicate", "induction")
"""Patterns of ``Analysis.patterns``, over all queries of the text, by which heads are ranked too."""

SHOWN = ("label", "recall", "precision", "sink_weight", "effective_keys", "n_90")
"""Columns of ``Analysis.heads`` that the ranking shows."""

AT_EVERY_TOKEN = (
    "recall_level", "specificity_level", "effective_keys", "sink_weight", "top_weight", "error_renormalised_16",
)  # fmt: skip
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


def parse_head(given: str | None, *, every: bool) -> tuple[int, int] | None:
    """The layer and head of an option; None without it, which ``every`` needs."""
    if given is None:
        if every:
            raise UserError("--every shows what one head selects at every token; name it, as in --head 3.1")
        return None
    layer, _, head = given.partition(".")
    if not (layer.isdecimal() and head.isdecimal()):
        raise UserError(f"--head {given} does not name a head; write layer and head, as in --head 3.1")
    return int(layer), int(head)


def inspect_texts(settings: Mapping[str, Any], texts: Iterable[str], inspection: Inspection, *, go_on: bool) -> bool:
    """Load a model and print what its heads do with each text; return whether all texts could be measured.

    ``settings`` are those of the model as in ``studies.yaml``; texts are read one at a time, after the one before is
    printed. If ``go_on``, a text that cannot be measured is named on standard error, and the next one is read; else it
    is a ``UserError``, as a model that cannot be loaded.
    """
    known = parse_study("text", {**settings, "corpus": EMBEDDED, "context_length": 2}, COMMAND_LINE)
    if known.model.id == SYNTHETIC:
        raise UserError("The model 'synthetic' reads no text; choose another --model")
    check_inputs(known)
    check_device(known.device)
    check_hub(known)
    _announce(f"reading the model {known.model.name}")
    from attention_geometry.analysis import analyze
    from extract.models.loading import describe, load

    described = describe(known, identify=False)
    model = load(described)
    failed, text = False, None
    for text in texts:
        try:
            n, query, every = inspection.n, inspection.query, inspection.every
            analysis = analyze(model, described.tokenizer, text, n=n, query=query, bos=known.bos, every=every)
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

    ``UserError`` at a line of more than ``TEXT_BYTES`` characters, of which no more are read, since it may have no end.
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


def _print(analysis: "Analysis", text: str, inspection: Inspection) -> None:
    """Print the ranking of the heads, or the keys or the queries of one."""
    told = {"text": text, "model": analysis.model, "query": analysis.query, "n": analysis.n}
    told["tokens"] = analysis.tokens.num_rows
    if inspection.head is None:
        ranked = _rank(analysis, inspection.by)[: inspection.top]
        if inspection.as_json:
            write_object({**told, "by": inspection.by, "heads": ranked})
        else:
            _print_ranking(analysis, ranked, inspection.by)
        return
    keys = _select_rows(analysis.top_keys, inspection.head)
    if not keys:
        heads = [f"{row['layer']}.{row['head']}" for row in analysis.heads.select(["layer", "head"]).to_pylist()]
        name = ".".join(map(str, inspection.head))
        raise UserError(f"{analysis.model} has no head {name}; choose one of {heads[0]} to {heads[-1]}")
    queries = None if analysis.queries is None else _select_rows(analysis.queries, inspection.head)
    if inspection.as_json:
        shown = {"top_keys": keys[: inspection.top]} if queries is None else {"queries": queries}
        write_object({**told, "head": list(inspection.head), **shown})
        return
    name = f"{analysis.model}, head {'.'.join(map(str, inspection.head))}"
    if queries is not None:
        _print_rows(f"{name}, every token as the query", _describe_queries(analysis, queries))
        return
    rows = [row | {"token": repr(row["token"])} for row in keys[: inspection.top]]
    shaded = _shade_text(analysis, {row["position"]: row for row in keys})
    _print_rows(f"{name}, {_describe_query(analysis)}", rows, shaded, digits=4)


def _select_rows(table: "pa.Table", head: tuple[int, int]) -> list[dict[str, Any]]:
    """The rows of a head, without its layer and number."""
    return [row for row in table.to_pylist() if (row.pop("layer"), row.pop("head")) == head]


def _rank(analysis: "Analysis", by: str) -> list[dict[str, Any]]:
    """The heads in falling order of a column, those without a value last; with the chance of a pattern.

    Of heads with equal values, as many have a Recall of 1, those whose weight lies on fewer keys come first.
    """
    column, heads = COLUMNS.get(by, by), analysis.heads.to_pylist()
    if by in LOOKED_AT:
        of_pattern = (row for row in analysis.patterns.to_pylist() if row["pattern"] == by)
        heads = [
            head | {by: row["value"], "chance": row["chance"]} for head, row in zip(heads, of_pattern, strict=True)
        ]
    return sorted(heads, key=lambda row: (row[column] is None, -(row[column] or 0.0), row["effective_keys"]))


def _print_ranking(analysis: "Analysis", ranked: Sequence[dict[str, Any]], by: str) -> None:
    """Print heads with their keys of largest weight."""
    keys: dict[tuple[int, int], list[str]] = {}
    for row in analysis.top_keys.to_pylist():
        if row["rank"] <= KEYS:
            keys.setdefault((row["layer"], row["head"]), []).append(f"{row['token']!r} {row['weight']:.2f}")
    column = COLUMNS.get(by, by)
    shown = dict.fromkeys((column, *(("chance",) if by in LOOKED_AT else ()), *SHOWN))
    rows = [
        {"head": f"{row['layer']}.{row['head']}"}
        | {name: row[name] for name in shown}
        | {"keys of largest weight": ", ".join(keys[row["layer"], row["head"]])}
        for row in ranked
    ]
    of_all = f"the {len(ranked)} of {analysis.heads.num_rows} heads of largest {by}"
    equal = 1 if by in LOOKED_AT else analysis.heads[column].to_pylist().count(ranked[0][column])
    of_all += f" ({equal} have the largest; those of fewer effective keys first)" if equal > 1 else ""
    _print_rows(f"{analysis.model}: {of_all}, {_describe_query(analysis)}", rows)


def _describe_queries(analysis: "Analysis", queries: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What a head selects at every token of the text, as the rows that are shown."""
    tokens = name_tokens(analysis.tokens["token"].to_pylist())
    return [
        {"position": row["position"], "token": repr(tokens[row["position"]])}
        | {column: row[column] for column in AT_EVERY_TOKEN}
        | {"largest weight on": repr(tokens[row["top_position"]])}
        for row in queries
    ]


def _print_rows(title: str, rows: Sequence[dict[str, Any]], text: "Text | None" = None, *, digits: int = 3) -> None:
    """Print a line, a text, and a table whose numbers are rounded."""
    import pyarrow as pa

    rounded = [
        {name: round(value, digits) if isinstance(value, float) else value for name, value in row.items()}
        for row in rows
    ]
    place = make_console()
    place.print(title, markup=False)
    if text is not None:
        place.print(text, soft_wrap=True)
    place.print(build_table(pa.Table.from_pylist(rounded)))
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
