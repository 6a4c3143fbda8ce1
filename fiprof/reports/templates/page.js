// Hands the page's figures to plotly and its tables to DataTables, one after the other while the reader reads.
const touch = matchMedia("(pointer: coarse)").matches;
const charts = [...document.querySelectorAll(".plot")];
const tables = [...document.querySelectorAll("table[data-rows]")];

function draw(place) {
  const figure = JSON.parse(document.getElementById(place.dataset.figure).textContent);
  if (touch) figure.layout.dragmode = false; // a finger on a chart scrolls the page
  Plotly.newPlot(place, figure.data, figure.layout, { responsive: true, displaylogo: false, displayModeBar: touch ? false : "hover" });
}

function sortable(table) {
  const long = "long" in table.dataset;
  const paged = "paged" in table.dataset;
  new DataTable(table, {
    autoWidth: false,
    columnDefs: [{ targets: "number", type: "num" }],
    info: paged,
    layout: { topStart: null, topEnd: long ? "search" : null, bottomStart: paged ? "info" : null, bottomEnd: paged ? "paging" : null },
    order: [],
    pageLength: 100,
    paging: paged,
  });
}

function open(anchor) {
  const folded = anchor && document.getElementById(decodeURIComponent(anchor.slice(1)))?.closest("details");
  if (folded) folded.open = true;
}

for (const folded of document.querySelectorAll("details")) {
  folded.addEventListener("toggle", () => {
    for (const table of folded.querySelectorAll("table[data-rows]:not(.dataTable)")) sortable(table);
  });
}
addEventListener("hashchange", () => open(location.hash));
addEventListener("beforeprint", () => charts.splice(0).forEach(draw));
open(location.hash);

const later = globalThis.requestIdleCallback ?? setTimeout;
const visible = tables.filter((table) => !table.closest("details:not([open])"));
(function next() {
  if (charts.length) draw(charts.shift());
  else if (visible.length) sortable(visible.shift());
  else return document.documentElement.setAttribute("data-complete", "");
  later(next);
})();
