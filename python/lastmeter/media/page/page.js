// The browser of clips: asks this server for clips and plays them.
"use strict";

const $ = (id) => document.getElementById(id);
const NAMES = { room: "Room Monitor", board: "Whiteboard Recorder", news: "News Browser", jokes: "Joke Browser", sport: "Sports Highlights" };
let shown = [];
let current = null;
let asked = 0;

const get = async (path, values) => {
  const answer = await fetch(path + "?" + new URLSearchParams(values));
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer.json();
};

// 75.2 as 1:15.
const clock = (seconds) => {
  const whole = Math.max(0, Math.round(seconds));
  return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, "0")}`;
};

const element = (name, values = {}, ...children) => {
  const made = Object.assign(document.createElement(name), values);
  made.append(...children);
  return made;
};

// A line with the words that were looked for between [ and ].
const marked = (line) => line.split(/(\[[^\]]*\])/).map((part) =>
  part.startsWith("[") ? element("mark", { textContent: part.slice(1, -1) }) : part);

async function refresh() {
  const mine = ++asked;
  const words = $("words").value.trim();
  const program = $("program").value;
  $("least-said").textContent = `${$("least").value} %`;
  try {
    const found = words
      ? await get("/api/search", { q: words, program })
      : await get("/api/clips", { program, order: $("order").value, least: Number($("least").value) / 100 || "" });
    if (mine !== asked) return;
    shown = found;
  } catch (error) {
    $("note").textContent = `The server does not answer (${error.message}).`;
    return;
  }
  $("note").textContent = shown.length
    ? `${shown.length} ${shown.length === 1 ? "clip" : "clips"}${words ? ` in which "${words}" is said` : ""}`
    : words ? `"${words}" is said in no clip.` : "No clips yet: run, for example, lastmeter media room FILM.";
  $("clips").replaceChildren(...shown.map(card));
  timeline();
}

function card(clip) {
  const picture = clip.thumbnail
    ? element("img", { src: `/picture/${clip.id}`, alt: "", loading: "lazy" })
    : element("span", { className: "blank", textContent: "\u25b6" });
  const when = element("small", { textContent: `${NAMES[clip.program] ?? clip.program}, ${clock(clip.begin)} to ${clock(clip.end)}` });
  const text = clip.line ? element("span", {}, ...marked(clip.line)) : element("span", { textContent: clip.title });
  const button = element("button", { type: "button", onclick: () => show(clip) }, picture, text, when);
  button.dataset.clip = clip.id;
  return element("li", {}, button);
}

// Clips along the time of their films, one film after another.
function timeline() {
  const ends = new Map();
  for (const clip of shown) ends.set(clip.film, Math.max(ends.get(clip.film) ?? 0, clip.end));
  const films = [...ends.keys()].sort((a, b) => a - b);
  const starts = new Map();
  let total = 0;
  for (const film of films) { starts.set(film, total); total += ends.get(film); }
  $("timeline").hidden = !shown.length;
  $("timeline").replaceChildren(...shown.map((clip) => {
    const left = (starts.get(clip.film) + clip.begin) / total * 100;
    const width = (clip.end - clip.begin) / total * 100;
    const button = element("button", { type: "button", title: clip.title, onclick: () => show(clip) });
    button.style.left = `${left}%`;
    button.style.width = `max(5px, ${width}% - 1px)`;
    button.tabIndex = -1;
    button.dataset.clip = clip.id;
    button.setAttribute("aria-label", `${clip.title}, ${clock(clip.begin)}`);
    return button;
  }));
}

async function show(clip) {
  current = clip;
  for (const button of document.querySelectorAll("[data-clip]")) {
    if (Number(button.dataset.clip) === clip.id) button.setAttribute("aria-current", "true");
    else button.removeAttribute("aria-current");
  }
  $("stage").hidden = false;
  $("title").textContent = clip.title;
  $("when").textContent = `${NAMES[clip.program] ?? clip.program}, ${clock(clip.begin)} to ${clock(clip.end)} of its film`;
  const film = $("film");
  film.hidden = clip.picture;
  $("still").hidden = !clip.picture;
  if (clip.picture) {
    film.pause();
    $("still").src = `/picture/${clip.id}`;
    $("still").alt = clip.title;
  } else {
    const begin = clip.whole ? 0 : clip.from ?? clip.begin;
    film.src = clip.whole ? `/clip/${clip.id}` : `/clip/${clip.id}#t=${begin},${clip.end}`;
    film.play().catch(() => {});
  }
  const said = await get("/api/said", { clip: clip.id }).catch(() => []);
  if (current !== clip) return;
  $("said").hidden = !said.length;
  $("said").replaceChildren(...said.map((cue) => {
    const button = element("button", { type: "button", textContent: cue.text, onclick: () => { film.currentTime = cue.begin; film.play(); } });
    button.dataset.begin = cue.begin;
    button.dataset.end = cue.end;
    return element("li", {}, button);
  }));
  $("stage").scrollIntoView({ block: "nearest" });
}

$("film").addEventListener("timeupdate", () => {
  const at = $("film").currentTime;
  for (const button of $("said").querySelectorAll("button")) {
    if (at >= button.dataset.begin && at < button.dataset.end) button.setAttribute("aria-current", "true");
    else button.removeAttribute("aria-current");
  }
});
// Tells the server what was shown: it prints the traffic of its clips. Pictures of a film since the last time, or a page.
let told = 0;
let since = performance.now();
let drawn = null;
function showed(clip, frames, width, height) {
  const now = performance.now();
  const ms = Math.round(now - since);
  since = now;
  if (clip && frames > 0 && width > 0) fetch("/api/shown?" + new URLSearchParams({ clip: clip.id, frames, width, height, ms }), { method: "POST" }).catch(() => {});
}
function count() {
  const film = $("film");
  const { totalVideoFrames: total, droppedVideoFrames: lost } = film.getVideoPlaybackQuality();
  const frames = drawn === current ? total - lost - told : 0;
  told = total - lost;
  if (drawn !== current || frames <= 0) since = performance.now();
  drawn = current;
  if (current && !current.picture && frames > 0) showed(current, Math.min(frames, 1000), film.videoWidth, film.videoHeight);
}
setInterval(count, 1000);
$("film").addEventListener("pause", count);
$("still").addEventListener("load", () => { since = performance.now(); showed(current, 1, $("still").naturalWidth, $("still").naturalHeight); });
$("search").addEventListener("submit", (event) => { event.preventDefault(); refresh(); });
for (const id of ["program", "order", "least"]) $(id).addEventListener("change", refresh);
$("least").addEventListener("input", () => { $("least-said").textContent = `${$("least").value} %`; });
$("words").addEventListener("search", refresh);
refresh();
