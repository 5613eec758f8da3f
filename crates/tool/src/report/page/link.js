// What joins the page of a run that goes on to the program that serves it: commands, news, and the file at the end. It asks where the page came from, and
// nobody else; a file that is saved has none of this. What draws stands behind it in the same scope, and gives data, take and fill.

// The token stands in the page's own address, which is all that lets it in.
const at = path => path + location.search;
const GONE = "No response from the run. Try again; if this persists, the run's program has ended.";

// What came of each is said in the element `said`.
function link(said) {
  // A command is a line, and so is the answer.
  const tell = async line => {
    try {
      const answer = await fetch(at("control"), { method: "POST", body: line });
      said.textContent = answer.ok ? line + ": done" : (await answer.text()).trim();
      return answer.ok;
    } catch {
      said.textContent = GONE;
      return false;
    }
  };
  const fetched = async () => {
    try {
      const answer = await fetch(at("report.html"));
      if (answer.ok) return await answer.blob();
      said.textContent = (await answer.text()).trim();
    } catch { said.textContent = GONE; }
    return null;
  };
  const save = async () => {
    // At the end the page has it: there is nobody left to ask.
    const blob = data.live.file ? new Blob([data.live.file], { type: "text/html" }) : await fetched();
    if (!blob) return;
    const made = Object.assign(document.createElement("a"), { href: URL.createObjectURL(blob), download: "seawall-report.html" });
    made.click();
    setTimeout(() => URL.revokeObjectURL(made.href), 60000);
  };
  function listen() {
    const source = new EventSource(at("events"));
    let waiting = null, lost = "";
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
    source.onerror = () => {
      said.textContent = lost = source.readyState === EventSource.CLOSED ? "The run sends this page no data: too many pages may be open. Close one and reload this page."
        : "No connection to the run: its program may have ended. This page shows the last data.";
    };
  }
  return { tell, save, listen };
}
