"""The command line ``attention-geometry``: a thin layer over the Dagster definitions and the warehouse.

Defines arguments and help texts, and prints results.
"""

import errno
import logging
import os
import sys
import warnings
import webbrowser
from contextlib import closing
from importlib import metadata
from pathlib import Path
from typing import Annotated, Literal, NoReturn

import typer

from dagster_project.analysis.memory import format_bytes
from dagster_project.command import options, process
from dagster_project.command.options import (
    GgufOption,
    HomeOption,
    JsonOption,
    OverwriteOption,
    RevisionOption,
    complete_relation,
    complete_study,
    make_flag,
    make_study_argument,
)
from dagster_project.command.output import (
    check_format,
    check_text,
    escape_control_codes,
    print_tables,
    run_prompt,
    write,
)
from dagster_project.study.home import HOME_VARIABLE, Home
from reports.findings.numbers import count
from storage.errors import QuotingError, UserError
from storage.files.user_paths import resolve_path

logger = logging.getLogger(__name__)

app = typer.Typer(
    name="attention-geometry",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

UNWRITABLE = {errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST}
"""System errors that a user can fix: no space, no permission, or another file at that path."""


def _print_version(requested: bool) -> None:
    """Print the version and exit."""
    if requested:
        typer.echo(metadata.version("attention-geometry"))
        raise typer.Exit


@app.callback()
def attention_geometry(
    home: HomeOption = None,
    quiet: Annotated[bool, make_flag("--quiet", "-q", help="Print only results, warnings and errors.")] = False,
    version: Annotated[
        bool, make_flag("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Measure every attention head of a language model as a geometric classifier.

    Start with `attention-geometry run embedded`: it runs a small built-in model on built-in text and writes a report.

    Then run your own model and text: `attention-geometry run --name mine --model ./checkpoint --corpus ./book.txt
    --context-length 256 --sequences 16`.

    Query the results: `attention-geometry sql "SELECT query, layer, head, avg(recall) FROM selection
    WHERE study = 'mine' AND n = 4 GROUP BY ALL"`.
    """
    _use_home(home)
    if quiet:
        _set_log_level(logging.WARNING)


@app.command(no_args_is_help=True)
def run(  # the options that it does not name are read from the context
    context: typer.Context,
    study: Annotated[
        str | None, make_study_argument("A study or family defined in studies.yaml; omit with --name.")
    ] = None,
    home: HomeOption = None,
    fresh: Annotated[
        bool, make_flag("--fresh", help="Rebuild everything, ignoring what is stored for the study.")
    ] = False,
    force: Annotated[
        str | None,
        typer.Option(
            metavar="ASSET",
            autocompletion=options.complete_asset,
            help="Rebuild this asset and everything that depends on it, even if current.",
        ),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Record a new study under this name and run it.")] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="`embedded`, `synthetic`, a local directory, a GGUF file, package:DISTRIBUTION/FILE, or a hub id."
        ),
    ] = None,
    gguf: GgufOption = None,
    revision: RevisionOption = None,
    random_weights: Annotated[
        bool,
        make_flag("--random-weights", help="Use the model's architecture with random weights, drawn from the seed."),
    ] = False,
    corpus: Annotated[
        str | None,
        typer.Option(
            help="`embedded` (Python's manual), `prose` (English), `repeated` (random tokens, twice), a "
            ".txt/.jsonl/.parquet file, a folder of them, or a hub dataset."
        ),
    ] = None,
    corpus_revision: Annotated[str | None, typer.Option(help="Branch, tag or commit of the hub dataset.")] = None,
    subset: Annotated[str | None, typer.Option(help="Configuration of the hub dataset.")] = None,
    split: Annotated[str | None, typer.Option(help="Split of the hub dataset (default: train).")] = None,
    column: Annotated[str | None, typer.Option(help="Column or field that holds the text (default: text).")] = None,
    pack: Annotated[bool, make_flag("--pack", help="Join short documents instead of skipping them.")] = False,
    context_length: Annotated[int | None, typer.Option(help="Tokens in each sequence.")] = None,
    sequences: Annotated[int | None, typer.Option(help="Number of sequences; 24 if not given.")] = None,
    queries: Annotated[
        str | None, typer.Option(metavar="P,P,…", help="Query positions to measure (default: only the last one).")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed for choosing sequences and drawing random weights.")] = None,
    bos: options.BosOption = None,
    dtype: Annotated[str | None, typer.Option(help="float32, bfloat16 or float16.")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, mps, cuda or cuda:N.")] = None,
    device_map: Annotated[
        str | None, typer.Option(help="Spread the model over all GPUs: auto, balanced or sequential.")
    ] = None,
    batch_size: Annotated[
        str | None, typer.Option(metavar="N|auto", help="Sequences per forward pass (default: auto).")
    ] = None,
    values: Annotated[str | None, typer.Option(help="Store value states as float32 or float16.")] = None,
    twin: Annotated[
        str | None,
        typer.Option(
            metavar="STUDY|random",
            help="Study with random weights to compare with (default: random, which creates one of up to 8 sequences).",
        ),
    ] = None,
    no_twin: Annotated[
        bool,
        make_flag("--no-twin", help="Compare with no random weights; the page then states no finding about training."),
    ] = False,
    no_probe: Annotated[
        bool,
        make_flag("--no-probe", help="Read no repeated random tokens; the page then counts no heads that copy."),
    ] = False,
    every_query: Annotated[
        bool | None,
        make_flag(
            "--every-query/--no-every-query",
            help="Measure what every token selects as the query (default: in a new study of up to 1,024 tokens).",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Run a study: extract, measure, land, report. Only what is missing or stale is rebuilt.

    A study defined in studies.yaml: `attention-geometry run embedded`

    All members of a family, one after the other; one that fails does not stop the others:
    `attention-geometry run training`

    Heads drawn from the paper's assumptions, to test the fits: `attention-geometry run synthetic`

    Your own model and text, recorded under a name:
    `attention-geometry run --name mine --model ./checkpoint --corpus ./book.txt --context-length 256 --sequences 16`

    A GGUF file, on prose that is built in:
    `attention-geometry run --name quantised --model ./model.Q4_K_M.gguf --corpus prose --context-length 512
    --sequences 8`

    A hub model and dataset:
    `attention-geometry run --name small --model openai-community/gpt2 --corpus HuggingFaceFW/fineweb
    --context-length 1024 --sequences 100`

    A new study also gets a twin, the same architecture with random weights, and a probe, which reads repeated random
    tokens: without these its page cannot tell what was learned, nor which heads copy. It also measures every token as
    the query. `--no-twin`, `--no-probe` and `--no-every-query` save their time.

    Context sizes from 64 to 512 tokens in one run; each query sees the tokens up to its own position:
    `attention-geometry run --name sizes --model ./checkpoint --corpus ./book.txt --context-length 512 --sequences 16
    --queries 63,127,255,511`
    """
    from dagster_project.command.requests import collect_settings, select_study
    from dagster_project.study.studies import list_families

    root, settings = _use_home(home), collect_settings(context.params)
    if study is not None and not settings and name is None and (family := list_families(root).get(study)):
        from dagster_project.command.results import run_family

        run_family(root, family, fresh=fresh, force=force, as_json=as_json)
        return
    with select_study(root, study, name, settings) as chosen:
        from dagster_project.command.runs import run_study  # here, so that invalid input is refused quickly

        run_study(root, chosen, fresh=fresh, force=force)
    from dagster_project.command.results import print_results

    print_results(root, chosen, as_json=as_json)


@app.command("inspect")
def inspect_command(
    text: Annotated[str | None, typer.Argument(help="The text; without one, each line of standard input.")] = None,
    model: Annotated[
        str, typer.Option(help="`embedded`, a local directory, a GGUF file, package:DISTRIBUTION/FILE, or a hub id.")
    ] = "embedded",
    gguf: GgufOption = None,
    revision: RevisionOption = None,
    by: Annotated[
        options.Ranking,
        typer.Option(
            help="Rank heads by a measure at the query, recall to top_weight; or by the weight of a pattern over all "
            "queries, previous to induction. Of equal heads, those whose weight lies on fewer keys come first.",
        ),
    ] = "recall",
    head: Annotated[
        str | None, typer.Option(metavar="LAYER.HEAD", help="Show the keys of this head in the text.")
    ] = None,
    query: Annotated[int | None, typer.Option(min=1, help="Position of the query (default: the last token).")] = None,
    n: Annotated[
        int | None,
        typer.Option("--n", min=1, help="Number of selected keys (default: 4, or all of a shorter text)."),
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Number of heads, or of keys of the head, to show.")] = 10,
    every: Annotated[
        bool, typer.Option("--every", help="With --head: what it selects at every token of the text, not its keys.")
    ] = False,
    bos: options.BosOption = None,
    dtype: Annotated[str, typer.Option(help="float32, bfloat16 or float16.")] = "float32",
    device: Annotated[str, typer.Option(help="auto, cpu, mps, cuda or cuda:N.")] = "auto",
    as_json: JsonOption = False,
) -> None:
    """Show what every head of a model selects in a text, without a study and without a data root.

    The heads of highest Recall at the last token: `attention-geometry inspect "A list can be used as a stack."`

    What one of them looks at: `attention-geometry inspect --head 3.1 "A list can be used as a stack."`

    Many texts, the model loaded once: `attention-geometry inspect --model ./checkpoint --by sink --json < texts.txt`
    """
    from dagster_project.command.inspection import Inspection, inspect_texts, parse_head, read_lines
    from dagster_project.command.requests import build_input

    inspection = Inspection(by, parse_head(head, every=every), top, n, query, every, as_json)
    settings = {"model": build_input(model, gguf=gguf, revision=revision), "dtype": dtype, "device": device}
    settings |= {} if bos is None else {"bos": bos}
    if not inspect_texts(settings, read_lines() if text is None else [text], inspection, go_on=text is None):
        raise typer.Exit(1)


@app.command(no_args_is_help=True)
def extract(
    study: Annotated[str, make_study_argument("A study defined in studies.yaml, shipped or recorded.")],
    home: HomeOption = None,
    shard: Annotated[
        str | None, typer.Option(metavar="K/N", help="Extract only part K of N of the sequences; K counts from 1.")
    ] = None,
) -> None:
    """Extract only the tensors of a study, or one shard of them; stored sequences are not extracted again.

    On one machine: `attention-geometry extract mine`, then `attention-geometry run mine` for the rest.

    On several machines that share the data root, or have the same ATTENTION_GEOMETRY_TENSORS, one shard each:
    `attention-geometry extract mine --shard 1/4` to `--shard 4/4`, then `attention-geometry finalise mine`.
    """
    from dagster_project.command.requests import check_study

    root = _use_home(home)
    check_study(root, study)
    from dagster_project.assets.catalogue import prepare_work
    from dagster_project.assets.tensors import extract_tensors
    from extract.settings import Shard

    part = None if shard is None else Shard.parse(shard)
    root.prepare()
    report = extract_tensors(prepare_work(root, study), part)
    written = count(report.written, "sequence")
    typer.echo(f"{report.path}: {written} written, {report.missing} of {report.sequences} still missing")


@app.command(no_args_is_help=True)
def finalise(
    study: Annotated[str, make_study_argument("A study whose shards have been extracted.")],
    home: HomeOption = None,
) -> None:
    """Check that a study extracted in shards has all its sequences, and remove leftovers of killed processes.

    `attention-geometry finalise mine`, then `attention-geometry run mine` for metrics, warehouse and report.
    """
    from dagster_project.assets.tensors import finalise_tensors
    from dagster_project.study.studies import find_study

    root = _use_home(home)
    find_study(root, study)
    typer.echo(f"{study}: complete, {count(finalise_tensors(root, study), 'sequence')}")


@app.command(no_args_is_help=True)
def drop(
    study: Annotated[str, make_study_argument("A study that has been run.")],
    home: HomeOption = None,
) -> None:
    """Delete weights and value states of a study that has landed; metrics, tables and report stay.

    They are by far the largest files. Other analysis settings then require a new extraction (`run STUDY --fresh`).
    `keep_tensors: false` in the settings of a study does the same as soon as it has landed.
    """
    from dagster_project.assets.catalogue import prepare_work
    from dagster_project.assets.landing import drop_tensors

    root = _use_home(home)
    work = prepare_work(root, study)
    with root.reserve(study):
        freed = drop_tensors(work)
    typer.echo(f"{study}: {format_bytes(freed)} freed in {root.tensors(study)}")


@app.command()
def studies(
    family: Annotated[str | None, make_study_argument("List only the studies of this family.")] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """List all studies with their model, corpus, size and state; a family of studies in one line.

    The members of a family: `attention-geometry studies training`
    """
    from dagster_project.command.results import print_studies

    for error in print_studies(_use_home(home), family, as_json=as_json):
        raise error


@app.command(no_args_is_help=True)
def report(
    study: Annotated[str, make_study_argument("A study that has been run.")],
    home: HomeOption = None,
    images: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Also write each chart to DIR, as SVG, PDF and PNG.")
    ] = None,
    tables: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Also write the table behind each figure to DIR, as CSV and Parquet."),
    ] = None,
    show: Annotated[bool, make_flag("--open", help="Open the page in the browser.")] = False,
    overwrite: OverwriteOption = False,
) -> None:
    """Rewrite the report of a landed study, and print its path.

    Only the page: `attention-geometry report embedded`

    For a paper or slides: `attention-geometry report embedded --images figures`

    For a notebook: `attention-geometry report embedded --tables tables`
    """
    from dagster_project.command.requests import check_known

    root = _use_home(home)
    folders = {name: given and resolve_path(given) for name, given in (("images", images), ("tables", tables))}
    check_known(root, study)
    from dagster_project.assets.report import export
    from dagster_project.command.runs import run_assets
    from dagster_project.study.studies import find_study

    find_study(root, study)
    run_assets(root, study, ["report"])
    page = root.report(study)
    typer.echo(page)
    if images or tables:
        written = export(root, study, **folders, overwrite=overwrite)
        named = ", ".join(str(folder) for folder in (images, tables) if folder)
        typer.echo(f"{count(len(written), 'file')} in {named}")
    if show and not webbrowser.open(page.as_uri()):
        raise UserError(f"No browser could be started; open {page} by hand")


@app.command(no_args_is_help=True)
def publish(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to create, or one published earlier.")],
    home: HomeOption = None,
    dataset: Annotated[
        bool, make_flag("--dataset", help="Write the tables of landed studies, for others to query.")
    ] = False,
    studies: Annotated[
        list[str] | None,
        typer.Option(
            "--study",
            metavar="STUDY",
            help="For --dataset: a study, may be repeated (default: all that have landed).",
            autocompletion=complete_study,
        ),
    ] = None,
    licence: Annotated[
        str | None, typer.Option("--license", metavar="ID", help="For --dataset: licence that its card states.")
    ] = None,
    overwrite: Annotated[
        bool, make_flag("--overwrite", help="Replace published files also if they were changed since.")
    ] = False,
) -> None:
    """Copy the index, all reports and all comparisons into one folder for a static host, or write a data set.

    A folder published earlier is replaced as a whole; one with any other file is refused.

    `attention-geometry publish site`, then copy `site` to the host, or serve it: `python -m http.server -d site`

    The main tables as Parquet and as a DuckDB file to attach over HTTP, with a README.md for the Hugging Face hub;
    the texts that were read are among them: `attention-geometry publish heads --dataset --study embedded`
    """
    from dagster_project.assets import publishing
    from storage.warehouse.dataset import format_size

    root, target = _use_home(home), resolve_path(folder)
    if dataset:
        written = publishing.publish_dataset(root, target, studies or (), licence=licence, overwrite=overwrite)
        for path in written:
            typer.echo(f"{path.name}  {format_size(path.stat().st_size)}")
    elif studies or licence:
        raise UserError("--study and --license are of a data set; add --dataset")
    else:
        written = publishing.publish(root, target, overwrite=overwrite)
    typer.echo(f"{count(len(written), 'file')} in {target}")


@app.command(no_args_is_help=True)
def compare(
    studies: Annotated[list[str], make_study_argument("Two or more studies that have been run.")],
    home: HomeOption = None,
) -> None:
    """Write a page that compares studies (claims, curves, kinds, layers, heads, settings), and print its path.

    Two models on the same text: `attention-geometry compare gpt2 llama-2-7b`

    Any number of studies, in any order: `attention-geometry compare synthetic embedded mine`
    """
    from dagster_project.command.requests import check_known

    root = _use_home(home)
    check_known(root, *studies)
    from dagster_project.assets.report import write_comparison

    typer.echo(write_comparison(root, studies))


@app.command(no_args_is_help=True)
def export(
    study: Annotated[str, make_study_argument("A study that has been run.")],
    out: Annotated[Path, typer.Option(metavar="PATH", help="File to write; a folder for duo and headvis.")],
    home: HomeOption = None,
    form: Annotated[
        options.Export,
        typer.Option(
            "--format", help="duo, lukv, retrieval or headvis for other tools; or a row per head and measure."
        ),
    ] = "csv",
    measure: Annotated[
        str | None,
        typer.Option("--by", metavar="MEASURE", help="Measure of head_measures (default: all of them, as rows)."),
    ] = None,
    group: Annotated[
        Literal["max", "mean"], typer.Option(help="How to combine the query heads of one KV head.")
    ] = "max",
    invert: Annotated[bool, make_flag("--invert", help="Rank heads with the lowest measure first.")] = False,
    sink_size: Annotated[
        int, typer.Option(min=1, help="For duo: number of first keys that heads without full attention see.")
    ] = 128,
    recent_size: Annotated[
        int, typer.Option(min=1, help="For duo: number of most recent keys that heads without full attention see.")
    ] = 256,
    overwrite: OverwriteOption = False,
) -> None:
    """Write the measures of each head of a landed study to files that other tools read.

    Every measure of every head: `attention-geometry export effects --format csv --out heads.csv`

    For DuoAttention, full attention for heads that use many keys: `attention-geometry export effects --format duo
    --by effective_keys --out pattern`

    For kvpress (LUKVPress), budgets in proportion to the number of keys used: `attention-geometry export effects
    --format lukv --by effective_keys --group mean --out budgets.npy`; or to the keys that hold 90 % of the weight:
    `--by mass`; or to the keys for an error of 10 %, 5 % or 1 % of the output: `--by error`, `error_5`, `error_1`

    For HeadVis and Neuronpedia's importer, with examples from every query: `attention-geometry export embedded --format
    headvis --out data`. Tables keep no weights of every query, so the study's model reads its text again, twice; each
    head is a file of up to 1.5 MB for sequences of 512 tokens

    List the measures: `attention-geometry sql "SELECT DISTINCT measure FROM head_measures"`
    """
    from dagster_project.command.requests import check_known

    root = _use_home(home)
    check_known(root, study)
    from dagster_project.command.export import export_heads
    from reports.scores.files import Choice

    choice = Choice(form, measure, group, invert, sink_size, recent_size)
    for path in export_heads(root, study, resolve_path(out), choice, overwrite=overwrite):
        typer.echo(path)


@app.command("sql")
def sql_command(
    query: Annotated[
        str | None, typer.Argument(help="Read-only statement (default: a prompt, or standard input if piped).")
    ] = None,
    home: HomeOption = None,
    form: Annotated[options.Rows, typer.Option("--format", help="For people, or for programs.")] = "table",
    file: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=FILE", help="Read a file of your own as table NAME: CSV, JSON or Parquet."),
    ] = None,
    unlocked: Annotated[
        bool, make_flag("--unlocked", help="Allow other files and the network: read_parquet, COPY … TO.")
    ] = False,
) -> None:
    """Query the warehouse in SQL (DuckDB), read-only; only results are written to standard output.

    List all columns: `attention-geometry sql "SELECT table_name, column_name, comment FROM duckdb_columns()"`

    The N with the best F for each head:
    `attention-geometry sql "SELECT study, query, layer, head, arg_max(n, f_r_max) FROM selection_means WHERE n > 1
    GROUP BY ALL" --format csv`

    A file of your own, joined with every measure of a head:
    `attention-geometry sql --file mine=scores.csv "SELECT measure, corr(value, score) FROM head_measures
    JOIN mine USING (layer, head) WHERE study = 'embedded' GROUP BY measure"`

    Into a file for pandas or polars: `attention-geometry sql "FROM selection" --format parquet > selection.parquet`

    From Python: `storage.connect()`; from the plain DuckDB shell: `duckdb -init data/warehouse/open.sql`
    """
    from dagster_project.command.requests import parse_file
    from storage.warehouse.connection import Reader, connect, list_published, renew_entry
    from storage.warehouse.query import query as run_query
    from storage.warehouse.query import reads_comments, reads_tables

    check_format(form)
    files = dict(map(parse_file, file or ()))
    folder = _use_home(home).warehouse
    renew_entry(folder)
    if query is None and sys.stdin.isatty():
        process.leave_interrupts()
        with closing(Reader(folder, unlocked=unlocked, files=files)) as reader:
            run_prompt(reader, form, unlocked=unlocked)
        return
    text = query if query is not None else sys.stdin.read()
    check_text(text)
    described = reads_comments(text)
    with closing(connect(folder, unlocked=unlocked, described=described, files=files)) as connection:
        write(run_query(connection, text, unlocked=unlocked), form)
    if reads_tables(text) and not list_published(folder):
        logger.warning("No study has landed in %s; run one, or name another data root with --home", folder.parent)


@app.command()
def tour(
    number: Annotated[int | None, typer.Argument(help="Number of a question (default: list all).")] = None,
    home: HomeOption = None,
    study: Annotated[
        str | None,
        typer.Option(
            help="Study to query (default: embedded if it has landed, else the first).",
            autocompletion=complete_study,
        ),
    ] = None,
    only_sql: Annotated[bool, make_flag("--sql", help="Print only the SQL statement, to paste or edit.")] = False,
    form: Annotated[
        options.Page, typer.Option("--format", help="table, or markdown for a page of all questions.")
    ] = "table",
) -> None:
    """Show example questions with their SQL and their answers from your own data.

    List the questions: `attention-geometry tour`

    Answer one: `attention-geometry tour 7 --study embedded`

    Write an answer to a file: `attention-geometry tour 20 --sql | attention-geometry sql --format csv > heads.csv`
    """
    from dagster_project.command.guide import show_tour

    show_tour(_use_home(home), number, study, only_sql=only_sql, markdown=form == "markdown")


@app.command()
def schema(
    table: Annotated[
        str | None,
        typer.Argument(help="Table, view or macro (default: list all).", autocompletion=complete_relation),
    ] = None,
    html: Annotated[bool, make_flag("--html", help="Print a page of all of them, to search and browse.")] = False,
) -> None:
    """Describe the tables, views and macros of the warehouse, and their columns.

    List all: `attention-geometry schema`

    Describe one: `attention-geometry schema selection`

    Browse all: `attention-geometry schema --html > schema.html`
    """
    from dagster_project.command.guide import show_schema

    show_schema(table, html=html)


@app.command()
def assets(
    form: Annotated[
        options.Page, typer.Option("--format", help="table, or markdown for docs/architecture.md.")
    ] = "table",
) -> None:
    """List the assets of a study, and what each is made from.

    `run STUDY` makes those that are missing or stale; `run STUDY --force ASSET` rebuilds one and all that depend on it.
    """
    from dagster_project.command.guide import show_assets

    show_assets(markdown=form == "markdown")


@app.command()
def refresh(
    studies: Annotated[
        list[str] | None, make_study_argument("Studies or families to refresh (default: all that were ever run).")
    ] = None,
    home: HomeOption = None,
    dry_run: Annotated[bool, make_flag("--dry-run", help="Print what is stale and why, and change nothing.")] = False,
    report: Annotated[bool, make_flag("--report", help="Print the latest report, also of the schedule.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Rebuild what is missing or stale in all studies, one after the other, and print what was done and why.

    An asset is stale if it was made with other settings, from other inputs or by an earlier version of the program,
    or if it depends on one that is. From cron, without a daemon: `0 3 * * * attention-geometry refresh --home DIR`

    Only the plan: `attention-geometry refresh --dry-run`

    What the last refresh did: `attention-geometry refresh --report`
    """
    from dagster_project.command.results import print_refresh
    from dagster_project.command.runs import refresh as run_refresh
    from dagster_project.upkeep.plan import read_latest

    root = _use_home(home)
    found = read_latest(root) if report else run_refresh(root, studies or (), dry_run=dry_run)
    print_refresh(found, as_json=as_json)
    if any(entry.failed for entry in found.entries):
        raise typer.Exit(1)


@app.command()
def doctor(
    home: HomeOption = None,
    clean: Annotated[bool, make_flag("--clean", help="Remove leftovers of killed processes, without asking.")] = False,
    verify: Annotated[
        bool, make_flag("--verify", help="Verify all checksums; exit with 1 if anything is damaged.")
    ] = False,
    as_json: JsonOption = False,
    rebuild_records: Annotated[
        bool,
        make_flag(
            "--rebuild-records", help="Replace Dagster's records: the history of runs is lost, results are kept."
        ),
    ] = False,
) -> None:
    """Show installed versions, available devices, and what is incomplete in the data root.

    After a crash, `attention-geometry doctor --clean` removes partially written files and frees slots in Dagster's
    pools. Complete results, and files that a running process uses, are kept.
    """
    from dagster_project.upkeep.clearing import clean as removed_leftovers
    from dagster_project.upkeep.doctor import examine, tabulate_removals, tabulate_verdicts
    from dagster_project.upkeep.doctor import verify as read_everything

    root = _use_home(home)
    results = [tabulate_removals(removed_leftovers(root))] if clean else []
    if rebuild_records:
        from dagster_project.records.opening import rebuild_records as rebuild

        rebuild(root)
        typer.echo(f"{root.dagster}: Dagster's records rebuilt; if the schedule was on, turn it on again", err=True)
    verdicts = list(read_everything(root)) if verify else []
    results += [tabulate_verdicts(verdicts)] if verify else []
    print_tables(results if clean or verify or rebuild_records else examine(root), as_json=as_json)
    if any(each.damage for each in verdicts):
        raise typer.Exit(1)


@app.command(no_args_is_help=True)
def clear(
    study: Annotated[str, make_study_argument("A study with stored files, or a family.")],
    home: HomeOption = None,
    yes: Annotated[bool, make_flag("--yes", help="Delete without asking.")] = False,
) -> None:
    """Delete all files of a study or family: tensors, metrics, tables, report, and pages that compare it with others.

    Its entry in studies.yaml and Dagster's records of its runs are kept; `attention-geometry run STUDY` rebuilds
    everything. To delete only the largest files and keep the results: `attention-geometry drop STUDY`.
    """
    from dagster_project.study.studies import expand_names, list_families
    from dagster_project.upkeep.clearing import clear_study, list_stored
    from dagster_project.upkeep.doctor import tabulate_removals

    root = _use_home(home)
    own = [study] if study in list_families(root) and list_stored(root, study) else []
    names = [*expand_names(root, [study]), *own]
    stored = [path for name in names for path in list_stored(root, name)]
    if stored and not yes:
        for path in stored:
            typer.echo(f"{path.measure_size():>16,} bytes  {path}")
        typer.confirm(f"Delete all files of {'study' if names == [study] else 'the family'} '{study}'?", abort=True)
    print_tables([tabulate_removals(removal for name in names for removal in clear_study(root, name))])


@app.command()
def ui(
    home: HomeOption = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the web UI.")] = 3000,
    origin: Annotated[
        list[str] | None,
        typer.Option(metavar="URL", help="Address of a proxy in front of it, such as https://host.example."),
    ] = None,
) -> None:
    """Start Dagster's web UI and daemon on the same assets, partitions and records.

    It listens on 127.0.0.1 and answers only its own pages: requests of other origins or for other hosts are refused.

    Behind a proxy: `attention-geometry ui --origin https://geometry.example.org`
    """
    from dagster_project.command.requests import check_address
    from dagster_project.records.opening import open_records

    root = _use_home(home)
    check_address(port, origin or ())
    typer.echo("Starting web UI and daemon …", err=True)
    root.prepare()
    with open_records(root):  # sets the environment variables by which child processes find them
        pass
    process.leave_interrupts()
    raise typer.Exit(
        process.serve([sys.executable, "-m", "dagster_project.command.webserver", str(port), *(origin or ())])
    )


def main() -> None:
    """Run the command line; a user's mistake ends it with one line and exit code 1."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    _set_log_level(logging.INFO)
    if not sys.warnoptions:
        warnings.simplefilter("ignore")
    try:
        _run_app()
    except QuotingError as error:
        _end(str(error))
    except UserError as error:
        _end(" ".join(str(error).splitlines()))
    except OSError as error:
        if error.filename == process.OUTPUT:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # for what is still buffered
            if isinstance(error, BrokenPipeError):  # its reader has closed it, which is no error
                raise SystemExit(0) from None
            _end(f"Standard output cannot be written ({error.strerror}); redirect it to a disk with free space")
        if error.errno not in UNWRITABLE:
            raise
        place = f" ({error.filename})" if error.filename else ""
        _end(f"{error.strerror}{place}; make room there, or choose another data root with --home, and run again")


def _set_log_level(level: int) -> None:
    """Show what this program says from a level on; libraries stay at warnings."""
    for package in ("attention_geometry", "dagster_project", "extract"):
        logging.getLogger(package).setLevel(level)


def _run_app() -> None:
    """Run the command, and flush standard output.

    Raises
    ------
    OSError
        If standard output cannot be written, also where typer or rich would exit silently.
    """
    try:
        app()
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):
            raise end.__context__ from None
        sys.stdout.flush()
        raise


def _end(message: str) -> NoReturn:
    """End the program with a message on standard error, with its control codes escaped."""
    typer.echo(f"attention-geometry: {escape_control_codes(message)}", err=True)
    raise SystemExit(1) from None


def _use_home(home: Path | None) -> Home:
    """Return the data root to use, and set the environment variable so that later code uses the same one."""
    if home is not None:
        os.environ[HOME_VARIABLE] = str(resolve_path(home))
    return Home.from_environment()
