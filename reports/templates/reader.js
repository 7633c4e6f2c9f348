// The text reader: the keys of one head in one sequence. The data are in the element #reader-data, packed as the charts.
// Tokens are shown as text only, never as markup.
const { tokens, labels, keys, patterns, examples } = await window.unpacked(document.getElementById("reader-data").textContent);
const [SEQUENCE, QUERY, LAYER, HEAD, N, POSITION, WEIGHT, CONTRIBUTION, DISTANCE, WITHIN] = Array(10).keys();
const card = document.querySelector(".reader");
const find = (part) => card.querySelector(part);
const [sequence, query, layer, head, shown] = ["sequence", "query", "layer", "head", "shown"].map((name) => find(`[name=${name}]`));

function make(name, text, attributes = {}) {
  const element = document.createElement(name);
  element.textContent = text;
  for (const [attribute, value] of Object.entries(attributes)) element.setAttribute(attribute, value);
  return element;
}

const percent = (share) =>
  share >= 0.9995 ? "over 99.9 %" : share > 0 && share < 1e-6 ? "below 0.0001 %" : `${(100 * share).toPrecision(3)} %`;
const total = (weights) => weights.reduce((sum, weight) => sum + weight, 0);
const number = (value) => (value === null ? "–" : String(value));
const isWithin = (row, index, count) => (row[WITHIN][index] >> (count - 1)) & 1;
// A token that continues a character has no text; it is named by that character.
const word = (row, position) => tokens[row[SEQUENCE]].slice(0, position + 1).findLast(Boolean) ?? "";
const facts = (row, index, count) =>
  `“${word(row, row[POSITION][index])}” at position ${row[POSITION][index]}: rank ${index + 1}, weight ${number(row[WEIGHT][index])}, ` +
  `contribution ${number(row[CONTRIBUTION][index])}, distance from s_${row[N]} ${number(row[DISTANCE][index])} of its length` +
  (isWithin(row, index, count) ? `, within r_min at N = ${count}` : "");

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
  const place = `${row[LAYER]}.${row[HEAD]}`;
  const ranks = new Map(row[POSITION].slice(0, count).map((position, index) => [position, index]));
  const label = labels[place];
  find(".chosen").textContent =
    `Layer ${row[LAYER]}, head ${row[HEAD]}${label ? ` (${label})` : ""}: ${count === 1 ? "1 key holds" : `${count} keys hold`} ${percent(total(row[WEIGHT].slice(0, count)))} of the weight.`;
  find(".looks").textContent = place in patterns ? `Known to look at: ${patterns[place]}.` : "";
  find(".distance").textContent = `distance from s_N over ‖s_N‖ at N = ${row[N]}`;
  find(".tokens").replaceChildren(...tokens[row[SEQUENCE]].map((token, position) => {
    const index = ranks.get(position);
    const asked = position === row[QUERY] ? " query" : position > row[QUERY] ? " after" : "";
    if (index === undefined) return make("span", token, { class: `token${asked}` });
    return make("span", token, {
      class: `token key${asked}${isWithin(row, index, count) ? " within" : ""}`,
      style: `--share: ${row[WEIGHT][index]}`,
      tabindex: 0,
      role: "note",
      "aria-label": facts(row, index, count),
      title: facts(row, index, count),
    });
  }));
  find("tbody").replaceChildren(...[...ranks].map(([position, index]) => {
    const cells = [index + 1, position, word(row, position), ...[WEIGHT, CONTRIBUTION, DISTANCE].map((column) => number(row[column][index]))];
    const line = make("tr", "");
    cells.push(isWithin(row, index, count) ? "yes" : "no");
    line.append(...cells.map((cell, at) => make("td", cell, at === 2 || at === 6 ? { class: "word" } : {})));
    return line;
  }));
  find(".detail").textContent = "";
  const text = find(".tokens"); // the query is in view, above all for heads that look at what is near it
  text.scrollTop = find(".query").offsetTop - text.clientHeight + 48;
  tell();
}

// Where the keys are that are scrolled out of view, and how much of the weight they hold.
function tell() {
  const text = find(".tokens");
  const middles = [...text.querySelectorAll(".key")].map((key) => [key.offsetTop + key.offsetHeight / 2 - text.scrollTop, Number(key.style.getPropertyValue("--share"))]);
  const sides = { above: middles.filter(([middle]) => middle < 0), below: middles.filter(([middle]) => middle > text.clientHeight) };
  const told = Object.entries(sides).filter(([, keys]) => keys.length).map(([side, keys]) =>
    `${keys.length === 1 ? "1 key" : `${keys.length} keys`} ${side}, with ${percent(total(keys.map(([, weight]) => weight)))} of the weight`);
  find(".unseen").textContent = `Out of view: ${told.join("; ") || "none"}.`;
}

const explain = ({ target }) => {
  if (target.matches(".key")) find(".detail").textContent = target.title;
};
card.addEventListener("focusin", explain);
card.addEventListener("pointerover", explain);
card.addEventListener("input", show);
find(".tokens").addEventListener("scroll", tell);
new ResizeObserver(tell).observe(find(".tokens"));

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

// The strongest examples of each label: a button for each head.
async function visit([of, chosen, ofSequence, ofQuery]) {
  await window.chooseHead(of, chosen);
  [sequence.value, query.value] = [ofSequence, ofQuery];
  show();
  card.scrollIntoView();
}
find(".examples").hidden = !examples.length;
find(".examples dl").append(...examples.flatMap(([label, meaning, heads, strongest]) => {
  const buttons = make("dd", "");
  buttons.append(...strongest.map((example) => {
    const [of, chosen, ofSequence, ofQuery, share, text] = example;
    const told = `Layer ${of}, head ${chosen}: ${share} of its ${label === "diffuse" ? "largest entropy" : "weight"} ` +
      `${text === "probe" ? "on repeated tokens" : "in the text"}; ` +
      `${label === "diffuse" ? "spread most" : "most"} in sequence ${ofSequence} at query ${ofQuery}`;
    const button = make("button", `layer ${of}, head ${chosen}`, { type: "button", title: told, "aria-label": told });
    button.append(make("span", share));
    button.addEventListener("click", () => visit(example));
    return button;
  }));
  return [make("dt", `${label}: ${meaning} (${heads} ${heads === 1 ? "head" : "heads"})`), buttons];
}));
card.hidden = false;
show();
follow();
