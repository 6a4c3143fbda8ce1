// What every page of fiprof has: tables that sort, copying, where a number comes from, a colour scheme.
const get = (id) => document.getElementById(id);
const all = (selector, within = document) => [...within.querySelectorAll(selector)];

const SVG = new Set(["svg", "svg:a", "line", "path", "circle", "text"]);

function el(name, attributes = {}, ...children) {
  const made = SVG.has(name) ? document.createElementNS("http://www.w3.org/2000/svg", name.replace("svg:", "")) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.flat(2).filter((child) => child !== null && child !== undefined && child !== ""));
  return made;
}

// Sorting: numbers by their full value, the largest first; what was not measured last.
function sortBody(head, index, order = null) {
  const body = head.closest("table").tBodies[0];
  const numeric = head.matches(".n");
  const orders = numeric ? ["descending", "ascending"] : ["ascending", "descending"];
  head.ariaSort = order ?? orders[head.ariaSort === orders[0] ? 1 : 0];
  const sign = head.ariaSort === "ascending" ? 1 : -1;
  const number = (text) => (text === "" || isNaN(text) ? null : Number(text));
  const value = ({ dataset, textContent }) => (!numeric ? textContent : ["–", ""].includes(textContent) ? null : number(dataset.o ?? textContent.replaceAll(",", "")));
  const sorted = [...body.rows].map((row) => [value(row.cells[index]), row]);
  sorted.sort(([a], [b]) => (a === null || b === null ? (a === null) - (b === null) : sign * (numeric ? a - b : a.localeCompare(b, "en", { numeric: true }))));
  for (const other of head.parentElement.cells) if (other !== head) other.removeAttribute("aria-sort");
  body.append(...sorted.map(([, row]) => row));
}

async function copy({ currentTarget: button }) {
  await navigator.clipboard.writeText(button.previousElementSibling.textContent.trimEnd());
  button.textContent = "Copied";
  setTimeout(() => (button.textContent = "Copy"), 1500);
}

// What the pointer, the keyboard or a finger rests on says where it comes from.
function showTip(text, x, y) {
  const tip = get("tip");
  tip.hidden = !text;
  if (!text) return;
  tip.textContent = text;
  const box = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(Math.min(x + 8, innerWidth - box.width - 8), 4)}px`;
  tip.style.top = `${y + 18 + box.height > innerHeight ? Math.max(y - box.height - 10, 4) : y + 18}px`;
}

const hideTip = () => (get("tip").hidden = true);
const tipped = (event) => event.target instanceof Element && event.target.closest("[data-tip]");
addEventListener("pointerover", (event) => { const at = tipped(event); if (at) showTip(at.dataset.tip, event.clientX, event.clientY); else if (!event.target.matches?.("canvas")) hideTip(); });
addEventListener("focusin", (event) => { const at = tipped(event); if (!at) return; const box = at.getBoundingClientRect(); showTip(at.dataset.tip, box.left, box.bottom - 14); at.setAttribute("aria-describedby", "tip"); });
addEventListener("focusout", hideTip);

// Colour scheme: the system's, or the reader's choice, kept where the browser allows it.
const scheme = get("scheme");
function paint() {
  if (scheme.value) document.documentElement.dataset.scheme = scheme.value;
  else delete document.documentElement.dataset.scheme;
  dispatchEvent(new Event("painted"));
}
try { scheme.value = localStorage.getItem("fiprof-scheme") ?? ""; } catch {}
scheme.addEventListener("change", () => { paint(); try { localStorage.setItem("fiprof-scheme", scheme.value); } catch {} });
paint();
