"""The warehouse: one DuckDB file per study, built under a temporary name, checked, and published by an atomic rename.

Contains the paths of the files and the read-only access to them: ``connect``, ``Reader`` for long sessions, and
``write_entry`` for the plain ``duckdb`` shell.

Why one file per study. DuckDB lets either one process write a file or many read it. A file that is complete when it is
published, and only read from then on, makes readers and writers independent: a reader keeps the version it opened, two
studies can land at the same time, and a failed landing leaves the previous file unchanged. ``connect`` attaches every
published file read-only to an empty in-memory database whose views unite them.

What else was considered. One file that all studies share: an open prompt would block every landing, and a landing every
prompt. A DuckDB server (``quack``) for that file: it must be kept running, and its extension is downloaded. A lake
(``ducklake``): also an extension, and its catalogue needs a server as soon as two processes write. Parquet files: no
comments, macros or constraints, and queries of one head are slower without DuckDB's row groups.
"""

import json
import logging
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import duckdb

import sql
from storage.errors import UserError, refuse_newer
from storage.files.locks import hold_lock
from storage.files.staging import make_staging_path, remove_leftovers
from storage.files.user_paths import read_regular_file
from storage.memory import measure_free_addresses, measure_free_memory
from storage.warehouse.relations import (
    build_comments,
    classify_relation,
    comment,
    compute_landing_version,
    create_relations,
    create_tables,
    quote_identifier,
    quote_literal,
)
from storage.warehouse.user_files import create_user_tables

logger = logging.getLogger(__name__)

SUFFIX = ".duckdb"

ENTRY = "open.sql"
"""Name of the script in the folder of the warehouse with which the plain ``duckdb`` shell opens it."""

LARGEST_ENTRY = 2**24
"""Most bytes of that script that are read."""

ENTRY_WAIT = 60.0
"""Seconds to wait for another process that writes the script."""

READABLE_FROM = "v1.5.0"
"""The oldest version of DuckDB that reads the script and the files that it attaches."""

LEAST_MEMORY = 2**27
"""Smallest memory limit of a connection, in bytes: with less, DuckDB cannot write a row group."""

FORMAT_VERSION = 1
"""Version of the landed tables, stored in ``studies.format_version``; a file without that column has version 0."""

LOCK = (
    "temp_directory = ''",
    "enable_external_access = false",
    "autoinstall_known_extensions = false",
    "allow_persistent_secrets = false",
    "disabled_filesystems = 'LocalFileSystem'",
    "lock_configuration = true",
)
"""Settings of a connection that reads the databases that it has attached and opens no further file.

``enable_external_access = false`` alone is not enough: ``COPY … TO`` can still write to the attached files, their
write-ahead logs and the folder of temporary files. With the file system disabled, DuckDB cannot spill to disk either,
so its folder of temporary files is unset: a query that needs more memory than is available fails.
"""

FORCED = "--force warehouse"
"""Option of ``run`` that rebuilds a database whose provenance can be read, but not all of its rows."""

CLOSED = (
    "temp_directory = ''",
    "enable_external_access = false",
    "autoinstall_known_extensions = false",
    "autoload_known_extensions = false",
)
"""Settings of a connection that attaches a file to inspect it: SQL in the file cannot reach any other file."""

_WORDS = "corrupt|checksum|read enough bytes|deserializ"
_DAMAGE = re.compile(
    rf"(?:Data Corruption Error: )?Corrupt database file|(?:IO|Serialization) Error: [^\"']*(?:{_WORDS})|"
    rf"(?:INTERNAL|FATAL) Error: .*(?:{_WORDS})",
    re.IGNORECASE | re.DOTALL,
)
"""How DuckDB's messages begin if the bytes of a file have changed; further on, a message may quote the user's SQL."""

_CREATE = re.compile(r"^CREATE (?=MACRO|VIEW)", re.MULTILINE)

Stored = Mapping[str, Mapping[str, Mapping[str, str]]]
"""Type of each column of each table of each database."""


def locate_database(folder: Path, study: str) -> Path:
    """Path of the published database of a study."""
    return folder / f"{study}{SUFFIX}"


def list_published(folder: Path) -> dict[str, Path]:
    """The published studies of a warehouse and their files, by name."""
    return {path.name.removesuffix(SUFFIX): path for path in sorted(folder.glob(f"*{SUFFIX}"))}


def connect(
    folder: Path,
    *,
    studies: Iterable[str] | None = None,
    unlocked: bool = False,
    described: bool = True,
    files: Mapping[str, Path | str] | None = None,
) -> duckdb.DuckDBPyConnection:
    """Open the warehouse for reading: every published study, united, as tables and views, with comments.

    If ``studies`` names some, only these are opened, as far as they are published: how many others there are costs no
    time then.

    The connection sees the studies as they are published now, each complete. Unless it is ``unlocked``, it opens no
    further file, neither a published nor a temporary one, and cannot reach the network; tables that it creates are kept
    in memory. An ``unlocked`` connection also attaches the studies read-only, but its ``COPY … TO`` can write every
    file that the user can, including published ones. The connection holds no lock that a landing would wait for.

    A file that is damaged, or was landed by a version with other tables or columns, is left out. A warning names each
    such study and what to do, once per process. Without comments (``described=False``) it opens in half the time.
    ``files`` are read as tables, as ``create_user_tables`` describes.
    """
    connection = duckdb.connect()
    bound_memory(connection)
    published = list_published(folder)
    if studies is not None:
        published = {study: published[study] for study in sorted(published.keys() & {*studies})}
    attached, stored = _attach_all(connection, published)
    _create_united(connection, _build_unions(stored, attached), described=described)
    create_user_tables(connection, files or {})
    if not unlocked:
        for setting in LOCK:
            connection.execute(f"SET {setting}")
    return connection


def bound_memory(connection: duckdb.DuckDBPyConnection, most: int | None = None) -> None:
    """Limit the memory of a connection to ``most`` bytes and to a part of what this process can still allocate.

    That part is 80 % of the free memory and half of the free address space, because other libraries reserve more
    addresses than they use. DuckDB's own limit, 80 % of the machine's memory, ignores memory in use, control groups and
    the address space.
    """
    own = connection.execute("SELECT parse_formatted_bytes(current_setting('memory_limit'))").fetchall()[0][0]
    addresses = measure_free_addresses()
    free = min([measure_free_memory() * 4 // 5, *([] if addresses is None else [addresses // 2])])
    limit = min([own, max(free, LEAST_MEMORY), *([] if most is None else [most])])
    if limit < own:
        connection.execute(f"SET memory_limit = '{limit}B'")


def read_provenance(folder: Path, study: str) -> dict[str, Any] | None:
    """The provenance in the published database of a study; None if it does not exist or cannot be read.

    No other database is opened, so damage of another one does not matter.
    """
    path = locate_database(folder, study)
    try:
        stated = _read_declaration(path)
    except (duckdb.Error, ForeignError, FileNotFoundError):
        return None
    return None if stated.foreign else stated.provenance


def refuse_newer_database(folder: Path, study: str) -> None:
    """Raise ``NewerError`` if a newer version of the program landed the published database of a study; ignore other
    faults.
    """
    path, landing, version = locate_database(folder, study), None, 0
    with suppress(duckdb.Error, ForeignError, FileNotFoundError):
        stated = _read_declaration(path)  # a newer version may have other objects
        landing, version = (stated.provenance or {}).get("landing"), stated.version
    for was, now in ((version, FORMAT_VERSION), (landing, compute_landing_version())):
        refuse_newer(f"The database {path}", was, now, study)


@dataclass(frozen=True)
class _Declaration:
    """What a database says of itself."""

    foreign: str | None
    """The first object that no version of this program creates."""
    version: int
    """The version of its format; 0 if it states none."""
    provenance: dict[str, Any] | None
    """Its provenance; None if it is missing or cannot be parsed."""
    tables: Mapping[str, Mapping[str, str]]
    """Type of each column of each table."""


_DECLARED: dict[Path, tuple[tuple[int, int], _Declaration]] = {}
"""What each database said of itself when it was last read, and its version then."""


def _read_declaration(path: Path) -> _Declaration:
    """What a database says of itself, read once in each version; only foreign objects do not raise."""
    if not (version := _find_versions([path])):
        raise FileNotFoundError(path)
    _read_together(version)
    return _DECLARED[path][1]


def _read_together(versions: Mapping[Path, tuple[int, int]]) -> None:
    """Read what databases say of themselves in versions not yet read: many together in the time of a few alone."""
    unread = {f"it {path}": path for path, version in versions.items() if _DECLARED.get(path, (None,))[0] != version}
    if not unread:
        return
    with _attach_closed(unread) as connection:
        foreign, tables = _find_foreign(connection), _list_tables(connection)
        for alias, path in unread.items():
            _DECLARED[path] = versions[path], _declare(connection, alias, foreign.get(alias), tables[alias])


def _declare(
    connection: duckdb.DuckDBPyConnection, alias: str, foreign: str | None, tables: Mapping[str, Mapping[str, str]]
) -> _Declaration:
    """What an attached database says of itself, given its tables and what no version of this program creates."""
    columns = tables.get("studies", {})
    if "provenance" not in columns or (foreign or "").startswith("computed"):
        return _Declaration(foreign, 0, None, tables)  # to read a computed column would evaluate it
    version = "max(format_version)" if "format_version" in columns else "NULL"
    text, stated = connection.execute(
        f"SELECT any_value(provenance), {version} FROM {quote_identifier(alias)}.studies"  # noqa: S608
    ).fetchall()[0]
    landed = None
    with suppress(ValueError):
        landed = json.loads(text or "null")
    return _Declaration(foreign, int(stated or 0), landed if isinstance(landed, dict) else None, tables)


class Reader:
    """A connection for long sessions: it sees the versions that it opened until ``refresh`` opens the current ones."""

    def __init__(self, folder: Path, *, unlocked: bool = False, files: Mapping[str, Path | str] | None = None) -> None:
        self._folder, self._unlocked, self._files = folder, unlocked, files
        self._seen = _find_versions(list_published(folder).values())
        self.connection = connect(folder, unlocked=unlocked, files=files)

    def refresh(self) -> str | None:
        """Reopen the warehouse if its published files have changed; return a summary of what landed or was removed.

        ``UserError`` if it cannot be reopened; the previous connection is kept.
        """
        seen = self._seen
        try:
            now = _find_versions(list_published(self._folder).values())
            if now == seen:
                return None
            newer = connect(self._folder, unlocked=self._unlocked, files=self._files)
        except (OSError, duckdb.Error) as error:
            why = " ".join(str(error).split())
            raise UserError(
                f"{self._folder} cannot be reopened ({why}); the version that was opened before is still available"
            ) from error
        self.close()
        self._seen, self.connection = now, newer
        landed = [path for path, version in now.items() if seen.get(path) != version]
        said = {"landed": landed, "removed": sorted(seen.keys() - now.keys())}
        return "; ".join(
            f"{what}: {', '.join(path.name.removesuffix(SUFFIX) for path in paths)}"
            for what, paths in said.items()
            if paths
        )

    def close(self) -> None:
        """Close the connection and with it the files."""
        self.connection.close()


def verify(path: Path) -> str | None:
    """Read every block of a published database; return what is wrong with it, in one line, or ``None``."""
    try:
        with open_database(path) as connection:
            for table in _list_tables(connection)["it"]:
                connection.execute(f"SELECT bit_xor(hash(t)) FROM it.{quote_identifier(table)} AS t").fetchall()  # noqa: S608
    except (duckdb.Error, ForeignError) as error:
        return str(error).splitlines()[0]
    return None


class ForeignError(Exception):
    """A database contains an object that no version of this program creates; the message names it."""


@contextmanager
def open_database(path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection to one published database, attached as ``it``, which reaches no other file.

    ``duckdb.Error`` if the file cannot be read; ``ForeignError`` if it contains an object that no version of this
    program creates, of which nothing has been evaluated.
    """
    with _attach_closed({"it": path}) as connection:
        _refuse_foreign(_find_foreign(connection).get("it"))
        yield connection


def _refuse_foreign(foreign: str | None) -> None:
    """Raise ``ForeignError`` if there is an object that no version of this program creates."""
    if foreign:
        raise ForeignError(f"it contains the {foreign}, which no landing creates")


@contextmanager
def _attach_closed(databases: Mapping[str, Path]) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection to databases, attached by their names whatever they contain, which reaches no other file."""
    # DuckDB compares the targets of links with the allowed paths
    files = {name: os.fspath(path.resolve()) for name, path in databases.items()}
    for path, file in zip(databases.values(), files.values(), strict=True):
        _refuse_irregular(path, Path(f"{file}.wal"))
    with duckdb.connect() as connection:
        allowed = ", ".join(quote_literal(name) for file in files.values() for name in (file, f"{file}.wal"))
        connection.execute(f"SET allowed_paths = [{allowed}]")
        for setting in CLOSED:
            connection.execute(f"SET {setting}")
        for name, file in files.items():
            connection.execute(f"ATTACH {quote_literal(file)} AS {quote_identifier(name)} (READ_ONLY)")
        yield connection


def _refuse_irregular(path: Path, log: Path) -> None:
    """Raise ``ForeignError`` for what is no regular file, or for a write-ahead log next to it."""
    if path.exists() and not (path.is_file() or path.is_dir()):  # DuckDB would wait for a pipe
        raise ForeignError("it is not a regular file")
    if log.exists():
        raise ForeignError(f"there is a write-ahead log next to it, {path.name}.wal, which no landing creates")


def _find_foreign(connection: duckdb.DuckDBPyConnection) -> dict[str, str]:
    """For each database of a connection that has one, the first object that no version of this program creates."""
    known = {kind: {*sql.list_names(folder)} for kind, folder in _KINDS.items()}
    known["table"] |= {*sql.list_names("families")}
    foreign: dict[str, str] = {}
    for database, kind, schema, name in connection.execute(_OBJECTS).fetchall():
        if schema != "main" or name not in known.get(kind, ()):
            foreign.setdefault(database, f"{kind} {schema}.{name}")
    return foreign


_KINDS: Mapping[str, sql.StatementKind] = {"table": "schema", "view": "views", "macro": "macros"}

_OBJECTS = """
    SELECT database_name, 'computed column', schema_name, table_name || '.' || column_name FROM duckdb_columns()
        WHERE is_generated
    UNION ALL SELECT database_name, 'table', schema_name, table_name FROM duckdb_tables()
    UNION ALL SELECT database_name, 'view', schema_name, view_name FROM duckdb_views() WHERE NOT internal
    UNION ALL SELECT database_name, 'macro', schema_name, function_name FROM duckdb_functions() WHERE NOT internal
    UNION ALL SELECT database_name, 'schema', schema_name, schema_name FROM duckdb_schemas() WHERE NOT internal
    UNION ALL SELECT database_name, 'type', schema_name, type_name FROM duckdb_types() WHERE NOT internal
    UNION ALL SELECT database_name, 'sequence', schema_name, sequence_name FROM duckdb_sequences()
    UNION ALL SELECT database_name, 'index', schema_name, index_name FROM duckdb_indexes()
"""
"""Query of the database, kind, schema and name of every object, what could be evaluated first."""


def _list_tables(connection: duckdb.DuckDBPyConnection) -> Stored:
    """Type of each column of each table of each attached database; views are left out."""
    names = connection.execute("SELECT database_name, table_name FROM duckdb_tables() ORDER BY ALL").fetchall()
    columns, tables = _read_columns(connection), defaultdict[str, dict[str, Mapping[str, str]]](dict)
    for database, name in names:
        tables[database][name] = columns[database][name]
    return tables


def describe_damage(connection: duckdb.DuckDBPyConnection, message: str) -> str | None:
    """Find the file if an error message reports damage, since DuckDB does not name it; return what to tell the user."""
    if not _DAMAGE.match(message):
        return None
    for study, path in _list_attached(connection).items():
        if why := verify(path):
            return f"{path} is damaged ({why}); {_describe_rebuild(study)} {FORCED}"
    return f"A file was damaged and has been replaced since ({message}); open the warehouse again"


def write_entry(folder: Path) -> Path:
    """Write the script by which the plain ``duckdb`` shell opens the warehouse as it is published now; return its path.

    ``duckdb -init data/warehouse/open.sql``; ``.read`` it again to open studies that have landed since. If two
    processes land at the same time, the one that writes last includes both studies. ``UserError`` if another process
    holds its lock for too long.
    """
    entry = folder / ENTRY
    with hold_lock(folder / f".{ENTRY}.lock", f"the script {entry}", wait=ENTRY_WAIT):
        hidden = folder / f".{ENTRY}"  # no study has such a name, so no landing removes its temporary files
        remove_leftovers(hidden)
        text = _build_script(folder).encode()
        if _read_entry(entry) != text:
            aside = make_staging_path(hidden)
            aside.write_bytes(text)
            aside.replace(entry)
    return entry


def renew_entry(folder: Path) -> None:
    """Rewrite the script if it opens other files than those published, as after a move; ignore failures."""
    entry = folder / ENTRY
    attach = [_build_attachment(study, path.absolute()) for study, path in list_published(folder).items()]
    with suppress(OSError, UserError):
        written = _read_entry(entry).decode(errors="replace").splitlines()
        if [line for line in written if line.startswith("ATTACH ")] != attach:
            write_entry(folder)


def _read_entry(entry: Path) -> bytes:
    """The text of the script; empty if there is none that can be read."""
    try:
        return read_regular_file(entry, LARGEST_ENTRY)
    except OSError:
        return b""


def _attach_all(connection: duckdb.DuckDBPyConnection, studies: Mapping[str, Path]) -> tuple[dict[str, Path], Stored]:
    """Attach every study that can be read; return their files, by name, and the tables of their databases."""
    files, stored = {}, {}
    with suppress(duckdb.Error, ForeignError):  # what cannot be read is read alone, to say which it is
        _read_together(_find_versions(studies.values()))
    for study, path in studies.items():
        if (tables := _attach_study(connection, study, path)) is not None:
            files[study], stored[_make_alias(study)] = path, tables
    return files, stored


def _attach_study(
    connection: duckdb.DuckDBPyConnection, study: str, path: Path
) -> Mapping[str, Mapping[str, str]] | None:
    """Attach a published database read-only and return its tables; None if it is left out or no longer exists."""
    try:
        stated = _read_declaration(path)
        _refuse_foreign(stated.foreign)
        connection.execute(_build_attachment(study, path.absolute()))
    except FileNotFoundError:
        return None
    except ForeignError as error:
        _warn_once(
            f"{path} is left out: {error}; it may come from a newer version of attention-geometry or another program; "
            f"{_describe_rebuild(study)}"
        )
        return None
    except duckdb.Error as error:
        if path.exists():
            why = str(error).splitlines()[0]
            _warn_once(f"{path} cannot be read ({why}), so study '{study}' is left out; {_describe_remedy(why, study)}")
        connection.execute(f"DETACH DATABASE IF EXISTS {quote_identifier(_make_alias(study))}")
        return None
    if not (other := _find_other_version(stated)):
        return stated.tables
    newer = stated.version > FORMAT_VERSION
    remedy = "upgrade attention-geometry" if newer else f"{_describe_rebuild(study)}, with --fresh if it asks for that"
    _warn_once(f"{path} has {other}, so study '{study}' is left out; {remedy}")
    connection.execute(f"DETACH DATABASE {quote_identifier(_make_alias(study))}")
    return None


def _find_other_version(stated: _Declaration) -> str | None:
    """What a database has that those of this version do not have, in words; None if it is of this version."""
    if stated.version != FORMAT_VERSION and "family_members" not in stated.tables:
        return f"format {stated.version}, but only {FORMAT_VERSION} can be read"
    for name in sql.list_names("families" if "family_members" in stated.tables else "schema"):
        if stated.tables.get(name) != _read_layout()[name]:
            return f"another table {name} than this version lands"
    return None


def _describe_remedy(why: str, study: str) -> str:
    """What to do about a file that DuckDB cannot attach, because of the file or of this machine."""
    if "version number" in why:
        return "upgrade attention-geometry"
    if _DAMAGE.match(why) or "not a valid DuckDB" in why:
        return _describe_rebuild(study)
    return "make the file readable, or move it away"


def _describe_rebuild(study: str) -> str:
    return f"rebuild it: attention-geometry run {study}"


def _build_unions(stored: Stored, studies: Mapping[str, Path]) -> dict[str, str]:
    """For each table, a view that unites it over the attached studies; those of families have other tables."""
    unions = {}
    for table, columns in _read_layout().items():
        nothing = ", ".join(f"NULL::{kind} AS {name}" for name, kind in columns.items())
        parts = [
            f"FROM {quote_identifier(_make_alias(study))}.{table}"
            for study in studies
            if table in stored[_make_alias(study)]
        ]
        unions[table] = f"CREATE VIEW {table} AS " + " UNION ALL BY NAME ".join([f"(SELECT {nothing} LIMIT 0)", *parts])
    return unions


def _create_united(connection: duckdb.DuckDBPyConnection, unions: Mapping[str, str], *, described: bool) -> None:
    """Create the views over all studies, and the macros and views that read them; comments take as long as both."""
    for statement in unions.values():
        connection.execute(statement)
    for table in sql.list_tables() if described else ():
        comment(connection, "VIEW", table)
    create_relations(connection, described=described)


def _build_script(folder: Path) -> str:
    """The text of the script; in any shell from version ``READABLE_FROM`` on, it creates what ``connect`` creates.

    A shell stops at the first file that it cannot attach, so the script names such files only in a comment.
    """
    names = list_published(folder)
    with duckdb.connect() as connection:
        studies, stored = _attach_all(connection, names)
        unions = _build_unions(stored, studies)
    left_out = (
        "-- Left out, because the shell could not read it: "
        + " ".join(f"{study}; {_describe_rebuild(study)}".split())
        + "\n"
        for study in sorted(names.keys() - studies.keys())
    )
    statements: list[str] = []
    for study, path in studies.items():
        statements += [f"DETACH DATABASE IF EXISTS {quote_identifier(_make_alias(study))}"]
        statements += [_build_attachment(study, path.absolute())]
    relations = [*sql.sort_statements("macros", "views")]
    statements += [*unions.values(), *(relation.text for relation in relations)]
    for described in (*sql.list_tables(), *relations):
        kind = classify_relation(described) if described.kind == "macros" else "VIEW"
        statements += build_comments(kind, described)
    commands = (f"{_CREATE.sub('CREATE OR REPLACE ', text)}\n;\n" for text in statements)
    return "".join([_HEADER, *left_out, *commands])


_HEADER = f"""\
-- The warehouse for the plain duckdb shell, from any folder: duckdb -init …/warehouse/{ENTRY}
-- Read it again to see what has landed since: .read …/warehouse/{ENTRY}
-- Every landing rewrites it, and so does `attention-geometry sql` after the data root has moved: its paths are
-- absolute, because DuckDB resolves relative ones from the folder in which the shell was started.
-- The studies are attached read-only. The shell keeps its access to other files and the network, because without it
-- this script could not be read again; to remove that access: {" ".join(f"SET {setting};" for setting in LOCK)}
"""


def _list_attached(connection: duckdb.DuckDBPyConnection) -> dict[str, Path]:
    """The studies that a connection has attached, and their files, by name."""
    attached = connection.execute(
        "SELECT database_name, path FROM duckdb_databases() WHERE starts_with(database_name, ?) ORDER BY ALL",
        [_make_alias("")],
    ).fetchall()
    return {alias.removeprefix(_make_alias("")): Path(path) for alias, path in attached}


@cache
def _read_layout() -> Mapping[str, Mapping[str, str]]:
    """Type of each column of each table of studies and families, in order."""
    with duckdb.connect() as connection:
        create_tables(connection)
        create_tables(connection, "families")
        return _read_columns(connection)["memory"]


def _read_columns(connection: duckdb.DuckDBPyConnection) -> Stored:
    """Type of each column of each table of each database of a connection, in order."""
    columns: dict[str, dict[str, dict[str, str]]] = defaultdict(lambda: defaultdict(dict))
    for alias, table, column, kind in connection.execute(
        "SELECT database_name, table_name, column_name, data_type FROM duckdb_columns() WHERE NOT internal "
        "ORDER BY table_name, column_index"
    ).fetchall():
        columns[alias][table][column] = kind
    return columns


def _find_versions(paths: Iterable[Path]) -> dict[Path, tuple[int, int]]:
    """What changes when files are replaced, inode and modification time, of those that exist."""
    versions = {}
    for path in paths:
        with suppress(FileNotFoundError):
            state = path.stat()
            versions[path] = state.st_ino, state.st_mtime_ns
    return versions


@cache
def _warn_once(message: str) -> None:
    """Log a warning, once per process."""
    logger.warning(message)


def _build_attachment(study: str, path: Path) -> str:
    return f"ATTACH {quote_literal(os.fspath(path))} AS {quote_identifier(_make_alias(study))} (READ_ONLY)"


def _make_alias(study: str) -> str:
    """Name of a study's database where it is attached."""
    return f"study {study}"
