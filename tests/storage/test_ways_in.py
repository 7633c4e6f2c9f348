"""The ways into the warehouse: connections, one who stays, the plain shell; versions, damage and what is gone."""

import itertools
import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from functools import partial
from pathlib import Path

import duckdb
import pytest

import sql
import storage
from storage.errors import NewerError, UserError
from storage.warehouse import connection as warehouse
from storage.warehouse.connection import (
    ENTRY,
    FORMAT_VERSION,
    Reader,
    connect,
    list_published,
    locate_database,
    read_provenance,
    refuse_newer_database,
    renew_entry,
    verify,
    write_entry,
)
from storage.warehouse.query import query
from storage.warehouse.relations import create_tables
from tests.memory import trace
from tests.storage.shell import in_shell
from tests.storage.studies import publish

NAMED = "SELECT DISTINCT study FROM studies ORDER BY ALL"


@pytest.fixture
def folder(landed_root: Path, tmp_path: Path) -> Path:
    """A warehouse of its own with the study ``small``."""
    publish(landed_root, tmp_path / "data" / "warehouse", "small")
    return tmp_path / "data" / "warehouse"


@pytest.fixture(autouse=True)
def _without_views(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the views and macros that read the tables, half of what a connection takes, but in tests of them."""
    if not request.node.get_closest_marker("comments"):
        monkeypatch.setattr(warehouse, "create_relations", lambda *_, **__: None)


@pytest.fixture(autouse=True)
def _every_warning() -> Iterator[None]:
    warehouse._warn_once.cache_clear()
    yield
    warehouse._warn_once.cache_clear()


def named(folder: Path) -> list[str]:
    with connect(folder) as connection:
        return [study for (study,) in connection.execute(NAMED).fetchall()]


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_importing_storage_does_not_load_duckdb() -> None:
    code = "import sys, storage, storage.files.root, storage.files.places; sys.exit('duckdb' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_data_root_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"There is no data root .*/nowhere; name it: storage\.connect\('DIR'\)"):
        storage.connect(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with storage.connect(tmp_path / "empty") as connection:
        assert connection.execute(NAMED).fetchall() == []
    assert not list((tmp_path / "empty").iterdir())


TO = ["COPY (SELECT 42) TO '{}' (FORMAT csv)", "COPY (SELECT 42) TO '{}' (FORMAT csv, USE_TMP_FILE false)"]
PIVOTED = "(PIVOT (SELECT 1 AS a, 2 AS b) ON a USING sum(b))"


def test_a_locked_connection_opens_no_file_whatever_it_is_asked(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DuckDB's own lock leaves what is attached, its logs and the folder for spilling open for writing."""
    monkeypatch.chdir(tmp_path)
    path = locate_database(folder, "small")
    before = path.read_bytes(), sorted(tmp_path.rglob("*"))
    copies = [*TO, *(f"EXPLAIN ANALYZE {copy}" for copy in TO), TO[1].replace("(SELECT 42)", PIVOTED)]
    targets = (path, f"{path}.wal", f"{path}.wal.checkpoint", ".tmp/x", tmp_path / "x", "/dev/stdout")
    asked = [copy.format(target) for copy in copies for target in targets]
    asked += [f"FROM read_blob('{path}')", f"FROM glob('{path}')", f"ATTACH '{path}' AS again (READ_ONLY)"]
    asked += ["EXPORT DATABASE 'x'", "EXPORT DATABASE \"study small\" TO 'x'", "CREATE PERSISTENT SECRET x (TYPE http)"]
    asked += ["CALL enable_logging(storage = 'file', storage_path = 'x')", "RESET disabled_filesystems"]
    writes = ["CREATE TABLE mine (i INT)", "DELETE FROM studies", "DROP VIEW heads", "UPDATE studies SET model = 'x'"]
    writes += [
        "SELECT 1; DROP TABLE studies",
        "INSTALL httpfs",
        "SET memory_limit = '1GB'",
        "PRAGMA memory_limit = '1GB'",
    ]
    with connect(folder) as connection:
        for statement in (*writes, "FROM 'https://example.com/x.parquet'", "FROM read_text('/etc/hostname')"):
            with pytest.raises((UserError, duckdb.Error)):
                query(connection, statement)
        for statement in asked:
            with pytest.raises(duckdb.Error, match=r"disabled|locked"):
                connection.execute(statement)
            with pytest.raises(UserError, match=r"disabled|locked|sql only reads"):
                query(connection, statement)
        assert connection.execute(NAMED).fetchall() == [("small",)]
    assert (path.read_bytes(), sorted(tmp_path.rglob("*"))) == before


@pytest.mark.one_case
@pytest.mark.parametrize("unlocked", [False, True])
def test_a_query_that_needs_too_much_memory_is_told_so(folder: Path, unlocked: bool) -> None:
    with connect(folder, unlocked=unlocked) as connection:
        (spills,) = connection.execute("SELECT current_setting('temp_directory') <> ''").fetchone() or ()
    assert spills == unlocked
    with duckdb.connect(config={"memory_limit": "20MB", "temp_directory": "", "threads": 1}) as connection:
        many = "SELECT DISTINCT hash(i) AS h, i FROM range(2000000) t(i)"
        with pytest.raises(UserError, match=r"^Out of Memory Error: ") as caught:
            query(connection, many, unlocked=unlocked).read_all()
    assert "\n" not in str(caught.value)
    assert ("allow it with attention-geometry sql --unlocked" in str(caught.value)) != unlocked


def test_statements_before_the_last_run_to_their_ends_but_are_not_kept() -> None:
    with duckdb.connect() as connection:
        two = "SELECT i, i + 1 FROM range(300000) t(i); SELECT 42 AS i"
        last, peak = trace(lambda: query(connection, two).read_all())
        assert last.to_pylist() == [{"i": 42}]
        assert peak < 4 * 2**20
        late = "SELECT CASE WHEN i > 2500000 THEN error('late') ELSE 'x' END FROM range(3000000) t(i)"
        with pytest.raises(UserError, match="late"):
            query(connection, f"{late}; SELECT 42")


def test_an_unlocked_query_joins_and_copies_but_writes_no_study(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text("study,good\nsmall,indeed\n")
    before = locate_database(folder, "small").read_bytes()
    with connect(folder, unlocked=True) as connection:
        joined = query(connection, f"FROM studies JOIN '{tmp_path}/own.csv' USING (study) SELECT good", unlocked=True)
        assert joined.read_all().to_pylist() == [{"good": "indeed"}]
        copy = f"COPY (FROM studies) TO '{tmp_path}/out.parquet'"
        with pytest.raises(UserError, match=r"COPY is not allowed; to write a result to a file: .* sql --unlocked"):
            query(connection, copy)
        query(connection, copy, unlocked=True).read_all()
        assert connection.read_parquet(f"{tmp_path}/out.parquet").count("*").fetchall() == [(1,)]
        writes = ["DELETE FROM studies", 'DROP TABLE "study small".heads', "ATTACH 'x'", "SET threads = 1"]
        for writing in (*writes, 'DETACH "study small"', "CREATE TABLE mine (i INT)"):
            with pytest.raises(UserError, match="sql only reads"):
                query(connection, writing, unlocked=True)
        for writing in (f"COPY \"study small\".studies FROM '{tmp_path}/out.parquet'", "CHECKPOINT 'study small'"):
            with pytest.raises((UserError, duckdb.Error)):
                query(connection, writing, unlocked=True)
        with pytest.raises(duckdb.Error, match="read-only"):
            connection.execute('DELETE FROM "study small".heads')
    assert locate_database(folder, "small").read_bytes() == before


def test_own_files_are_tables_and_nothing_else_can_be_read(folder: Path, tmp_path: Path) -> None:
    """Also a file whose path is a pattern, or looks like a partition."""
    place = tmp_path / "kind=odd"
    place.mkdir()
    rows = "layer,head,score\n0,0,1.5\n0,1,-2\n"
    (place / "a*.csv").write_text(rows)
    (place / "ab.csv").write_text("layer,head,score\n9,9,9\n")
    (place / "a[b].JSON").write_text('[{"layer": 0, "head": 0, "score": 1.5}, {"layer": 0, "head": 1, "score": -2}]')
    (place / "lines.jsonl").write_text('{"layer": 0, "head": 0, "score": 1.5}\n{"layer": 0, "head": 1, "score": -2}\n')
    with duckdb.connect() as writer:
        writer.execute(
            f"COPY (FROM read_csv('{place}/a[*].csv', hive_partitioning = false)) TO '{place}/it''s.parquet'"
        )
    files = {name: place / path for name, path in OWN.items()}
    with storage.connect(folder.parent, files=files) as connection:
        for name in OWN:
            read = connection.sql(f"FROM {name} ORDER BY head").fetchall()
            assert read == [(0, 0, 1.5), (0, 1, -2.0)], name
        assert connection.execute(NAMED).fetchall() == [("small",)]
        paths = [*files.values(), place / "ab.csv", locate_database(folder, "small")]
        for path, reader in itertools.product(paths, ("csv", "text", "parquet", "json")):
            with pytest.raises(duckdb.Error, match=r"disabled|locked"):
                connection.execute(f"FROM read_{reader}(?)", [str(path)])
        for copy in TO:
            with pytest.raises(duckdb.Error, match=r"disabled|locked"):
                connection.execute(copy.format(files["comma"]))
    assert (place / "a*.csv").read_text() == rows


OWN = {"comma": "a*.csv", "listed": "a[b].JSON", "lines": "lines.jsonl", "columns": "it's.parquet"}


@pytest.mark.parametrize(
    ("name", "file", "said"),
    [
        ("heads", "a.csv", "A file cannot be named 'heads' in SQL"),
        ("Selection", "a.csv", "cannot be named"),
        ("x y", "a.csv", "cannot be named"),
        ("mine", "nosuch.csv", r"nosuch.csv cannot be read \(No such file or directory\)"),
        ("mine", "pipe.csv", r"cannot be read \(it is not a regular file\)"),
        ("mine", "a.pickle", "none that can be a table; name one that ends with .csv"),
        ("mine", "broken.parquet", "broken.parquet cannot be read as 'mine'"),
        ("mine", "broken.json", "broken.json cannot be read as 'mine'"),
    ],
)
def test_files_that_are_no_tables_are_refused(folder: Path, tmp_path: Path, name: str, file: str, said: str) -> None:
    for written in ("a.csv", "a.pickle", "broken.parquet", "broken.json"):
        (tmp_path / written).write_text("layer,head\n0,{")
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(UserError, match=said):
        connect(folder, files={name: tmp_path / file})


def test_a_study_that_goes_while_one_looks_is_left_out(
    folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = list_published(folder) | {"gone": locate_database(folder, "gone")}
    monkeypatch.setattr(warehouse, "list_published", lambda _: both)
    assert named(folder) == ["small"]
    assert warehouse._find_versions(both.values()).keys() == {both["small"]}
    assert warned(caplog) == []


def test_one_who_stays_sees_what_lands_when_they_ask(landed_root: Path, folder: Path) -> None:
    with closing(Reader(folder)) as reader:
        assert reader.refresh() is None
        publish(landed_root, folder, "other")
        publish(landed_root, folder, "third")
        with reader.connection.cursor() as cursor:
            assert cursor.execute(NAMED).fetchall() == [("small",)]
        assert reader.refresh() == "landed: other, third"
        assert reader.connection.execute(NAMED).fetchall() == [("other",), ("small",), ("third",)]
        publish(landed_root, folder, "small")  # again: another file under the same name
        locate_database(folder, "third").unlink()
        assert reader.refresh() == "landed: small; removed: third"
        assert reader.connection.execute(NAMED).fetchall() == [("other",), ("small",)]
        assert reader.refresh() is None


def create(path: Path, landed_root: Path, change: str = "") -> None:
    """A database of tables alone that has a study, and was changed."""
    with duckdb.connect(path, config={"default_block_size": "16384"}) as connection:
        create_tables(connection)
        connection.execute(f"ATTACH '{locate_database(landed_root / 'warehouse', 'small')}' AS landed (READ_ONLY)")
        connection.execute("INSERT INTO studies SELECT * REPLACE ('strange' AS study) FROM landed.studies")
        connection.execute(change)


ALTERED = ("DROP TABLE claims", "ALTER TABLE selection_counts DROP COLUMN a_0", "ALTER TABLE heads ADD COLUMN x INT")
"""What makes the tables those of another version."""


def leave_log(path: Path, landed_root: Path) -> None:
    """A log of writes beside a database, which DuckDB would apply."""
    aside = publish(landed_root, path.parent.parent / "aside", "strange", FORMAT_VERSION)
    with duckdb.connect(aside) as connection:
        connection.execute("SET checkpoint_threshold = '1GB'; UPDATE studies SET model = 'evil'")
        for end in ("", ".wal"):
            shutil.copyfile(f"{aside}{end}", f"{path}{end}")


REBUILT = "is left out; rebuild it: attention-geometry run strange$"
LEFT_OUT: dict[str, tuple[Callable[[Path, Path], object], str]] = {
    "newer": (
        lambda path, root: publish(root, path.parent, "strange", FORMAT_VERSION + 1),
        f"has format {FORMAT_VERSION + 1}.* is left out; upgrade attention-geometry",
    ),
    "older": (lambda path, root: publish(root, path.parent, "strange", 0), "has format 0.* is left out; rebuild it"),
    "other": (lambda path, _: path.write_bytes(b"not a database" * 1000), f"cannot be read.* {REBUILT}"),
    "header": (lambda path, _: path.write_bytes(bytes(8) + b"DUCK\xff" + bytes(2**14)), f"cannot be read.* {REBUILT}"),
    "empty": (lambda path, _: path.write_bytes(b""), ""),
    "folder": (lambda path, _: path.mkdir(), r"cannot be read \(.*make the file readable, or move it away$"),
    "pipe": (lambda path, _: os.mkfifo(path), "is left out: it is not a regular file"),
    "device": (lambda path, _: path.symlink_to("/dev/zero"), "is left out: it is not a regular file"),
    **{
        change: (
            partial(create, change=change),
            f"has another table {change.split()[2]} than this version lands.* {REBUILT[:-1]}, with --fresh if it asks",
        )
        for change in ALTERED
    },
    "log": (leave_log, r"there is a write-ahead log next to it, strange\.duckdb\.wal, which no landing creates"),
}
"""How the database of a study comes to be none that is read, and what is said of it."""


@pytest.mark.one_case
@pytest.mark.parametrize("how", LEFT_OUT)
def test_what_cannot_be_read_is_left_out_and_keeps_no_other_from_being_read(
    landed_root: Path, folder: Path, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    """It used to: one bad file was an error for every reader, though the others were whole."""
    make, said = LEFT_OUT[how]
    make(locate_database(folder, "strange"), landed_root)
    for _ in range(2):
        assert named(folder) == ["small"]
    (line,) = warned(caplog)  # once
    assert re.search(rf"{folder}/strange\.duckdb.*{said}", line)


def test_a_script_that_is_no_file_is_replaced(folder: Path) -> None:
    (folder / ENTRY).unlink(missing_ok=True)
    os.mkfifo(folder / ENTRY)
    renew_entry(folder)
    assert (folder / ENTRY).is_file()


def _flip(path: Path, place: int) -> None:
    """Flip a bit of a byte, where it stands."""
    with path.open("r+b") as file:
        file.seek(place)
        (byte,) = file.read(1)
        file.seek(place)
        file.write(bytes([byte ^ 0x20]))


def test_damage_is_named_among_several_files_and_in_the_middle_of_a_stream(landed_root: Path, folder: Path) -> None:
    publish(landed_root, folder, "other")
    publish(landed_root, folder, "bad")
    with connect(folder) as connection:
        path = locate_database(folder, "bad")
        content = bytearray(path.read_bytes())
        for start in range(3 * 4096 + 2**18, len(content) - 1000, 2**18):
            content[start + 1000] ^= 1
        with path.open("r+b") as file:  # the same inode: what was opened is damaged
            file.write(content)
        with pytest.raises(
            UserError,
            match=r"/bad\.duckdb is damaged \(.*\); rebuild it: attention-geometry run bad --force warehouse$",
        ):
            query(connection, "FROM selection_counts").read_all()
        mine = query(connection, "SELECT count(*) FROM studies WHERE study <> 'bad'")
        assert mine.schema.names == ["count_star()"]
    assert warehouse.verify(locate_database(folder, "other")) is None
    assert "does not exist" in (warehouse.verify(folder / "nowhere.duckdb") or "")


def test_damage_far_into_a_stream_is_named(tmp_path: Path) -> None:
    """There DuckDB words it in another way."""
    path = locate_database(tmp_path, "long")
    with duckdb.connect(path) as connection:
        connection.execute("CREATE TABLE t AS SELECT hash(i) AS h FROM range(3000000) t(i)")
    _flip(path, path.stat().st_size * 9 // 10)
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute(warehouse._build_attachment("long", path))
        stream = query(connection, 'FROM "study long".t')
        assert stream.read_next_batch().num_rows > 0
        with pytest.raises(
            UserError,
            match=r"/long\.duckdb is damaged \(.*\); rebuild it: attention-geometry run long --force warehouse$",
        ):
            stream.read_all()


def test_a_user_s_mistake_is_no_damage(landed_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warehouse, "verify", lambda _: pytest.fail("the files were read through"))
    mistakes = ["SELECT model::INTEGER FROM studies", "SELECT checksum FROM studies", "FROM 'corrupt.parquet'"]
    mistakes += ["SELECT 'Corrupt database file'::INTEGER", "SELECT error('Corrupt database file')"]
    with storage.connect(landed_root, unlocked=True) as connection:
        for text in mistakes:
            mistake = pytest.raises(UserError, match=r"^(Conversion|Binder|Invalid Input|IO) Error: ")
            with mistake as caught:
                query(connection, text).read_all()
            assert "damaged" not in str(caught.value)


def list_named(entry: Path) -> list[str]:
    """The studies that a script attaches."""
    return re.findall(r'^ATTACH .* AS "study (.*)" \(READ_ONLY\)', entry.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.slow
@pytest.mark.comments
def test_the_script_opens_the_warehouse_in_the_plain_shell(folder: Path, tmp_path: Path) -> None:
    write_entry(folder)
    counts = [
        f"SELECT '{name}', count(*) FROM {name}" for name in (*sql.list_names("schema"), *sql.list_names("views"))
    ]
    text = in_shell(folder, " UNION ALL ".join(counts), cwd=tmp_path)
    with connect(folder) as connection:
        assert dict(line.split(",") for line in text.splitlines()) == {
            name: str(connection.table(name).count("*").fetchall()[0][0])
            for name in (*sql.list_names("schema"), *sql.list_names("views"))
        }
        macros = in_shell(folder, "SELECT count(*) FROM lower_bounds(0.5, 'raw')", "SELECT role_of(0, 3)")
        assert macros.split() == ["2568", str(connection.execute("SELECT role_of(0, 3)").fetchall()[0][0])]
        comments = (
            "SELECT format('{}.{}: {}', table_name, column_name, comment) AS c FROM duckdb_columns() "
            "WHERE database_name = 'memory' UNION ALL SELECT view_name || comment FROM duckdb_views() "
            "WHERE database_name = 'memory' UNION ALL SELECT function_name || comment FROM duckdb_functions() "
            "WHERE database_name = 'memory' AND NOT internal"
        )
        digest = f"SELECT md5(string_agg(c, '|' ORDER BY c)) FROM ({comments})"
        assert in_shell(folder, digest).strip() == connection.execute(digest).fetchall()[0][0]


@pytest.mark.slow
def test_what_the_shell_cannot_attach_does_not_keep_it_from_the_rest(folder: Path) -> None:
    with duckdb.connect(locate_database(folder, "newer")) as connection:  # in the library's own format
        connection.execute("CREATE TABLE studies AS SELECT 'newer' AS study")
    locate_database(folder, "bad").write_bytes(b"not a database" * 1000)
    script = write_entry(folder).read_text(encoding="utf-8")
    assert in_shell(folder, NAMED) == "small\n"
    assert named(folder) == ["small"]
    left_out = [line for line in script.splitlines() if line.startswith("-- Left out, because the shell could not")]
    assert [line.rpartition("it: ")[2] for line in left_out] == [
        f"attention-geometry run {it}" for it in ("bad", "newer")
    ]


def test_the_script_takes_nothing_from_a_study_of_its_name(folder: Path) -> None:
    """``open.sql`` is a name that a study may have, ``.open.sql`` is not."""
    landing, own = (folder / f"{name}.{'0a' * 16}.partial" for name in (ENTRY, f".{ENTRY}"))
    landing.write_bytes(b"another study's, whose lock is not held")
    own.write_bytes(b"half")
    write_entry(folder)
    assert landing.exists()
    assert not own.exists()


def test_the_script_is_written_anew_only_where_it_is_stale(landed_root: Path, folder: Path) -> None:
    entry = folder / ENTRY
    entry.write_bytes(b"\xff\xfe")
    renew_entry(folder)
    assert list_named(entry) == ["small"]
    first = entry.stat().st_ino
    write_entry(folder)
    renew_entry(folder)
    assert entry.stat().st_ino == first
    moved = folder.parent.rename(folder.parent.with_name("moved")) / "warehouse"
    renew_entry(moved)
    assert f"ATTACH '{moved}/small.duckdb'" in (moved / ENTRY).read_text(encoding="utf-8")
    publish(landed_root, moved, "other")
    renew_entry(moved)
    assert list_named(moved / ENTRY) == ["other", "small"]
    assert sorted(path.name for path in moved.iterdir()) == [f".{ENTRY}.lock", ENTRY, "other.duckdb", "small.duckdb"]


def test_looking_at_an_empty_or_protected_warehouse_writes_nothing(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    renew_entry(tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()

    def protected(_: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(warehouse, "write_entry", protected)
    renew_entry(folder)


FOREIGN = {
    "view main.studies": "DROP TABLE studies; CREATE VIEW studies AS FROM read_csv('{secret}')",
    "view main.more": "CREATE VIEW more AS FROM read_csv('{secret}')",
    "macro main.f_of": "CREATE MACRO f_of(x) AS (SELECT count(*) FROM read_csv('{secret}'))",
    "table main.others": "CREATE TABLE others (i INTEGER)",
    "computed column main.tokens.secret": "DROP TABLE tokens; "
    "CREATE TABLE tokens (study VARCHAR, secret VARCHAR GENERATED ALWAYS AS (current_setting('home_directory')))",
    "schema more.more": "CREATE SCHEMA more",
    "sequence main.one": "CREATE SEQUENCE one",
    "index main.i": "CREATE INDEX i ON studies (study)",
    "type main.t": "CREATE TYPE t AS ENUM ('a')",
}
"""What somebody may put into a database, by what it is called."""


def test_a_database_with_anything_that_nobody_landed_is_left_out(
    landed_root: Path, folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("study,provenance,format_version\nevil,{},1\n", encoding="utf-8")
    path = locate_database(folder, "strange")
    create(path, landed_root)
    assert verify(path) is None
    assert read_provenance(folder, "strange") is not None
    whole = path.read_bytes()
    for what, statement in FOREIGN.items():
        path.write_bytes(whole)
        with duckdb.connect(path) as connection:
            connection.execute(statement.format(secret=secret))
        assert verify(path) == f"it contains the {what}, which no landing creates"
    assert read_provenance(folder, "strange") is None
    for unlocked in (False, True):
        with closing(connect(folder, unlocked=unlocked)) as connection:
            assert connection.execute(NAMED).fetchall() == [("small",)]
    line = warned(caplog)[-1]
    assert f"{path} is left out: it contains the {what}, which no landing creates" in line
    assert line.endswith("attention-geometry run strange")
    assert "strange" not in write_entry(folder).read_text(encoding="utf-8").split("ATTACH", 1)[-1]


@pytest.mark.parametrize(
    ("column", "refused"),
    [("DEFAULT '{\"landing\": 999999}'", True), ("GENERATED ALWAYS AS ('{\"landing\": 999999}')", False)],
)
def test_what_a_database_would_compute_is_not_read(folder: Path, column: str, *, refused: bool) -> None:
    """A database with other tables may be a newer version's, so its provenance is read before it is replaced."""
    with duckdb.connect(locate_database(folder, "small")) as connection:
        connection.execute("CREATE TABLE others (i INTEGER); DROP TABLE studies")
        connection.execute(f"CREATE TABLE studies (i INTEGER, provenance VARCHAR {column})")
        connection.execute("INSERT INTO studies (i) VALUES (1)")
    with pytest.raises(NewerError) if refused else nullcontext():
        refuse_newer_database(folder, "small")
