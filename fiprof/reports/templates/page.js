// Charts, number sources, search, contents. Without it the page can still be read.

// Charts: drawn by Vega when they come near the screen. The library is text, or a file, until the first one's turn.
const waiting = new Set(all(".plot"));
let library;

function embed() {
  return (library ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    const { file } = get("vega").dataset;
    script.onload = () => resolve(vegaEmbed);
    script.onerror = reject;
    if (file) script.src = file;
    else script.textContent = get("vega").textContent;
    document.head.append(script);
    if (!file) resolve(vegaEmbed);
  }));
}

async function draw(plot) {
  if (!waiting.delete(plot)) return;
  const spec = JSON.parse(plot.nextElementSibling.textContent);
  const options = { ast: true, renderer: "svg", actions: false, tooltip: { theme: "page" } };
  await (await embed())(plot, spec, options);
  const svg = plot.querySelector("svg");
  for (const name of ["role", "aria-label", "aria-roledescription"]) plot.removeAttribute(name);
  svg.role = "img";
  svg.ariaLabel = plot.dataset.title;
  for (const inner of svg.children) inner.ariaHidden = "true";
  plot.dataset.drawn = "";
}

const near = new IntersectionObserver(
  (seen) => seen.forEach(({ isIntersecting, target }) => isIntersecting && draw(target)), { rootMargin: "300px" });
waiting.forEach((plot) => near.observe(plot));
addEventListener("beforeprint", () => {
  waiting.forEach(draw);
  for (const folded of all("section > details")) folded.open = true;
});

// Arrow keys go from number to number.
for (const group of all("p, li, .scroll")) {
  all(".fact", group).forEach((fact, i) => (fact.tabIndex = i ? -1 : 0));
}
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") return hideTip();
  const here = document.activeElement;
  const group = here.closest(".scroll, p, li");
  const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!group || !step || !here.matches(".fact")) return;
  const numbers = all(".fact", group);
  const next = numbers[numbers.indexOf(here) + step];
  if (!next) return;
  here.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
  event.preventDefault();
});

for (const table of all(".scroll table")) {
  if (table.tBodies[0].rows.length < 2) continue;
  for (const heading of table.tHead.rows[0].cells) {
    heading.append(el("button", { type: "button", onclick: () => sortBody(heading, heading.cellIndex) }, [...heading.childNodes]));
  }
}

// Search: rows and paragraphs without the words are hidden, and what has none left with them.
const search = get("search");
const leaves = "p, li, figure, .code, tbody tr";
function find() {
  const words = search.value.trim().toLowerCase().split(/\s+/).filter(Boolean);
  const fitting = (text) => words.every((word) => text.toLowerCase().includes(word));
  document.body.classList.toggle("searching", words.length > 0);
  let found = 0;
  for (const section of all("main > section").reverse()) {
    for (const part of [...all("section", section).reverse(), section]) {
      const heading = part.querySelector(":scope > :is(h2, h3, h4, h5, h6, summary), :scope > details > summary");
      const whole = words.length > 0 && heading && fitting(heading.textContent);
      let any = whole;
      for (const leaf of all(leaves, part)) {
        if (leaf.closest("section") !== part) continue;
        const fits = whole || fitting(leaf.textContent);
        leaf.hidden = !fits;
        found += fits;
        any ||= fits;
      }
      part.hidden = words.length > 0 && !any && !part.querySelector("section:not([hidden])");
      if (whole) all("section, " + leaves, part).forEach((each) => (each.hidden = false));
      const folded = part.querySelector(":scope > details");
      if (words.length && folded && !part.hidden) folded.open = true;
    }
  }
  for (const link of all("nav.side a, .contents a")) link.parentElement.hidden = get(link.hash.slice(1))?.hidden ?? false;
  get("found").textContent = words.length ? `${found} found` : "";
}
search.addEventListener("input", find);
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && !event.target.matches("input, select")) {
    event.preventDefault();
    search.focus();
  }
});

// Contents: the section on the screen is marked.
const links = new Map(all("nav.side a").map((link) => [link.hash.slice(1), link]));
const reading = new IntersectionObserver((seen) => {
  for (const { isIntersecting, target } of seen) target.reading = isIntersecting;
  const last = all("main section").filter((section) => section.reading && links.has(section.id)).at(-1);
  for (const [id, link] of links) link.ariaCurrent = id === last?.id ? "true" : null;
}, { rootMargin: "-12% 0px -80% 0px" });
all("main section").forEach((section) => reading.observe(section));

// Folded parts open when a link leads into them.
function unfold() {
  const target = get(decodeURIComponent(location.hash.slice(1)));
  for (let at = target; at; at = at.parentElement) if (at.matches("details")) at.open = true;
  const own = target?.querySelector(":scope > details");
  if (own && target.matches("section")) own.open = true;
  target?.scrollIntoView();
}
addEventListener("hashchange", unfold);
if (location.hash) unfold();
for (const folded of all("details.contents")) folded.addEventListener("click", ({ target }) => target.matches("a") && (folded.open = false));

// Copy.
for (const code of all(".code")) code.append(el("button", { type: "button", onclick: copy }, "Copy"));

performance.mark("ready");
document.documentElement.dataset.ready = "";
