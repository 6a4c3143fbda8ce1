// The page's data is unpacked once; tables and panes are made from it when they are asked for.
const wordsOf = (text) => text.toLowerCase().split(/\s+/).filter(Boolean);
const percent = (share, digits = 0) => `${(100 * share).toFixed(digits)}%`;
const grouped = (value) => Number(value).toLocaleString("en-US", { maximumFractionDigits: 6 });

function duration(us) {
  if (us >= 1e6) return `${(us / 1e6).toPrecision(4)} s`;
  return us >= 1e3 ? `${(us / 1e3).toPrecision(4)} ms` : `${us.toPrecision(3)} µs`;
}

let data;
try {
  if (!("DecompressionStream" in window)) throw new Error("it has no DecompressionStream");
  const bytes = Uint8Array.from(atob(get("data").textContent.trim()), (char) => char.charCodeAt(0));
  data = await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
} catch (error) {
  get("problem").textContent = `This browser cannot unpack the page's data (${error.message}). Use a newer one, or read report.md.`;
  get("problem").hidden = false;
  throw error;
}

// Every row of every run, and what is selected.
const rows = data.runs.flatMap((run, place) => run.rows.map((row, index) => ({ ...row, run, number: place + 1, index })));
const launches = new Map(data.runs.flatMap((run) => Object.entries(run.details.launches).map(([launch, found]) => [`launch=${run.prefix}${launch}`, { ...found, run, launch: Number(launch) }])));
const several = data.runs.length > 1;
const state = { row: null, launch: null, pane: "why", family: null, words: "", run: null, sort: [], heat: "", open: new Map(), counters: "" };

// Values: a text, a number that says where it comes from, or a list of both

function words(value) {
  if (Array.isArray(value)) return value.map((piece) => (typeof piece === "string" ? piece : fact(...piece)));
  return value?.t === undefined ? [value ?? ""] : [fact(value.t, value.s)];
}

const fact = (text, source) => el("span", { class: "fact", tabindex: 0, "data-tip": data.sources[source] }, text);
const plain = (value) => (Array.isArray(value) ? value.map((piece) => (typeof piece === "string" ? piece : piece[0])).join("") : value ?? "");
const paragraphs = (values, kind = null) => values.map((value) => el("p", { class: kind }, words(value)));
// A long name breaks at its words.
const breakable = (name) => name.length < 12 ? [name] : name.split(/(?<=[_:,<>])(?=\S)|(?<=[a-z\d])(?=[A-Z])/).flatMap((word) => [word, el("wbr")]);
const scrolled = (name, grid, kind = "") => el("div", { class: `scroll ${kind}`, tabindex: 0, role: "group", "aria-label": name }, grid);

const bar = ({ b, m }) => el("span", { class: "track" }, el("span", { style: `width:${100 * b}%` }), m === null ? "" : el("i", { style: `left:${Math.min(100 * m, 99.5)}%` }));

function cell(value, column) {
  const tip = data.sources[value?.s] ?? value?.tip;
  const shade = value?.h === undefined ? null : `background:color-mix(in srgb, #2994ff ${Math.round(70 * Math.min(value.h ?? 0, 1))}%, var(--paper))`;
  const shown = value === null ? "–" : typeof value === "string" ? breakable(value) : Array.isArray(value) ? words(value) : "b" in value ? bar(value) : value.t;
  return el("td", { class: column.n ? "n" : typeof value === "string" && value.length < 12 ? "whole" : null, "data-tip": tip, tabindex: tip ? 0 : null, "data-o": value?.o, style: shade }, shown);
}

function table(view) {
  const made = [...view.warnings.map((value) => el("p", { class: "caution", role: "note" }, words(value))), ...paragraphs(view.summary)];
  if (view.rows.length) {
    const heads = view.columns.map((column, index) => {
      const head = el("th", { scope: "col", class: column.n ? "n" : null, title: column.m || null });
      const title = [column.t, column.u ? el("span", { class: "unit" }, column.u) : ""];
      head.append(...(view.rows.length < 2 || !column.t ? title : [el("button", { type: "button", onclick: () => sortBody(head, index) }, title)]));
      return head;
    });
    const body = view.rows.map((row) => el("tr", {}, row.map((value, index) => cell(value, view.columns[index]))));
    made.push(scrolled(view.title || "Table", el("table", {}, el("thead", {}, el("tr", {}, heads)), el("tbody", {}, body)), view.rows.length > 25 ? "long" : ""));
  }
  made.push(...paragraphs(view.notes, "note"));
  if (view.code) made.push(el("div", { class: "code" }, el("pre", { tabindex: 0 }, el("code", {}, view.code)), el("button", { type: "button", onclick: copy }, "Copy")));
  if (view.folded) return [el("details", {}, el("summary", {}, view.title), made)];
  return view.title ? [el("h3", {}, view.title), ...made] : made;
}

// The table of what takes the time

// Key, heading, whether it is of numbers, and what it means.
const COLUMNS = [
  ["run", "run", true, "Its place among the runs."],
  ["name", "what", false, "What takes the time."],
  ["share", "share", true, "Of the time of an iteration of every case; of a program, of its GPUs' wall time."],
  ["count", "runs", true, "Executions in an iteration; of a program in all."],
  ["time", "time", true, "Of one execution: the median under nsys; where nsys has none, of ncu's launches."],
  ["limit", "limited by", false, "What limits it, how far that is from its limit, and how sure that is."],
  ["roof", "of roof", true, "Of what the lowest roof allows: of a memory's, bytes a second of its peak. The busy time of its unit, under 'limited by', is more: it counts what is no data."],
  ["saving", "gain", true, "What the first step saves, measured, or at most. Sorted by the share of the run's time."],
];

function shownRows() {
  const words = wordsOf(state.words);
  return rows.filter((row) => {
    const text = `${row.name} ${row.label} ${row.full} ${row.limit} ${row.family}`.toLowerCase();
    return (!state.family || row.family === state.family) && (!state.run || row.number === state.run) && words.every((word) => text.includes(word));
  });
}

const doubt = ([text, design]) => (design ? "By design, or the cost model: " : "In doubt: ") + plain(text);
const marks = (row, about) => row.marks.filter(([, , where]) => where === about).map((mark) => el("span", { class: mark[1] ? "mark design" : "mark", tabindex: 0, "data-tip": doubt(mark) }, mark[1] ? "model" : "!"));

function drawRows() {
  const shown = shownRows();
  const filled = { count: (row) => row.count > 1, saving: (row) => plain(row.gain) };
  const columns = COLUMNS.filter(([key]) => key === "name" || (key === "run" ? several : shown.some(filled[key] ?? ((row) => row[key]))));
  const heads = columns.map(([key, title, number, hint], index) => {
    const head = el("th", { scope: "col", class: number ? "n" : null, title: hint });
    const sort = () => {
      sortBody(head, index);
      state.sort = [key, head.ariaSort];
    };
    head.append(el("button", { type: "button", onclick: sort }, title));
    return head;
  });
  const most = Math.max(...rows.map((row) => row.share), 1e-9);
  const cells = {
    run: (row) => String(row.number),
    name: (row) => [el("span", { class: "swatch", style: `background:${row.colour}`, title: row.family }), el("a", { href: `#${row.id}` }, breakable(row.name)), row.label ? el("span", { class: "label" }, row.label) : ""],
    share: (row) => [percent(row.share, 1), el("span", { class: "track" }, el("span", { style: `width:${(100 * row.share) / most}%;background:${row.colour}` }))],
    count: (row) => (row.count ? grouped(Number(row.count.toPrecision(6))) : ""),
    time: (row) => [...words(row.time), ...marks(row, "time")],
    limit: (row) => [row.limit, ...marks(row, "limit"), plain(row.distance) ? el("span", { class: "far" }, words(row.distance)) : "", row.confidence ? el("span", { class: "far" }, `${row.confidence} confidence`) : ""],
    roof: (row) => (row.roof ? el("span", { title: `of the ${row.roof[1]} roof` }, percent(row.roof[0])) : ""),
    saving: (row) => el("span", { title: plain(row.step) || null }, words(row.gain)),
  };
  const body = shown.map((row) => {
    const full = { share: row.share, count: row.count, time: row.time?.o, roof: row.roof?.[0], saving: row.saving };
    const made = el("tr", {}, columns.map(([key, title, number]) => el("td", { class: number ? `n ${key}` : key, "data-o": full[key], "data-title": title }, cells[key](row))));
    made.dataset.id = row.id;
    made.onclick = (event) => event.target.closest("a, .mark") || choose(row.id);
    return made;
  });
  get("rows").replaceChildren(el("thead", {}, el("tr", {}, heads)), el("tbody", {}, body));
  const by = columns.findIndex(([key]) => key === state.sort[0]);
  if (by >= 0) sortBody(heads[by], by, state.sort[1]);
  const shares = shown.reduce((sum, row) => sum + (row.kind === "kernels together" ? 0 : row.share), 0) / (several && !state.run ? data.runs.length : 1);
  const hidden = data.runs.reduce((sum, run) => sum + run.left_out, 0);
  get("rows-note").textContent = `${shown.length} of ${rows.length} rows, ${percent(shares, 1)} of the time.` + (hidden ? ` ${hidden} more of less time are left out: fiprof top and fiprof show have them.` : "");
  mark();
}

function drawChips() {
  const chip = (key, value, ...words) => {
    const press = () => ((state[key] = state[key] === value ? null : value), drawChips(), drawRows());
    return el("button", { type: "button", "aria-pressed": String(state[key] === value), onclick: press }, words);
  };
  const search = el("input", { type: "search", id: "search", placeholder: "Filter ( / )", "aria-label": "Filter the rows", value: state.words });
  search.oninput = () => ((state.words = search.value), drawRows());
  const families = [...new Map(rows.map((row) => [row.family, row.colour]))].slice(0, 12);
  const kinds = families.map(([name, colour]) => chip("family", name, el("span", { class: "swatch", style: `background:${colour}` }), name));
  const runs = data.runs.map((run, place) => chip("run", place + 1, `run ${place + 1}: ${run.name}`));
  get("chips").replaceChildren(search, ...(kinds.length > 1 ? kinds : []), ...(several ? runs : []));
}

function drawWall() {
  for (const run of data.runs) {
    if (!run.wall.length) continue;
    const parts = run.wall.filter(([, share]) => share > 0.0005);
    const title = [several ? `${run.name}: ` : "", ...words(run.window)];
    const bar = parts.map(([name, share, colour]) => el("span", { style: `width:${100 * share}%;background:${colour};color:${ink(colour)}`, title: `${name} ${percent(share, 1)}`, "aria-hidden": "true" }, share * get("wall").clientWidth > 6.2 * name.length + 38 ? `${name} ${percent(share)}` : ""));
    const legend = parts.map(([name, share, colour]) => el("li", {}, el("span", { class: "swatch", style: `background:${colour}` }), `${name} ${percent(share, share < 0.01 ? 1 : 0)}`));
    get("wall").append(el("p", { class: "note" }, ...title), el("div", { class: "wall" }, bar), el("ul", { class: "legend" }, legend));
  }
}

function ink(colour) {
  const light = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16) / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
  return 0.2126 * light[0] + 0.7152 * light[1] + 0.0722 * light[2] > 0.179 ? "#000000" : "#ffffff";
}

// The selection: in the address, moved by keys

const find = (id) => rows.find((row) => row.id === id) ?? rows.find((row) => row.others.some(([other]) => other === id));

function choose(id, { quiet = false } = {}) {
  const row = find(id);
  if (!row) return;
  state.row = row;
  state.launch = launches.get(id) ?? launches.get(row.id) ?? null;
  if (!quiet && location.hash !== `#${id}`) history.replaceState(null, "", `#${id}`);
  drawPane();
  mark();
  drawTimeline();
}

function mark() {
  for (const line of all("#rows tbody tr")) {
    const chosen = line.dataset.id === state.row?.id;
    line.classList.toggle("chosen", chosen);
    line.querySelector("a").ariaCurrent = chosen ? "true" : null;
  }
}

function step(by) {
  const shown = all("#rows tbody tr");
  const next = shown[shown.findIndex((line) => line.dataset.id === state.row?.id) + by];
  if (!next) return;
  choose(next.dataset.id);
  next.scrollIntoView({ block: "nearest" });
}

addEventListener("hashchange", () => choose(decodeURIComponent(location.hash.slice(1))));
addEventListener("keydown", (event) => {
  if (event.target.matches("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) {
    if (event.key === "Escape" && event.target.matches("input")) event.target.blur();
    return;
  }
  const tab = PANES.findIndex(([key]) => key === state.pane);
  const act = {
    "/": () => get("search").focus(),
    j: () => step(1),
    k: () => step(-1),
    n: () => state.pane === "source" && nextHot(1),
    p: () => state.pane === "source" && nextHot(-1),
    Escape: () => hideTip(),
  };
  if (!event.target.closest("canvas, .source, .scroll") || event.target.closest("#rows, .work > div > .scroll")) Object.assign(act, { ArrowDown: () => step(1), ArrowUp: () => step(-1) });
  for (let place = 0; place < PANES.length; place++) act[String(place + 1)] = () => showPane(PANES[place][0]);
  if (event.target.matches("[role=tab]")) {
    act.ArrowRight = () => showPane(PANES[(tab + 1) % PANES.length][0], true);
    act.ArrowLeft = () => showPane(PANES[(tab + PANES.length - 1) % PANES.length][0], true);
  }
  if (!act[event.key]) return;
  act[event.key]();
  event.preventDefault();
});

// Panes

const PANES = [
  ["why", "Why", paneWhy],
  ["source", "Source", paneSource],
  ["roofline", "Roofline", paneRoofline],
  ["stalls", "Stalls", (row, { stalls }) => (stalls ? table(stalls) : nothing("The stall mix"))],
  ["occupancy", "Occupancy", (row, { occupancy }) => (occupancy ? [bar(occupancy.bar), ...table(occupancy.table)] : nothing("Occupancy"))],
  ["counters", "Counters", paneCounters],
];

function showPane(key, focus = false) {
  state.pane = key;
  drawPane();
  if (focus) get(`tab-${key}`).focus();
}

function drawPane() {
  const { row, launch } = state;
  const pane = launch ? state.pane : "why";
  const facts = [];
  if (launch) {
    facts.push(["launch", launch.launch], ["grid", launch.grid], ["block", launch.block]);
    facts.push(["time", launch.times]);
    if (launch.alike > 1) facts.push(["alike", launch.alike]);
    if (![row.label, row.name, "–", ""].includes(launch.case)) facts.push(["case", launch.case]);
  }
  if (row.spread) facts.push(["spread", row.spread.t]);
  const tabs = PANES.filter(([key]) => launch || key === "why").map(([key, title], place) => el("button", { type: "button", role: "tab", id: `tab-${key}`, "aria-selected": String(pane === key), "aria-controls": "panel", tabindex: pane === key ? 0 : -1, title: `Key ${place + 1}`, onclick: () => showPane(key) }, title));
  const own = launches.get(row.id);
  const shapes = [[row.id, own ? `${own.grid} x ${own.block}` : ""], ...row.others].filter(([id]) => launches.has(id));
  const choice = el("select", { onchange: () => choose(choice.value) }, shapes.map(([id, text]) => el("option", { value: id, selected: launches.get(id) === launch }, text)));
  const full = launch?.name ?? row.full;
  get("pane").replaceChildren(
    el("h2", {}, row.name, row.label ? ` · ${row.label}` : ""),
    full && full !== row.name ? el("p", { class: "full", tabindex: 0 }, full) : "",
    el("p", { class: "facts" }, facts.map(([name, value]) => el("span", {}, `${name} `, el("b", {}, String(value))))),
    row.others.length ? el("label", { class: "note" }, "Launch shape ", choice) : "",
    el("div", { role: "tablist", "aria-label": "What is shown of it" }, tabs),
    el("div", { role: "tabpanel", id: "panel", "aria-labelledby": `tab-${pane}` }, PANES.find(([key]) => key === pane)[2](row, launch)),
  );
  get("pane").dataset.id = row.id;
  if (pane === "source" && launch.source && state.hotAt?.launch !== launch) {
    state.hotAt = { launch, place: -1 };
    nextHot(1);
  }
}

const nothing = (what) => [el("p", { class: "note" }, `${what} was not collected for this row.`)];

function paneWhy(row, launch) {
  const uses = row.uses.map(([name, use]) => el("span", { class: "use" }, `${name} `, words(use), bar({ b: Math.min(use.o, 100) / 100, m: null })));
  return [
    uses.length ? el("div", { class: "uses" }, uses) : "",
    ...paragraphs(row.about),
    ...row.marks.map((mark) => el("p", { class: mark[1] ? "note" : "caution" }, doubt(mark))),
    ...(launch?.why.length ? launch.why.flatMap(table) : row.about.length ? [] : nothing("Evidence")),
  ];
}

// Source: the whole listing, folded around what is hot

const HOT = 0.005;
const AROUND = 3;

function heatOf(source) {
  const place = source.reasons.indexOf(state.heat) + 1;
  return place ? source.samples.map((count, at) => (source.reason[at] === place ? count : 0)) : source.samples;
}

const hotOf = (heat, total) => heat.map((_, place) => place).filter((place) => heat[place] >= Math.max(HOT * total, 1));
const offset = (code, place) => `0x${(Array.isArray(code.offsets) ? code.offsets[place] : place * code.offsets).toString(16)}`;

function paneSource(row, launch) {
  const source = launch?.source;
  if (!source) return nothing("The SASS with samples (ncu --set full)");
  const code = launch.run.details.code[source.code];
  const lines = code.lines.split("\n");
  const heat = heatOf(source);
  const total = source.total || 1;
  const hottest = Math.max(...heat, 1);
  const hot = hotOf(heat, total);
  const open = state.open.get(launch) ?? new Set();
  state.open.set(launch, open);
  const visible = new Set(open);
  for (const place of hot) for (let at = place - AROUND; at <= place + AROUND; at++) if (at >= 0 && at < lines.length) visible.add(at);
  if (!hot.length) for (let at = 0; at < Math.min(lines.length, 60); at++) visible.add(at);
  const jump = (at, text) => el("a", { href: `#${state.row.id}`, onclick: (event) => (event.preventDefault(), reveal(launch, at)) }, text);
  const columns = ["samples", "stall", "offset", "instruction", "waits for", "executed", "sectors", ...(source.files.length ? ["source"] : [])];
  const body = [];
  for (let place = 0; place < lines.length; place++) {
    if (!visible.has(place)) {
      let stop = place;
      while (stop < lines.length && !visible.has(stop)) stop++;
      const [from, to] = [place, stop];
      const unfold = () => { for (let at = from; at < to; at++) open.add(at); drawPane(); reveal(launch, from); };
      body.push(el("tr", { class: "fold" }, el("td", { colspan: columns.length }, el("button", { type: "button", onclick: unfold }, `… ${to - from} instructions, ${percent(heat.slice(from, to).reduce((sum, count) => sum + count, 0) / total, 1)} of the samples`))));
      place = stop - 1;
      continue;
    }
    const share = heat[place] / total;
    const target = code.jumps[place];
    const cause = source.waits[place];
    const cells = [
      el("td", { class: "heat", style: `--w:${(100 * heat[place]) / hottest}%` }, !heat[place] ? "" : share < 0.0005 ? "<0.1%" : percent(share, 1)),
      el("td", {}, source.reason[place] ? source.reasons[source.reason[place] - 1] : ""),
      el("td", {}, offset(code, place)),
      el("td", { class: "sass" }, lines[place], ...(target === undefined ? [] : [" ", jump(target, target > place ? "↓" : "↑")])),
      el("td", {}, cause !== undefined ? jump(cause, `${offset(code, cause)} ${source.causes[cause] ?? ""}`) : ""),
      el("td", { class: "n" }, source.executed[place] ? grouped(source.executed[place]) : ""),
      el("td", { class: "n" }, source.sectors[place] ? grouped(source.sectors[place]) : ""),
    ];
    if (source.files.length) cells.push(el("td", {}, source.lines[place][0] >= 0 ? `${source.files[source.lines[place][0]]}:${source.lines[place][1]}` : ""));
    body.push(el("tr", { id: `sass-${place}`, class: hot.includes(place) ? "hot" : null }, cells));
  }
  const choices = el("select", { "aria-label": "Heat by" }, ["", ...source.reasons].map((reason) => el("option", { value: reason, selected: reason === state.heat }, reason || "all samples")));
  choices.onchange = () => ((state.heat = choices.value), drawPane());
  const tools = el("p", { class: "chips" },
    el("button", { type: "button", onclick: () => nextHot(-1), title: "Key p" }, "← hotter one"),
    el("button", { type: "button", onclick: () => nextHot(1), title: "Key n" }, "next hot spot →"),
    el("label", {}, "heat by ", choices),
    el("span", { class: "note" }, `${grouped(lines.length)} instructions, ${grouped(source.total)} samples`));
  return [tools, el("div", { class: "source", tabindex: 0, role: "group", "aria-label": "SASS" }, el("table", {}, el("thead", {}, el("tr", {}, columns.map((title) => el("th", { scope: "col" }, title)))), el("tbody", {}, body)))];
}

// The hot spots in the order of their heat.
function nextHot(by) {
  const source = state.launch?.source;
  if (!source) return;
  const heat = heatOf(source);
  const order = hotOf(heat, source.total).sort((a, b) => heat[b] - heat[a]);
  if (!order.length) return;
  const at = state.hotAt?.launch === state.launch ? state.hotAt.place : -1;
  const place = (at + by + order.length) % order.length;
  state.hotAt = { launch: state.launch, place };
  reveal(state.launch, order[place]);
}

function reveal(launch, place) {
  if (!get(`sass-${place}`)) {
    const open = state.open.get(launch);
    for (let at = Math.max(place - AROUND, 0); at <= place + AROUND; at++) open.add(at);
    drawPane();
  }
  const line = get(`sass-${place}`);
  if (!line) return;
  all(".source tr.here").forEach((other) => other.classList.remove("here"));
  line.classList.add("here");
  const box = line.closest(".source");
  box.scrollTop = line.offsetTop - box.clientHeight / 2;
}

// Charts: two axes with their lines, of each where a value lies, values with texts, and a title

function axes({ wide, high, left, bottom, right }, [x, across, xTitle], [y, up, yTitle]) {
  return [
    across.map(([value, text]) => [el("line", { class: "grid", x1: x(value), x2: x(value), y1: 12, y2: high - bottom }), el("text", { x: x(value), y: high - bottom + 16, "text-anchor": "middle" }, String(text))]),
    up.map(([value, text]) => [el("line", { class: "grid", x1: left, x2: wide - right, y1: y(value), y2: y(value) }), el("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, String(text))]),
    el("text", { x: (left + wide) / 2, y: high - 8, "text-anchor": "middle" }, xTitle),
    el("text", { x: 14, y: (high - bottom) / 2, "text-anchor": "middle", transform: `rotate(-90 14 ${(high - bottom) / 2})` }, yTitle),
  ].flat(2);
}

const roundStep = (least) => [1, 2, 5, 10].map((step) => step * 10 ** Math.floor(Math.log10(least))).find((step) => step >= least);
const ruler = (from, to, count) => {
  const step = roundStep((to - from) / count || 1);
  const first = Math.ceil(from / step);
  return Array.from({ length: Math.floor(to / step) - first + 1 }, (_, at) => Number(((first + at) * step).toPrecision(9))).map((value) => [value, grouped(value)]);
};

// A picture of a program's story: points with words, or a line where the points have none.
function picture({ title, x: xTitle, y: yTitle, top, groups, lines, marks, note }) {
  const [wide, high, left, bottom, right] = [Math.min(get("pictures").clientWidth, 616), 250, 58, 44, 22];
  const every = groups.flatMap(({ xy }) => xy);
  const [xs, ys] = [every.filter((_, at) => at % 2 === 0), every.filter((_, at) => at % 2)];
  const [x0, x1, y1] = [Math.min(...xs), Math.max(...xs), 1.08 * (top ?? Math.max(...ys)) || 1];
  const x = (value) => left + ((value - x0) / (x1 - x0 || 1)) * (wide - left - right);
  const y = (value) => high - bottom - (Math.min(value, y1) / y1) * (high - bottom - 12);
  const parts = axes({ wide, high, left, bottom, right }, [x, ruler(x0, x1, wide / 90), xTitle], [y, ruler(0, y1, 5), yTitle]);
  for (const { xy, words, colour } of groups) {
    const at = Array.from({ length: xy.length / 2 }, (_, place) => [xy[2 * place], xy[2 * place + 1]]);
    if (!words) parts.push(el("path", { d: at.map(([a, b], place) => (place ? `H${x(a)}V${y(b)}` : `M${x(a)},${y(b)}`)).join(""), fill: "none", stroke: colour, "stroke-width": 2 }));
    else at.forEach(([a, b], place) => parts.push(el("circle", { cx: x(a), cy: y(b), r: b > y1 ? 5 : 3.5, fill: colour, "data-tip": words[place] })));
  }
  for (const [a, b, c, d] of lines) parts.push(el("path", { class: "roof binds", d: `M${x(a)},${y(b)} L${x(c)},${y(d)}` }));
  for (const [a, b, text] of marks) parts.push(el("circle", { cx: x(a), cy: y(b), r: 5, fill: "currentColor" }), el("text", { x: x(a) + (x(a) > wide / 2 ? -9 : 9), y: y(b) + 16, "text-anchor": x(a) > wide / 2 ? "end" : "start" }, text));
  const legend = groups.map(({ name, colour }) => el("li", {}, el("span", { class: "swatch", style: `background:${colour}` }), name));
  return el("figure", {}, el("figcaption", {}, title), el("svg", { viewBox: `0 0 ${wide} ${high}`, role: "img", "aria-label": title }, parts), el("ul", { class: "legend" }, legend), el("p", { class: "note" }, note));
}

// Roofline: both axes logarithmic, the chosen launch's roofs, every launch a point

function paneRoofline(row, launch) {
  const roof = launch?.roof;
  if (!roof) return nothing("A place on the roofs");
  const [wide, high, start, bottom, right] = [560, 330, 62, 46, 24];
  const points = rows.filter((each) => each.run === row.run && launches.has(each.id)).map((each) => {
    const found = launches.get(each.id).roof;
    const memory = found?.memories.find(([level]) => level === "DRAM") ?? found?.memories[0];
    return found?.work && memory?.[2] ? { row: each, x: memory[2], y: found.work[1] } : null;
  }).filter(Boolean);
  const top = roof.work?.[2] ?? Math.max(...points.map((point) => point.y), 1e12);
  const xs = [...points.map((point) => point.x), ...roof.memories.map(([, peak]) => top / peak), ...roof.memories.map((memory) => memory[2]).filter(Boolean)];
  const [x0, x1] = [10 ** Math.floor(Math.log10(Math.min(...xs) / 1.5)), 10 ** Math.ceil(Math.log10(Math.max(...xs) * 1.5))];
  const ys = [...points.map((point) => point.y), top];
  const [y0, y1] = [10 ** Math.floor(Math.log10(Math.min(...ys) / 1.5)), 10 ** Math.ceil(Math.log10(Math.max(...ys) * 1.3))];
  const x = (value) => start + ((Math.log10(value) - Math.log10(x0)) / Math.log10(x1 / x0)) * (wide - start - right);
  const y = (value) => high - bottom - ((Math.log10(value) - Math.log10(y0)) / Math.log10(y1 / y0)) * (high - bottom - 12);
  const decades = (from, to, unit) => Array.from({ length: Math.round(Math.log10(to / from)) + 1 }, (_, step) => from * 10 ** step).map((value) => [value, Number((value / unit).toPrecision(1))]);
  const parts = axes({ wide, high, left: start, bottom, right }, [x, decades(x0, x1, 1), "FLOP per byte"], [y, decades(y0, y1, 1e12), "TFLOP/s"]);
  const names = new Map();
  for (const [level, peak] of roof.memories) {
    const from = Math.max(x0, y0 / peak);
    const to = Math.min(top / peak, x1);
    if (from >= to) continue;
    parts.push(el("path", { class: `roof${roof.roof === level ? " binds" : ""}`, d: `M${x(from)},${y(from * peak)} L${x(to)},${y(to * peak)}` }));
    const at = from * (to / from) ** (0.25 + 0.22 * names.size);
    names.set(level, el("text", { x: x(at) - 5, y: y(at * peak) - 5, "text-anchor": "end" }, level));
  }
  if (roof.work?.[2]) {
    parts.push(el("path", { class: `roof${roof.memories.some(([level]) => level === roof.roof) ? "" : " binds"}`, d: `M${x(Math.min(...roof.memories.map(([, peak]) => top / peak)))},${y(top)} L${wide - right},${y(top)}` }));
    names.set("work", el("text", { x: wide - right - 2, y: y(top) - 5, "text-anchor": "end" }, `${roof.work[0]} ${Number((top / 1e12).toPrecision(3))} TFLOP/s`));
  }
  for (const point of points.sort((a, b) => (a.row === row) - (b.row === row))) {
    const chosen = point.row.id === row.id;
    const words = `${point.row.name}${point.row.label ? ` (${point.row.label})` : ""}: ${Number((point.y / 1e12).toPrecision(3))} TFLOP/s at ${Number(point.x.toPrecision(3))} FLOP/byte`;
    parts.push(el("svg:a", { href: `#${point.row.id}`, "aria-label": words, "data-tip": words }, el("circle", { cx: x(point.x), cy: y(point.y), r: chosen ? 8 : 5, fill: point.row.colour, opacity: chosen ? 1 : 0.55, style: chosen ? "stroke:var(--ink);stroke-width:2" : null })));
  }
  return [
    el("svg", { viewBox: `0 0 ${wide} ${high}`, role: "group", "aria-label": "Roofline" }, parts, ...names.values()),
    el("p", { class: "note" }, "Places by DRAM traffic; the orange line is the roof that limits the chosen launch."),
    ...table(roof.table),
  ];
}

const MOST_COUNTERS = 300;
const COUNTERS = { title: "", warnings: [], notes: [], columns: [{ t: "counter" }, { t: "value", n: true }, { t: "meaning or unit" }] };

function paneCounters(row, launch) {
  const { keys, raw } = launch.run.details;
  const from = `ncu, launch ${launch.launch}`;
  const every = [
    ...launch.counters.map(([key, value, text, formula]) => [keys[key][0], { t: text, o: value, tip: `${from}: ${formula}` }, keys[key][1]]),
    ...launch.raw.map(([key, value]) => [raw[key][0], { t: typeof value === "number" ? grouped(value) : value, o: value, tip: from }, raw[key][1]]),
  ];
  const search = el("input", { type: "search", placeholder: `Filter ${every.length} counters`, "aria-label": "Filter the counters", value: state.counters });
  const shown = el("div");
  search.oninput = () => {
    state.counters = search.value;
    const found = every.filter(([name, , meaning]) => wordsOf(search.value).every((word) => `${name} ${meaning}`.toLowerCase().includes(word)));
    const note = found.length > MOST_COUNTERS ? `The first ${MOST_COUNTERS} of ${found.length}: type to find others.` : `${found.length} counters.`;
    shown.replaceChildren(...table({ ...COUNTERS, summary: [note], rows: found.slice(0, MOST_COUNTERS) }));
  };
  search.oninput();
  return [el("p", { class: "chips" }, search), shown];
}

// Timeline: a canvas of pieces; a click selects, the selection lights up

const time = { run: 0, window: 0, from: 0, to: 1 };
const TRACK = 22;

function makeTimeline() {
  const there = data.runs.map((run, place) => place).filter((place) => data.runs[place].timeline.windows.length);
  if (!there.length) return;
  time.run = there[0];
  for (const track of data.runs.flatMap((run) => run.timeline.windows.flatMap((window) => window.tracks))) {
    track.pieces = [];
    for (let at = 0, start = 0; at < (track.iv ?? []).length; at += 4) {
      start += track.iv[at];
      track.pieces.push([start / 1e5, (start + track.iv[at + 1]) / 1e5, track.iv[at + 2], track.iv[at + 3]]);
    }
  }
  const section = get("timeline");
  section.hidden = false;
  const windows = el("select", { "aria-label": "Part of the trace" }, there.flatMap((run) => data.runs[run].timeline.windows.map((window, place) => el("option", { value: `${run} ${place}` }, `${several ? `${data.runs[run].name}: ` : ""}${window.name}, ${duration(window.length_us)}`))));
  windows.onchange = () => { [time.run, time.window] = windows.value.split(" ").map(Number); zoom(0, 1); };
  const by = (factor, shift = 0) => () => {
    const [middle, half] = [(time.from + time.to) / 2 + shift * (time.to - time.from), ((time.to - time.from) / 2) * factor];
    zoom(middle - half, middle + half);
  };
  const button = (text, name, onclick) => el("button", { type: "button", "aria-label": name, title: name, onclick }, text);
  const canvas = el("canvas", { tabindex: 0, role: "img", "aria-label": "Timeline: streams, ranges and calls over time. Plus and minus zoom, arrows move." });
  section.append(el("p", { class: "chips" }, windows, button("+", "Zoom in", by(0.5)), button("−", "Zoom out", by(2)), button("←", "Earlier", by(1, -0.4)), button("→", "Later", by(1, 0.4)), button("all", "All of it", () => zoom(0, 1)), el("span", { class: "note" }, "all pieces: open in Perfetto what ", el("code", {}, data.runs[there[0]].perfetto), " writes")), el("div", { class: "timeline" }, canvas), ...data.runs.flatMap((run) => run.timeline.notes.map((text) => el("p", { class: "note" }, text))));
  canvas.onkeydown = (event) => {
    const act = { "+": by(0.5), "-": by(2), ArrowLeft: by(1, -0.2), ArrowRight: by(1, 0.2), Home: () => zoom(0, 1) }[event.key];
    if (act) act(), event.preventDefault(), event.stopPropagation();
  };
  canvas.onwheel = (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    const at = timeAt(event);
    const factor = event.deltaY > 0 ? 1.3 : 0.77;
    zoom(at - (at - time.from) * factor, at + (time.to - at) * factor);
  };
  canvas.onpointermove = (event) => { const hit = hitOf(event); showTip(hit ? hit.words : "", event.clientX, event.clientY); };
  canvas.onpointerleave = hideTip;
  canvas.onclick = (event) => {
    const hit = hitOf(event);
    if (!hit?.id) return;
    choose(hit.id);
    all("tr.chosen")[0]?.scrollIntoView({ block: "nearest" });
  };
  new ResizeObserver(drawTimeline).observe(canvas.parentElement);
}

const namesWidth = (wide) => Math.min(150, wide * 0.3);

function timeAt({ offsetX, currentTarget: { clientWidth } }) {
  const names = namesWidth(clientWidth);
  return time.from + ((offsetX - names) / (clientWidth - names)) * (time.to - time.from);
}

function zoom(from, to) {
  const span = Math.min(Math.max(to - from, 1e-4), 1);
  time.from = Math.min(Math.max(from, 0), 1 - span);
  time.to = time.from + span;
  drawTimeline();
}

function drawTimeline() {
  const canvas = document.querySelector("#timeline canvas");
  const run = data.runs[time.run];
  const window_ = run?.timeline.windows[time.window];
  if (!canvas || !window_) return;
  const [wide, high] = [canvas.parentElement.clientWidth, (window_.tracks.length + 1) * TRACK + 6];
  const scale = devicePixelRatio || 1;
  canvas.style.height = `${high}px`;
  [canvas.width, canvas.height] = [wide * scale, high * scale];
  const ctx = canvas.getContext("2d");
  ctx.scale(scale, scale);
  const style = getComputedStyle(document.body);
  const colour = (name) => { probe.style.color = `var(--${name})`; return getComputedStyle(probe).color; };
  const [inkColour, muted, line, bar, paper] = [style.color, ...["muted", "line", "bar", "paper"].map(colour)];
  ctx.font = `12px ${style.fontFamily}`;
  ctx.textBaseline = "middle";
  const names = namesWidth(wide);
  const x = (at) => names + ((at - time.from) / (time.to - time.from)) * (wide - names);
  const span = (time.to - time.from) * window_.length_us;
  const raw = span / Math.max((wide - names) / 110, 1);
  const start = window_.start_us; // since the trace began, as the story counts
  const [unit, unitName] = span >= 2e6 ? [1e6, "s"] : [1e3, "ms"];
  const tick = roundStep(raw);
  for (let at = Math.ceil((start + time.from * window_.length_us) / tick) * tick; at <= start + time.to * window_.length_us; at += tick) {
    const place = x((at - start) / window_.length_us);
    ctx.fillStyle = line;
    ctx.fillRect(place, TRACK, 1, high);
    ctx.fillStyle = muted;
    const words = `${grouped(at / unit)} ${unitName}`;
    if (place + ctx.measureText(words).width < wide) ctx.fillText(words, place + 3, TRACK / 2);
  }
  const chosen = state.row?.run === run ? state.row.index : null;
  const any = window_.tracks.some((track) => track.kind === "kernel" && track.pieces.some((piece) => piece[2] === chosen));
  window_.tracks.forEach((track, index) => {
    const top = (index + 1) * TRACK + 3;
    ctx.fillStyle = muted;
    ctx.fillText(shortened(ctx, track.name, names - 8), 4, top + TRACK / 2 - 2);
    ctx.save();
    ctx.beginPath();
    ctx.rect(names, top, wide - names, TRACK);
    ctx.clip();
    if (track.levels) {
      const width = (wide - names) / (track.levels.length * (time.to - time.from));
      ctx.fillStyle = bar;
      track.levels.forEach((level, bin) => level > 0 && ctx.fillRect(x(bin / track.levels.length), top + (TRACK - 3) * (1 - level / 100), width + 0.5, (TRACK - 3) * (level / 100)));
      const room = ctx.measureText(track.full).width;
      ctx.fillStyle = paper;
      ctx.fillRect(wide - room - 6, top, room + 6, 13);
      ctx.fillStyle = muted;
      ctx.fillText(track.full, wide - room - 3, top + 7);
    } else if (track.cut) ctx.fillText("too much for the page", names + 6, top + TRACK / 2);
    for (const [from, to, who, level] of track.pieces) {
      if (to < time.from || from > time.to) continue;
      const [a, b] = [x(from), Math.max(x(to), x(from) + 1)];
      const kernel = track.kind === "kernel";
      const lit = who === chosen;
      ctx.globalAlpha = (kernel && any && !lit ? 0.3 : 1) * (0.35 + 0.65 * (level / 8));
      ctx.fillStyle = lit ? inkColour : kernel ? (who >= 0 ? run.rows[who].colour : "#7f8790") : track.kind === "copy" ? "#0099cc" : track.kind === "range" ? "#5b8c5a" : "#9a7fb8";
      if (lit) { ctx.globalAlpha = 1; ctx.fillRect(a, top - 1, b - a, TRACK - 1); ctx.fillStyle = run.rows[who].colour; }
      ctx.fillRect(a, top + 1, b - a, TRACK - 5);
      if (b - a > 46 && (kernel || !lit)) {
        ctx.globalAlpha = 1;
        ctx.fillStyle = kernel && who >= 0 ? ink(run.rows[who].colour) : "#000000";
        ctx.fillText(shortened(ctx, nameOf(run, who), b - Math.max(a, names) - 6), Math.max(a, names) + 3, top + TRACK / 2 - 1);
      }
    }
    ctx.restore();
  });
  canvas.dataset.lit = any ? state.row.id : "";
}

const nameOf = (run, who) => (who >= 0 ? run.rows[who].name + (run.rows[who].label ? ` ${run.rows[who].label}` : "") : (run.timeline.names[-1 - who] ?? ""));

function shortened(ctx, text, room) {
  if (ctx.measureText(text).width <= room) return text;
  let kept = Math.floor((text.length * room) / ctx.measureText(text).width) - 1;
  while (kept > 0 && ctx.measureText(`${text.slice(0, kept)}…`).width > room) kept--;
  return kept > 1 ? `${text.slice(0, kept)}…` : "";
}

function hitOf(event) {
  const canvas = event.currentTarget;
  const run = data.runs[time.run];
  const window_ = run.timeline.windows[time.window];
  const track = window_.tracks[Math.floor((event.offsetY - 3) / TRACK) - 1];
  const at = timeAt(event);
  if (!track) return null;
  if (at < time.from) return { words: track.name };
  if (track.levels) {
    const level = track.levels[Math.floor(at * track.levels.length)];
    return level === undefined || level < 0 ? null : { words: `${track.name}: ${level}% of ${track.full}` };
  }
  const slack = (2 * (time.to - time.from)) / canvas.clientWidth;
  const piece = track.pieces.findLast(([from, to]) => from - slack <= at && to + slack >= at);
  if (!piece) return null;
  const [from, to, who, level] = piece;
  const words = `${nameOf(run, who)}: ${duration((to - from) * window_.length_us)} at ${grouped(((window_.start_us + from * window_.length_us) / 1e3).toFixed(3))} ms${level < 8 ? `, busy ${Math.round(level * 12.5)}% of it` : ""}`;
  return { words, id: run.rows[who]?.id };
}

// Parts below, and the appendix

function drawParts() {
  for (const section of data.sections) {
    if (section.anchor === "story") {
      get("story").append(...section.blocks.flatMap(table));
      get("pictures").append(...data.pictures.map(picture));
      continue;
    }
    const title = el("h2", {}, section.title);
    const checked = section.anchor === "sure" ? el("span", { class: "note" }, ` ${data.runs.map((run) => run.checked).join(" ")}`) : "";
    const blocks = section.blocks.flatMap(table);
    if (section.folded) get("appendix").append(el("details", { id: section.anchor }, el("summary", {}, title, checked), blocks));
    else get("parts").append(el("section", { class: "part", id: section.anchor }, title, blocks));
  }
}

addEventListener("beforeprint", () => all("#appendix > details").forEach((folded) => (folded.open = true)));

const probe = document.body.appendChild(el("span", { hidden: true }));
addEventListener("painted", () => drawTimeline());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawTimeline());

get("headline").replaceChildren(...words(data.headline));
drawWall();
drawChips();
drawRows();
makeTimeline();
drawParts();
drawTimeline();
const asked = decodeURIComponent(location.hash.slice(1));
const start = rows.find((row) => row.run === data.runs[data.start[0]] && row.index === data.start[1]) ?? rows[0];
if (rows.length) choose(find(asked) ? asked : start.id, { quiet: true });
else document.querySelector(".work").hidden = true;
document.documentElement.dataset.ready = "";
