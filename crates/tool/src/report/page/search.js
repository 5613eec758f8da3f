// What the page of a search that goes on has beside link.js and what draws, in whose scope it stands: what is being done, and the button that ends it.

const STATES = { running: "Running", ending: "Stopping: the result appears in a moment", over: "The run has ended: this page is its report" };

function steering() {
  const make = (tag, properties, ...children) => {
    const made = Object.assign(document.createElement(tag), properties);
    made.append(...children);
    return made;
  };
  const state = make("b", {}), doing = make("span", {}), said = make("p", { className: "note" });
  [state, said].forEach(spoken => spoken.setAttribute("role", "status"));
  const { tell, save, listen } = link(said);
  const stop = make("button", { type: "button", title: "Stop sending and show the result so far", onclick: () => tell("stop") }, "Stop");
  const keep = make("button", { type: "button", title: "Save this report as one file that works offline", onclick: save }, "Save report");
  for (const button of [stop, keep]) button.setAttribute("aria-label", button.title);
  let told = null;
  function show() {
    const { live } = data;
    if (told !== live.state) state.textContent = STATES[live.state];
    told = live.state;
    doing.textContent = "· " + live.doing;
    doing.hidden = live.state !== "running";
    stop.hidden = live.state !== "running";
  }
  show();
  if (data.live.state !== "over") listen();
  const made = make("section", { className: "card steer" }, make("div", { className: "head" }, make("p", {}, state, " ", doing), make("div", { className: "tools" }, stop, keep)), said);
  made.setAttribute("aria-label", "The search");
  return { made, show };
}
