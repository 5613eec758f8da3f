// What the page of an attack that goes on has beside link.js and page.js, in whose scope it stands: how the run is, and the buttons that steer it.

const STATES = { running: "Running", paused: "Paused", ending: "Stopping: waiting for responses", over: "The run has ended: this page is its report" };
const rate = value => value >= 100 ? String(Math.round(value)) : String(Number(value.toPrecision(3)));

// How the run stands, and the buttons. What a button asks for is a line of --control-socket's, and so is the answer.
function steering() {
  const state = h("b", { role: "status" }), how = h("span", {}), said = h("p", { class: "note", role: "status" }), now = h("div", { class: "now" });
  // What was asked for last, for a moment: a change takes one, and the next press must not start from the rate before it.
  let asked = null, until = 0, told = null;
  const { tell, save, listen } = link(said);
  const set = async value => {
    [asked, until] = [value, Date.now() + 1000];
    if (!await tell(data.live.open ? `rate ${value}/s` : `concurrency ${value}`)) asked = null;
    show();
  };
  const load = () => (Date.now() < until ? asked : null) ?? (data.live.open ? data.live.rate : data.live.clients);
  const scale = factor => set(data.live.open ? Number((load() * factor).toPrecision(6)) : Math.max(1, Math.round(load() * factor)));
  const button = (text, name, onclick) => h("button", { type: "button", "aria-label": name, title: name, onclick }, text);
  const what = data.live.open ? "rate" : "clients";
  const entry = h("input", { type: "number", min: data.live.open ? "0" : "1", step: data.live.open ? "any" : "1", size: "8", "aria-label": data.live.open ? "Rate, requests per second" : "Clients" });
  const by = [["÷ 2", "Half the " + what, 0.5], ["− 10 %", "A tenth less " + what, 1 / 1.1], ["+ 10 %", "A tenth more " + what, 1.1], ["× 2", "Double the " + what, 2]];
  const factors = by.map(([text, name, factor]) => button(text, name, () => scale(factor)));
  const steps = h("form", { class: "tools", onsubmit: event => { event.preventDefault(); if (Number(entry.value) > 0) set(Number(entry.value)); } },
    entry, h("button", { type: "submit" }, "Set " + what), ...factors);
  const pause = button("Pause", "Pause the schedule; requests that are already due are still sent", () => tell(data.live.state === "paused" ? "resume" : "pause"));
  // Said again it ends at once: the second press of a double click is not meant so.
  const stop = button("Stop", "Stop sending and wait for responses", event => { if (event.detail < 2) tell("stop"); });
  const keep = button("Save report", "Save this report as one file that works offline", save);
  const figure = (value, name, kind = "") => h("div", { class: kind }, h("b", {}, value), h("span", {}, name));
  function show() {
    const { live } = data, over = live.state === "over", ending = live.state === "ending";
    if (told !== live.state) state.textContent = STATES[live.state];
    told = live.state;
    const end = live.end === null ? "" : " of " + clock(live.end);
    how.textContent = over ? "" : [clock(Math.floor(live.elapsed)) + end, "planned: " + live.load, ...(live.warming ? ["warming up: nothing is counted yet"] : [])].join(" · ");
    // In a pause nothing is offered, and what was stays where it can be asked for again.
    if (document.activeElement !== entry && load() > 0) entry.value = rate(load());
    factors.forEach(scaling => { scaling.disabled = !(load() > 0); });
    steps.hidden = over || ending || (live.open && !live.steerable);
    pause.hidden = over || ending;
    pause.textContent = live.state === "paused" ? "Resume" : "Pause";
    pause.setAttribute("aria-label", live.state === "paused" ? "Resume sending" : "Pause the schedule; requests that are already due are still sent");
    pause.title = pause.getAttribute("aria-label");
    stop.hidden = over;
    stop.textContent = ending ? "Stop at once" : "Stop";
    stop.setAttribute("aria-label", ending ? "End now without waiting for responses" : "Stop sending and wait for responses");
    stop.title = stop.getAttribute("aria-label");
    keep.disabled = !runs.length;
    const last = live.last;
    now.replaceChildren(...(over ? [] : [h("span", {}, "Last second"),
      ...(live.open && live.rate !== null ? [figure(rate(live.rate) + " /s", "offered now")] : []),
      ...(last ? [figure(count(last.achieved) + " /s", "achieved"), figure(count(last.good) + " /s", "good"), figure(time(last.p50), "median"), figure(time(last.p99), "99 %"),
        ...(live.open ? [figure(time(last.lag), "lag 99 %")] : []), figure(whole(last.failed), "errors", last.failed ? "bad" : "")] : []),
      figure(whole(live.inFlight), "in flight, of " + count(live.mostInFlight)), figure(whole(live.connections), "connections")]));
  }
  show();
  if (data.live.state !== "over") listen();
  const made = h("section", { class: "card steer", "aria-label": "The run" }, h("div", { class: "head" }, h("p", {}, state, " ", how),
    h("div", { class: "tools" }, pause, stop, keep)), steps, now, said);
  return { made, show };
}
