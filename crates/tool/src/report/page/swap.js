// Draws the page of an experiment that goes on, behind link.js and search.js: each news holds the whole page, of which its main part takes the place of the one
// before. A parser makes elements of it that run nothing by themselves, and every text from outside was escaped where the page was written.
let data = JSON.parse(document.getElementById("data").textContent);
const main = document.querySelector("main"), drawn = Object.assign(document.createElement("div"), { className: "drawn" }), live = steering();
drawn.append(...main.childNodes);
main.append(live.made, drawn);
let shown = null;
function take(told) { data = told; }
function fill() {
  live.show();
  // What has not changed is left alone: somebody may be reading, or selecting, it.
  if (shown === data.page) return;
  shown = data.page;
  const made = new DOMParser().parseFromString(data.page, "text/html");
  document.title = made.title;
  // What a reader has opened stays open.
  const opened = [...drawn.querySelectorAll("details")].map(list => list.open);
  drawn.replaceChildren(...made.querySelector("main").childNodes);
  drawn.querySelectorAll("details").forEach((list, i) => { list.open = opened[i] ?? false; });
}
