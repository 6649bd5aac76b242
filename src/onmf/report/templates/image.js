"use strict";
/* The chosen pixel and the chosen cluster: what the page knows of them, in words and as spectra. */
onmf.image = (() => {
  const { image, pixels, moved } = onmf.data;
  const by = (id) => document.getElementById(id);
  function bytes(text) {
    const letters = atob(text), out = new Uint8Array(letters.length);
    for (let i = 0; i < letters.length; i++) out[i] = letters.charCodeAt(i);
    return out;
  }
  const read = (name, Kind) => (pixels[name] === null ? null : new Kind(bytes(pixels[name]).buffer));
  const [values, labels, runnersUp, truth] = [["values", Uint16Array], ["labels", Int16Array], ["runners_up", Int16Array], ["truth", Int32Array]].map((pair) => read(...pair));
  const [low, high, scales, residuals, margins, confidence] = ["low", "high", "scales", "residuals", "margins", "confidence"].map((name) => read(name, Float32Array));
  const bands = image.at.length, totals = image.spectra.map((spectrum) => spectrum.reduce((a, b) => a + b, 0));
  const state = { pinned: middle(), shown: -1, cluster: -1 };
  const listeners = [];
  function middle() { // the pixel inside that is nearest to the middle
    const [line, sample] = [Math.floor(pixels.lines / 2), Math.floor(pixels.samples / 2)];
    let best = line * pixels.samples + sample, least = Infinity;
    for (let i = 0; i < labels.length; i++) {
      const distance = Math.hypot(Math.floor(i / pixels.samples) - line, (i % pixels.samples) - sample);
      if (labels[i] >= 0 && distance < least) [best, least] = [i, distance];
    }
    return best;
  }

  const axes = { x: image.at, title: image.axis, gaps: image.gaps };
  const drawPixel = onmf.lines(by("pixel-chart"), { ...axes, valueTitle: "value of the pixel" });
  const drawClusters = onmf.lines(by("cluster-chart"), { ...axes, valueTitle: "mean of the cluster", onClick: (k) => choose(k) });

  /* Line and sample in the image. */
  const place = (i) => [Math.floor(i / pixels.samples) * pixels.step, (i % pixels.samples) * pixels.step];

  function curvesOf(i) {
    const k = labels[i], other = runnersUp[i];
    if (k < 0) return [];
    const spectrum = Array.from({ length: bands }, (_, j) => low[i] + (high[i] - low[i]) * values[i * bands + j] / 65535);
    const scaled = (cluster, factor) => image.spectra[cluster].map((value) => value * factor);
    const curves = [{ name: `${image.names[k]} × ${scales[i].toFixed(2)}`, y: scaled(k, scales[i]), colour: image.colours[k], width: 3 }];
    if (other >= 0 && totals[other]) { // at the same total, since its own brightness is not known
      curves.push({ name: `${image.names[other]}, runner-up`, y: scaled(other, scales[i] * totals[k] / totals[other]), colour: image.colours[other], width: 2, dashed: true });
    }
    return [...curves, { name: "pixel", y: spectrum, colour: "var(--ink)", width: 1.5 }];
  }

  function factsOf(i) {
    const k = labels[i], facts = [];
    if (k < 0) return facts;
    const fixed = (value, digits) => (Number.isFinite(value) ? value.toFixed(digits) : "none");
    if (confidence) facts.push(["Confidence", Number.isNaN(confidence[i]) ? "none" : `${(100 * confidence[i]).toFixed(0)} %`]);
    facts.push(["Margin", fixed(margins[i], 4)], ["Brightness", fixed(scales[i], 2)], ["Residual", fixed(residuals[i], 4)]);
    if (runnersUp[i] >= 0) facts.push(["Runner-up", image.names[runnersUp[i]]]);
    if (truth) facts.push(["Truth", truth[i] < 0 ? "not known" : image.materials[truth[i]]]);
    return facts;
  }

  function write() {
    const i = state.shown, k = labels[i], [y, x] = place(i);
    let words = `Line ${y}, sample ${x}`;
    if (image.transform) {
      const [a, b, c, d, e, f] = image.transform;
      words += ` (${(a * (x + 0.5) + b * (y + 0.5) + c).toFixed(1)}, ${(d * (x + 0.5) + e * (y + 0.5) + f).toFixed(1)})`;
    }
    by("pixel").setAttribute("aria-live", i === state.pinned ? "polite" : "off"); // hovering would never be quiet
    by("pixel").textContent = `${words}: ${k < 0 ? "unassigned" : image.names[k]}`;
    by("pixel-facts").replaceChildren(...factsOf(i).map(([name, value]) => {
      const fact = document.createElement("div");
      fact.append(...[["dt", name], ["dd", value]].map(([tag, text]) => Object.assign(document.createElement(tag), { textContent: text })));
      return fact;
    }));
    const curves = curvesOf(i);
    drawPixel(curves);
    by("pixel-curves").replaceChildren(...curves.map((curve) => {
      const item = document.createElement("li"), line = Object.assign(document.createElement("span"), { className: curve.dashed ? "stroke dashed" : "stroke" });
      line.style.setProperty("--colour", curve.colour);
      item.append(line, curve.name);
      return item;
    }));
    for (const button of document.querySelectorAll("#legend button")) button.classList.toggle("here", Number(button.dataset.cluster) === k);
  }

  function show(i) {
    if (i === state.shown) return;
    state.shown = i;
    write();
    for (const listener of listeners) listener();
  }
  function pin(i) {
    state.pinned = i;
    state.shown = -1;
    show(i);
  }
  /* The pixel of the page at a line and a sample of the image, both moved inside. */
  const nearest = (line, sample) => {
    const inside = (value, size) => Math.min(Math.max(Math.floor(value / pixels.step), 0), size - 1);
    return inside(line, pixels.lines) * pixels.samples + inside(sample, pixels.samples);
  };
  /* Move the pixel with an arrow key. Returns whether it was one. */
  function move(event) {
    const way = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!way || event.ctrlKey || event.metaKey || event.altKey) return false;
    const length = pixels.step * (event.shiftKey ? 10 : 1), [line, sample] = place(state.pinned);
    pin(nearest(line + way[0] * length, sample + way[1] * length));
    event.preventDefault();
    return true;
  }

  function choose(k, stay = false) {
    state.cluster = state.cluster === k && !stay ? -1 : k;
    drawClusters(image.spectra.map((y, index) => {
      const chosen = state.cluster === index;
      return { name: image.names[index], y, colour: image.colours[index], width: chosen ? 4 : 2, faint: state.cluster >= 0 && !chosen };
    }));
    for (const button of document.querySelectorAll("button[data-cluster]")) button.setAttribute("aria-pressed", String(Number(button.dataset.cluster) === state.cluster));
    by("all").disabled = state.cluster < 0;
    for (const listener of listeners) listener();
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-cluster]");
    if (!button) return;
    const far = !by("legend").contains(button);
    choose(Number(button.dataset.cluster), far);
    if (far) by("map").scrollIntoView();
  });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape" && state.cluster >= 0) choose(state.cluster); });
  by("all").addEventListener("click", () => choose(state.cluster));
  if (moved.length) onmf.lines(by("convergence"), { x: moved.map((_, i) => i + 1), title: "iteration", valueTitle: "pixels that moved", dots: moved.length < 100 })([{ name: "moved", y: moved, colour: "var(--accent)" }]);
  choose(-1);
  return { state, place, nearest, show, pin, move, choose, bytes, onChange: (listener) => listeners.push(listener) };
})();
