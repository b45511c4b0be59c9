"use strict";
{
// Steps through plots over time: hides what comes later, and shows the value of each curve at that time.
const plots = JSON.parse(document.getElementById("plots").textContent);
const PLAY_MS = 8000;
document.querySelectorAll("figure").forEach((figure, place) => {
  if (!figure.classList.contains("time")) return;
  const plot = plots[place];
  const svg = figure.querySelector("svg.plot");
  const [x0, x1] = [Number(svg.dataset.x0), Number(svg.dataset.x1)];
  const seen = svg.querySelector(".seen");
  const width = Number(seen.getAttribute("width"));
  const left = Number(seen.getAttribute("x"));
  const cursor = svg.querySelector(".cursor");
  const steps = figure.querySelector(".steps");
  const range = steps.querySelector("input");
  const names = figure.querySelectorAll(".key output");
  steps.hidden = false;
  const show = () => {
    const share = range.value / range.max;
    const at = x0 + share * (x1 - x0);
    seen.setAttribute("width", Math.max(share * width, 0.1));
    cursor.setAttribute("transform", `translate(${share * width} 0)`);
    cursor.setAttribute("visibility", share < 1 ? "visible" : "hidden");
    steps.querySelector("output").textContent = `${at.toFixed(0)} ${plot.x}`;
    plot.series.forEach((series, number) => {
      let last = null;
      for (const [x, y] of series.points) {
        if (x > at) break;
        last = y;
      }
      names[number].textContent = last === null || share === 1 ? "" : last.toPrecision(3);
    });
  };
  range.addEventListener("input", show);
  steps.querySelectorAll("[data-by]").forEach((button) =>
    button.addEventListener("click", () => {
      range.value = Number(range.value) + Number(button.dataset.by) * 4;
      show();
    }));
  let playing = null;
  const play = steps.querySelector(".play");
  const stop = () => {
    clearInterval(playing);
    playing = null;
    play.textContent = "play";
  };
  play.addEventListener("click", () => {
    if (playing) return stop();
    if (range.value === range.max) range.value = 0;
    play.textContent = "pause";
    playing = setInterval(() => {
      range.value = Number(range.value) + 1;
      show();
      if (range.value === range.max) stop();
    }, PLAY_MS / range.max);
  });
});
}
