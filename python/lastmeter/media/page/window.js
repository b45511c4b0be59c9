// Shows what the program says of itself, and sends it keys: the arrow keys, or the buttons below the picture.
"use strict";

const ARROWS = {ArrowLeft: "left", ArrowRight: "right", ArrowUp: "up", ArrowDown: "down"};
const LABELS = {left: "\u2190 left", right: "right \u2192", up: "\u2191 up", down: "down \u2193"};
const title = document.querySelector("#title");
const words = document.querySelector("#words");
const keys = document.querySelector("#keys");
let known = [];
let sent = Promise.resolve();

function show(state) {
  if (state.title) {
    title.textContent = state.title;
    document.title = state.title;
  }
  if (words.textContent !== state.words) words.textContent = state.words;
  if (state.keys.length !== known.length) {
    known = state.keys;
    keys.hidden = known.length === 0;
    keys.replaceChildren(...known.map(name => {
      const button = document.createElement("button");
      button.textContent = LABELS[name] || name;
      button.addEventListener("click", () => press(name));
      return button;
    }));
  }
}

async function ask(path, options) {
  try {
    const answer = await fetch(path, options);
    if (answer.ok) show(await answer.json());
  } catch {
    words.textContent = "The program has ended.";
  }
}

// Keys are sent one after another: two requests under way at once may arrive in either order. A key works at the
// next picture, so the words are asked for once more a little later.
function press(name) {
  sent = sent.then(() => ask(`/key?name=${encodeURIComponent(name)}`, {method: "POST"}));
  sent.then(() => setTimeout(() => ask("/state"), 100));
}

document.addEventListener("keydown", event => {
  const name = ARROWS[event.key];
  if (name === undefined || !known.includes(name) || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  press(name);
});
ask("/state");
setInterval(() => ask("/state"), 1000);
