// What the page of a run that goes on has beside page.js, in whose scope it stands: how the run is, buttons, and news of it. It asks where the page
// came from, and nobody else; a file that is saved has none of this.

// The token stands in the page's own address, which is all that lets it in.
const at = path => path + location.search;
const STATES = { running: "Running", paused: "Paused", ending: "Stopping: waiting for answers", over: "The run is over: this page is its report" };
const rate = value => value >= 100 ? String(Math.round(value)) : String(Number(value.toPrecision(3)));

// How the run stands, and the buttons. What a button asks for is a line of --control's, and so is the answer.
function steering() {
  const state = h("b", { role: "status" }), how = h("span", {}), said = h("p", { class: "note", role: "status" }), now = h("div", { class: "now" });
  // What was asked for last, for a moment: a change takes one, and the next press must not start from the rate before it.
  let asked = null, until = 0, told = null;
  const tell = async line => {
    try {
      const answer = await fetch(at("control"), { method: "POST", body: line });
      said.textContent = answer.ok ? line + ": done" : (await answer.text()).trim();
      return answer.ok;
    } catch {
      said.textContent = "No answer: the attack's program may have ended.";
      return false;
    }
  };
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
  const pause = button("Pause", "Send nothing for the time being", () => tell(data.live.state === "paused" ? "resume" : "pause"));
  // Said again it ends at once: the second press of a double click is not meant so.
  const stop = button("Stop", "Send nothing more and wait for answers", event => { if (event.detail < 2) tell("stop"); });
  const save = button("Save report", "Save this report as one file that works offline", async () => {
    // At the end the page has it: there is nobody left to ask.
    const blob = data.live.file ? new Blob([data.live.file], { type: "text/html" }) : await fetched();
    if (!blob) return;
    const link = h("a", { href: URL.createObjectURL(blob), download: "seawall-report.html" });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60000);
  });
  const fetched = async () => {
    try {
      const answer = await fetch(at("report.html"));
      if (answer.ok) return await answer.blob();
      said.textContent = (await answer.text()).trim();
    } catch { said.textContent = "No answer: the attack's program may have ended."; }
    return null;
  };
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
    pause.setAttribute("aria-label", live.state === "paused" ? "Send again" : "Send nothing for the time being");
    pause.title = pause.getAttribute("aria-label");
    stop.hidden = over;
    stop.textContent = ending ? "Stop at once" : "Stop";
    stop.setAttribute("aria-label", ending ? "End now, without the answers that are still to come" : "Send nothing more and wait for answers");
    stop.title = stop.getAttribute("aria-label");
    save.disabled = !runs.length;
    const last = live.last;
    now.replaceChildren(...(over ? [] : [h("span", {}, "Last second"),
      ...(live.open && live.rate !== null ? [figure(rate(live.rate) + " /s", "offered now")] : []),
      ...(last ? [figure(count(last.achieved) + " /s", "achieved"), figure(count(last.good) + " /s", "good"), figure(time(last.p50), "median"), figure(time(last.p99), "99 %"),
        ...(live.open ? [figure(time(last.lag), "lag 99 %")] : []), figure(whole(last.failed), "errors", last.failed ? "bad" : "")] : []),
      figure(whole(live.inFlight), "in flight, of " + count(live.mostInFlight)), figure(whole(live.connections), "connections")]));
  }
  function listen() {
    const source = new EventSource(at("events"));
    let waiting = null;
    const update = () => { if (waiting) { take(waiting); waiting = null; fill(); } };
    // A page that nobody sees costs the machine that sends nothing.
    const hear = event => { waiting = JSON.parse(event.data); if (!document.hidden) update(); };
    document.addEventListener("visibilitychange", () => { if (!document.hidden) update(); });
    source.addEventListener("run", event => { hear(event); if (lost) said.textContent = lost = ""; });
    source.addEventListener("end", event => {
      source.close();
      hear(event);
      said.textContent = "";
    });
    let lost = "";
    source.onerror = () => {
      said.textContent = lost = source.readyState === EventSource.CLOSED ? "The attack tells this page nothing: too many may be open. Close one, and load this one again."
        : "No connection to the attack: its program may have ended. What is shown is what was heard last.";
    };
  }
  show();
  if (data.live.state !== "over") listen();
  const made = h("section", { class: "card steer", "aria-label": "The run" }, h("div", { class: "head" }, h("p", {}, state, " ", how),
    h("div", { class: "tools" }, pause, stop, save)), steps, now, said);
  return { made, show };
}
