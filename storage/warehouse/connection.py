"""The warehouse: one DuckDB file per study, built aside, checked, and published by an atomic rename.

Holds where the files lie and the read-only ways in: ``connect``, ``Reader`` for one who stays, and ``write_entry`` for
the plain ``duckdb`` shell.

Why one file per study. DuckDB lets one process write a file or many read it, never both. A file that is only ever
published whole and then only read makes readers and writers independent: a reader keeps the version it opened, two
studies land at the same time, and a failed landing leaves the previous file as it was. ``connect`` attaches every
published file read-only to an empty in-memory database whose views unite them.

What else was considered. One file that all share: a prompt left open would hold up every landing, and a landing every
prompt. A DuckDB server (``quack``) before that file: someone must keep it running, and its extension comes over the
network. A lake (``ducklake``): also an extension, and a catalogue that needs a server as soon as two processes write.
Parquet files: no comments, macros or constraints, and queries of one head are slower without DuckDB's row groups.
"""

import json
import logging
import os
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import duckdb

import sql
from storage.errors import UserError, refuse_newer
from storage.files.locks import exclusive
from storage.files.staging import beside, sweep
from storage.memory import free_addresses, free_memory
from storage.warehouse.relations import comment, comments, create_relations, create_tables, identifier, kind_of, literal
from storage.warehouse.versions import landing_version

logger = logging.getLogger(__name__)

SUFFIX = ".duckdb"

ENTRY = "open.sql"
"""The script in the warehouse's folder by which the plain ``duckdb`` shell opens it."""

ENTRY_WAIT = 60.0
"""Seconds that one who writes the script waits for another."""

READABLE_FROM = "v1.5.0"
"""The oldest DuckDB that reads the script and what it attaches."""

LEAST_MEMORY = 2**27
"""Bytes that a connection may hold at least: with fewer DuckDB cannot write a group of rows."""

FORMAT_VERSION = 1
"""Version of the tables as they are landed, stored in ``studies.format_version``; a file without that column has 0."""

OLDEST_READABLE = 0
"""The oldest version of a file that can be read beside those of ``FORMAT_VERSION``."""

LOCK = (
    "temp_directory = ''",
    "enable_external_access = false",
    "autoinstall_known_extensions = false",
    "allow_persistent_secrets = false",
    "disabled_filesystems = 'LocalFileSystem'",
    "lock_configuration = true",
)
"""Settings of a connection that reads what it has attached and opens no file from then on.

``enable_external_access = false`` alone is no lock: it leaves the attached files, their logs and the folder for what
does not fit in memory open for writing (``COPY … TO``). Without the file system nothing can be spilled to disk either,
so that DuckDB is told not to try: a query that needs more memory than there is fails.
"""

EARLIER = frozenset({"selection_regimes_of"})
"""Tables, views and macros that earlier versions have landed and this one has not."""

CLOSED = (
    "temp_directory = ''",
    "enable_external_access = false",
    "autoinstall_known_extensions = false",
    "autoload_known_extensions = false",
)
"""Settings of a connection that attaches a file to see what is in it: SQL in the file reaches no other file."""

_WORDS = "corrupt|checksum|read enough bytes|deserializ"
_DAMAGE = re.compile(
    rf"(?:Data Corruption Error: )?Corrupt database file|(?:IO|Serialization) Error: [^\"']*(?:{_WORDS})|"
    rf"(?:INTERNAL|FATAL) Error: .*(?:{_WORDS})",
    re.IGNORECASE | re.DOTALL,
)
"""How DuckDB's messages begin when the bytes of a file are not those that were written; later it may quote a user."""

_CREATE = re.compile(r"^CREATE (?=MACRO|VIEW)", re.MULTILINE)

Stored = Mapping[str, Mapping[str, Mapping[str, str]]]
"""Type of each column of each table of each database."""


def database(folder: Path, study: str) -> Path:
    """Where the published database of a study lies."""
    return folder / f"{study}{SUFFIX}"


def published(folder: Path) -> dict[str, Path]:
    """The published studies of a warehouse and their files, by name."""
    return {path.name.removesuffix(SUFFIX): path for path in sorted(folder.glob(f"*{SUFFIX}"))}


def connect(folder: Path, *, unlocked: bool = False) -> duckdb.DuckDBPyConnection:
    """Open the warehouse for reading: every published study, united, as tables and views with comments.

    The connection sees the studies as they are published now, each whole. Unless it is ``unlocked``, it opens no file
    from now on, not even the published ones anew, nor one to spill to; it reaches no network, and what it creates is in
    its own memory. ``unlocked`` leaves the studies attached read-only, but ``COPY … TO`` writes wherever the user may,
    over a published file too. The connection holds no lock that a landing would wait for.

    A study that an earlier version landed has NULL in the columns and no rows in the tables that its file lacks. A file
    that is damaged or of a version that this one cannot read is left out. A warning names each such study and what to
    do, once in a process.
    """
    connection = duckdb.connect()
    bound_memory(connection)
    studies, stored = _attach_all(connection, published(folder))
    _warn_of_older({path: list(_lacking(stored[_alias(study)])) for study, path in studies.items()})
    _unite(connection, _unions(stored, studies))
    if not unlocked:
        for setting in LOCK:
            connection.execute(f"SET {setting}")
    return connection


def bound_memory(connection: duckdb.DuckDBPyConnection, most: int | None = None) -> None:
    """Let a connection hold at most ``most`` bytes, and at most a part of what this process may still take.

    80 % of the memory that is free, and half of the address space, of which other libraries reserve more than they use.
    DuckDB's own limit, 80 % of the machine, knows neither what is taken nor control groups nor address space.
    """
    own = connection.execute("SELECT parse_formatted_bytes(current_setting('memory_limit'))").fetchall()[0][0]
    addresses = free_addresses()
    free = min([free_memory() * 4 // 5, *([] if addresses is None else [addresses // 2])])
    limit = min([own, max(free, LEAST_MEMORY), *([] if most is None else [most])])
    if limit < own:
        connection.execute(f"SET memory_limit = '{limit}B'")


def read_provenance(folder: Path, study: str) -> dict[str, Any] | None:
    """The provenance that the published database of a study carries; None if there is none that can be read.

    This database alone is opened: another that is damaged does not matter.
    """
    try:
        with opened(database(folder, study)) as connection:
            return _provenance(connection)
    except (duckdb.Error, ForeignError):
        return None


def refuse_newer_database(folder: Path, study: str) -> None:
    """Refuse to replace the published database of a study if a newer version of the program landed it.

    Raises
    ------
    NewerError
        If so; what else is wrong with it does not matter.
    """
    path, landing, version = database(folder, study), None, 0
    with suppress(duckdb.Error, ForeignError, FileNotFoundError), _attached_alone(path) as connection:
        if "studies" in _tables(connection):  # what else is in it, a newer version knows
            landing, version = (_provenance(connection) or {}).get("landing"), _format_version(connection)
    for was, now in ((version, FORMAT_VERSION), (landing, landing_version())):
        refuse_newer(f"The database {path}", was, now, study)


def _provenance(connection: duckdb.DuckDBPyConnection) -> dict[str, Any] | None:
    """The provenance in the database ``it``; None if there is none that can be read."""
    found = connection.execute("SELECT provenance FROM it.studies").fetchall()
    try:
        landed = json.loads(found[0][0]) if found else None
    except ValueError:
        return None
    return landed if isinstance(landed, dict) else None


class Reader:
    """A connection for hours: it keeps what it opened until it is asked to look for what has landed since."""

    def __init__(self, folder: Path, *, unlocked: bool = False) -> None:
        self._folder, self._unlocked = folder, unlocked
        self._seen = _versions(folder)
        self.connection = connect(folder, unlocked=unlocked)

    def refresh(self) -> str | None:
        """Open the warehouse anew if another state of it is published; say in a few words what landed or went.

        Raises
        ------
        UserError
            If it cannot be opened now; what was opened before is kept.
        """
        seen = self._seen
        try:
            now = _versions(self._folder)
            if now == seen:
                return None
            newer = connect(self._folder, unlocked=self._unlocked)
        except (OSError, duckdb.Error) as error:
            why = " ".join(str(error).split())
            msg = f"{self._folder} cannot be opened anew ({why}); what was opened before is still there"
            raise UserError(msg) from error
        self.close()
        self._seen, self.connection = now, newer
        landed = [study for study, version in now.items() if seen.get(study) != version]
        said = {"landed": landed, "gone": sorted(seen.keys() - now.keys())}
        return "; ".join(f"{what}: {', '.join(studies)}" for what, studies in said.items() if studies)

    def close(self) -> None:
        """Let go of the files."""
        self.connection.close()


def verify(path: Path) -> str | None:
    """Read every block of a published database; return what is wrong with it, in one line, or ``None``."""
    try:
        with opened(path) as connection:
            for table in _tables(connection):
                connection.execute(f"SELECT bit_xor(hash(t)) FROM it.{identifier(table)} AS t").fetchall()  # noqa: S608
    except (duckdb.Error, ForeignError) as error:
        return str(error).splitlines()[0]
    return None


class ForeignError(Exception):
    """A database has something in it that no version of this program lands; the message says what."""


@dataclass(frozen=True)
class _Contents:
    """What is in a database that this program landed."""

    tables: Mapping[str, Mapping[str, str]]
    """Type of each column of each table."""
    version: int
    """The version of its format; 0 if it states none."""


@contextmanager
def opened(path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection to one published database, attached as ``it``, which reaches no other file.

    Raises
    ------
    duckdb.Error
        If the file cannot be read.
    ForeignError
        If it has anything in it that no version of this program lands; nothing of it has been evaluated.
    """
    with _attached_alone(path) as connection:
        if foreign := _foreign(connection):
            msg = f"it has the {foreign}, which nobody landed"
            raise ForeignError(msg)
        yield connection


@contextmanager
def _attached_alone(path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection to one database as ``it``, whatever is in it, which reaches no other file."""
    file = os.fspath(path.resolve())  # DuckDB compares where links lead with what is allowed
    with duckdb.connect() as connection:
        connection.execute(f"SET allowed_paths = [{literal(file)}, {literal(f'{file}.wal')}]")
        for setting in CLOSED:
            connection.execute(f"SET {setting}")
        if Path(f"{file}.wal").exists():
            msg = f"there is a log of writes beside it, {path.name}.wal, which nobody landed"
            raise ForeignError(msg)
        connection.execute(f"ATTACH {literal(file)} AS it (READ_ONLY)")
        yield connection


def _foreign(connection: duckdb.DuckDBPyConnection) -> str | None:
    """The first object of the database ``it`` that no version of this program lands; None if there is none."""
    known = {kind: {*sql.names(folder), *EARLIER} for kind, folder in _KINDS.items()}
    for kind, schema, name in connection.execute(_OBJECTS).fetchall():
        if schema != "main" or name not in known.get(kind, ()):
            return f"{kind} {schema}.{name}"
    return None


_KINDS: Mapping[str, sql.Kind] = {"table": "schema", "view": "views", "macro": "macros"}

_OBJECTS = """
    SELECT 'table', schema_name, table_name FROM duckdb_tables() WHERE database_name = 'it'
    UNION ALL SELECT 'view', schema_name, view_name FROM duckdb_views() WHERE database_name = 'it' AND NOT internal
    UNION ALL SELECT 'macro', schema_name, function_name FROM duckdb_functions()
        WHERE database_name = 'it' AND NOT internal
    UNION ALL SELECT 'schema', schema_name, schema_name FROM duckdb_schemas()
        WHERE database_name = 'it' AND NOT internal
    UNION ALL SELECT 'type', schema_name, type_name FROM duckdb_types() WHERE database_name = 'it' AND NOT internal
    UNION ALL SELECT 'sequence', schema_name, sequence_name FROM duckdb_sequences() WHERE database_name = 'it'
    UNION ALL SELECT 'index', schema_name, index_name FROM duckdb_indexes() WHERE database_name = 'it'
    UNION ALL SELECT 'computed column', schema_name, table_name || '.' || column_name FROM duckdb_columns()
        WHERE database_name = 'it' AND is_generated
"""
"""What a database has in it, by kind."""


def _tables(connection: duckdb.DuckDBPyConnection) -> Mapping[str, Mapping[str, str]]:
    """Type of each column of each table of the database ``it``; its views are left out."""
    names = connection.execute("SELECT table_name FROM duckdb_tables() WHERE database_name = 'it'").fetchall()
    columns = _columns(connection)["it"]
    return {name: columns[name] for (name,) in sorted(names)}


@cache
def _contents(path: Path, _: tuple[int, int]) -> _Contents:
    """What is in a database, of which this state has not been looked at before; raises as ``opened``."""
    with opened(path) as connection:
        return _Contents(_tables(connection), _format_version(connection))


def damage(connection: duckdb.DuckDBPyConnection, message: str) -> str | None:
    """If a failure's message speaks of damage, find the file, which DuckDB does not name; return what to say of it."""
    if not _DAMAGE.match(message):
        return None
    for study, path in _studies(connection).items():
        if why := verify(path):
            return f"{path} is damaged ({why}); {_rebuild(study)}"
    return f"A file was damaged and has been replaced since ({message}); open the warehouse again"


def write_entry(folder: Path) -> Path:
    """Write the script by which the plain ``duckdb`` shell opens the warehouse as it is published now; return its path.

    ``duckdb -init data/warehouse/open.sql``; ``.read`` it again and it opens what has landed since. Of two processes
    that land at once, the one that writes last sees what both published.

    Raises
    ------
    UserError
        If another process keeps the script's lock.
    """
    entry = folder / ENTRY
    with exclusive(folder / f".{ENTRY}.lock", f"the script {entry}", wait=ENTRY_WAIT):
        hidden = folder / f".{ENTRY}"  # no study has such a name: another's landing sweeps up its own alone
        sweep(hidden)
        text = _script(folder).encode()
        if not entry.exists() or entry.read_bytes() != text:
            aside = beside(hidden)
            aside.write_bytes(text)
            aside.replace(entry)
    return entry


def renew_entry(folder: Path) -> None:
    """Write the script anew if it opens other files than are published, as after a move; not where it cannot be."""
    entry = folder / ENTRY
    attach = [_attach(study, path.absolute()) for study, path in published(folder).items()]
    with suppress(OSError, UserError):
        written = entry.read_text(encoding="utf-8", errors="replace").splitlines() if entry.exists() else []
        if [line for line in written if line.startswith("ATTACH ")] != attach:
            write_entry(folder)


def _attach_all(connection: duckdb.DuckDBPyConnection, studies: Mapping[str, Path]) -> tuple[dict[str, Path], Stored]:
    """Attach every study that can be read; return their files, by name, and the tables of their databases."""
    files, stored = {}, {}
    for study, path in studies.items():
        if (tables := _attached(connection, study, path)) is not None:
            files[study], stored[_alias(study)] = path, tables
    return files, stored


def _attached(connection: duckdb.DuckDBPyConnection, study: str, path: Path) -> Mapping[str, Mapping[str, str]] | None:
    """Attach a published database read-only and return its tables; None if it is left out, or is gone by now."""
    try:
        contents = _contents(path, _version(path))
        version = contents.version
        connection.execute(_attach(study, path.absolute()))
    except FileNotFoundError:
        return None
    except ForeignError as error:
        _warn_once(
            f"{path} is left out: {error}; it may be of a newer version of attention-geometry, or of somebody else; "
            f"{_rebuild(study)}"
        )
        return None
    except duckdb.Error as error:
        if path.exists():
            why = str(error).splitlines()[0]
            _warn_once(f"{path} cannot be read ({why}), so study '{study}' is left out; {_remedy(why, study)}")
        connection.execute(f"DETACH DATABASE IF EXISTS {identifier(_alias(study))}")
        return None
    if OLDEST_READABLE <= version <= FORMAT_VERSION:
        return contents.tables
    _warn_once(
        f"{path} has format {version}, and {OLDEST_READABLE} to {FORMAT_VERSION} can be read, so study '{study}' is "
        f"left out; " + ("upgrade attention-geometry" if version > FORMAT_VERSION else _rebuild(study))
    )
    connection.execute(f"DETACH DATABASE {identifier(_alias(study))}")
    return None


def _remedy(why: str, study: str) -> str:
    """What to do about a file that DuckDB does not attach, for a reason that may be the file's or this machine's."""
    if "version number" in why:
        return "upgrade attention-geometry"
    if _DAMAGE.match(why) or "not a valid DuckDB" in why:
        return _rebuild(study)
    return "make the file readable, or move it away"


def _rebuild(study: str) -> str:
    return f"rebuild it: attention-geometry run {study}"


def _format_version(connection: duckdb.DuckDBPyConnection) -> int:
    """The version of the tables of the database ``it``; 0 if its file states none."""
    if "format_version" not in _tables(connection).get("studies", {}):
        return 0
    found = connection.execute("SELECT max(format_version) FROM it.studies").fetchall()
    return int(found[0][0] or 0)


def _unions(stored: Stored, studies: Mapping[str, Path]) -> dict[str, str]:
    """For every table of ``sql/schema``, a view of it over the attached studies, whatever of it their files have."""
    unions = {}
    for table, columns in _layout().items():
        nothing = ", ".join(f"NULL::{kind} AS {name}" for name, kind in columns.items())
        parts = [f"FROM {identifier(_alias(study))}.{table}" for study in studies if table in stored[_alias(study)]]
        unions[table] = f"CREATE VIEW {table} AS " + " UNION ALL BY NAME ".join([f"(SELECT {nothing} LIMIT 0)", *parts])
    return unions


def _unite(connection: duckdb.DuckDBPyConnection, unions: Mapping[str, str]) -> None:
    """Create the views over all studies, and what of ``sql`` reads them, with their comments."""
    for table, statement in unions.items():
        connection.execute(statement)
        comment(connection, "VIEW", sql.statement("schema", table))
    create_relations(connection)


def _script(folder: Path) -> str:
    """The text of the script; it says to any shell from ``READABLE_FROM`` what ``connect`` says to its own connection.

    A shell stops at the first file that it cannot attach, so that such a file is in a comment alone.
    """
    found = published(folder)
    with duckdb.connect() as connection:
        attached, stored = _attach_all(connection, found)
        studies = {study: path for study, path in attached.items() if _is_old(connection, study)}
        unions = _unions(stored, studies)
    left_out = (
        "-- Left out, because the shell could not read it: " + " ".join(f"{study}; {_rebuild(study)}".split()) + "\n"
        for study in sorted(found.keys() - studies.keys())
    )
    relations = (relation.text for relation in sql.in_order("macros", "views"))
    statements = [*_attachments(studies), *unions.values(), *relations, *_comments()]
    commands = (f"{_CREATE.sub('CREATE OR REPLACE ', text)}\n;\n" for text in statements)
    return "".join([_HEADER, *left_out, *commands])


def _is_old(connection: duckdb.DuckDBPyConnection, study: str) -> bool:
    """Whether the oldest shell reads the file of an attached study."""
    stated = connection.execute(
        "SELECT tags['storage_version'] FROM duckdb_databases() WHERE database_name = ?", [_alias(study)]
    ).fetchall()
    first, oldest = ([int(number) for number in re.findall(r"\d+", text)[:3]] for text in (stated[0][0], READABLE_FROM))
    return first <= oldest


_HEADER = f"""\
-- The warehouse for the plain duckdb shell, from any folder: duckdb -init …/warehouse/{ENTRY}
-- Read it again to see what has landed since: .read …/warehouse/{ENTRY}
-- Every landing writes it anew, and so does `attention-geometry sql` after the data root has moved: its paths are
-- absolute, because DuckDB would look up others from the folder in which the shell was started.
-- The studies are attached read-only. The shell keeps its access to other files and the network, because without it
-- this could not be read again; to give it up: {" ".join(f"SET {setting};" for setting in LOCK)}
"""


def _attachments(studies: Mapping[str, Path]) -> Iterator[str]:
    """What attaches the studies in a shell, whether or not it has them attached already."""
    for study, path in studies.items():
        yield f"DETACH DATABASE IF EXISTS {identifier(_alias(study))}"
        yield _attach(study, path.absolute())


def _comments() -> Iterator[str]:
    """What gives every view, column and macro of the united warehouse its comment, whatever is published."""
    for described in (*(sql.statement("schema", table) for table in _layout()), *sql.in_order("macros", "views")):
        yield from comments(kind_of(described) if described.kind == "macros" else "VIEW", described)


def _studies(connection: duckdb.DuckDBPyConnection) -> dict[str, Path]:
    """The studies that a connection has attached, and their files, by name."""
    attached = connection.execute(
        "SELECT database_name, path FROM duckdb_databases() WHERE starts_with(database_name, ?) ORDER BY ALL",
        [_alias("")],
    ).fetchall()
    return {alias.removeprefix(_alias("")): Path(path) for alias, path in attached}


def _warn_of_older(lacking: Mapping[Path, list[str]]) -> None:
    """Name the studies whose files lack something, given what each file lacks."""
    older = {path.name.removesuffix(SUFFIX): path for path, missing in lacking.items() if missing}
    for path in older.values():
        logger.debug("%s lacks %s", path, ", ".join(lacking[path]))
    if not older:
        return
    was, lacks, it, name = ("was", "lacks", "it", *older) if len(older) == 1 else ("were", "lack", "them", "NAME")
    _warn_once(
        f"{', '.join(older)} {was} landed by an earlier version and {lacks} tables or columns of this version; "
        f"rebuild {it}: attention-geometry run {name}, with --fresh if it says so"
    )


def _lacking(stored: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """Tables and columns of ``sql/schema`` that a database with these tables and columns does not have."""
    for table, columns in _layout().items():
        if table not in stored:
            yield table
        else:
            yield from (f"{table}.{column}" for column in columns if column not in stored[table])


@cache
def _layout() -> Mapping[str, Mapping[str, str]]:
    """Type of each column of each table of ``sql/schema``, in order."""
    with duckdb.connect() as connection:
        create_tables(connection)
        return _columns(connection)["memory"]


def _columns(connection: duckdb.DuckDBPyConnection) -> Stored:
    """Type of each column of each table of each database of a connection, in order."""
    found: dict[str, dict[str, dict[str, str]]] = defaultdict(lambda: defaultdict(dict))
    for alias, table, column, kind in connection.execute(
        "SELECT database_name, table_name, column_name, data_type FROM duckdb_columns() WHERE NOT internal "
        "ORDER BY table_name, column_index"
    ).fetchall():
        found[alias][table][column] = kind
    return found


def _versions(folder: Path) -> dict[str, tuple[int, int]]:
    """For each published study, what changes when it lands again: its file's inode and time of change."""
    versions = {}
    for study, path in published(folder).items():
        with suppress(FileNotFoundError):
            versions[study] = _version(path)
    return versions


def _version(path: Path) -> tuple[int, int]:
    """What changes when a file is replaced: its inode and its time of change.

    Raises
    ------
    FileNotFoundError
        If it is gone.
    """
    state = path.stat()
    return state.st_ino, state.st_mtime_ns


@cache
def _warn_once(message: str) -> None:
    """Log a warning, but not a second time in this process."""
    logger.warning(message)


def _attach(study: str, path: Path) -> str:
    return f"ATTACH {literal(os.fspath(path))} AS {identifier(_alias(study))} (READ_ONLY)"


def _alias(study: str) -> str:
    """Name of a study's database where it is attached."""
    return f"study {study}"
