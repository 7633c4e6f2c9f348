"""The paper's claims with their verdicts, each a word and a symbol."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import itemgetter

from reports.figures import Figure, Section, Source, select_rows
from reports.findings import claims as findings
from reports.findings.claims import VERDICTS, format_decisive
from reports.findings.listings import DASH, Cell, Listing, tabulate
from reports.findings.numbers import Row


def tabulate_claims(rows: Sequence[Row], shown_by: Mapping[str, str]) -> Listing:
    """Claims with what this study shows, by verdict, and the figure by which each is ``shown_by`` (``claims``)."""
    ordered = sorted(rows, key=lambda row: list(VERDICTS).index(row["verdict"]))
    of_twin: dict[str, Cell] = {"Random weights": _format_twin}
    columns: dict[str, Cell] = {
        "Claim": itemgetter("statement"),
        "Verdict": lambda row: _format_verdict(row["verdict"]),
        **(of_twin if any(row["twin"] for row in rows) else {}),
        "This study; required": lambda row: format_decisive(row) or row["sentence"],
    }
    links = tuple((f"{row['source']}:", shown_by[row["claim"]]) for row in ordered)
    folded = tuple(row["sentence"] if format_decisive(row) else "" for row in ordered)
    return replace(tabulate(ordered, columns), links=links, folded=folded)


def tabulate_studies(rows: Mapping[str, Sequence[Row]]) -> Listing:
    """Claims of the paper with what each study shows (``claims`` of each)."""
    return Listing(
        ("Claim", "Source", *rows),
        tuple(
            (
                *(same[0]["statement"], same[0]["source"]),
                *(f"{_format_verdict(row['verdict'])}\u2002{format_decisive(row)}".rstrip() for row in same),
            )
            for same in zip(*rows.values(), strict=True)
            if any(row["verdict"] != "not testable" for row in same)
        ),
    )


def _format_twin(claim: Row) -> str:
    """The verdict for random weights, and for a supported claim whether its measures differ from theirs.

    A claim that is itself a difference from them has none.
    """
    if claim["twin_verdict"] is None:
        return DASH
    compared = {True: "; differs", False: "; does not differ", None: ""}[claim["beyond_twin"]]
    return f"{_format_verdict(claim['twin_verdict'])}{compared}"


def _format_verdict(verdict: str | None) -> str:
    return DASH if verdict is None else f"{VERDICTS[verdict][0]}\u00a0{verdict}"


TABLE = "claims-table"  # Key of the table of the claims that could be tested
UNTESTED = "claims-untested"  # Key of the table of those that could not

LACKING = "Each sentence says what this study lacks to test its claim."


def build_section(source: Source) -> Section:
    """The paper's claims, and whether this study supports them."""
    return Section(
        "claims",
        "Which claims of the paper this study supports",
        "Statements of the paper, or of its predecessor (arXiv 2508.17821), with the measure that decides; each row "
        "unfolds to all of its measures. Verdicts hold together with an error of 5 % (Holm). What holds for random "
        "weights too is no finding about this model.",
        _build_figures(source),
    )


def _build_figures(source: Source) -> tuple[Figure, ...]:
    """The claims that could be tested, and, folded, those that could not."""
    title, answer = "Claims of the paper", source.ask_study("claims")
    rows = answer.rows()
    lacking = "not testable"
    tested = select_rows(answer.table, "verdict", *{row["verdict"] for row in rows} - {lacking})
    untested = select_rows(answer.table, "verdict", lacking)
    places = _assign_figures(source, rows)
    below = "The table below gives the measures of each claim and the number of its rows."
    reading = (
        f"{below} The paper measures LLaMA-2-7B and other models at 1024 tokens. A supported claim differs from random "
        "weights if its measures do on the same sequences, in its direction; where random weights lack what it "
        "presupposes, nothing is known."
    )
    return tuple(
        Figure(
            key,
            name,
            answer,
            text,
            note,
            part=table,
            listing=tabulate_claims(table.to_pylist(), places),
            folded=key == UNTESTED,
        )
        for key, name, text, note, table in (
            (TABLE, title, findings.summarise_claims(rows), reading, tested),
            (UNTESTED, "Claims that this study cannot test", LACKING, below, untested),
        )
        if table.num_rows or key == TABLE
    )


def _assign_figures(source: Source, rows: Sequence[Row]) -> dict[str, str]:
    """Map claims to the figures that show them, or to the table of all claims if this study lacks the figure."""
    answers = {
        "distinguishable-share": source.ask_query("distinguishable_by_n"),
        "loss-and-geometry": source.ask_study("ablation_by_head"),
        "loss-by-keys": source.ask_study("loss_by_keys"),
    }
    absent = {figure for figure, answer in answers.items() if not answer.table.num_rows}
    associations = source.ask_study("loss_associations").rows()
    absent |= set() if any(row["kind"] == "selected" for row in associations) else {"loss-and-error"}
    return {row["claim"]: TABLE if row["shown_by"] in absent else row["shown_by"] for row in rows}
