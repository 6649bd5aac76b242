"use strict";
/* The chosen pixel and the chosen cluster: what the page knows of them, in words and as spectra. */
onmf.image = (() => {
  const { image, pixels, moved } = onmf.data;
  const { by, bytes } = onmf.explore, { clusters, clusterOf, runnerUp, mover, onChange } = onmf.edit;
  const read = (name, Kind) => (pixels[name] === null ? null : new Kind(bytes(pixels[name]).buffer));
  const [values, labels, runnersUp, truth] = [["values", Uint16Array], ["labels", Int16Array], ["runners_up", Int16Array], ["truth", Int32Array]].map((pair) => read(...pair));
  const [low, high, scales, residuals, margins, confidence, surprise] = ["low", "high", "scales", "residuals", "margins", "confidence", "surprise"].map((name) => read(name, Float32Array));
  const bands = image.at.length, sum = (spectrum) => spectrum.reduce((a, b) => a + b, 0);
  const nameOf = (c) => onmf.edit.state.names[c];
  let spectra = image.spectra; // of the clusters that there are
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
  const drawClusters = onmf.lines(by("cluster-chart"), { ...axes, valueTitle: "mean of the cluster", onClick: (at) => choose(onmf.edit.state.there[at]) });

  /* Line and sample in the image. */
  const place = (i) => [Math.floor(i / pixels.samples) * pixels.step, (i % pixels.samples) * pixels.step];

  function curvesOf(i) {
    const k = clusterOf(i), other = runnerUp(i);
    if (k < 0) return [];
    const spectrum = Array.from({ length: bands }, (_, j) => low[i] + (high[i] - low[i]) * values[i * bands + j] / 65535);
    const scaled = (cluster, factor) => spectra[cluster].map((value) => value * factor);
    const scale = k === labels[i] && spectra[k] === image.spectra[k] ? scales[i] : sum(spectrum) / sum(spectra[k]);
    const curves = [{ name: `${nameOf(k)} × ${scale.toFixed(2)}`, y: scaled(k, scale), colour: clusters[k].colour, width: 3 }];
    if (other >= 0 && sum(spectra[other])) { // at the same total, since its own brightness is not known
      curves.push({ name: `${nameOf(other)}, runner-up`, y: scaled(other, scale * sum(spectra[k]) / sum(spectra[other])), colour: clusters[other].colour, width: 2, dashed: true });
    }
    return [...curves, { name: "pixel", y: spectrum, colour: "var(--ink)", width: 1.5 }];
  }

  function factsOf(i) {
    const facts = [];
    if (labels[i] < 0 && !(surprise && Number.isFinite(surprise[i]))) return facts;
    const fixed = (value, digits) => (Number.isFinite(value) ? value.toFixed(digits) : "none");
    if (confidence) facts.push(["Confidence", Number.isNaN(confidence[i]) ? "none" : `${(100 * confidence[i]).toFixed(0)} %`]);
    if (surprise) facts.push(["Surprise", Number.isNaN(surprise[i]) ? "none" : surprise[i].toPrecision(2)]);
    facts.push(["Margin", fixed(margins[i], 4)], ["Brightness", fixed(scales[i], 2)], ["Residual", fixed(residuals[i], 4)]);
    if (runnerUp(i) >= 0) facts.push(["Runner-up", nameOf(runnerUp(i))]);
    if (truth) facts.push(["Truth", truth[i] < 0 ? "not known" : image.materials[truth[i]]]);
    return facts;
  }

  function write() {
    const i = state.shown, k = clusterOf(i), [y, x] = place(i);
    let words = `Line ${y}, sample ${x}`;
    if (image.transform) {
      const [a, b, c, d, e, f] = image.transform;
      words += ` (${(a * (x + 0.5) + b * (y + 0.5) + c).toFixed(1)}, ${(d * (x + 0.5) + e * (y + 0.5) + f).toFixed(1)})`;
    }
    by("pixel").setAttribute("aria-live", i === state.pinned ? "polite" : "off"); // hovering would never be quiet
    by("pixel").textContent = `${words}: ${k < 0 ? "unassigned" : nameOf(k)}`;
    by("pixel-facts").replaceChildren(...factsOf(i).map(([name, value]) => {
      const fact = document.createElement("div");
      fact.append(...[["dt", name], ["dd", value]].map(([tag, text]) => Object.assign(document.createElement(tag), { textContent: text })));
      return fact;
    }));
    if (i === state.pinned) by("pixel-move").replaceChildren(mover(i));
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
    drawClusters(onmf.edit.state.there.map((index) => {
      const chosen = state.cluster === index;
      return { name: nameOf(index), y: spectra[index], colour: clusters[index].colour, width: chosen ? 4 : 2, faint: state.cluster >= 0 && !chosen };
    }));
    for (const button of document.querySelectorAll("button[data-cluster]")) button.setAttribute("aria-pressed", String(Number(button.dataset.cluster) === state.cluster));
    by("all").disabled = state.cluster < 0;
    for (const listener of listeners) listener();
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-cluster]");
    if (!button) return;
    const far = !by("legend").contains(button);
    choose(onmf.edit.state.owner[button.dataset.cluster], far);
    if (far) by("map").scrollIntoView();
  });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape" && state.cluster >= 0) choose(state.cluster); });
  by("all").addEventListener("click", () => choose(state.cluster));
  if (moved.length) onmf.lines(by("convergence"), { x: moved.map((_, i) => i + 1), title: "iteration", valueTitle: "pixels that moved", dots: moved.length < 100 })([{ name: "moved", y: moved, colour: "var(--accent)" }]);
  function follow() {
    const { state: edited } = onmf.edit, total = sum(clusters.map(({ size }) => size));
    for (const chip of document.querySelectorAll("#legend li")) {
      chip.querySelector(".many").textContent = `${(100 * edited.sizes[chip.dataset.of] / Math.max(total, 1)).toFixed(1)}%`;
    }
    spectra = image.spectra.map((_, c) => onmf.meanSpectrum(image.spectra, c));
    state.cluster = edited.owner[state.cluster] ?? -1;
    choose(state.cluster, true);
    if (state.shown >= 0) write();
  }
  onmf.edit.connect({
    n: labels.length, cluster: labels, runnerUp: (i) => runnersUp[i], sure: confidence ?? margins, surprise, ready: Promise.resolve(),
    name: (i) => place(i).join(","),
    canMove: (i) => labels[i] >= 0 || runnersUp[i] >= 0,
    find: (name) => {
      const [line, sample] = /^\d+,\d+$/.test(name) ? name.split(",").map(Number) : [-1, -1], i = line < 0 || line >= image.lines || sample >= image.samples ? -1 : nearest(line, sample);
      return i >= 0 && place(i).join(",") === name ? i : -1;
    },
    search: (words) => words.flatMap((word) => { const i = onmf.edit.rows().find(word); return i < 0 ? [] : [[i, 1]]; }),
    /* A number is a place on the axis of the bands: how much more of its light a cluster has there than all pixels. */
    times: (word) => {
      const at = Number(word), [first, last] = [Math.min(...image.at), Math.max(...image.at)];
      if (!/^[\d.]+$/.test(word) || !(at >= first && at <= last)) return null;
      const band = image.at.reduce((best, value, j) => (Math.abs(value - at) < Math.abs(image.at[best] - at) ? j : best), 0);
      const whole = image.at.map((_, j) => sum(image.spectra.map((own, c) => own[j] * clusters[c].size))), share = whole[band] / sum(whole);
      return image.spectra.map((own) => own[band] / sum(own) / share);
    },
    open: (i) => { pin(i); by("map").scrollIntoView(); },
    openCluster: (c) => { choose(c, true); by("map").scrollIntoView(); },
  });
  onChange(follow);
  follow();
  return { state, place, nearest, show, pin, move, choose, onChange: (listener) => listeners.push(listener) };
})();
