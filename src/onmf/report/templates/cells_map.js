"use strict";
/* The map of the cells: colours, legend, gene field, pointer and zoom.

It is painted into the pixels of a canvas: fifty thousand points take milliseconds, with or without a graphics card. */
onmf.cells.map = (() => {
  const { cells, clusters, classes, genes, dots } = onmf.data;
  const { n, cluster, runnerUp, confidence, depth, known, named, number, by, bytes, tip, showTip, findGene, expression } = onmf.cells;
  if (!cells.places) return null;
  const places = new Uint16Array(bytes(cells.places).buffer);
  const canvas = by("cells"), context = canvas.getContext("2d");
  const [select, field, answer, legend, scale] = [by("colour"), by("gene"), by("gene-answer"), by("legend"), by("scale")];
  const greeting = answer ? answer.textContent : "";
  const RAMPS = { // from little to much; lightness changes steadily, so that no eye depends on the hue
    light: ["#dde1e5", "#a9cbe3", "#5a9bce", "#2462a8", "#0a1f57"],
    dark: ["#333a41", "#2a5d86", "#3f9bb8", "#8fd8b4", "#fdf3a6"],
  };
  const state = { by: "cluster", values: null, top: 1, ends: [], chosen: -1, gene: "" };
  const view = { x: 0.5, y: 0.5, zoom: 1 };
  const order = new Uint32Array(n); // random, so that no cluster covers another
  for (let i = 0, seed = 1; i < n; i++) {
    seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
    const j = Math.floor(seed / 4294967296 * (i + 1));
    order[i] = order[j];
    order[j] = i;
  }
  const sorted = new Uint32Array(n), shades = new Uint32Array(n), position = new Float32Array(2 * n);
  let image = null, pixels = null, extent = 0; // extent: pixels of the whole map

  const rgb = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
  const packed = ([r, g, b]) => (0xff000000 | (b << 16) | (g << 8) | r) >>> 0; // little-endian, as all browsers are
  const isDark = () => getComputedStyle(document.documentElement).colorScheme.includes("dark");
  const variable = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function ramp() {
    const stops = RAMPS[isDark() ? "dark" : "light"].map(rgb);
    return Uint32Array.from({ length: 256 }, (_, i) => {
      const at = i / 255 * (stops.length - 1), a = Math.min(Math.floor(at), stops.length - 2);
      return packed(stops[a].map((value, c) => Math.round(value + (stops[a + 1][c] - value) * (at - a))));
    });
  }

  function sizesOf(members, shown) {
    const sizes = new Uint32Array(shown.length);
    for (let i = 0; i < n; i++) if (members[i] >= 0) sizes[members[i]]++;
    return sizes;
  }
  const groups = () => (state.by === "class" ? known : cluster);
  const groupsShown = () => (state.by === "class" ? classes : clusters);

  /* Give each cell its colour, and say in which order they are painted: large values and the chosen group last. */
  function shade() {
    const faint = packed(isDark() ? [54, 60, 66] : [222, 225, 228]);
    const members = groups(), chosen = state.chosen;
    if (state.values) {
      const colours = ramp(), levels = new Uint8Array(n), starts = new Uint32Array(258);
      for (let i = 0; i < n; i++) {
        const value = state.values[i], hidden = chosen >= 0 && members[i] !== chosen;
        levels[i] = value > 0 ? Math.min(255, Math.round(255 * value / state.top)) : 0;
        shades[i] = hidden || Number.isNaN(value) ? faint : colours[levels[i]];
        if (hidden) levels[i] = 0;
        starts[levels[i] + 1]++;
      }
      for (let i = 1; i < 258; i++) starts[i] += starts[i - 1];
      for (let i = 0; i < n; i++) sorted[starts[levels[order[i]]]++] = order[i];
    } else {
      const colours = Uint32Array.from(groupsShown(), (group) => packed(rgb(group.colour)));
      const hidden = (i) => members[i] < 0 || (chosen >= 0 && members[i] !== chosen);
      let k = 0;
      for (const i of order) if (hidden(i)) { shades[i] = faint; sorted[k++] = i; }
      for (const i of order) if (!hidden(i)) { shades[i] = colours[members[i]]; sorted[k++] = i; }
    }
  }

  function fit() {
    const ratio = Math.min(devicePixelRatio || 1, 2);
    const [width, height] = [Math.round(canvas.clientWidth * ratio), Math.round(canvas.clientHeight * ratio)];
    if (!width || !height) return false;
    if (!image || canvas.width !== width || canvas.height !== height) {
      [canvas.width, canvas.height] = [width, height];
      image = context.createImageData(width, height);
      pixels = new Uint32Array(image.data.buffer);
    }
    return true;
  }

  /* The pixels that a disc covers, as offsets from its centre, and how much of each, of 256. */
  function disc(radius, width) {
    const reach = Math.ceil(radius + 0.5), inside = [-0.375, -0.125, 0.125, 0.375], out = [];
    for (let y = -reach; y <= reach; y++) for (let x = -reach; x <= reach; x++) {
      let weight = 0;
      for (const dy of inside) for (const dx of inside) if (Math.hypot(x + dx, y + dy) < radius) weight += 16;
      if (weight) out.push([y * width + x, weight]);
    }
    return { reach, offsets: Int32Array.from(out, (o) => o[0]), weights: Int32Array.from(out, (o) => o[1]) };
  }

  function radius() {
    const ratio = canvas.width / canvas.clientWidth;
    const fill = 0.21 * Math.sqrt(canvas.clientWidth * canvas.clientHeight / (n + 100));
    return ratio * Math.min(5, Math.max(1.1, Math.min(fill, 2.6)) * Math.sqrt(view.zoom));
  }

  function paint() {
    if (!fit()) return;
    const { width, height } = canvas;
    pixels.fill(packed(rgb(isDark() ? "#1d2125" : "#ffffff"))); // as the card behind it
    const { reach, offsets, weights } = disc(radius(), width);
    const margin = 14 * width / canvas.clientWidth;
    extent = (Math.min(width, height) - 2 * margin) * view.zoom;
    for (let k = 0; k < n; k++) {
      const i = sorted[k];
      const x = (places[2 * i] / 65535 - view.x) * extent + width / 2;
      const y = (view.y - places[2 * i + 1] / 65535) * extent + height / 2;
      position[2 * i] = x; position[2 * i + 1] = y;
      const column = Math.round(x), row = Math.round(y);
      if (column < reach || row < reach || column >= width - reach || row >= height - reach) continue;
      const centre = row * width + column, colour = shades[i];
      for (let o = 0; o < offsets.length; o++) {
        const at = centre + offsets[o], weight = weights[o];
        if (weight === 256) { pixels[at] = colour; continue; }
        const below = pixels[at], rest = 256 - weight;
        pixels[at] = (0xff000000
          | (((colour & 0xff) * weight + (below & 0xff) * rest) >> 8)
          | ((((colour >> 8) & 0xff) * weight + ((below >> 8) & 0xff) * rest) & 0xff00)
          | (((((colour >> 16) & 0xff) * weight + ((below >> 16) & 0xff) * rest) & 0xff00) << 8)) >>> 0;
      }
    }
    context.putImageData(image, 0, 0);
    if (state.by === "cluster") writeNumbers(width / canvas.clientWidth);
    canvas.classList.toggle("zoomed", view.zoom > 1);
    by("whole").hidden = view.zoom === 1;
  }

  /* Each number stands at the cell nearest to the median of its cluster, so that it is always on the cluster. */
  const anchors = clusters.map((_, k) => {
    const inside = [];
    for (let i = 0; i < n; i++) if (cluster[i] === k) inside.push(i);
    if (!inside.length) return -1;
    const [x, y] = [0, 1].map((axis) => Float64Array.from(inside, (i) => places[2 * i + axis]).sort()[inside.length >> 1]);
    return inside.reduce((best, i) => (Math.hypot(places[2 * i] - x, places[2 * i + 1] - y) < Math.hypot(places[2 * best] - x, places[2 * best + 1] - y) ? i : best));
  });
  const sizes = sizesOf(cluster, clusters), bySize = clusters.map((_, k) => k).sort((a, b) => sizes[b] - sizes[a]);
  const NEARBY = [[0, 0], [0, -1], [0, 1], [1.3, 0], [-1.3, 0], [1.3, -1], [-1.3, 1], [1.3, 1], [-1.3, -1]]; // where a number evades another
  function writeNumbers(ratio) {
    context.font = `600 ${13 * ratio}px system-ui, sans-serif`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.lineJoin = "round";
    context.lineWidth = 3.5 * ratio;
    context.strokeStyle = isDark() ? "#14171a" : "#ffffff";
    context.fillStyle = variable("--ink");
    const written = [], step = 15 * ratio;
    const isFree = ([x, y]) => written.every((other) => Math.abs(other[0] - x) > 1.2 * step || Math.abs(other[1] - y) >= step);
    for (const k of bySize) {
      const i = anchors[k];
      if (i < 0 || (state.chosen >= 0 ? state.chosen !== k : sizes[k] < n / 500)) continue; // numbers would hide tiny clusters
      const near = NEARBY.map(([dx, dy]) => [position[2 * i] + dx * step, position[2 * i + 1] + dy * step]);
      const place = near.find(isFree) ?? near[0];
      written.push(place);
      context.strokeText(k, ...place);
      context.fillText(k, ...place);
    }
  }

  function top(values) { // nearly the largest, so that one extreme cell does not make all others pale
    const positive = values.filter((value) => value > 0).sort();
    return positive.length ? positive[Math.floor(0.995 * (positive.length - 1))] : 1;
  }

  function writeLegend() {
    const shown = groupsShown(), many = sizesOf(groups(), shown);
    legend.setAttribute("aria-label", state.by === "class" ? "Classes" : "Clusters");
    legend.replaceChildren(...shown.map((group, k) => {
      const item = document.createElement("li"), button = document.createElement("button");
      const [swatch, name, count] = ["swatch", "", "many"].map((style) => Object.assign(document.createElement("span"), { className: style }));
      button.type = "button";
      button.dataset.group = k;
      swatch.style.setProperty("--colour", state.values ? "transparent" : group.colour);
      name.textContent = state.by === "class" ? group.name : named(k);
      count.textContent = number(many[k]);
      button.append(swatch, name, count);
      item.append(button);
      return item;
    }));
    scale.hidden = !state.values;
    if (state.values) {
      const [low, strip, high] = scale.children, pen = strip.getContext("2d"), drawn = pen.createImageData(256, 1);
      new Uint32Array(drawn.data.buffer).set(ramp());
      pen.putImageData(drawn, 0, 0);
      [low.textContent, high.textContent] = state.ends;
    }
  }

  function update() {
    shade();
    paint();
    by("all").disabled = state.chosen < 0;
    for (const button of legend.querySelectorAll("button")) button.setAttribute("aria-pressed", String(Number(button.dataset.group) === state.chosen));
    canvas.dataset.colour = state.by === "gene" ? `gene ${state.gene}` : state.by;
  }

  function colourBy(what, values = null, name = "") {
    if ((what === "class") !== (state.by === "class")) state.chosen = -1;
    Object.assign(state, { by: what, values, gene: name, top: 1, ends: [] });
    if (what === "confidence") { // doubtful cells are painted last, in the strongest colour
      state.values = confidence.map((value) => 1 - value);
      state.ends = ["1, sure", "0, doubtful"];
    } else if (what === "depth") { // on a logarithmic scale, from the lowest depth
      const logs = depth.map((value) => Math.log1p(value)), floor = logs.reduce((a, b) => Math.min(a, b), Infinity);
      state.values = logs.map((value) => value - floor);
      state.top = top(state.values);
      state.ends = [floor, floor + state.top].map((value) => number(Math.round(Math.expm1(value))));
    } else if (what === "gene") {
      state.top = top(values);
      state.ends = ["0", state.top.toFixed(1)];
    }
    select.value = what;
    writeLegend();
    update();
  }

  let asked = 0;
  async function showGene(text) {
    const index = findGene(text), request = ++asked;
    if (index === undefined) {
      answer.textContent = text ? `No gene on this page is called “${text}”. ${greeting}` : greeting;
      return false;
    }
    const name = genes.names[index], values = await expression(index);
    if (request !== asked) return true; // a later gene was faster
    let having = 0;
    for (let i = 0; i < n; i++) if (values[i] > 0) having++;
    answer.textContent = `${name}: in ${number(having)} of ${number(n)} cells (${(100 * having / n).toFixed(1)} %). Colour: log(1 + counts per 10,000).`;
    colourBy("gene", values, name);
    return true;
  }
  function askGene(text) {
    field.value = text;
    showGene(text);
    by("map").scrollIntoView();
  }
  function choose(k, stay = false) {
    state.chosen = state.chosen === k && !stay ? -1 : k;
    update();
    const pressed = legend.querySelector("[aria-pressed=true]");
    if (!pressed) return;
    const [inner, outer] = [pressed.getBoundingClientRect(), legend.getBoundingClientRect()];
    if (inner.top < outer.top || inner.bottom > outer.bottom) legend.scrollTop += inner.top - outer.top - outer.height / 2;
  }

  if (field) {
    const list = by("gene-names");
    field.addEventListener("input", () => {
      const text = field.value.trim().toLowerCase();
      const begin = [], inside = [];
      for (const name of genes.names) {
        const at = name.toLowerCase().indexOf(text);
        if (at === 0) begin.push(name); else if (at > 0) inside.push(name);
      }
      begin.sort((a, b) => a.length - b.length);
      list.replaceChildren(...[...begin, ...inside].slice(0, 40).map((name) => Object.assign(document.createElement("option"), { value: name })));
      if (findGene(field.value.trim()) !== undefined || !begin.length) showGene(field.value.trim());
    });
    field.addEventListener("change", () => showGene(field.value.trim()));
  }
  select.addEventListener("change", () => {
    asked++; // forget a gene that is still being unpacked
    if (select.value !== "gene") { if (answer) answer.textContent = greeting; colourBy(select.value); return; }
    if (!field.value.trim()) field.value = dots.genes.find((name) => findGene(name) !== undefined) ?? genes.names[0];
    showGene(field.value.trim()).then((found) => { if (!found) select.value = state.by; });
  });
  by("all").addEventListener("click", () => { state.chosen = -1; update(); });
  legend.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button) choose(Number(button.dataset.group));
  });

  /* ---- pointer, zoom and keys ---- */
  let frame = 0, drag = null;
  const later = () => { frame ||= requestAnimationFrame(() => { frame = 0; paint(); }); };
  function zoom(factor, x = canvas.width / 2, y = canvas.height / 2) {
    const before = extent, next = Math.min(40, Math.max(1, view.zoom * factor)), after = extent * next / view.zoom;
    const [dx, dy] = [x - canvas.width / 2, y - canvas.height / 2];
    view.x += dx / before - dx / after;
    view.y -= dy / before - dy / after;
    view.zoom = next;
    if (next === 1) view.x = view.y = 0.5;
    later();
  }
  const local = (event) => {
    const box = canvas.getBoundingClientRect();
    return [(event.clientX - box.left) * canvas.width / box.width, (event.clientY - box.top) * canvas.height / box.height];
  };
  function nearest(x, y) {
    const reach = Math.max(radius() + 2, 7 * canvas.width / canvas.clientWidth);
    let best = -1, least = reach * reach;
    for (let i = 0; i < n; i++) {
      const dx = position[2 * i] - x, dy = position[2 * i + 1] - y, distance = dx * dx + dy * dy;
      if (distance < least) { least = distance; best = i; }
    }
    return best;
  }
  function describe(i) {
    const lines = [cells.barcodes[i], `Cluster ${named(cluster[i])}`];
    if (!Number.isNaN(confidence[i])) lines.push(`Confidence ${confidence[i].toFixed(2)}; runner-up ${named(runnerUp[i])}`);
    lines.push(`Depth ${number(Math.round(depth[i]))}`);
    if (known && known[i] >= 0) lines.push(`Class ${classes[known[i]].name}`);
    if (state.by === "gene") lines.push(`${state.gene} ${state.values[i].toFixed(2)}`);
    return lines.join("\n");
  }
  function point(event) {
    const i = nearest(...local(event));
    if (i < 0) tip.hidden = true; else showTip(describe(i), event.clientX, event.clientY);
    return i;
  }
  canvas.addEventListener("pointermove", (event) => {
    if (!drag) { point(event); return; }
    const [x, y] = local(event);
    if (Math.hypot(x - drag.x, y - drag.y) > 4) drag.moved = true;
    if (!drag.moved || view.zoom === 1) return;
    view.x = drag.viewX - (x - drag.x) / extent;
    view.y = drag.viewY + (y - drag.y) / extent;
    tip.hidden = true;
    later();
  });
  canvas.addEventListener("pointerdown", (event) => {
    const [x, y] = local(event);
    drag = { x, y, viewX: view.x, viewY: view.y, moved: false };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointerup", (event) => {
    const moved = drag?.moved;
    drag = null;
    if (moved) return;
    const i = point(event);
    const group = i < 0 ? -1 : groups()[i];
    if (group >= 0) choose(group); else if (state.chosen >= 0) choose(state.chosen);
    if (i >= 0) point(event);
  });
  canvas.addEventListener("pointercancel", () => { drag = null; });
  canvas.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") tip.hidden = true; }); // a finger leaves at once
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return; // the page scrolls
    event.preventDefault();
    zoom(Math.exp(-event.deltaY / 300), ...local(event));
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
    if (event.key === "+") zoom(1.5);
    else if (event.key === "-") zoom(1 / 1.5);
    else if (move && view.zoom > 1) { view.x += move[0] * 0.1 / view.zoom; view.y += move[1] * 0.1 / view.zoom; later(); }
    else return;
    event.preventDefault();
  });
  by("closer").addEventListener("click", () => zoom(1.5));
  by("farther").addEventListener("click", () => zoom(1 / 1.5));
  by("whole").addEventListener("click", () => zoom(0));

  function retheme() {
    writeLegend();
    update();
  }
  function start() {
    colourBy("cluster");
    new ResizeObserver(later).observe(canvas);
    new MutationObserver(retheme).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", retheme);
  }
  const at = (i) => { // where a cell is on the screen, and its colour in the canvas
    const box = canvas.getBoundingClientRect(), [x, y] = [position[2 * i], position[2 * i + 1]];
    const colour = pixels[Math.round(y) * canvas.width + Math.round(x)];
    return { x: box.left + x * box.width / canvas.width, y: box.top + y * box.height / canvas.height, colour: [0, 8, 16].map((shift) => (colour >> shift) & 0xff) };
  };
  return { start, choose, askGene, at };
})();
