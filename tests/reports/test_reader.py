"""The text reader of a page: what is packed for it, and what a reader sees and hears of it in a browser."""

import math
from collections.abc import Iterator
from typing import Any

import duckdb
import pytest

from geometry.quantities import TOP_KEYS
from reports.explorer import figures as explorer
from reports.figures import find_source
from reports.page import ReportSummary
from reports.queries import ask
from reports.text import reader
from storage.zarr.arrays import READ_SEQUENCES
from tests.reports.conftest import HOSTILE, SMALL, THREE, Writer
from tests.reports.drawings import changed
from tests.reports.driver import UNFOLDED, Browser

TAB = "\ue004"


def collect(connection: duckdb.DuckDBPyConnection) -> dict[str, Any] | None:
    return reader.collect_reader(find_source(connection, THREE.study, map_n=4))


def test_keys_and_tokens_are_those_of_the_tables(three: duckdb.DuckDBPyConnection) -> None:
    found = collect(three)
    assert found is not None
    asked = "SELECT token FROM tokens WHERE study = 'three' AND sequence = 1 ORDER BY position"
    assert found["tokens"][1] == [token for (token,) in three.sql(asked).fetchall()]
    assert len(found["tokens"]) == THREE.sequences
    rows = three.sql("SELECT * FROM top_keys WHERE study = 'three'").to_arrow_table().to_pylist()
    places = {(row["sequence"], row["query"], row["layer"], row["head"], row["rank"]): row for row in rows}
    seen = 0
    for sequence, query, layer, head, n, *lists in found["keys"]:
        for rank, (position, weight, contribution, distance, within) in enumerate(zip(*lists, strict=True), 1):
            row = places[sequence, query, layer, head, rank]
            assert (position, n, within) == (row["position"], row["n"], row["within_r_min_at"])
            for told, exact in ((weight, row["weight"]), (contribution, row["contribution"])):
                assert told == pytest.approx(exact, rel=6e-3)
            assert distance == pytest.approx(row["relative_distance"], rel=6e-3)
            seen += 1
    assert seen == len(rows)
    labels = three.sql("SELECT layer, head, label FROM head_labels WHERE study = 'three'").fetchall()
    assert found["patterns"].keys() == {f"{layer}.{head}" for layer, head, _ in labels}
    for layer, head, label in labels:
        assert f"{label}: " in found["patterns"][f"{layer}.{head}"]
    assert found["labels"].keys() == {f"{layer}.{head}" for layer in range(3) for head in range(6)}


def holds(label: str, key: int, query: int, text: list[int]) -> bool:
    """Whether a label is about a key."""
    if label == "duplicate":
        return key < query and text[key] == text[query]
    if label == "induction":
        return 0 < key <= query and text[key - 1] == text[query]
    return (
        key in {"sink": (0,), "self": (query,), "previous": (query - 1,), "local": range(query - 7, query + 1)}[label]
    )


def test_examples_are_the_heads_of_largest_share_where_their_keys_hold_most(three: duckdb.DuckDBPyConnection) -> None:
    found = collect(three)
    assert found is not None
    texts: dict[int, list[int]] = {}
    for sequence, token in three.sql(
        "SELECT sequence, token_id FROM tokens WHERE study = 'three' ORDER BY sequence, position"
    ).fetchall():
        texts.setdefault(sequence, []).append(token)
    for label, _, heads, strongest in found["examples"]:
        ranked = three.execute(
            "SELECT layer, head FROM head_labels WHERE study = 'three' AND label = ? ORDER BY share DESC, layer, head",
            [label],
        ).fetchall()
        assert heads == len(ranked)
        assert [(layer, head) for layer, head, *_ in strongest] == ranked[:5]
        for layer, head, sequence, query, share, text in strongest:
            weights: dict[tuple[int, int], float] = {}
            for at, asked, position, weight in three.sql(
                "SELECT sequence, query, position, weight FROM top_keys WHERE study = 'three' "
                f"AND layer = {layer} AND head = {head}"
            ).fetchall():
                held = weights.setdefault((at, asked), 0.0)
                if label == "diffuse":
                    weights[at, asked] = min(held, -weight)
                elif holds(label, position, asked, texts[at]):
                    weights[at, asked] = held + weight
            assert weights[sequence, query] == pytest.approx(max(weights.values()), rel=1e-6)
            assert 0 < share <= 1
            assert text == "corpus", "a study without a probe says otherwise"
    labels = three.sql("SELECT DISTINCT label FROM head_labels WHERE study = 'three'").fetchall()
    assert {label for label, *_ in found["examples"]} == {label for (label,) in labels}


def test_there_are_as_many_sequences_as_a_page_holds(
    three: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_one = three.sql("SELECT count(*) FROM top_keys WHERE study = 'three' AND sequence = 0").fetchall()[0][0]
    for most, expected in ((1, 1), (2 * of_one, 2), (2 * of_one - 1, 1)):
        monkeypatch.setattr(explorer, "MOST_KEYS", most)
        found = collect(three)
        assert found is not None
        assert {row[0] for row in found["keys"]} == set(range(expected))
        assert len(found["tokens"]) == expected


def test_a_study_without_keys_has_no_reader(three: duckdb.DuckDBPyConnection) -> None:
    with changed(three, "DELETE FROM top_keys"):
        assert collect(three) is None


def test_every_query_of_some_heads_has_its_keys(
    small: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the heads that are measured first, the opening one before all others, in the sequences that are stored."""
    of_head = READ_SEQUENCES * SMALL.context * TOP_KEYS
    monkeypatch.setattr(reader, "MOST_KEPT", 3 * of_head + of_head // 2)
    source = find_source(small, SMALL.study, map_n=4)
    found = reader.collect_reader(source)
    assert found is not None
    kept = found["measures"]["keys"]
    opening, _ = explorer.choose_opening(source)
    ordered = [f"{row['layer']}.{row['head']}" for row in ask(small, "reader_heads", study="small").rows()]
    first = f"{opening['layer']}.{opening['head']}"
    shares = (
        "SELECT layer || '.' || head FROM head_labels WHERE study = 'small' AND label <> 'sink' ORDER BY share DESC"
    )
    assert (ordered[0],) == small.sql(shares).fetchall()[0], "those that look at something come first"
    assert set(kept["heads"]) == {first, *[place for place in ordered if place != first][:2]}
    stored = small.sql("FROM query_heads WHERE top_positions IS NOT NULL").to_arrow_table().to_pylist()
    assert {row["sequence"] for row in stored} == set(range(kept["sequences"])) == set(range(READ_SEQUENCES))
    for row in stored:
        if texts := kept["heads"].get(f"{row['layer']}.{row['head']}"):
            start = (row["sequence"] * SMALL.context + row["query"]) * TOP_KEYS
            back, steps = (
                [ord(code) - reader.LOWEST for code in text[start : start + TOP_KEYS] if ord(code) != reader.MISSING]
                for text in texts
            )
            assert [row["query"] - distance for distance in back] == row["top_positions"]
            roots = [(reader.STEPS - 1) * math.sqrt(weight) for weight in row["top_weights"]]
            assert steps == pytest.approx(roots, abs=0.5001)


def test_the_ends_are_the_best_and_the_worst_of_the_queries_that_see_many_keys(
    small: duckdb.DuckDBPyConnection,
) -> None:
    """None of them sees 32 keys; with that many more each, those that see 8 do."""
    assert ask(small, "reader_examples", study="small").rows() == []
    with changed(small, "UPDATE query_heads SET n_keys = n_keys + 24 WHERE study = 'small'"):
        rows = ask(small, "reader_examples", study="small").rows()
    known = small.sql(
        "SELECT layer, head, sequence, query, recall_level FROM query_heads WHERE study = 'small' AND n_keys >= 8 "
        "AND recall_level IS NOT NULL"
    ).fetchall()
    text = {(at, position): token for at, position, token in small.sql(TEXT).fetchall()}
    for layer, head in {(layer, head) for layer, head, *_ in known}:
        mine = sorted((recall, at, query) for *place, at, query, recall in known if place == [layer, head])
        for is_best, some in ((False, mine[:5]), (True, mine[:-6:-1])):
            told = [row for row in rows if (row["layer"], row["head"], row["is_best"]) == (layer, head, is_best)]
            assert [row["recall"] for row in told] == [recall for recall, *_ in some]
            for row in told:
                at, query = row["sequence"], row["query"]
                assert (row["recall"], at, query) in mine
                assert row["queries"] == len(mine)
                around = [text.get((at, position)) for position in range(query - 8, query + 4)]
                shown = [*(row["before"] or []), row["token"], *(row["after"] or [])]
                assert shown == [token for token in around if token is not None]


TEXT = "SELECT sequence, position, token FROM tokens WHERE study = 'small'"


# --- in a browser ---


@pytest.fixture(scope="module")
def report(written: Writer) -> ReportSummary:
    return written(THREE, 4)


@pytest.fixture
def opened(browser: Browser, report: ReportSummary) -> Iterator[Browser]:
    """A browser with the report in it, as the test before left it."""
    if not browser.run("return location.href").startswith(report.path.as_uri()):
        browser.show(report.path)
    yield browser
    assert browser.log("browser") == []


def choose(opened: Browser, **choices: int) -> None:
    for name, value in choices.items():
        opened.run(
            "const input = document.querySelector(`.reader [name=${arguments[0]}]`); input.value = arguments[1];"
            "input.dispatchEvent(new Event('input', {bubbles: true}))",
            name, value,
        )  # fmt: skip


def shown(opened: Browser) -> dict[int, bool]:
    """The positions of the keys that are shaded, and whether each is outlined."""
    places = "[...document.querySelectorAll('.reader .token')].map((token, at) => [at, token.classList])"
    keys = f"return {places}.filter(([, all]) => all.contains('key')).map(([at, all]) => [at, all.contains('within')])"
    return {int(at): within for at, within in opened.run(keys)}


@pytest.mark.slow
def test_the_keys_of_the_head_that_is_chosen_are_shaded(opened: Browser, three: duckdb.DuckDBPyConnection) -> None:
    """With outlines for the N of the slider, of which there are as many as K_in counts; the query is in view."""
    for query, n in ((11, 7), (11, 2), (23, 2), (23, 7)):
        choose(opened, sequence=2, query=query, layer=1, head=4, shown=n)
        place = f"study = 'three' AND sequence = 2 AND layer = 1 AND head = 4 AND query = {query}"
        rows = three.sql(f"SELECT position FROM top_keys WHERE {place} AND rank <= {n}").fetchall()
        ((k_in,),) = three.sql(f"SELECT k_in FROM selection_counts WHERE {place} AND n = {n}").fetchall()
        found = shown(opened)
        assert [*found] == sorted(position for (position,) in rows)
        assert sum(found.values()) == k_in
        assert opened.run("return document.querySelectorAll('.reader tbody tr').length") == n
        at = "return [...document.querySelectorAll('.reader .token')].findIndex(one => one.classList.contains('query'))"
        assert opened.run(at) == query
        assert opened.run(IN_VIEW)


IN_VIEW = """
const text = document.querySelector('.reader .tokens').getBoundingClientRect();
const query = document.querySelector('.reader .query').getBoundingClientRect();
return query.top >= text.top - 1 && query.bottom <= text.bottom + 1
"""


@pytest.mark.slow
@pytest.mark.parametrize(("share", "shown"), [(0.99994, "over 99.9 %"), (0.25, "25.0 %"), (1.22e-11, "below 0.0001 %")])
def test_shares_are_written_for_readers(opened: Browser, share: float, shown: str) -> None:
    """A weight of 0.99994 was 100 %, one of 1e-11 was 1.22e-9 %."""
    choose(opened, sequence=2, query=23, layer=1, head=4, shown=1)
    opened.run(HIDE_KEY, share)
    unseen = "document.querySelector('.reader .unseen').textContent"
    opened.wait(f"return {unseen}.includes('with {shown} of the weight')")
    opened.run("document.querySelector('.reader .tokens').removeAttribute('style')")


HIDE_KEY = """
const text = document.querySelector('.reader .tokens'), key = text.querySelector('.key');
Object.assign(text.style, { maxHeight: '3rem', width: '4rem' });
key.style.setProperty('--share', arguments[0]);
text.scrollTop = key.offsetTop > text.scrollHeight / 2 ? 0 : text.scrollHeight;
text.dispatchEvent(new Event('scroll'));
"""


@pytest.mark.slow
def test_keys_are_reached_by_keyboard_and_read_aloud(opened: Browser) -> None:
    choose(opened, sequence=0, query=23, layer=0, head=0, shown=3)
    opened.run("document.querySelector('.reader [name=shown]').focus()")
    opened.press(TAB)
    said = opened.run("return document.activeElement.ariaLabel")
    assert "weight 0." in said
    assert opened.run("return document.querySelector('.reader .detail').textContent") == said
    assert opened.run("return document.querySelectorAll('.reader .chosen[role=status]').length") == 1


STATE = (
    "['sequence', 'query', 'layer', 'head', 'shown']"
    ".map(name => document.querySelector(`.reader [name=${name}]`).value)"
)
TOKEN = "[...document.querySelectorAll('.reader .token')]"


def test_any_token_can_be_the_query_and_is_coloured_by_what_the_head_measures(
    browser: Browser, written: Writer, small: duckdb.DuckDBPyConnection
) -> None:
    """The address holds the state, and leads back to it; a page opens at the explorer's head, coloured by Recall."""
    page = written(SMALL, 4).path
    browser.show(page)
    head, _ = explorer.choose_opening(find_source(small, SMALL.study, map_n=4))
    assert browser.run(f"return {STATE}")[2:4] == [str(head["layer"]), str(head["head"])]
    assert browser.run("return location.hash") == ""
    browser.run(f"{TOKEN}[9].click()")
    state = ["0", "9", str(head["layer"]), str(head["head"]), "4"]
    assert browser.run(f"return {STATE}") == state
    assert browser.run("return location.hash") == f"#reader/{'/'.join(state)}/Recall"
    ((positions, weights),) = small.sql(
        "SELECT top_positions, top_weights FROM query_heads WHERE study = 'small' AND sequence = 0 AND query = 9 "
        f"AND layer = {head['layer']} AND head = {head['head']}"
    ).fetchall()
    column = "return [...document.querySelectorAll('.reader tbody tr')].map(row => +row.cells[{}].textContent)"
    assert browser.run(column.format(1)) == positions[:4]
    assert browser.run(column.format(3)) == pytest.approx(weights[:4], abs=0.017)
    browser.run(f"{TOKEN}[0].click()")  # is no query
    assert browser.run(f"return {STATE}") == state
    browser.run("document.querySelector('.reader .tokens').focus()")
    browser.press("\ue014", "\ue014", "\ue012")  # right, right, left
    assert browser.run(f"return [{STATE}[1], document.activeElement.className]") == ["10", "tokens"]
    choose(browser, sequence=1, layer=2, head=3, colour=2)
    choose(browser, query=7)
    address = browser.run("return location.hash")
    assert address == "#reader/1/7/2/3/4/effective-keys"
    for again in (False, True):
        if again:
            browser.visit("about:blank")
            browser.show(page, address)
        levels = browser.run(f"return {TOKEN}.map(token => token.style.getPropertyValue('--level'))")
        rows = small.sql(
            "SELECT query, effective_keys FROM query_heads "
            "WHERE study = 'small' AND sequence = 1 AND layer = 2 AND head = 3 ORDER BY query"
        ).fetchall()
        assert levels[0] in {"", "0"}
        for query, keys in rows:
            assert float(levels[query]) == pytest.approx(math.log(keys, SMALL.context), abs=0.017)
        told = browser.run("return document.querySelector('.reader .values').textContent")
        assert f"effective keys {rows[6][1]:.1f}"[:-2] in told
        assert browser.run(f"return {TOKEN}.findIndex(token => token.classList.contains('query'))") == 7
    browser.run("location.hash = '#reader/99/99/99/99/99/nothing'")
    browser.wait(f"return {STATE}[1] == '{SMALL.context - 1}'")
    assert browser.run("return document.querySelectorAll('.reader .measured').length") == 0
    assert browser.log("browser") == []


@pytest.mark.slow
def test_tokens_are_text_whatever_they_say(browser: Browser, hostile: ReportSummary) -> None:
    browser.show(hostile.path)
    tokens = browser.run("return [...document.querySelectorAll('.reader .token')].map(token => token.textContent)")
    assert {text for text in HOSTILE if text.isprintable()} <= set(tokens)
    browser.run(UNFOLDED)
    browser.wait(f"return document.querySelectorAll('.chart svg.marks').length == {hostile.charts}")
    assert browser.run("return window.hacked ?? null") is None
    assert browser.run("return document.scripts.length") == 5
    assert browser.run("return document.querySelectorAll('main img, main b, .token *').length") == 0
    choose(browser, sequence=0, query=15, layer=0, head=0, shown=16)
    continued = browser.run("return document.querySelector('.reader .key:empty').title")
    assert continued.startswith("“か” at position 1: ")
    cells = browser.run("return [...document.querySelectorAll('.reader tbody td.word')].map(cell => cell.textContent)")
    assert cells.count("か") >= 2
    assert "" not in cells
    assert browser.log("browser") == []
