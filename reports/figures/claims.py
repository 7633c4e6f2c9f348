"""The paper's claims with their verdicts."""

from collections.abc import Sequence

from reports import listings
from reports.figures.parts import NOT_ANALYSED, Figure, Section, Source, make_empty_figure
from reports.findings import claims as findings
from reports.findings.numbers import Row

TABLE = "claims-table"
"""Key of the figure that shows every claim."""


def build_section(source: Source) -> Section:
    """The paper's claims, and whether this study supports them."""
    return Section(
        "claims",
        "Which claims of the paper this study supports",
        "Each row is a statement of the paper as a comparison of measures with thresholds. Intervals are 95 % over "
        "sequences; verdicts hold together for all claims with an error of 5 % (Holm). A claim whose measures do not "
        "differ from those of random weights is not a finding about this model.",
        (_build_claims(source),),
    )


def _build_claims(source: Source) -> Figure:
    title, answer = "Claims of the paper", source.ask_study("claims")
    rows = answer.rows()
    if not rows:
        return make_empty_figure(TABLE, title, answer, NOT_ANALYSED)
    reading = (
        "The table below gives the measures of each claim and the number of its rows. The paper measures LLaMA-2-7B "
        "and other models at 1024 tokens."
    )
    listing = listings.tabulate_claims(rows, _assign_figures(source, rows))
    return Figure(TABLE, title, findings.summarise_claims(rows), reading, answer.table, answer, listing=listing)


def _assign_figures(source: Source, rows: Sequence[Row]) -> dict[str, str]:
    """Map claims to the figures that show them, or to the table of all claims if this study lacks the figure."""
    answers = {
        "distinguishable-share": source.ask_query("distinguishable_by_n"),
        "loss-and-geometry": source.ask_study("ablation_by_head"),
        "loss-by-keys": source.ask_study("loss_by_keys"),
    }
    absent = {figure for figure, answer in answers.items() if not answer.table.num_rows}
    return {row["claim"]: TABLE if row["shown_by"] in absent else row["shown_by"] for row in rows}
