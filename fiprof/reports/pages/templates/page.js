// Hands the page's figures to plotly and its tables to DataTables: what is near the screen at once, the rest from the
// top while the reader reads. plotly is large: it is text until the first chart's turn, so that nothing waits for it.
const touch = matchMedia("(pointer: coarse)").matches;
const places = [...document.querySelectorAll(".plot, table[data-rows]")];
const waiting = new Set(places.filter((place) => !place.closest("details:not([open])")));

function plotly() {
  if (!globalThis.Plotly) {
    const script = document.createElement("script");
    script.textContent = document.getElementById("plotly").textContent;
    document.head.append(script);
  }
  return Plotly;
}

function draw(place) {
  const figure = JSON.parse(document.getElementById(place.dataset.figure).textContent);
  if (touch) figure.layout.dragmode = false; // a finger on a chart scrolls the page
  const config = { responsive: true, displaylogo: false, displayModeBar: touch ? false : "hover" };
  plotly().newPlot(place, figure.data, figure.layout, config);
}

function sortable(table) {
  if (table.matches(".dataTable")) return;
  const long = "long" in table.dataset;
  const paged = "paged" in table.dataset;
  new DataTable(table, {
    autoWidth: false,
    columnDefs: [{ targets: "number", type: "num" }],
    info: paged,
    layout: {
      topStart: null,
      topEnd: long ? "search" : null,
      bottomStart: paged ? "info" : null,
      bottomEnd: paged ? "paging" : null,
    },
    order: [],
    orderClasses: false,
    pageLength: 100,
    paging: paged,
  });
}

function finish(place) {
  if (!waiting.delete(place)) return;
  if (place.matches("table")) sortable(place);
  else draw(place);
}

function unfold(anchor) {
  const target = anchor && document.getElementById(decodeURIComponent(anchor.slice(1)));
  if (!target) return;
  for (let at = target; at; at = at.parentElement) if (at.matches("details")) at.open = true;
  const own = target.matches("section") && target.querySelector(":scope > details");
  if (own) own.open = true;
}

for (const folded of document.querySelectorAll("details")) {
  folded.addEventListener("toggle", () => folded.querySelectorAll("table[data-rows]").forEach(sortable));
}
addEventListener("hashchange", () => unfold(location.hash));
addEventListener("beforeprint", () => waiting.forEach(finish));
unfold(location.hash);

const later = globalThis.requestIdleCallback ?? setTimeout;

function say(word) {
  performance.mark(word);
  document.documentElement.setAttribute(`data-${word}`, "");
}

function rest() {
  const [first] = waiting;
  if (!first) return say("complete");
  finish(first);
  later(rest);
}

let ready = false;
const near = new IntersectionObserver((seen) => {
  for (const { isIntersecting, target } of seen) if (isIntersecting) finish(target);
  if (!ready) later(rest);
  if (!ready) say("ready");
  ready = true;
});
// An observer without targets says nothing.
[document.body, ...waiting].forEach((place) => near.observe(place));
