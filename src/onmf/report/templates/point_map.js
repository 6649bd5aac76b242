"use strict";
/* A map of points, as onmf.pointMap(…): colours, legend, labels, pointer and zoom.

It is painted into the pixels of a canvas: fifty thousand points take milliseconds, with or without a graphics card.

A few points that lie far from all others would squeeze these together: they lie outside of the frame that the map shows at first.

canvas     the canvas; #legend, #scale, #all, #closer, #farther, #whole and #far are its controls
places     two numbers from 0 to 65,535 for each point
groupings  by name, the groups of the points: { members, groups: [{ name, colour, label }], title }. Groups are chosen in the legend, and
           their labels stand on the map. Without a grouping of its own, a colouring has that of "cluster".
describe   the text under the pointer at a point
open       what a click on a point does; without it, a click chooses the group */
onmf.pointMap = ({ canvas, places, groupings, describe, open }) => {
  const { by, number, element, swatch, tip, showTip } = onmf.explore;
  const n = places.length / 2, context = canvas.getContext("2d"), [legend, scale] = [by("legend"), by("scale")];
  const RAMPS = { // from little to much; lightness changes steadily, so that no eye depends on the hue
    light: ["#dde1e5", "#a9cbe3", "#5a9bce", "#2462a8", "#0a1f57"],
    dark: ["#333a41", "#2a5d86", "#3f9bb8", "#8fd8b4", "#fdf3a6"],
  };
  const state = { by: "cluster", values: null, top: 1, ends: [], chosen: -1, detail: "" };
  /* The bounds of some points, in each direction: its ends, its middle and its length. */
  const boundsOf = (some) => [0, 1].map((axis) => {
    let [low, high] = [65535, 0];
    for (const i of some) { low = Math.min(low, places[2 * i + axis]); high = Math.max(high, places[2 * i + axis]); }
    return { low, high, middle: (low + high) / 131070, length: Math.max(high - low, 1) / 65535 };
  });
  /* A point is far if it is farther from all but the outermost points than half of the length that these take. */
  const FEWEST = 1, MOST = 10, SHARE = 0.005; // how many points may be outermost, on each side
  const GAIN = 0.75; // a frame that is not clearly smaller leaves no point out
  function near() {
    const spare = n < MOST ? 0 : Math.min(MOST, Math.max(FEWEST, Math.floor(SHARE * n)));
    const limits = [0, 1].map((axis) => {
      const sorted = Uint16Array.from({ length: n }, (_, i) => places[2 * i + axis]).sort();
      const [low, high] = [sorted[spare], sorted[n - 1 - spare]];
      return [low - (high - low) / 2, high + (high - low) / 2];
    });
    return everyone.filter((i) => limits.every(([low, high], axis) => places[2 * i + axis] >= low && places[2 * i + axis] <= high));
  }
  const everyone = Uint32Array.from({ length: n }, (_, i) => i), all = boundsOf(everyone);
  const frame = ((found) => (Math.max(...found.map((side) => side.length)) > GAIN * Math.max(...all.map((side) => side.length)) ? all : found))(boundsOf(near()));
  const far = Array.from(everyone).filter((i) => frame.some(({ low, high }, axis) => places[2 * i + axis] < low || places[2 * i + axis] > high));
  const view = { x: frame[0].middle, y: frame[1].middle, zoom: 1 }; // at a zoom of 1 the map shows the frame
  const order = new Uint32Array(n); // random, so that no cluster covers another
  for (let i = 0, seed = 1; i < n; i++) {
    seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
    const j = Math.floor(seed / 4294967296 * (i + 1));
    order[i] = order[j];
    order[j] = i;
  }
  const sorted = new Uint32Array(n), shades = new Uint32Array(n), position = new Float32Array(2 * n);
  let image = null, pixels = null, extent = 0; // extent: pixels of one unit, the longer side of all points

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

  const grouping = () => groupings[state.by] ?? groupings.cluster;

  /* Give each point its colour, and say in which order they are painted: large values and the chosen group last. */
  function shade() {
    const faint = packed(isDark() ? [54, 60, 66] : [222, 225, 228]);
    const { members, groups } = grouping(), chosen = state.chosen;
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
      const colours = Uint32Array.from(groups, (group) => packed(rgb(group.colour)));
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

  /* Pixels of one unit, which is as long in both directions, if the canvas shows no more than these bounds. */
  function unit(bounds) {
    const margin = 14 * canvas.width / canvas.clientWidth;
    return Math.min(...[canvas.width, canvas.height].map((side, axis) => (side - 2 * margin) / bounds[axis].length));
  }
  const least = () => unit(all) / unit(frame); // the zoom that shows all points

  function paint() {
    if (!fit()) return;
    const { width, height } = canvas;
    pixels.fill(packed(rgb(isDark() ? "#1d2125" : "#ffffff"))); // as the card behind it
    const { reach, offsets, weights } = disc(radius(), width);
    extent = unit(frame) * view.zoom;
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
    labels.length = 0;
    if (groupings[state.by]?.groups.some((group) => group.label)) writeLabels(width / canvas.clientWidth);
    canvas.classList.toggle("zoomed", view.zoom > 1);
    by("whole").hidden = view.zoom === 1;
    by("far").lastElementChild.disabled = view.zoom < 1;
  }

  /* Each label stands at the point nearest to the median of its group, so that it is always on the group. */
  function measure(those) {
    const inside = those.groups.map(() => []);
    for (let i = 0; i < n; i++) if (those.members[i] >= 0) inside[those.members[i]].push(i);
    those.sizes = inside.map((list) => list.length);
    those.bySize = those.sizes.map((_, k) => k).sort((a, b) => those.sizes[b] - those.sizes[a]);
    those.anchors = inside.map((list) => {
      if (!list.length) return -1;
      const [x, y] = [0, 1].map((axis) => Uint16Array.from(list, (i) => places[2 * i + axis]).sort()[list.length >> 1]);
      let best = -1, least = Infinity;
      for (const i of list) {
        const distance = Math.hypot(places[2 * i] - x, places[2 * i + 1] - y);
        if (distance < least) { least = distance; best = i; }
      }
      return best;
    });
  }
  Object.values(groupings).forEach(measure);

  const NEARBY = [[0, 0], [0, -1], [0, 1], [1.3, 0], [-1.3, 0], [1.3, -1], [-1.3, 1], [1.3, 1], [-1.3, -1]]; // where a label evades another
  const labels = []; // those on the map now, with their boxes
  function writeLabels(ratio) {
    const { groups, sizes, bySize, anchors } = grouping(), step = 15 * ratio;
    context.font = `600 ${13 * ratio}px system-ui, sans-serif`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.lineJoin = "round";
    context.lineWidth = 3.5 * ratio;
    context.strokeStyle = isDark() ? "#14171a" : "#ffffff";
    context.fillStyle = variable("--ink");
    const outer = canvas.getBoundingClientRect(), buttons = by("closer").parentElement.getBoundingClientRect();
    const covered = [buttons.left - outer.left, buttons.bottom - outer.top].map((value) => value * ratio); // the corner of the zoom buttons
    for (const k of bySize) {
      const i = anchors[k], text = groups[k].label;
      if (i < 0 || !text || (state.chosen >= 0 ? state.chosen !== k : sizes[k] < n / 500)) continue; // labels would hide tiny groups
      if (position[2 * i] < 0 || position[2 * i] > canvas.width || position[2 * i + 1] < 0 || position[2 * i + 1] > canvas.height) continue;
      const half = context.measureText(text).width / 2 + 2 * ratio, aside = Math.max(step, half);
      const box = ([dx, dy]) => ({
        text, half,
        x: Math.max(half, Math.min(canvas.width - half, position[2 * i] + dx * aside)),
        y: Math.max(step / 2, Math.min(canvas.height - step / 2, position[2 * i + 1] + dy * step)),
      });
      const isFree = (one) => (one.x + one.half < covered[0] || one.y - step / 2 > covered[1]) && labels.every((other) => Math.abs(other.x - one.x) >= other.half + one.half || Math.abs(other.y - one.y) >= step);
      const place = NEARBY.map(box).find(isFree);
      if (!place) continue; // zooming in makes room
      labels.push(place);
      context.strokeText(text, place.x, place.y);
      context.fillText(text, place.x, place.y);
    }
  }

  function top(values) { // nearly the largest, so that one extreme point does not make all others pale
    const positive = values.filter((value) => value > 0).sort();
    return positive.length ? positive[Math.floor(0.995 * (positive.length - 1))] : 1;
  }

  function writeLegend() {
    const { groups, sizes, title } = grouping();
    legend.setAttribute("aria-label", title);
    legend.replaceChildren(...groups.map((group, k) => {
      const item = element("li"), button = element("button");
      button.type = "button";
      button.dataset.group = k;
      button.append(swatch(state.values ? "transparent" : group.colour), element("span", group.name), element("span", number(sizes[k]), "many"));
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
    canvas.dataset.colour = state.detail ? `${state.by} ${state.detail}` : state.by;
  }

  /* Colour by a grouping, or by values from 0 to top; ends are the texts at the ends of the scale. */
  function colourBy(what, { values = null, top = 1, ends = [], detail = "" } = {}) {
    const before = grouping();
    Object.assign(state, { by: what, values, top, ends, detail });
    if (grouping() !== before) state.chosen = -1;
    writeLegend();
    update();
  }
  /* Colour by how unusual points are, on a logarithmic scale. */
  function colourBySurprise(surprise) {
    const values = surprise.map((value) => -Math.log10(value)), most = top(values);
    colourBy("surprise", { values, top: most, ends: ["1, usual", `${Number((10 ** -most).toPrecision(1))}, unusual`] });
  }
  /* Exchange the groups of a grouping. */
  function regroup(name, those) {
    groupings[name] = those;
    measure(those);
    if (grouping() !== those) return;
    state.chosen = -1;
    writeLegend();
    update();
  }
  function choose(k, stay = false) {
    state.chosen = state.chosen === k && !stay ? -1 : k;
    update();
    const pressed = legend.querySelector("[aria-pressed=true]");
    if (!pressed) return;
    const [inner, outer] = [pressed.getBoundingClientRect(), legend.getBoundingClientRect()];
    if (inner.top < outer.top || inner.bottom > outer.bottom) legend.scrollTop += inner.top - outer.top - outer.height / 2;
  }

  by("all").addEventListener("click", () => { state.chosen = -1; update(); });
  legend.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button) choose(Number(button.dataset.group));
  });

  /* ---- pointer, zoom and keys ---- */
  let waiting = 0, drag = null;
  const later = () => { waiting ||= requestAnimationFrame(() => { waiting = 0; paint(); }); };
  function zoom(factor, x, y) {
    const next = Math.min(40, Math.max(least(), view.zoom * factor));
    zoomTo((view.zoom - 1) * (next - 1) < 0 ? 1 : next, x, y); // the frame is a stop on the way
  }
  function zoomTo(next, x = canvas.width / 2, y = canvas.height / 2) {
    const before = extent, after = extent * next / view.zoom;
    const [dx, dy] = [x - canvas.width / 2, y - canvas.height / 2];
    view.x += dx / before - dx / after;
    view.y -= dy / before - dy / after;
    view.zoom = next;
    if (next <= 1) [view.x, view.y] = (next === 1 ? frame : all).map((side) => side.middle);
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
    if (open && i >= 0) { tip.hidden = true; open(i); return; }
    const group = i < 0 ? -1 : grouping().members[i];
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
  by("whole").addEventListener("click", () => zoomTo(1));
  by("far").lastElementChild.addEventListener("click", () => zoomTo(least()));

  /* Say which points lie outside of the frame, and on which side. */
  const NAMES = 3; // of the points on a side
  function tellFar({ row, rows, name }) {
    if (!far.length) return;
    const sides = { "to the left": [], "to the right": [], above: [], below: [] };
    for (const i of far) {
      const [dx, dy] = [0, 1].map((axis) => places[2 * i + axis] / 65535 - frame[axis].middle);
      const side = Math.abs(dx) / frame[0].length > Math.abs(dy) / frame[1].length ? (dx < 0 ? "to the left" : "to the right") : (dy > 0 ? "above" : "below");
      sides[side].push(name(i));
    }
    const told = Object.entries(sides).filter(([, names]) => names.length).map(([side, names]) => `${side} ${names.slice(0, NAMES).join(", ")}${names.length > NAMES ? ` and ${number(names.length - NAMES)} more` : ""}`);
    by("far").firstElementChild.textContent = `${number(far.length)} ${far.length === 1 ? `${row} lies` : `${rows} lie`} outside of the frame: ${told.join("; ")}.`;
    by("far").hidden = false;
    by("whole").textContent = "Frame";
  }

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
  const at = (i) => { // where a point is on the screen, and its colour in the canvas
    const box = canvas.getBoundingClientRect(), [x, y] = [position[2 * i], position[2 * i + 1]];
    const colour = pixels[Math.round(y) * canvas.width + Math.round(x)];
    return { x: box.left + x * box.width / canvas.width, y: box.top + y * box.height / canvas.height, colour: [0, 8, 16].map((shift) => (colour >> shift) & 0xff) };
  };
  return { start, choose, colourBy, colourBySurprise, regroup, tellFar, at, top, far, labels, state, view };
};
