// The text reader: the keys of one head in one sequence. The data are in the element #reader-data, packed as the charts.
// Tokens are shown as text only, never as markup.
const { tokens, labels, keys } = await window.unpacked(document.getElementById("reader-data").textContent);
const [SEQUENCE, QUERY, LAYER, HEAD, N, POSITION, WEIGHT, CONTRIBUTION, DISTANCE, WITHIN] = Array(10).keys();
const card = document.querySelector(".reader");
const form = card.querySelector("form");
const { sequence, query, layer, head, shown } = form.elements;
const find = (part) => card.querySelector(part);

function make(name, text, attributes = {}) {
  const element = document.createElement(name);
  element.textContent = text;
  for (const [attribute, value] of Object.entries(attributes)) element.setAttribute(attribute, value);
  return element;
}

const number = (value) => (value === null ? "–" : String(value));
const facts = (row, index) =>
  `“${tokens[row[SEQUENCE]][row[POSITION][index]]}” at position ${row[POSITION][index]}: rank ${index + 1}, weight ${number(row[WEIGHT][index])}, ` +
  `contribution ${number(row[CONTRIBUTION][index])}, distance from s_N ${number(row[DISTANCE][index])} of its length` +
  (row[WITHIN][index] ? ", within r_min" : "");

// The values that a column has among the rows that agree with the choices before it.
function fill(select, column, rows) {
  const before = select.value;
  const values = [...new Set(rows.map((row) => row[column]))];
  select.replaceChildren(...values.map((value) => make("option", value, { value })));
  select.value = values.map(String).includes(before) ? before : values.at(column === QUERY ? -1 : 0);
  return rows.filter((row) => row[column] === Number(select.value));
}

function show() {
  let rows = keys;
  for (const [select, column] of [[sequence, SEQUENCE], [query, QUERY], [layer, LAYER], [head, HEAD]]) rows = fill(select, column, rows);
  const [row] = rows;
  shown.max = row[POSITION].length;
  const count = Number(shown.value);
  shown.nextElementSibling.value = count;
  const ranks = new Map(row[POSITION].slice(0, count).map((position, index) => [position, index]));
  const label = labels[`${row[LAYER]}.${row[HEAD]}`];
  const held = row[WEIGHT].slice(0, count).reduce((sum, weight) => sum + weight, 0);
  find(".chosen").textContent =
    `Layer ${row[LAYER]}, head ${row[HEAD]}${label ? ` (${label})` : ""}: ${count} keys hold ${(100 * held).toPrecision(3)} % of the weight; ` +
    `outlines are for N = ${row[N]}`;
  find(".tokens").replaceChildren(...tokens[row[SEQUENCE]].map((token, position) => {
    const index = ranks.get(position);
    const asked = position === row[QUERY] ? " query" : position > row[QUERY] ? " after" : "";
    if (index === undefined) return make("span", token, { class: `token${asked}` });
    return make("span", token, {
      class: `token key${asked}${row[WITHIN][index] ? " within" : ""}`,
      style: `--share: ${row[WEIGHT][index]}`,
      tabindex: 0,
      role: "note",
      "aria-label": facts(row, index),
      title: facts(row, index),
    });
  }));
  find("tbody").replaceChildren(...[...ranks].map(([position, index]) => {
    const cells = [index + 1, position, tokens[row[SEQUENCE]][position], ...[WEIGHT, CONTRIBUTION, DISTANCE].map((column) => number(row[column][index]))];
    const line = make("tr", "");
    cells.push(row[WITHIN][index] ? "yes" : "no");
    line.append(...cells.map((cell, at) => make("td", cell, at === 2 || at === 6 ? { class: "word" } : {})));
    return line;
  }));
  find(".detail").textContent = "";
}

const explain = ({ target }) => {
  if (target.matches(".key")) find(".detail").textContent = target.title;
};
card.addEventListener("focusin", explain);
card.addEventListener("pointerover", explain);
form.addEventListener("input", show);
form.addEventListener("submit", (event) => event.preventDefault());

// The head that is chosen in the explorer.
function follow() {
  const [of, chosen] = window.chosenHead ?? [];
  if (!keys.some((row) => row[LAYER] === of && row[HEAD] === chosen)) return;
  layer.value = of;
  fill(head, HEAD, keys.filter((row) => row[LAYER] === of));
  head.value = chosen;
  show();
}
document.addEventListener("head-chosen", follow);
card.hidden = false;
show();
follow();
