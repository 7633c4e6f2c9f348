"""The command line ``attention-geometry``: a thin shell over the Dagster definitions and the warehouse.

Holds arguments, help and printing.
"""

import errno
import logging
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from dagster_project.command import interrupts
from dagster_project.command.completion import complete_asset, complete_one_of, complete_relation, complete_study
from dagster_project.command.output import (
    FORMATS,
    check_format,
    check_text,
    console,
    counted,
    harmless,
    prompt,
    rich_table,
    rows_of,
    write,
    write_object,
)
from dagster_project.command.serving import serve
from dagster_project.command.streams import OUTPUT, give_up_output
from dagster_project.study.home import DEFAULT_HOME, HOME_VARIABLE, Home
from extract.hub import exists, local_path
from reports.findings.numbers import count
from storage.errors import QuotingError, UserError
from storage.files.places import Local

if TYPE_CHECKING:
    from rich.table import Table

    from dagster_project.upkeep.plan import Report

app = typer.Typer(
    name="attention-geometry",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

UNWRITABLE = {errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST}
"""System errors that a user can mend: no space, no right, or something else in the place."""

HomeOption = Annotated[
    Path | None,
    typer.Option("--home", metavar="DIR", help=f"Data root (default: ${HOME_VARIABLE}, else ./{DEFAULT_HOME})."),
]


def _flag(*names: str, **settings: Any) -> Any:
    """An option without a value, which help shows without one."""
    return typer.Option(*names, metavar="", **settings)


def _format(*names: str, help: str) -> Any:  # noqa: A002 (called as in typer)
    """The option ``--format``, with what the shell completes."""
    return typer.Option("--format", help=help, autocompletion=complete_one_of(*names))


JsonOption = Annotated[bool, _flag("--json", help="Results as JSON, for scripts.")]


def _print_version(asked: bool) -> None:
    """Print the version and end."""
    if asked:
        typer.echo(metadata.version("attention-geometry"))
        raise typer.Exit


@app.callback()
def attention_geometry(
    home: HomeOption = None,
    quiet: Annotated[bool, _flag("--quiet", "-q", help="Say nothing but results, warnings and errors.")] = False,
    version: Annotated[  # noqa: ARG001 (its callback does the work)
        bool, _flag("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Reads every attention head of a language model as a geometric classifier.

    Start with `attention-geometry run embedded`: it runs a small built-in model on built-in text and writes a report.

    Then your own: `attention-geometry run --name mine --model ./checkpoint --corpus ./book.txt --context-length 256
    --sequences 16`, and ask: `attention-geometry sql "SELECT query, layer, head, avg(recall) FROM selection
    WHERE study = 'mine' AND n = 4 GROUP BY ALL"`.
    """
    _use_home(home)
    if quiet:
        logging.getLogger("dagster_project").setLevel(logging.WARNING)


@app.command(no_args_is_help=True)
def run(
    study: Annotated[
        str | None,
        typer.Argument(help="A study of studies.yaml; leave out with --name.", autocompletion=complete_study),
    ] = None,
    home: HomeOption = None,
    fresh: Annotated[
        bool, _flag("--fresh", help="Make everything again, as if nothing of the study were stored.")
    ] = False,
    force: Annotated[
        str | None,
        typer.Option(
            metavar="ASSET",
            autocompletion=complete_asset,
            help="Rebuild this asset and what follows from it, even if current.",
        ),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Record a new study under this name and run it.")] = None,
    model: Annotated[str | None, typer.Option(help="`embedded`, `synthetic`, a local directory, or a hub id.")] = None,
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit of the hub id.")] = None,
    random_weights: Annotated[
        bool,
        _flag("--random-weights", help="The model's architecture with random weights, drawn from the seed."),
    ] = False,
    corpus: Annotated[
        str | None, typer.Option(help="`embedded`, a .txt/.jsonl/.parquet file, a folder of them, or a hub dataset.")
    ] = None,
    corpus_revision: Annotated[str | None, typer.Option(help="Branch, tag or commit of the hub dataset.")] = None,
    subset: Annotated[str | None, typer.Option(help="Configuration of the hub dataset.")] = None,
    split: Annotated[str | None, typer.Option(help="Split of the hub dataset (default: train).")] = None,
    column: Annotated[str | None, typer.Option(help="Column or field that holds the text (default: text).")] = None,
    pack: Annotated[bool, _flag("--pack", help="Join short documents instead of skipping them.")] = False,
    context_length: Annotated[int | None, typer.Option(help="Tokens in each sequence.")] = None,
    sequences: Annotated[int | None, typer.Option(help="Number of sequences.")] = None,
    queries: Annotated[
        str | None,
        typer.Option(metavar="P,P,…", help="Positions whose attention is looked at (default: the last alone)."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Decides which sequences are read, and random weights.")] = None,
    dtype: Annotated[str | None, typer.Option(help="float32, bfloat16 or float16.")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, mps, cuda or cuda:N.")] = None,
    device_map: Annotated[
        str | None, typer.Option(help="auto, balanced or sequential: spread the model over all GPUs.")
    ] = None,
    batch_size: Annotated[
        str | None, typer.Option(metavar="N|auto", help="Sequences per forward pass (default: auto).")
    ] = None,
    values: Annotated[str | None, typer.Option(help="Store value states as float32 or float16.")] = None,
    twin: Annotated[
        str | None,
        typer.Option(metavar="STUDY|random", help="A study of random weights to compare with; random: make one."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Run a study: extract, measure, land, report. Only what is missing or stale is made.

    A study that stands in studies.yaml: `attention-geometry run embedded`

    Heads drawn from the paper's assumptions, to see what the fits find: `attention-geometry run synthetic`

    Your own model and text, recorded for later under a name:
    `attention-geometry run --name mine --model ./checkpoint --corpus ./book.txt --context-length 256 --sequences 16`

    A hub model and dataset:
    `attention-geometry run --name small --model openai-community/gpt2 --corpus HuggingFaceFW/fineweb
    --context-length 1024 --sequences 100`

    Contexts of 64 to 512 tokens at once, each query seeing the tokens up to its own:
    `attention-geometry run --name sizes --model ./checkpoint --corpus ./book.txt --context-length 512 --sequences 16
    --queries 63,127,255,511`
    """
    root = _use_home(home)
    given = {
        "model": _part(model, revision=revision, weights="random" if random_weights else None),
        "corpus": _part(corpus, revision=corpus_revision, subset=subset, split=split, column=column, pack=pack or None),
        "context_length": context_length,
        "sequences": sequences,
        "queries": _positions(queries),
        "seed": seed,
        "dtype": dtype,
        "device": device,
        "device_map": device_map,
        "batch_size": int(batch_size) if batch_size is not None and batch_size.isdecimal() else batch_size,
        "values": values,
        "twin": twin,
    }
    settings = {key: value for key, value in given.items() if value is not None}
    with _chosen(root, study, name, settings) as chosen:
        from dagster_project.command.runs import run_study  # here, so that what is refused is refused at once

        run_study(root, chosen, fresh=fresh, force=force)
    _print_results(root, chosen, as_json=as_json)


@app.command(no_args_is_help=True)
def extract(
    study: Annotated[
        str,
        typer.Argument(help="A study that stands in studies.yaml, shipped or recorded.", autocompletion=complete_study),
    ],
    home: HomeOption = None,
    shard: Annotated[
        str | None, typer.Option(metavar="K/N", help="Only the K-th of N parts of the sequences; K counts from 1.")
    ] = None,
) -> None:
    """Extract a study's tensors and no more, or one shard of them; what is there already is not done again.

    On one machine: `attention-geometry extract mine`, then `attention-geometry run mine` for the rest.

    On several that share the data root, or name one place for tensors in ATTENTION_GEOMETRY_TENSORS, each its own part:
    `attention-geometry extract mine --shard 1/4` to `--shard 4/4`, then `attention-geometry finalise mine`.
    """
    root = _use_home(home)
    _check(root, study)
    from dagster_project.steps.catalogue import work_on
    from dagster_project.steps.tensors import extract_tensors
    from extract.settings import Shard

    work = work_on(root, study)
    part = None if shard is None else Shard.parse(shard)
    root.prepare()
    report = extract_tensors(work, part)
    typer.echo(
        f"{report.path}: {counted(report.written, 'sequence')} written, {report.missing} of {report.sequences} still "
        "missing"
    )


@app.command(no_args_is_help=True)
def finalise(
    study: Annotated[
        str, typer.Argument(help="A study whose shards have been extracted.", autocompletion=complete_study)
    ],
    home: HomeOption = None,
) -> None:
    """Check that no sequence is missing of a study that was extracted in shards, and remove what killed ones left.

    `attention-geometry finalise mine`, then `attention-geometry run mine` for metrics, warehouse and report.
    """
    from dagster_project.steps.tensors import finalise_tensors
    from dagster_project.study.studies import find_study

    root = _use_home(home)
    find_study(root, study)
    typer.echo(f"{study}: complete, {count(finalise_tensors(root, study), 'sequence')}")


@app.command(no_args_is_help=True)
def drop(
    study: Annotated[str, typer.Argument(help="A study that has been run.", autocompletion=complete_study)],
    home: HomeOption = None,
) -> None:
    """Delete weights and value states of a study that has landed; metrics, tables and report stay.

    They are by far the largest files. Other analysis settings then need a new extraction (`run STUDY --fresh`).
    `keep_tensors: false` in a study does the same as soon as it has landed.
    """
    from dagster_project.steps.landing import drop_tensors
    from dagster_project.steps.space import gigabytes
    from dagster_project.study.studies import find_study

    root = _use_home(home)
    found = find_study(root, study)
    with root.running(study):
        freed = drop_tensors(root, study, found)
    typer.echo(f"{study}: {gigabytes(freed)} freed in {root.tensors(study)}")


@app.command()
def studies(
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the studies: what each is, and how far it has come."""
    from rich.table import Table

    from dagster_project.study.studies import readable_studies
    from dagster_project.upkeep.progress import states

    root = _use_home(home)
    found, unreadable = readable_studies(root)
    table = Table("study", "model", "corpus", "context", "sequences", "state")
    for name, state in states(root, found).items():
        study = found[name]
        cells = (name, study.model.id, study.corpus.id, study.context_length, study.sequences, state)
        if as_json:
            keys = ("study", "model", "corpus", "context_length", "sequences", "state")
            write_object(dict(zip(keys, cells, strict=True)))
            continue
        table.add_row(*(harmless(str(cell)) for cell in cells))
    if not as_json:
        console().print(table)
    for error in unreadable.values():
        raise error


@app.command(no_args_is_help=True)
def report(
    study: Annotated[str, typer.Argument(help="A study that has been run.", autocompletion=complete_study)],
    home: HomeOption = None,
    images: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Also write each chart there, as SVG, PDF and PNG.")
    ] = None,
    tables: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Also write the table behind each figure there, as CSV and Parquet."),
    ] = None,
    show: Annotated[bool, _flag("--open", help="Open the page in the browser.")] = False,
) -> None:
    """Write a study's report again from what is landed, and print where it lies.

    The page alone: `attention-geometry report embedded`

    For a paper or slides: `attention-geometry report embedded --images figures`

    For a notebook: `attention-geometry report embedded --tables tables`
    """
    root = _use_home(home)
    _check_known(root, study)
    from dagster_project.command.runs import run_report
    from dagster_project.steps.reporting import export

    run_report(root, study)
    typer.echo(root.report(study))
    if images or tables:
        written = export(root, study, images=_folder(images), tables=_folder(tables))
        folders = ", ".join(str(folder) for folder in (images, tables) if folder)
        typer.echo(f"{counted(len(written), 'file')} in {folders}")
    if show and typer.launch(str(root.report(study))):
        msg = f"No browser could be started; open {root.report(study)} in one"
        raise UserError(msg)


@app.command(no_args_is_help=True)
def publish(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder of its own; made, or replaced.")],
    home: HomeOption = None,
) -> None:
    """Put the index, all reports and all comparisons into one folder, as a static host serves it.

    `attention-geometry publish site`, then copy `site` to the host, or serve it: `python -m http.server -d site`
    """
    from dagster_project.steps.publishing import publish as publish_pages

    target = folder.expanduser().resolve()
    written = publish_pages(_use_home(home), target)
    typer.echo(f"{counted(len(written), 'file')} in {target}")


@app.command(no_args_is_help=True)
def compare(
    studies: Annotated[
        list[str], typer.Argument(help="Two studies or more that have been run.", autocompletion=complete_study)
    ],
    home: HomeOption = None,
) -> None:
    """Write a page that sets studies side by side, and print where it lies: Figures 5, 6 and 8, claims, settings.

    Two models on the same text: `attention-geometry compare gpt2 llama-2-7b`

    As many as you like, in the order you like: `attention-geometry compare synthetic embedded mine`
    """
    root = _use_home(home)
    _check_known(root, *studies)
    from dagster_project.steps.reporting import write_comparison

    typer.echo(write_comparison(root, studies))


@app.command(no_args_is_help=True)
def export(
    study: Annotated[str, typer.Argument(help="A study that has been run.", autocompletion=complete_study)],
    out: Annotated[Path, typer.Option(metavar="PATH", help="File to write; a folder for duo.")],
    home: HomeOption = None,
    form: Annotated[
        str,
        _format(
            "duo",
            "lukv",
            "retrieval",
            "csv",
            "parquet",
            "json",
            help="duo, lukv or retrieval for other tools; csv, parquet or json for rows.",
        ),
    ] = "csv",
    measure: Annotated[
        str | None,
        typer.Option("--by", metavar="MEASURE", help="A measure of head_measures; left out, all, in rows."),
    ] = None,
    group: Annotated[str, typer.Option(help="How query heads of one KV head become one number: max or mean.")] = "max",
    invert: Annotated[bool, _flag("--invert", help="Heads of the lowest measure come first.")] = False,
    sink_size: Annotated[int, typer.Option(help="For duo: first keys of heads without full attention.")] = 128,
    recent_size: Annotated[int, typer.Option(help="For duo: most recent keys of such heads.")] = 256,
) -> None:
    """Write what is known of each head as files that other tools read, from the tables of a landed study.

    Every measure of every head: `attention-geometry export effects --format csv --out heads.csv`

    For DuoAttention, full attention where many keys count: `attention-geometry export effects --format duo
    --by effective_keys --out pattern`

    For kvpress (LUKVPress), budgets in proportion to a number of keys: `attention-geometry export effects
    --format lukv --by effective_keys --group mean --out budgets.npy`

    What measures there are: `attention-geometry sql "SELECT DISTINCT measure FROM head_measures"`
    """
    root = _use_home(home)
    _check_known(root, study)
    from dagster_project.command.heads import export_heads

    written = export_heads(
        root, study, out.expanduser().resolve(), form=form, measure=measure, group=group,
        inverted=invert, sink_size=sink_size, recent_size=recent_size,
    )  # fmt: skip
    for path in written:
        typer.echo(path)


@app.command(no_args_is_help=True)
def scores(
    study: Annotated[
        str,
        typer.Argument(help="A study of the model that was scored, which has been run.", autocompletion=complete_study),
    ],
    file: Annotated[Path, typer.Argument(help="The file of scores; for duo its folder.")],
    home: HomeOption = None,
    form: Annotated[
        str, _format("duo", "retrieval", "csv", help="duo, retrieval, or csv (layer, head, score).")
    ] = "csv",
    source: Annotated[
        str | None, typer.Option("--name", help="What to call the scores (default: the file's name).")
    ] = None,
) -> None:
    """Land scores of heads by another tool, and say how they go together with each measure of ours.

    They become rows of `external_scores`; scores of the same name are replaced. Rank correlations are over heads, with
    intervals and permutations by KV groups; one whose interval holds 0 is said to be none. Each interval is for its
    measure alone: of measures that have nothing to do with the scores, one in twenty is expected to lie beside 0.

    `attention-geometry scores mine head_score/model.json --format retrieval --name retrieval`
    """
    root = _use_home(home)
    _check_known(root, study)
    from dagster_project.command.heads import add_scores

    found = add_scores(root, study, file.expanduser().resolve(), form=form, source=source)
    console().print(rich_table(found, title=f"{study}: rank correlation over heads"))


@app.command("sql")
def sql_command(
    query: Annotated[str | None, typer.Argument(help="A statement that reads; without one, a prompt.")] = None,
    home: HomeOption = None,
    form: Annotated[str, _format(*FORMATS, help="table, vertical, csv, json or parquet.")] = "table",
    unlocked: Annotated[
        bool, _flag("--unlocked", help="Allow other files and the network: read_parquet, COPY … TO.")
    ] = False,
) -> None:
    """Ask the warehouse in SQL (DuckDB), reading only; results go to standard output, nothing else does.

    What there is: `attention-geometry sql "SELECT table_name, column_name, comment FROM duckdb_columns()"`

    The N with the best F for each head:
    `attention-geometry sql "SELECT study, query, layer, head, arg_max(n, f_r_max) FROM selection_means WHERE n > 1
    GROUP BY ALL" --format csv`

    Into a file for pandas or polars: `attention-geometry sql "FROM selection" --format parquet > selection.parquet`

    From Python: `storage.connect()`; from the plain DuckDB shell: `duckdb -init data/warehouse/open.sql`
    """
    from storage.warehouse.connection import Reader, renew_entry
    from storage.warehouse.query import query as run_query

    check_format(form)
    folder = _use_home(home).warehouse
    renew_entry(folder)
    with closing(Reader(folder, unlocked=unlocked)) as reader:
        if query is None and sys.stdin.isatty():
            interrupts.leave()
            prompt(reader, form, unlocked=unlocked)
        else:
            text = query if query is not None else sys.stdin.read()
            check_text(text)
            write(run_query(reader.connection, text, unlocked=unlocked), form)


@app.command()
def tour(
    number: Annotated[int | None, typer.Argument(help="Which question; without one, a list of them.")] = None,
    home: HomeOption = None,
    study: Annotated[
        str | None,
        typer.Option(
            help="The study it is about (default: embedded if it has landed, else the first).",
            autocompletion=complete_study,
        ),
    ] = None,
    only_sql: Annotated[bool, _flag("--sql", help="Print the statement alone, to paste or to change.")] = False,
    form: Annotated[
        str, _format("table", "markdown", help="table, or markdown for the page of all questions.")
    ] = "table",
) -> None:
    """Learn to ask: worked questions with their SQL and their answers from your own data.

    What there is: `attention-geometry tour`

    One of them: `attention-geometry tour 7 --study embedded`

    Into a file: `attention-geometry tour 20 --sql | attention-geometry sql --format csv > heads.csv`
    """
    from dagster_project.command.guide import show_tour

    show_tour(_use_home(home), number, study, only_sql=only_sql, form=form)


@app.command()
def schema(
    table: Annotated[
        str | None,
        typer.Argument(help="A table, view or macro; without one, a list of them.", autocompletion=complete_relation),
    ] = None,
    form: Annotated[
        str, _format("table", "markdown", help="table, or markdown for the page of all of them.")
    ] = "table",
) -> None:
    """Say what tables, views and macros the warehouse has, and what their columns mean.

    What there is: `attention-geometry schema`

    The columns of one: `attention-geometry schema selection`
    """
    from dagster_project.command.guide import show_schema

    show_schema(table, form)


@app.command()
def assets(
    form: Annotated[str, _format("table", "markdown", help="table, or markdown for docs/architecture.md.")] = "table",
) -> None:
    """List the assets that a study consists of, and what each is made from.

    `run STUDY` makes those that are missing or stale; `run STUDY --force ASSET` rebuilds one and what follows from it.
    """
    from dagster_project.command.guide import show_assets

    show_assets(form)


@app.command()
def refresh(
    studies: Annotated[
        list[str] | None,
        typer.Argument(help="Studies to look at; all that were ever run.", autocompletion=complete_study),
    ] = None,
    home: HomeOption = None,
    dry_run: Annotated[bool, _flag("--dry-run", help="Only say what is stale, and why.")] = False,
    report: Annotated[bool, _flag("--report", help="Show the latest report, of the schedule's too.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Rebuild what is missing or stale of all studies, one after the other, and say what was done and why.

    Stale is what other settings, inputs or an earlier version of the program made, and what follows from it. From cron,
    without a daemon: `0 3 * * * attention-geometry refresh --home DIR`

    Only the plan: `attention-geometry refresh --dry-run`

    What the last refresh did: `attention-geometry refresh --report`
    """
    from dagster_project.command.refreshing import refresh as run_refresh
    from dagster_project.upkeep.plan import latest

    root = _use_home(home)
    found = latest(root) if report else run_refresh(root, studies or (), dry_run=dry_run)
    if as_json:
        for entry in found.entries:
            write_object(asdict(entry) | {"reasons": entry.reasons})
    else:
        console().print(_refreshed(found))
    if any(entry.failed for entry in found.entries):
        raise typer.Exit(1)


def _refreshed(found: "Report") -> "Table":
    """What a refresh found and did, as a table."""
    from rich.table import Table

    table = Table(
        "study", "state", "why", "outcome", "seconds", title=f"{found.by}, {found.name}", title_justify="left"
    )
    for entry in found.entries:
        outcome = f"{entry.outcome}: {entry.message}" if entry.outcome and entry.message else entry.outcome
        seconds = "" if entry.seconds is None else f"{entry.seconds:.1f}"
        table.add_row(*(harmless(cell) for cell in (entry.study, entry.state, entry.reasons, outcome, seconds)))
    return table


@app.command()
def doctor(
    home: HomeOption = None,
    clean: Annotated[bool, _flag("--clean", help="Remove what killed processes left; asks nothing.")] = False,
    verify: Annotated[
        bool, _flag("--verify", help="Read everything that has checksums; exit code 1 if anything is damaged.")
    ] = False,
    as_json: JsonOption = False,
    rebuild_records: Annotated[
        bool,
        _flag("--rebuild-records", help="Replace Dagster's records by new ones: history is lost, and no result."),
    ] = False,
) -> None:
    """Say what is installed, which devices there are, and what in the data root is incomplete.

    After a crash: `attention-geometry doctor --clean` removes what was left half-written, and frees Dagster's pools.
    What a living process works on stays, and so does every whole result.
    """
    from dagster_project.upkeep.clearing import clean as removed_leftovers
    from dagster_project.upkeep.doctor import examine, removals, verdicts
    from dagster_project.upkeep.doctor import verify as read_everything

    root = _use_home(home)
    asked = [removals(removed_leftovers(root))] if clean else []
    if rebuild_records:
        from dagster_project.records.opening import rebuild_records as rebuild

        rebuild(root)
        typer.echo(f"{root.dagster}: Dagster's records are new; if the schedule was on, turn it on again", err=True)
    found = list(read_everything(root)) if verify else []
    asked += [verdicts(found)] if verify else []
    tables = asked if clean or verify or rebuild_records else examine(root)
    if as_json:
        write_object({str(table.title).lower(): rows_of(table) for table in tables})
    else:
        for table in tables:
            console().print(table)
    if any(each.damage for each in found):
        raise typer.Exit(1)


@app.command(no_args_is_help=True)
def clear(
    study: Annotated[str, typer.Argument(help="A study of which anything is stored.", autocompletion=complete_study)],
    home: HomeOption = None,
    yes: Annotated[bool, _flag("--yes", help="Do not ask.")] = False,
) -> None:
    """Delete all that is stored of a study: tensors, metrics, tables, report, and pages that compare it with others.

    Its entry in studies.yaml stays, so that `attention-geometry run STUDY` makes everything again, and so do Dagster's
    records of its runs. To delete only what is largest and keep the results: `attention-geometry drop STUDY`.
    """
    from dagster_project.upkeep.clearing import clear_study, what_is_stored
    from dagster_project.upkeep.doctor import removals

    root = _use_home(home)
    if not yes:
        for path in what_is_stored(root, study):
            typer.echo(f"{path.bytes_on_disk():>16,} bytes  {path}")
        typer.confirm(f"Delete all that is stored of '{study}'?", abort=True)
    console().print(removals(clear_study(root, study)))


@app.command()
def ui(home: HomeOption = None, port: Annotated[int, typer.Option(help="Port of the web UI.")] = 3000) -> None:
    """Open Dagster's web UI and daemon on the same assets, partitions and records."""
    from dagster_project.records.opening import open_records

    root = _use_home(home)
    root.prepare()
    with open_records(root):  # which tells the processes started from here where they are
        pass
    typer.echo(f"http://127.0.0.1:{port} shows the assets in a moment; Ctrl-C ends web UI and daemon", err=True)
    quiet = "ignore:Function `dev_command` is superseded:FutureWarning"  # by a command of another package
    command = [sys.executable, "-W", quiet, "-m", "dagster", "dev", "-m", "dagster_project.definitions"]
    interrupts.leave()
    raise typer.Exit(serve([*command, "--port", str(port), "--log-level", "warning"]))


def main() -> None:
    """Run the command line; a user's mistake ends it with one line and exit code 1."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    logging.getLogger("dagster_project").setLevel(logging.INFO)
    if not sys.warnoptions:
        warnings.simplefilter("ignore")
    try:
        _run_app()
    except QuotingError as error:
        _end(str(error), 1)
    except UserError as error:
        _end(" ".join(str(error).splitlines()), 1)
    except OSError as error:
        if error.filename == OUTPUT:
            _end_without_output(error)
        if error.errno not in UNWRITABLE:
            raise
        place = f" ({error.filename})" if error.filename else ""
        _end(f"{error.strerror}{place}; make room there, or choose another data root with --home, and run again", 1)


def _run_app() -> None:
    """Run the command, and write what it has printed.

    Raises
    ------
    OSError
        If standard output cannot be written, also where typer or rich would end in silence.
    """
    try:
        app()
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):
            raise end.__context__ from None
        sys.stdout.flush()
        raise


def _end_without_output(error: OSError) -> NoReturn:
    """End a command whose results cannot be written; that whoever reads them has seen enough is no error."""
    give_up_output()
    if isinstance(error, BrokenPipeError):
        raise SystemExit(0) from None
    _end(f"Standard output cannot be written ({error.strerror}); send it to where there is room", 1)


def _end(message: str, code: int) -> NoReturn:
    """End the program with a message on standard error, whatever control codes it has."""
    typer.echo(f"attention-geometry: {harmless(message)}", err=True)
    raise SystemExit(code) from None


def _use_home(home: Path | None) -> Home:
    """The data root asked for; every later look at the environment finds the same."""
    if home is not None:
        os.environ[HOME_VARIABLE] = str(home.expanduser().resolve())
    return Home.from_environment()


def _part(identity: str | None, **fields: Any) -> dict[str, Any] | str | None:
    """Model or corpus settings from options: the id alone, or with the fields that were given."""
    given = {key: value for key, value in fields.items() if value is not None}
    if identity is None:
        return given or None
    local = local_path(identity)
    identity = str(local.resolve()) if exists(identity) or identity.startswith((".", "/", "~")) else identity
    return {"id": identity, **given} if given else identity


def _positions(given: str | None) -> list[int] | None:
    """Positions of queries from an option: whole numbers between commas."""
    if given is None:
        return None
    try:
        return [int(position) for position in given.split(",")]
    except ValueError as error:
        msg = f"--queries {given} is no list of positions; write whole numbers between commas, as in --queries 63,127"
        raise UserError(msg) from error


def _folder(given: Path | None) -> Path | None:
    """A folder from an option, as a whole path."""
    return None if given is None else given.expanduser().resolve()


@contextmanager
def _chosen(home: Home, study: str | None, name: str | None, settings: dict[str, Any]) -> Iterator[str]:
    """The name of the study to run in the body, recorded if it is new."""
    from dagster_project.study.studies import recorded

    if (study is None) == (name is None):
        msg = "Say which study to run (attention-geometry run STUDY), or describe a new one with --name; see run --help"
        raise UserError(msg)
    if name is not None:
        with recorded(home, name, settings):
            _check(home, name)
            yield name
        return
    if settings:
        msg = f"The settings of study '{study}' stand in its file; to run it otherwise, describe a new one with --name"
        raise UserError(msg)
    _check(home, str(study))
    yield str(study)


def _check(home: Home, study: str) -> None:
    """Refuse what can be refused of a study before heavy libraries are loaded, which takes seconds.

    Raises
    ------
    UserError
        If there is no such study, its model or text is not there, or, where nothing is extracted yet, its device.
    """
    from dagster_project.study.studies import find_study
    from extract.preflight import check_device, check_inputs

    found = find_study(home, study)
    check_inputs(found)
    place = home.tensors(study)
    if isinstance(place, Local) and not place.exists():
        check_device(found.device, needs_gpu=found.needs_gpu)


def _check_known(home: Home, *studies: str) -> None:
    """Refuse names of studies that neither stand in a file nor have landed.

    Raises
    ------
    UserError
        If there is one.
    """
    from dagster_project.study.studies import find_study

    for study in studies:
        if not (home.warehouse / f"{study}.duckdb").exists():
            find_study(home, study)


def _print_results(home: Home, study: str, *, as_json: bool) -> None:
    """A short table of results, the sentences that the report begins with, and where it is."""
    from reports.findings import effects as effects_findings
    from reports.queries import ask
    from reports.summary import summarise
    from storage.warehouse.connection import connect

    with closing(connect(home.warehouse)) as connection:
        found = ask(connection, "results_at_a_glance", study=study)
        claims = ask(connection, "claims", study=study).rows()
        sentences = summarise(connection, study)
        heads = ask(connection, "ablation_by_head", study=study).rows()
    if as_json:
        pages = {"report": str(home.report(study)), "index": str(home.index)}
        write_object({"study": study, "results": found.rows(), "claims": claims, **pages})
        return
    if heads:
        sentences.append(effects_findings.glance(heads))
    console().print(rich_table(found.table, title=f"{study}: mean over heads and sequences"))
    for sentence in sentences:
        console().print(f"• {sentence}", highlight=False, markup=False)
    typer.echo(f"Each claim with its interval: FROM claims WHERE study = '{study}'")
    typer.echo(f"Report: {home.report(study)}")
    typer.echo(f"All studies: {home.index}")
