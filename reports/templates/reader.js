// The text reader: what one head measures and selects in one sequence. The data are in the element #reader-data, packed
// as the charts. Tokens are shown as text only, never as markup.
const { tokens, labels, keys, measures, patterns, examples, opening } = await window.unpacked(document.getElementById("reader-data").textContent);
const [SEQUENCE, QUERY, LAYER, HEAD, N, POSITION, WEIGHT, CONTRIBUTION, DISTANCE, WITHIN] = Array(10).keys();
const card = document.querySelector(".reader");
const find = (part) => card.querySelector(part);
const [sequence, layer, head, query, shown, colour] = ["sequence", "layer", "head", "query", "shown", "colour"].map((name) => find(`[name=${name}]`));
const rows = new Map(keys.map((row) => [row.slice(0, N).join("/"), row]));
const text = find(".tokens");

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
const word = (of, position) => tokens[of].slice(0, position + 1).findLast(Boolean) ?? "";
const named = (of, position) => `“${word(of, position)}” at position ${position}`;
const facts = (row, index, count) =>
  `${named(row[SEQUENCE], row[POSITION][index])}: rank ${index + 1}, weight ${number(row[WEIGHT][index])}` +
  (row[N] === null ? "" : `, contribution ${number(row[CONTRIBUTION][index])}, ` +
    `distance from s_${row[N]} ${number(row[DISTANCE][index])} of its length`) +
  (isWithin(row, index, count) ? `, within r_min at N = ${count}` : "");

// The keys of a query: all that is known of them at some; at the others positions and rounded weights, of some heads.
function rowOf(of, asked, place) {
  const whole = rows.get([of, asked, ...place.split(".")].join("/"));
  const texts = measures?.keys.heads[place];
  if (whole || !texts || of >= measures.keys.sequences) return whole;
  const start = (of * tokens[of].length + asked) * measures.keys.most;
  const [back, steps] = texts.map((text) =>
    Array.from({ length: measures.keys.most }, (_, rank) => text.charCodeAt(start + rank) - measures.lowest).filter((code) => code >= 0));
  const weights = steps.map((step) => Number(((step / (measures.keys.steps - 1)) ** 2).toPrecision(2)));
  const none = back.map(() => null);
  return [of, asked, ...place.split(".").map(Number), null, back.map((distance) => asked - distance), weights, none, none, none];
}

// The values that a column has among some rows.
function fill(select, column, rows) {
  const before = select.value;
  const values = [...new Set(rows.map((row) => row[column]))];
  select.replaceChildren(...values.map((value) => make("option", value, { value })));
  select.value = values.map(String).includes(before) ? before : values.at(column === QUERY ? -1 : 0);
  return rows.filter((row) => row[column] === Number(select.value));
}

// Any position but the first can be the query if all are measured; otherwise those that have keys.
function complete() {
  let left = keys;
  for (const [select, column] of [[sequence, SEQUENCE], [layer, LAYER], [head, HEAD]]) left = fill(select, column, left);
  if (!measures) return void fill(query, QUERY, left);
  query.max = tokens[sequence.value].length - 1;
  query.value = Math.min(query.max, Math.max(1, Math.round(query.value) || query.max));
}

// What the head measures at a query, by one of the measures: the step of its value, null if it has none.
function step([, , , codes], of, position) {
  const place = measures.heads.indexOf(`${layer.value}.${head.value}`);
  const code = codes.charCodeAt((place * tokens.length + of) * tokens[of].length + position) - measures.lowest;
  return place >= 0 && code >= 0 ? code / (measures.levels - 1) : null;
}
function told(measure, of, position) {
  const [title, most, isCount] = measure;
  const share = step(measure, of, position);
  const value = share === null ? "–" : isCount ? (most ** share).toPrecision(2) : share.toFixed(2);
  return `${title} ${share === 1 && title.startsWith("error") ? "1 or more" : Number(value) || value}`;
}

const cut = (values) => values.filter(Boolean).join("; ");
function showTokens(row, of, asked, ranks) {
  const measure = measures?.columns[colour.value];
  text.replaceChildren(...tokens[of].map((token, position) => {
    const index = ranks.get(position);
    const isKey = index !== undefined;
    const share = measure ? step(measure, of, position) : null;
    const kinds = { key: isKey, within: isKey && isWithin(row, index, ranks.size), measured: share !== null, query: position === asked, after: position > asked };
    const said = cut([isKey && facts(row, index, ranks.size), measure && `${isKey ? "" : `${named(of, position)}: `}${told(measure, of, position)}`]);
    return make("span", token, {
      class: ["token", ...Object.keys(kinds).filter((kind) => kinds[kind])].join(" "),
      ...(share !== null && { style: `--level: ${share}` }),
      ...(said && { title: said }),
      ...(isKey && { style: `--share: ${row[WEIGHT][index]}; --level: ${share ?? 0}`, tabindex: 0, role: "note", "aria-label": said }),
    });
  }));
}

function showTable(row, of, ranks) {
  find("tbody").replaceChildren(...[...ranks].map(([position, index]) => {
    const cells = [index + 1, position, word(of, position), ...[WEIGHT, CONTRIBUTION, DISTANCE].map((column) => number(row[column][index]))];
    const line = make("tr", "");
    cells.push(row[N] === null ? "–" : isWithin(row, index, ranks.size) ? "yes" : "no");
    line.append(...cells.map((cell, at) => make("td", cell, at === 2 || at === 6 ? { class: "word" } : {})));
    return line;
  }));
}

function show() {
  complete();
  const [of, asked] = [sequence, query].map((input) => Number(input.value));
  const place = `${layer.value}.${head.value}`;
  const row = rowOf(of, asked, place);
  shown.max = row?.[POSITION].length ?? 16;
  const count = Number(shown.value);
  shown.nextElementSibling.value = count;
  const chosen = [...new Set(keys.map((one) => one[QUERY]))].join(", ");
  const known = Object.keys(measures?.keys.heads ?? {}).join(", ");
  const held = row
    ? `${count === 1 ? "1 key holds" : `${count} keys hold`} ${percent(total(row[WEIGHT].slice(0, count)))} of the weight${row[N] === null ? `; outlines and contributions are known at the queries ${chosen}` : ""}`
    : `the page has its keys at the queries ${chosen}${known && `; at all of the first ${measures.keys.sequences} sequences for the heads ${known}`}`;
  find(".chosen").textContent = `Layer ${layer.value}, head ${head.value}${labels[place] ? ` (${labels[place]})` : ""}: ${held}.`;
  find(".looks").textContent = place in patterns ? `Known to look at: ${patterns[place]}.` : "";
  find(".distance").textContent = row && row[N] !== null ? `distance from s_N over ‖s_N‖ at N = ${row[N]}` : "";
  if (measures) {
    const has = measures.heads.includes(place);
    find(".values").textContent = has
      ? `At this query, ${named(of, asked)}: ${measures.columns.map((measure) => told(measure, of, asked)).join(", ")}.`
      : "The page has no measures of every query of this head.";
    find(".high").textContent = measures.columns[colour.value]?.[1] ?? 1;
    find(".low").textContent = measures.columns[colour.value]?.[2] ? 1 : 0;
    find(".ramp").classList.toggle("measured", colour.value !== "");
    showEnds(measures.ends[place]);
  }
  const ranks = new Map(row?.[POSITION].slice(0, count).map((position, index) => [position, index]));
  showTokens(row, of, asked, ranks);
  showTable(row, of, ranks);
  find(".detail").textContent = "";
  const { offsetTop: top } = find(".query"); // it is in view, above all for heads that look at what is near it
  if (top < text.scrollTop || top > text.scrollTop + text.clientHeight - 24) text.scrollTop = top - text.clientHeight + 48;
  tell();
}

// The state is part of the address: #reader/SEQUENCE/QUERY/LAYER/HEAD/N/COLOUR.
function keep() {
  show();
  const state = [sequence, query, layer, head, shown].map((input) => input.value);
  history.replaceState(null, "", `#${["reader", ...state, measures?.columns[colour.value]?.[0].replaceAll(" ", "-") ?? "weight"].join("/")}`);
}
function choose(of, asked, ...place) {
  fill(sequence, SEQUENCE, keys);
  sequence.value = of;
  fill(layer, LAYER, keys);
  layer.value = place[0];
  fill(head, HEAD, keys.filter((row) => row[LAYER] === Number(place[0])));
  head.value = place[1];
  if (!measures) fill(query, QUERY, keys);
  query.value = asked;
}
function restore() {
  const [, ...state] = location.hash.match(/^#reader\/(\d+)\/(\d+)\/(\d+)\/(\d+)\/(\d+)\/([\w-]+)$/) ?? [];
  if (!state.length) return false;
  choose(...state.slice(0, 4));
  shown.value = state[4];
  if (measures) colour.value = measures.columns.findIndex(([title]) => title.replaceAll(" ", "-") === state[5]);
  if (measures && colour.selectedIndex < 0) colour.value = "";
  show();
  card.scrollIntoView();
  return true;
}

// Where the keys are that are scrolled out of view, and how much of the weight they hold.
function tell() {
  const middles = [...text.querySelectorAll(".key")].map((key) => [key.offsetTop + key.offsetHeight / 2 - text.scrollTop, Number(key.style.getPropertyValue("--share"))]);
  const sides = { above: middles.filter(([middle]) => middle < 0), below: middles.filter(([middle]) => middle > text.clientHeight) };
  const unseen = Object.entries(sides).filter(([, keys]) => keys.length).map(([side, keys]) =>
    `${keys.length === 1 ? "1 key" : `${keys.length} keys`} ${side}, with ${percent(total(keys.map(([, weight]) => weight)))} of the weight`);
  find(".unseen").textContent = `Out of view: ${unseen.join("; ") || "none"}.`;
}

const explain = ({ target }) => {
  if (target.matches(".token[title]")) find(".detail").textContent = target.title;
};
card.addEventListener("focusin", explain);
card.addEventListener("pointerover", explain);
card.addEventListener("input", keep);
text.addEventListener("scroll", tell);
new ResizeObserver(tell).observe(text);

// A click on a token makes it the query, and so do the arrow keys: the next one, or the nearest of the next line.
function ask(position) {
  if (!measures || position < 1 || position > Number(query.max)) return;
  query.value = position;
  keep();
}
const spans = () => [...text.children];
function onNextLine(direction) {
  const { offsetTop: top, offsetLeft: left } = find(".query");
  const further = spans().filter((span) => direction * (span.offsetTop - top) > 8);
  const line = further.at(direction > 0 ? 0 : -1)?.offsetTop;
  const distance = (span) => Math.abs(span.offsetLeft - left);
  const nearest = further.filter((span) => Math.abs(span.offsetTop - line) < 8).sort((one, other) => distance(one) - distance(other))[0];
  return spans().indexOf(nearest);
}
text.addEventListener("click", ({ target }) => ask(spans().indexOf(target)));
text.addEventListener("keydown", (event) => {
  const asked = Number(query.value);
  const next = { ArrowLeft: () => asked - 1, ArrowRight: () => asked + 1, ArrowUp: () => onNextLine(-1), ArrowDown: () => onNextLine(1) }[event.key];
  if (!next || !measures) return;
  event.preventDefault();
  ask(next());
  text.focus(); // the token that had the focus is gone
});

// The head that is chosen in the explorer.
function follow() {
  const [of, chosen] = window.chosenHead ?? [];
  if (!location.hash.startsWith("#explorer/") || !keys.some((row) => row[LAYER] === of && row[HEAD] === chosen)) return;
  choose(sequence.value, query.value, of, chosen);
  show();
}
document.addEventListener("head-chosen", follow);

// The strongest examples of each label: a button for each head.
async function visit(of, asked, ...place) {
  await window.chooseHead(...place);
  choose(of, asked, ...place);
  keep();
  card.scrollIntoView();
}
function button(parts, said, onClick) {
  const made = make("button", "", { type: "button", title: said, "aria-label": said });
  made.append(...parts);
  made.addEventListener("click", onClick);
  return made;
}
find(".labels").hidden = !examples.length;
find(".labels dl").append(...examples.flatMap(([label, meaning, heads, strongest]) => {
  const buttons = make("dd", "");
  buttons.append(...strongest.map(([of, chosen, ofSequence, ofQuery, share, source]) => {
    const said = `Layer ${of}, head ${chosen}: ${share} of its ${label === "diffuse" ? "largest entropy" : "weight"} ` +
      `${source === "probe" ? "on repeated tokens" : "in the text"}; ` +
      `${label === "diffuse" ? "spread most" : "most"} in sequence ${ofSequence} at query ${ofQuery}`;
    return button([`layer ${of}, head ${chosen}`, make("span", share)], said, () => visit(ofSequence, ofQuery, of, chosen));
  }));
  return [make("dt", `${label}: ${meaning} (${heads} ${heads === 1 ? "head" : "heads"})`), buttons];
}));

// The best and the worst queries of the head, each with the text around it; a button if the page has the sequence.
function showEnds([count, ...ends] = [0, [], []]) {
  find(".ends").hidden = !count;
  find(".ends dl").replaceChildren(...ends.flatMap((some, at) => {
    const list = make("dd", "");
    list.append(...some.map(([of, asked, recall, before, token, after]) => {
      const parts = [make("span", recall.toFixed(2)), ` …${before}`, make("b", token || "·"), `${after}…`];
      const said = `Recall ${recall.toFixed(2)} in sequence ${of} at query ${asked}: …${before}${token}${after}…`;
      if (of < tokens.length) return button(parts, said, () => visit(of, asked, Number(layer.value), Number(head.value)));
      const line = make("p", "", { title: said });
      line.append(...parts);
      return line;
    }));
    return [make("dt", `${at ? "Lowest" : "Highest"} Recall, of ${count.toLocaleString("en")} queries`), list];
  }));
}

card.hidden = false;
addEventListener("hashchange", restore);
const [ofLayer, ofHead, ...example] = opening;
choose(...(example.length ? example : [0, keys.at(-1)[QUERY]]), ofLayer, ofHead);
if (!restore()) show();
follow();
