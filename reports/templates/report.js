// Draws every chart of the page in the reader's colour scheme, and redraws it when the scheme changes: first interactive
// charts and those in view, then those close to the view, and the rest while the browser is idle.
// Charts and both configurations are in the element #charts, as compressed JSON in base 64; window.vegaEmbed comes from
// the bundle before this script.
async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return JSON.parse(await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text());
}

window.unpacked = unpacked; // for the text reader

const { charts, light, dark, name } = await unpacked(document.getElementById("charts").textContent);
const wantsDark = matchMedia("(prefers-color-scheme: dark)");
const embedded = new Map(); // key of a chart → result of vegaEmbed
const drawing = new Map(); // key of a chart → promise of its latest drawing
let printing = false;
const EXPLORER = "explorer";
const MAP = "head-map";

const placeOf = ({ key }) => document.getElementById(`chart-${key}`);
const joined = ({ spec }) => "concat" in spec;

// Concatenated views have fixed widths: as many columns as there is room for, each view in proportion.
const AXIS = 58; // width of a view outside its plotting area, in pixels
const GAP = 24; // between two views
const natural = (spec) => {
  const views = spec.concat ?? spec.vconcat;
  if (!views) return spec.width + AXIS;
  const columns = spec.columns ?? 1;
  return columns === 1 ? Math.max(...views.map(natural)) : views.slice(0, columns).reduce((sum, view) => sum + natural(view), 0);
};
function fit(spec, width) {
  const kind = "concat" in spec ? "concat" : "vconcat";
  const views = spec[kind];
  if (!views) return { ...spec, width: Math.max(80, Math.floor(width - AXIS)) };
  const columns = width < 0.8 * natural(spec) ? 1 : (spec.columns ?? 1);
  const share = (view) => (columns === 1 ? width : ((width - GAP) * natural(view)) / natural(spec));
  return { ...spec, columns: kind === "concat" ? columns : undefined, [kind]: views.map((view) => fit(view, share(view))) };
}

// Legends above a chart have as many columns as there is room for.
const pen = document.createElement("canvas").getContext("2d");
pen.font = `12px ${light.font}`;
const SYMBOL = 38; // width of a label outside its letters, in pixels
const broadest = (sizes, columns) =>
  [...Array(columns).keys()].reduce((sum, column) => sum + Math.max(...sizes.filter((_, index) => index % columns === column)), 0);
function roomy(spec, width) {
  if (Array.isArray(spec)) return spec.map((part) => roomy(part, width));
  if (spec === null || typeof spec !== "object") return spec;
  const { legend, scale } = spec;
  if (legend?.orient === "top" && Array.isArray(scale?.domain)) {
    const sizes = scale.domain.map((label) => SYMBOL + pen.measureText(legend.labelExpr ? `M: ${label}` : label).width);
    let columns = legend.columns || sizes.length;
    if (broadest(sizes, columns) > width) {
      while (columns > 1 && broadest(sizes, columns) > width) columns -= 1;
      return { ...spec, legend: { ...legend, columns } };
    }
  }
  return Object.fromEntries(Object.entries(spec).map(([name, part]) => [name, name === "datasets" ? part : roomy(part, width)]));
}

// Titles wider than their chart are wrapped, first after a colon.
function wrapped(spec, width) {
  if (typeof spec.title !== "string") return spec;
  pen.save();
  pen.font = `600 15px ${light.font}`;
  const fits = (text) => pen.measureText(text).width <= width;
  const lines = [];
  for (const part of fits(spec.title) ? [spec.title] : spec.title.split(/(?<=:) /)) {
    lines.push("");
    for (const word of part.split(" ")) {
      const longer = lines.at(-1) ? `${lines.at(-1)} ${word}` : word;
      if (!lines.at(-1) || fits(longer)) lines[lines.length - 1] = longer;
      else lines.push(word);
    }
  }
  pen.restore();
  return { ...spec, title: lines.length > 1 ? lines : spec.title };
}

// The reader's choices in a chart: the signals to which its inputs are bound.
const choices = ({ view, vgSpec }) =>
  vgSpec.signals.filter((signal) => signal.bind).map((signal) => [signal.name, view.signal(signal.name)]);

const specOf = (chart, width) => (joined(chart) ? fit(chart.spec, width - 8) : wrapped(roomy(chart.spec, width - AXIS), width - 12));

// A line of a tooltip as HTML: escaped as by Vega, with words for what JavaScript has names for.
const WORDS = new Map([["null", "–"], ["NaN", "–"], ["false", "no"], ["true", "yes"]]);
const worded = (value) => (WORDS.get(String(value)) ?? String(value)).replace(/&/g, "&amp;").replace(/</g, "&lt;");

async function draw(chart) {
  const place = placeOf(chart);
  const before = embedded.get(chart.key);
  const kept = before ? choices(before) : [];
  before?.finalize();
  const isDark = wantsDark.matches && !printing;
  try {
    const drawn = await window.vegaEmbed(place, specOf(chart, place.clientWidth), {
      mode: "vega-lite",
      renderer: "svg",
      ast: true,
      config: isDark ? dark : light,
      tooltip: { theme: isDark ? "dark" : "light", sanitize: worded },
      actions: { export: true, source: false, compiled: false, editor: false },
      downloadFileName: `${name}-${chart.key}`,
    });
    embedded.set(chart.key, drawn);
    kept.forEach(([signal, value]) => drawn.view.signal(signal, value));
    if (kept.length) await drawn.view.runAsync();
    if (chart.key === EXPLORER) await follow(drawn.view, chart, !before);
    if (chart.key === MAP) link(drawn.view);
    if (chart.key === EXPLORER || chart.key === MAP) focusable(chart.key);
  } catch (error) {
    place.textContent = `This chart could not be drawn: ${error.message}`;
    place.classList.add("failed");
  }
  place.style.minHeight = "";
}

function once(chart) {
  if (!drawing.has(chart.key)) drawing.set(chart.key, draw(chart));
  return drawing.get(chart.key);
}

function again(which) {
  for (const chart of charts.filter((chart) => drawing.has(chart.key) && which(chart)))
    drawing.set(chart.key, drawing.get(chart.key).then(() => draw(chart)));
}

const idle = () => new Promise((go) => (window.requestIdleCallback ?? setTimeout)(go, { timeout: 100 }));

// A chart takes the width of its container, so a folded chart is drawn only when it is unfolded.
const shown = (chart) => placeOf(chart).clientWidth > 0 && placeOf(chart).checkVisibility({ contentVisibilityAuto: true });

async function drawAll() {
  for (const chart of charts) placeOf(chart).style.minHeight = `${(chart.spec.height ?? 250) + 80}px`;
  await Promise.all(charts.filter((chart) => joined(chart) && shown(chart)).map(once));
  performance.mark("choosable");
  const near = new IntersectionObserver(
    (entries) => entries.filter((entry) => entry.isIntersecting).forEach((entry) => once(charts[entry.target.dataset.index])),
    { rootMargin: "600px" },
  );
  charts.forEach((chart, index) => {
    placeOf(chart).dataset.index = index;
    near.observe(placeOf(chart));
  });
  for (const chart of charts.filter(shown)) {
    await idle();
    await once(chart);
  }
  document.documentElement.dataset.charts = "drawn";
}

wantsDark.addEventListener("change", () => again(() => true));
addEventListener("beforeprint", () => {
  printing = true;
  charts.filter(shown).forEach(once);
  if (wantsDark.matches) again(() => true);
});
addEventListener("afterprint", () => {
  printing = false;
  if (wantsDark.matches) again(() => true);
});
let width = innerWidth;
let resized;
addEventListener("resize", () => {
  clearTimeout(resized);
  resized = setTimeout(() => {
    if (innerWidth !== width) again(() => true); // their legends and titles are fitted to the width
    width = innerWidth;
  }, 200);
});

// Unfolded charts are drawn at once.
const drawShown = () => charts.filter(shown).forEach(once);
addEventListener("toggle", (event) => {
  if (event.target.matches(".more, .part")) drawShown();
}, true);

// Tabs: figures that share a place, one of them visible.
for (const tabs of document.querySelectorAll(".tabs")) {
  const buttons = [...tabs.querySelectorAll("[role=tab]")];
  const choose = (chosen) => {
    for (const button of buttons) {
      button.ariaSelected = String(button === chosen);
      button.tabIndex = button === chosen ? 0 : -1;
      document.getElementById(button.getAttribute("aria-controls")).hidden = button !== chosen;
    }
  };
  tabs.choose = choose;
  tabs.querySelector("[role=tablist]").hidden = buttons.length < 2;
  buttons.forEach((button, index) => {
    button.addEventListener("click", () => {
      choose(button);
      drawShown();
    });
    button.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const next = buttons[(index + step + buttons.length) % buttons.length];
      choose(next);
      next.focus();
      drawShown();
    });
  });
  choose(buttons[0]);
}

// The target of an address is unfolded, and its tab selected.
function reveal() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target) return;
  for (let place = target; place; place = place.parentElement?.closest("details, [role=tabpanel]")) {
    if (place.localName === "details") place.open = true;
    if (place.role === "tabpanel") place.closest(".tabs").choose(document.getElementById(place.getAttribute("aria-labelledby")));
  }
  target.scrollIntoView();
}
addEventListener("hashchange", reveal);
reveal();

// The head chosen in the explorer is part of the address: #explorer/LAYER/HEAD.
const asked = () => location.hash.match(/^#explorer\/(\d+)\/(\d+)$/)?.slice(1).map(Number);
async function follow(view, chart, isFirst) {
  const { data, datasets } = chart.spec;
  const heads = JSON.parse(data.values ?? datasets[data.name]);
  const choice = () => ["chosen_layer", "chosen_head"].map((name) => view.signal(name));
  chart.restore = async () => {
    const head = asked();
    if (!head || !heads.some((row) => row.layer === head[0] && row.head === head[1])) return;
    view.signal("chosen_layer", head[0]).signal("chosen_head", head[1]);
    await view.runAsync();
    document.getElementById(EXPLORER).scrollIntoView();
  };
  if (isFirst) await chart.restore();
  const tell = () => {
    window.chosenHead = choice(); // for the text reader, which may be ready later
    document.dispatchEvent(new Event("head-chosen"));
  };
  tell();
  for (const name of ["chosen_layer", "chosen_head"])
    view.addSignalListener(name, () => {
      history.replaceState(null, "", `#explorer/${choice().join("/")}`);
      tell();
    });
}
addEventListener("hashchange", () => charts.find((chart) => chart.key === EXPLORER)?.restore?.());

// A head is chosen in the explorer, whoever asks for it; the map of heads marks it.
async function choose(layer, head) {
  const { view } = embedded.get(EXPLORER);
  await view.signal("chosen_layer", layer).signal("chosen_head", head).runAsync();
}
window.chooseHead = choose; // for the text reader

// Maps of heads are reached with the Tab key, and the arrow keys move the choice over layers and heads.
const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
function focusable(key) {
  const map = placeOf({ key }).querySelector("svg");
  map.tabIndex = 0;
  map.ariaLabel = "Map of heads: the arrow keys choose a head";
  map.addEventListener("keydown", (event) => {
    const step = STEPS[event.key];
    if (!step || !window.chosenHead) return;
    event.preventDefault();
    const heads = placed();
    const [layer, head] = window.chosenHead.map((index, axis) => index + step[axis]);
    if (heads.has(`${layer}/${head}`)) choose(layer, head);
  });
}
const placed = () => {
  const { data, datasets } = charts.find((chart) => chart.key === EXPLORER).spec;
  return new Set(JSON.parse(data.values ?? datasets[data.name]).map((row) => `${row.layer}/${row.head}`));
};
function mark() {
  const [layer, head] = window.chosenHead ?? [];
  embedded.get(MAP)?.view.signal("chosen_layer", layer ?? -1).signal("chosen_head", head ?? -1).runAsync();
}
document.addEventListener("head-chosen", mark);
function link(view) {
  view.addEventListener("click", (_, item) => {
    if (item?.datum?.head !== undefined) choose(item.datum.layer, item.datum.head);
  });
  mark();
}

// SQL and commands can be copied.
for (const text of document.querySelectorAll("pre.sql, pre.command")) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copy";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text.textContent);
    } catch {
      getSelection().selectAllChildren(text);
      document.execCommand("copy");
    }
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
  text.before(button);
}

// Tables wider than their container show that they scroll.
const sizes = new ResizeObserver((entries) => {
  for (const { target } of entries) target.classList.toggle("scrolls", target.scrollWidth > target.clientWidth + 1);
});
for (const table of document.querySelectorAll(".listing, .scroll")) sizes.observe(table);

// The contents: closed on narrow screens, and with a mark at the section being read.
const contents = document.querySelector(".contents details");
if (contents) {
  const wide = matchMedia("(min-width: 75rem)");
  const unfold = () => { contents.open = wide.matches; };
  unfold();
  wide.addEventListener("change", unfold);
  const links = new Map([...contents.querySelectorAll("a")].map((link) => [link.hash.slice(1), link]));
  const sections = [...document.querySelectorAll("main section[id]")].filter((section) => links.has(section.id));
  const mark = () => {
    const atEnd = scrollY > 0 && innerHeight + scrollY >= document.documentElement.scrollHeight - 2;
    const begun = (section) => atEnd || section.getBoundingClientRect().top < innerHeight / 3;
    const read = (scrollY > 0 && sections.findLast(begun)) || sections[0];
    for (const section of sections) {
      const link = links.get(section.id);
      if (section !== read) link.removeAttribute("aria-current");
      else if (!link.hasAttribute("aria-current")) {
        link.setAttribute("aria-current", "location");
        if (wide.matches) contents.parentElement.scrollTop = link.offsetTop - innerHeight / 3;
      }
    }
  };
  let marked;
  addEventListener("scroll", () => {
    cancelAnimationFrame(marked);
    marked = requestAnimationFrame(mark);
  }, { passive: true });
  mark();
}

drawAll();
