// Draws every chart of the page, in the colours the reader's system asks for, and again when these change.
// Charts and both configurations come from the JSON element #charts; window.vegaEmbed from the bundle before this script.
const { charts, light, dark, name } = JSON.parse(document.getElementById("charts").textContent);
const wantsDark = matchMedia("(prefers-color-scheme: dark)");
const views = new Map();

async function draw({ key, spec }, isDark) {
  const place = document.getElementById(`chart-${key}`);
  views.get(key)?.finalize();
  try {
    const view = await window.vegaEmbed(place, spec, {
      mode: "vega-lite",
      renderer: "svg",
      ast: true,
      config: isDark ? dark : light,
      tooltip: { theme: isDark ? "dark" : "light" },
      actions: { export: true, source: false, compiled: false, editor: false },
      downloadFileName: `${name}-${key}`,
    });
    views.set(key, view);
  } catch (error) {
    place.textContent = `This chart could not be drawn: ${error.message}`;
    place.classList.add("failed");
  }
}

const drawAll = (isDark) => Promise.all(charts.map((chart) => draw(chart, isDark)));

let drawn = drawAll(wantsDark.matches);
const redraw = (isDark) => {
  drawn = drawn.then(() => drawAll(isDark));
};
wantsDark.addEventListener("change", (event) => redraw(event.matches));
addEventListener("beforeprint", () => wantsDark.matches && redraw(false));
addEventListener("afterprint", () => wantsDark.matches && redraw(true));
