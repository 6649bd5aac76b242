"use strict";
/* The chosen pixel: its position, and its spectrum over the spectrum of its cluster. */
(() => {
  const { image, pixels, figures } = onmf.data;
  const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)).buffer;
  const values = new Uint16Array(bytes(pixels.values));
  const labels = new Int16Array(bytes(pixels.labels));
  const [low, high, scales, residuals, margins] = ["low", "high", "scales", "residuals", "margins"].map((name) => new Float32Array(bytes(pixels[name])));
  const bands = image.at.length;
  const pictures = [...document.querySelectorAll("[data-picture]")];
  const text = document.getElementById("pixel");
  let chosen = null;

  function choose(line, sample) {
    chosen = [Math.min(Math.max(line, 0), pixels.lines - 1), Math.min(Math.max(sample, 0), pixels.samples - 1)];
    const i = chosen[0] * pixels.samples + chosen[1];
    const [y, x] = chosen.map((index) => index * pixels.step);
    let words = `Line ${y}, sample ${x}`;
    if (image.transform) {
      const [a, b, c, d, e, f] = image.transform;
      words += ` (${(a * (x + 0.5) + b * (y + 0.5) + c).toFixed(1)}, ${(d * (x + 0.5) + e * (y + 0.5) + f).toFixed(1)})`;
    }
    const k = labels[i];
    const spectrum = Array.from({ length: bands }, (_, j) => low[i] + (high[i] - low[i]) * values[i * bands + j] / 65535);
    const curve = (name, y, style) => ({ type: "scatter", mode: "lines", name, x: image.at, y, line: style, hovertemplate: "%{y:.4g}" });
    figures.pixel.data = k < 0 ? [] : [
      curve("pixel", spectrum, { color: "#888888", width: 1.5 }),
      curve(`${onmf.escaped(image.names[k])} × ${scales[i].toFixed(2)}`, image.spectra[k].map((value) => value * scales[i]), { color: image.colours[k], width: 2.5 }),
    ];
    text.textContent = k < 0 ? `${words}: outside, no data` :
      `${words}: ${image.names[k]}, brightness ${scales[i].toFixed(2)}, residual ${residuals[i].toFixed(4)}, margin ${margins[i].toFixed(4)}`;
    for (const picture of pictures) {
      const mark = picture.querySelector(".mark");
      mark.hidden = false;
      mark.style.left = `${100 * (x + 0.5) / image.samples}%`;
      mark.style.top = `${100 * (y + 0.5) / image.lines}%`;
    }
    onmf.drawAll();
  }

  for (const picture of pictures) {
    picture.addEventListener("click", (event) => {
      const box = picture.querySelector("img").getBoundingClientRect();
      choose(
        Math.floor((event.clientY - box.top) / box.height * image.lines / pixels.step),
        Math.floor((event.clientX - box.left) / box.width * image.samples / pixels.step));
    });
    picture.addEventListener("keydown", (event) => {
      const move = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
      if (!move) return;
      event.preventDefault();
      if (chosen) choose(chosen[0] + move[0], chosen[1] + move[1]);
      else choose(Math.floor(pixels.lines / 2), Math.floor(pixels.samples / 2));
    });
  }
  choose(Math.floor(pixels.lines / 2), Math.floor(pixels.samples / 2));
})();
