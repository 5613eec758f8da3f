// Draws the report from the numbers in #data, which say what charts there are and what is in them; here is how they look and
// what a reader may do with them: point, zoom, hide a line, change a scale. Nothing is loaded and nothing is sent; texts from the run (URLs, errors)
// only ever become text nodes. Charts are SVG: few enough points, sharp at any size, and readable by other programs. In the page of a run that goes on
// link.js stands before it with live.js or search.js, and gives new numbers to take and fill.
let data = JSON.parse(document.getElementById("data").textContent);
const root = document.documentElement;

// --- small tools ---------------------------------------------------------------------------------------------------

function element(space, tag, attributes = {}, ...children) {
  const made = document.createElementNS(space, tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== null) made.setAttribute(name, value);
  }
  made.append(...children.filter(child => child !== null && child !== undefined));
  return made;
}
const h = (...rest) => element("http://www.w3.org/1999/xhtml", ...rest);
const s = (...rest) => element("http://www.w3.org/2000/svg", ...rest);

const trim = text => text.includes(".") ? text.replace(/\.?0+$/, "") : text;
const digits = (value, most) => trim(value.toFixed(Math.max(0, most - 1 - Math.max(0, Math.floor(Math.log10(Math.abs(value) || 1))))));

function time(ns, most = 3) {
  if (ns === null || ns === undefined) return "–";
  const abs = Math.abs(ns);
  if (abs === 0) return "0";
  if (abs < 1e3) return digits(ns, most) + " ns";
  if (abs < 999.5e3) return digits(ns / 1e3, most) + " µs";
  if (abs < 999.5e6) return digits(ns / 1e6, most) + " ms";
  if (abs < 100e9) return digits(ns / 1e9, most) + " s";
  return span(ns / 1e9);
}
function span(seconds) {
  if (seconds < 100) return digits(seconds, 3) + " s";
  const whole = Math.round(seconds), hours = Math.floor(whole / 3600), minutes = Math.floor(whole / 60) % 60;
  return (hours ? hours + " h " : "") + minutes + " min" + (hours ? "" : " " + (whole % 60) + " s");
}
function clock(seconds) {
  if (seconds < 60) return trim(seconds.toFixed(2)) + " s";
  const whole = Math.round(seconds), pad = n => String(n).padStart(2, "0");
  const hours = Math.floor(whole / 3600), rest = pad(Math.floor(whole / 60) % 60) + ":" + pad(whole % 60);
  return hours ? hours + ":" + rest : rest.replace(/^0/, "");
}
function count(value) {
  if (value === null || value === undefined) return "–";
  if (Math.abs(value) >= 1e9) return digits(value / 1e9, 4) + " G";
  if (Math.abs(value) >= 1e6) return digits(value / 1e6, 4) + " M";
  if (Math.abs(value) >= 10000) return digits(value / 1e3, 4) + " k";
  return trim(Number.isInteger(value) ? String(value) : digits(value, 4));
}
const whole = value => String(value).replace(/\B(?=(\d{3})+$)/g, "\u202f");
const bytes = value => value < 1000 ? count(value) + " B" : value < 1e6 ? digits(value / 1e3, 3) + " kB"
  : value < 1e9 ? digits(value / 1e6, 3) + " MB" : digits(value / 1e9, 3) + " GB";
const percent = share => share === null ? "–" : (share === 1 || share === 0 ? share * 100 : trim((Math.floor(share * 1e5) / 1e3).toFixed(3))) + " %";

// --- scales --------------------------------------------------------------------------------------------------------

// What a whole chart shows is laid out in the data: low, high and ticks ([value, label]). The rest is for the part that a
// reader picked, with the same steps. Each scale maps values to 0..1 and back.
const even = (low, high, ticks) => ({ low, high, ticks, at: v => (v - low) / (high - low), back: u => low + u * (high - low) });
const decades = (low, high, ticks) => ({ low, high, ticks, at: v => Math.log(v / low) / Math.log(high / low),
  back: u => low * (high / low) ** u });
const told = ({ kind, low, high, ticks }) => (kind === "times" ? decades : even)(low, high, ticks);
function multiples(low, high, step, format) {
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) ticks.push([i * step, format(i * step)]);
  return even(low, high, ticks);
}
function linear(low, high, format) {
  const rough = (high - low) / 5, base = 10 ** Math.floor(Math.log10(rough));
  return multiples(low, high, [1, 2, 5, 10].map(n => n * base).find(n => n >= rough * 0.999), format);
}
function logarithmic(low, high, format) {
  // At least a decade, so that a flat line is not drawn as a storm.
  if (high / low < 10) { const middle = Math.sqrt(low * high); low = middle / Math.sqrt(10); high = middle * Math.sqrt(10); }
  const ticks = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++)
    for (const n of high / low < 1000 ? [1, 2, 5] : [1]) ticks.push([n * 10 ** power, format(n * 10 ** power)]);
  return decades(low, high, ticks.filter(([at]) => at >= low && at <= high));
}
// What lies to the right, from a reader's left to their right.
const PARTS = {
  clock(low, high) {
    const steps = [0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 14400], most = (high - low) / 6;
    return multiples(low, high, steps.find(n => n >= most) || 86400 * Math.ceil(most / 86400), clock);
  },
  // Percentiles at -log10(1 - q): each nine is as wide as the one before.
  nines(low, high) {
    const names = ["0", "50", "75", "90", "95", "99", "99.9", "99.99", "99.999", "99.9999", "99.99999", "99.999999"];
    const ticks = names.map(name => [-Math.log10(1 - Number(name) / 100), name + " %"]);
    return even(low, high, ticks.filter(([at]) => at >= low - 1e-9 && at <= high + 1e-9));
  },
  counts: (low, high) => linear(low, high, count),
};
// What stands above the figures of a place.
const PLACES = { clock: at => "from " + clock(at) + " on", nines: at => share(at), counts: at => count(at) + " /s" };
const share = at => { const q = (1 - 10 ** -at) * 100, nine = Math.max(1, Math.ceil(at)); return trim(q.toFixed(nine)) + " %"; };

// --- charts --------------------------------------------------------------------------------------------------------

const charts = new Map();   // by name
const clocks = () => [...charts.values()].filter(made => made.spec.x.kind === "clock");   // the charts over time share one zoom
const known = series => series.name + " " + series.colour;
const names = spec => spec.lines.map(known).join("\n");

// spec: what Panel of chart.rs says, with the places and values of each line side by side. A chart that is there already is drawn anew; one
// that has other lines now is made anew, and what its reader chose is kept.
function chart(spec) {
  const before = charts.get(spec.name);
  if (before && names(before.spec) === names(spec)) {
    before.spec = spec;
    draw(before);
    return before.card;
  }
  const plot = h("div", { class: "plot" });
  const legend = h("div", { class: "legend" });
  const tools = h("div", { class: "tools" });
  const chosen = before ?? { zoom: null, log: spec.y.kind === "times", hidden: new Set(), id: charts.size };
  const made = { spec, plot, zoom: chosen.zoom, log: chosen.log, hidden: chosen.hidden, id: chosen.id };
  const button = h("button", { "aria-pressed": String(made.log), title: "Logarithmic or linear scale",
    onclick: () => { made.log = !made.log; button.setAttribute("aria-pressed", String(made.log)); draw(made); } }, "log");
  made.reset = h("button", { onclick: () => zoom(made, null) }, "reset zoom");
  made.reset.hidden = !made.zoom;
  tools.append(made.reset, button);
  for (const series of spec.lines) {
    const name = known(series);
    const key = h("button", { "aria-pressed": String(!made.hidden.has(name)), title: "Show or hide", onclick: () => {
      made.hidden.has(name) ? made.hidden.delete(name) : made.hidden.add(name);
      key.setAttribute("aria-pressed", String(!made.hidden.has(name)));
      draw(made);
    } }, sample(series), series.name);
    legend.append(key);
  }
  charts.set(spec.name, made);
  listen(made);
  // Drawing changes the height, which would be noticed again within the same notice: only another width is drawn, and later.
  new ResizeObserver(() => { if (plot.clientWidth !== made.width) requestAnimationFrame(() => draw(made)); }).observe(plot);
  made.card = h("section", { class: "card" }, h("div", { class: "head" }, h("h2", {}, spec.name), tools), plot, legend);
  return made.card;
}
const STROKES = { solid: "", dots: "", thin: "; stroke-width:1.2", dashed: "; stroke-dasharray:5 4" };
const look = series => `stroke:var(--${series.colour})` + STROKES[series.stroke];
const dot = (series, x, y, r) => s("circle", { cx: x, cy: y, r, style: `fill:var(--${series.colour})` });
const sample = series => s("svg", { viewBox: "0 0 22 8", "aria-hidden": "true" }, series.stroke === "dots" ? dot(series, 11, 4, 4) : s("line", { x1: 1, x2: 21, y1: 4, y2: 4,
  "stroke-width": 2.5, style: look(series) }));

function zoom(chosen, range) {
  for (const made of chosen.spec.x.kind === "clock" ? clocks() : [chosen]) {
    made.zoom = range;
    made.reset.hidden = !range;
    draw(made);
  }
}

const usable = (value, log) => value !== null && value !== undefined && (!log || value > 0);

const FORMATS = { times: time, counts: count };

function scales(made) {
  const { spec, log, zoom } = made, shown = spec.lines.filter(series => !made.hidden.has(known(series)));
  const x = zoom ? PARTS[spec.x.kind](...zoom) : told(spec.x);
  if (!zoom && !made.hidden.size && log === (spec.y.kind === "times")) return { x, y: told(spec.y), shown };
  let low = Infinity, high = -Infinity;
  for (const series of shown) series.y.forEach((y, i) => {
    if (!usable(y, log) || series.x[i] < x.low || series.x[i] > x.high) return;
    low = Math.min(low, y); high = Math.max(high, y);
  });
  if (!(high >= low)) { low = log ? 1 : 0; high = log ? 10 : 1; }
  const format = FORMATS[spec.y.kind];
  const y = log ? logarithmic(low / 1.15, high * 1.15, format) : linear(0, high > 0 ? high * 1.06 : 1, format);
  return { x, y, shown };
}

function draw(made) {
  const { spec, plot } = made, width = plot.clientWidth;
  if (!width) return;
  const height = Math.max(220, Math.min(330, width * 0.46));
  const { x, y, shown } = scales(made);
  const widest = Math.max(0, ...y.ticks.map(([, label]) => label.length));
  const box = { left: Math.max(46, 12 + widest * 7), right: 14, top: 20, bottom: 40 };
  box.width = Math.max(40, width - box.left - box.right);
  box.height = height - box.top - box.bottom;
  const px = v => box.left + x.at(v) * box.width, py = v => box.top + (1 - y.at(v)) * box.height;
  const svg = s("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": spec.name });
  frame(svg, made, box, x, y, px, py);
  const clip = "clip" + made.id;
  svg.append(s("clipPath", { id: clip }, s("rect", { x: box.left - 2, y: box.top - 4, width: box.width + 4, height: box.height + 6 })));
  const lines = s("g", { "clip-path": `url(#${clip})` });
  for (const series of shown) lines.append(...path(series, made.log, px, py));
  const over = s("g", {});
  svg.append(lines, over);
  plot.replaceChildren(svg);
  Object.assign(made, { width, box, x, y, px, py, over, shown });
  made.again?.();
}

function frame(svg, made, box, x, y, px, py) {
  const { spec } = made, base = box.top + box.height, over = [];
  if (spec.few && spec.few[0] < x.high) {
    const from = Math.max(px(spec.few[0]), box.left);
    svg.append(s("rect", { class: "few", x: from, y: box.top, width: box.left + box.width - from, height: box.height }));
    if (box.left + box.width - from > 90) over.push(s("text", { class: "on", x: box.left + box.width - 6, y: base - 8, "text-anchor": "end" }, spec.few[1]));
  }
  for (const [value, label] of y.ticks) {
    const at = py(value);
    svg.append(s("line", { class: "grid", x1: box.left, x2: box.left + box.width, y1: at, y2: at }));
    svg.append(s("text", { x: box.left - 7, y: at + 4, "text-anchor": "end" }, label));
  }
  // Where a share of the load is missing less was sent than was due, and nothing of it is in the lines.
  if (spec.x.kind === "clock") for (const [from, to] of data.pods?.gaps ?? []) {
    const left = Math.max(px(from), box.left), right = Math.min(px(to), box.left + box.width);
    if (right <= left) continue;
    svg.append(s("rect", { class: "lacking", x: left, y: box.top, width: right - left, height: box.height }));
    if (right - left > 110) over.push(s("text", { class: "on", x: left + 6, y: base - 8 }, "load missing"));
  }
  let last = -Infinity;
  for (const [value, label] of x.ticks) {
    const at = px(value), half = label.length * 3.3;
    svg.append(s("line", { class: "grid", x1: at, x2: at, y1: box.top, y2: base }));
    // A label that would touch the one before it, or leave the picture, is left out; its line stays.
    if (at - half < last + 8 || at + half > box.left + box.width + box.right) continue;
    svg.append(s("text", { x: at, y: base + 17, "text-anchor": "middle" }, label));
    last = at + half;
  }
  svg.append(s("line", { class: "axis", x1: box.left, x2: box.left + box.width, y1: base, y2: base }));
  svg.append(...over, s("text", { x: 0, y: 10 }, spec.unit));
  svg.append(s("text", { x: box.left + box.width, y: base + 35, "text-anchor": "end" }, spec.below));
}

// A line per unbroken run of values; a value alone between gaps is a dot.
function path(series, log, px, py) {
  const style = look(series), made = [];
  if (series.stroke === "dots") return series.y.flatMap((y, i) => usable(y, log) ? [dot(series, px(series.x[i]), py(y), 3.4)] : []);
  let d = "", length = 0;
  const flush = i => {
    if (length === 1) made.push(s("circle", { cx: px(series.x[i - 1]), cy: py(series.y[i - 1]), r: 2.2, style: `fill:var(--${series.colour})` }));
    else if (length) made.push(s("path", { d, style }));
    d = ""; length = 0;
  };
  series.y.forEach((y, i) => {
    if (!usable(y, log)) return flush(i);
    d += (length++ ? "L" : "M") + px(series.x[i]).toFixed(1) + " " + py(y).toFixed(1);
  });
  flush(series.y.length);
  return made;
}

// --- pointing ------------------------------------------------------------------------------------------------------

function listen(made) {
  const { plot } = made;
  const inside = event => {
    const { left } = plot.getBoundingClientRect(), { box, x } = made;
    return x.back(Math.min(1, Math.max(0, (event.clientX - left - box.left) / box.width)));
  };
  let from = null;
  plot.addEventListener("pointerdown", event => { if (made.box && event.button === 0) from = inside(event); });
  plot.addEventListener("pointermove", event => {
    // Once more after a drawing that came meanwhile.
    made.again = () => point(made, inside(event), from);
    if (made.box) made.again();
  });
  plot.addEventListener("pointerup", event => {
    if (from === null) return;
    const range = [from, inside(event)].sort((a, b) => a - b), { x } = made;
    from = null;
    if (x.at(range[1]) - x.at(range[0]) > 0.02) zoom(made, range);
  });
  plot.addEventListener("pointerleave", () => { from = null; made.again = null; if (made.over) { made.over.replaceChildren(); plot.querySelector(".tip")?.remove(); } });
  plot.addEventListener("dblclick", () => zoom(made, null));
}

function nearest(xs, value) {
  let low = 0, high = xs.length - 1;
  while (high - low > 1) { const middle = low + high >> 1; if (xs[middle] < value) low = middle; else high = middle; }
  return Math.abs(xs[low] - value) <= Math.abs(xs[high] - value) ? low : high;
}

function point(made, value, from) {
  const { spec, over, px, py, box, shown, plot, log } = made;
  over.replaceChildren();
  plot.querySelector(".tip")?.remove();
  if (from !== null && Math.abs(px(from) - px(value)) > 4) {
    const left = Math.min(px(from), px(value));
    over.append(s("rect", { class: "pick", x: left, y: box.top, width: Math.abs(px(from) - px(value)), height: box.height }));
  }
  const rows = [];
  let at = value;
  for (const series of shown) {
    if (!series.x.length) continue;
    const i = nearest(series.x, value), y = series.y[i];
    // A point that nothing joins says nothing of places beside it.
    if (series.stroke === "dots" && Math.abs(px(series.x[i]) - px(value)) > 12) continue;
    at = series.x[i];
    if (!usable(y, log)) continue;
    over.append(s("circle", { cx: px(at), cy: py(y), r: 3.2, style: `fill:var(--${series.colour})` }));
    rows.push(h("tr", {}, h("td", {}, h("i", { style: `background:var(--${series.colour})` }), series.name), h("td", { class: "n" }, FORMATS[spec.y.kind](y, 4) + spec.suffix)));
  }
  over.prepend(s("line", { class: "cross", x1: px(at), x2: px(at), y1: box.top, y2: box.top + box.height }));
  const tip = h("div", { class: "tip" }, PLACES[spec.x.kind](at), h("table", {}, ...rows));
  plot.append(tip);
  const room = plot.clientWidth - tip.offsetWidth;
  tip.style.left = Math.max(0, Math.min(room, px(at) + (px(at) > plot.clientWidth / 2 ? -tip.offsetWidth - 12 : 12))) + "px";
}

// --- the page ------------------------------------------------------------------------------------------------------

let runs = [], alone = false;
function take(told) {
  data = told;
  runs = data.runs ?? [];
  alone = runs.length === 1;
}
function pictures() {
  const line = ({ points, ...rest }) => ({ ...rest, x: points.map(point => point[0]), y: points.map(point => point[1]) });
  return data.charts.panels.map(({ lines, ...panel }) => chart({ ...panel, lines: lines.map(line) }));
}
function missing() {
  const entries = data.charts.leftOut.flatMap(({ name, why }) => [h("dt", {}, name), h("dd", {}, why)]);
  return entries.length ? [h("section", { class: "card wide" }, h("h2", {}, "Not drawn"), h("dl", {}, ...entries))] : [];
}

function tiles(run) {
  const f = run.figures;
  const tile = (value, name, kind = "") => h("div", { class: "tile " + kind }, h("b", {}, value), h("span", {}, name));
  // A percentile that rests on fewer than four answers is shown, but not as if it were known.
  const tail = (value, q, name) => f.timed * (1 - q) < 4 ? tile(time(value), name + ", too few responses", "vague") : tile(time(value), name);
  return h("div", { class: "tiles" },
    tile(whole(f.requests), "requests"), tile(count(f.offered) + " /s", "offered rate"), tile(count(f.achieved) + " /s", "achieved rate"), tile(count(f.good) + " /s", "good rate"),
    ...(f.afterSchedule.completed ? [tile(whole(f.afterSchedule.completed), "ended after the schedule, in " + span(f.afterSeconds), "vague")] : []),
    tile(percent(f.success), "good responses", f.success < 1 ? "bad" : ""), tile(time(f.p50), "median"), tail(f.p99, 0.99, "99 %"),
    tail(f.p999, 0.999, "99.9 %"), tile(time(f.max), "largest"));
}

const FIGURES = [["requests", "Requests", whole], ["seconds", "Attack", span], ["offered", "Offered rate /s", count],
  ["achieved", "Achieved rate /s", count], ["good", "Good rate /s", count], ["afterSeconds", "Responses after the schedule", span],
  ["success", "Good responses", percent], ["min", "Smallest", time], ["mean", "Mean", time], ["p50", "Median", time], ["p90", "90 %", time],
  ["p95", "95 %", time], ["p99", "99 %", time], ["p999", "99.9 %", time], ["max", "Largest", time], ["bytesIn", "Body bytes in", bytes], ["bytesOut", "Body bytes out", bytes]];
const WORSE_IF_MORE = new Set(["min", "mean", "p50", "p90", "p95", "p99", "p999", "max"]);
const WORSE_IF_LESS = new Set(["achieved", "good", "success"]);

function comparison() {
  const head = h("tr", {}, h("th", {}, ""), ...runs.map((run, i) => h("th", { class: "n" },
    h("i", { class: "bar", style: `background:var(--${data.colours[i]});width:9px` }), " " + run.name + (data.otherLoad[i] ? " (other load)" : ""))));
  const rows = FIGURES.map(([key, name, format]) => h("tr", {}, h("th", {}, name), ...runs.map((run, i) => {
    const value = run.figures[key], first = runs[0].figures[key];
    const change = i > 0 && first > 0 && value !== null ? value / first - 1 : 0;
    // More or less load is neither better nor worse, and neither is what it does to times.
    const judged = !data.otherLoad[i];
    const worse = WORSE_IF_MORE.has(key) ? change > 0.02 : WORSE_IF_LESS.has(key) ? change < -0.02 : false;
    const better = WORSE_IF_MORE.has(key) ? change < -0.02 : WORSE_IF_LESS.has(key) ? change > 0.02 : false;
    const by = Math.abs(change) < 0.005 ? "" : ` (${change > 0 ? "+" : "−"}${digits(Math.abs(change) * 100, 2)}\u00a0%)`;
    // On a phone a line breaks between a figure and its change, and never before a unit.
    const figure = String(format(value)).replaceAll(" ", "\u00a0");
    return h("td", { class: "n" + (judged && worse ? " more" : judged && better ? " less" : "") }, figure + by);
  })));
  return h("section", { class: "card wide" }, h("h2", {}, "Runs side by side"),
    h("p", { class: "note" }, "Changes are relative to the first run. A single run of each proves little: repeat whole runs before you trust a small difference."),
    ...(data.otherLoad.includes(true) ? [h("p", { class: "note" }, "Runs with this mark had another load than the first run: their times and rates are not comparable, so changes are not judged.")] : []),
    h("div", { class: "scroll runs" }, h("table", {}, head, ...rows)));
}

function codes(run) {
  const rows = run.codes.map(([code, n]) => h("tr", {}, h("td", {}, code === 0 ? "none" : String(code)), h("td", { class: "n" }, whole(n)),
    h("td", { class: "n" }, percent(n / run.figures.requests)),
    h("td", { style: "width:45%" }, h("span", { class: "bar " + (code >= 200 && code < 400 ? "good" : "bad"), style: `width:${(n / run.figures.requests * 100).toFixed(2)}%` }))));
  return h("section", { class: "card" }, h("h2", {}, "Status codes" + (alone ? "" : " – " + run.name)), h("div", { class: "scroll" }, h("table", {},
    h("tr", {}, h("th", {}, "Code"), h("th", { class: "n" }, "Requests"), h("th", { class: "n" }, "Share"), h("th", {}, "")), ...rows)));
}

function errors(run) {
  const title = "Errors" + (alone ? "" : " – " + run.name);
  if (!run.errors.length) return h("section", { class: "card" }, h("h2", {}, title), h("p", { class: "note" }, "None."));
  const rows = run.errors.map(([text, n]) => h("tr", {}, h("td", { class: "n" }, n === null ? "" : whole(n)), h("td", { class: "t" }, text)));
  return h("section", { class: "card" }, h("h2", {}, title), h("div", { class: "scroll" }, h("table", {},
    h("tr", {}, h("th", { class: "n" }, "Requests"), h("th", {}, "Error")), ...rows)));
}

function targets(run) {
  if (run.targets.length < 2) return null;
  const rows = run.targets.map(target => h("tr", {}, h("td", { class: "t" }, target.name), h("td", { class: "n" }, whole(target.requests)),
    h("td", { class: "n" }, percent(target.success)), ...[target.p50, target.p99, target.max].map(ns => h("td", { class: "n" }, time(ns)))));
  return h("section", { class: "card wide" }, h("h2", {}, "Targets" + (alone ? "" : " – " + run.name)), h("div", { class: "scroll" }, h("table", {},
    h("tr", {}, h("th", {}, "Target"), ...["Requests", "Good", "Median", "99 %", "Largest"].map(name => h("th", { class: "n" }, name))), ...rows)));
}

// Pods that share the load: problems first until a reader chooses another order, which stays while new figures come.
const PODS = { running: "running", late: "late", lost: "lost", finished: "finished" };
const off = value => value === null ? "unknown" : (value[0] < 0 ? "−" : "") + time(Math.abs(value[0])) + " ± " + time(value[1]);
const POD_COLUMNS = [["Pod", "t", pod => pod.name, pod => pod.index], ["State", "s", pod => PODS[pod.state], pod => Object.keys(PODS).indexOf(pod.state)],
  ["Sent", "n", pod => whole(pod.sent), pod => pod.sent], ["Good", "n", pod => whole(pod.good), pod => pod.good], ["99 %", "n", pod => time(pod.p99), pod => pod.p99],
  ["Generator lag 99 %", "n", pod => time(pod.lag), pod => pod.lag], ["Most in flight", "n", pod => whole(pod.inFlight), pod => pod.inFlight],
  ["Clock ahead", "n", pod => off(pod.clock), pod => Math.abs(pod.clock?.[0] ?? 0)], ["Start delay", "n", pod => off(pod.began), pod => Math.abs(pod.began?.[0] ?? 0)],
  ["Problems", "t", pod => pod.against, pod => pod.against]];
function podTable() {
  let by = null, down = false;
  const heads = POD_COLUMNS.map(([name, kind], i) => h("th", { class: kind }, h("button", { type: "button", title: "Sort by this", onclick: () => {
    [by, down] = by === i ? (down ? [i, false] : [null, false]) : [i, true];
    show();
  } }, name)));
  const body = h("tbody", {}), head = h("h2", {}), note = h("p", { class: "note" });
  const made = h("section", { class: "card wide pods", "aria-label": "Pods" }, h("div", { class: "head" }, head, note),
    h("div", { class: "scroll", tabindex: "0" }, h("table", {}, h("thead", {}, h("tr", {}, ...heads)), body)));
  function show() {
    const { count, rows, gaps } = data.pods, sorted = [...rows];
    if (by !== null) sorted.sort((a, b) => { const [x, y] = [a, b].map(POD_COLUMNS[by][3]); return (x < y ? -1 : x > y ? 1 : 0) * (down ? -1 : 1); });
    heads.forEach((cell, i) => i === by ? cell.setAttribute("aria-sort", down ? "descending" : "ascending") : cell.removeAttribute("aria-sort"));
    head.textContent = count === 1 ? "Pod" : whole(count) + " pods";
    note.textContent = [...(count > rows.length ? [`the ${rows.length} most important are listed; --summary=json has all`] : []),
      ...(gaps.length ? ["charts over time are shaded where a share of the load is missing"] : [])].join(" · ");
    body.replaceChildren(...sorted.map(pod => h("tr", { class: pod.state }, ...POD_COLUMNS.map(([, kind, text]) => h("td", { class: kind }, text(pod))))));
  }
  return { made, show };
}

function words() {
  const entry = ([name, text]) => [h("dt", {}, name), h("dd", {}, text)];
  return h("section", { class: "card wide" }, h("details", {}, h("summary", {}, "What the numbers mean"), h("dl", {}, ...data.words.flatMap(entry))));
}

// Of a page that is no report: figures and tables as they stand in the data.
function figures() {
  return h("div", { class: "tiles" }, ...data.tiles.map(({ value, name }) => h("div", { class: "tile" }, h("b", {}, value), h("span", {}, name))));
}
function tables() {
  const cell = (tag, [, isNumber], text) => h(tag, { class: isNumber ? "n" : "t" }, text);
  return data.tables.map(({ name, columns, rows }) => h("section", { class: "card wide" }, h("h2", {}, name), h("div", { class: "scroll" }, h("table", {},
    h("tr", {}, ...columns.map(column => cell("th", column, column[0]))),
    ...rows.map(row => h("tr", {}, ...row.map((text, i) => cell("td", columns[i], text))))))));
}

function theme() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;
  const apply = () => { root.dataset.theme = chosen ?? (dark.matches ? "dark" : "light"); };
  const button = h("button", { class: "theme", title: "Light or dark", onclick: () => {
    chosen = root.dataset.theme === "dark" ? "light" : "dark";
    apply();
  } }, "◐ theme");
  dark.addEventListener("change", apply);
  apply();
  return button;
}

// --- all of it -----------------------------------------------------------------------------------------------------

take(data);
const places = { title: h("h1", {}), subtitle: h("p", { class: "when" }), note: h("p", { class: "note lines" }), alarm: h("div", {}), first: h("div", {}), pods: h("div", {}), charts: h("div", { class: "charts" }), missing: h("div", { class: "charts more" }), tables: h("div", { class: "charts more" }) };
const live = data.live ? steering() : null;   // live.js, search.js
const filled = new Map();
let pods = null, toldOfPods = null;

// What changes while a run goes on. What has not changed is left alone: somebody may be reading, or selecting, it.
function change(place, from, make) {
  const text = JSON.stringify(from);
  if (filled.get(place) === text) return;
  filled.set(place, text);
  place.replaceChildren(...make());
}
function fill() {
  live?.show();
  document.title = places.title.textContent = data.title;
  places.subtitle.textContent = data.subtitle;
  places.note.textContent = data.note ?? "";
  places.note.hidden = !data.note;
  const waits = live && !runs.length && !data.tiles?.length;
  places.first.replaceChildren(...(waits ? [h("p", { class: "note" }, "Nothing is counted yet.")] : data.tiles ? [figures()] : alone ? [tiles(runs[0])]
    : [h("div", { style: "margin:18px 0 16px" }, comparison())]));
  change(places.alarm, data.pods?.alarms, () => data.pods?.alarms.length ? [h("section", { class: "card alarm", role: "alert" },
    ...data.pods.alarms.map(text => h("p", {}, text)))] : []);
  if (data.pods && !pods) places.pods.replaceChildren((pods = podTable()).made);
  const told = JSON.stringify(data.pods);
  if (pods && data.pods && told !== toldOfPods) pods.show();
  toldOfPods = told;
  const drawn = waits ? [] : pictures(), there = [...places.charts.children];
  if (drawn.length !== there.length || drawn.some((card, i) => card !== there[i])) places.charts.replaceChildren(...drawn);
  change(places.missing, waits ? null : data.charts.leftOut, () => waits ? [] : missing());
  change(places.tables, [data.tables, runs.map(run => [run.codes, run.errors, run.targets])], () =>
    [...(data.tables ? tables() : []), ...runs.flatMap(run => [codes(run), errors(run), targets(run)]).filter(Boolean)]);
}

document.getElementById("page").append(
  h("header", {}, h("div", {}, places.title, places.subtitle, places.note), theme()),
  ...(live ? [live.made] : []), places.alarm, places.first, places.pods, places.charts, places.missing, places.tables, h("div", { class: "charts more" }, words()));
fill();
// At once, for whoever prints the page or takes its picture as soon as it is there.
charts.forEach(draw);
