"use strict";
/* The large map, which can be zoomed, and the small ones. All show the same pixel and the same cluster. */
onmf.scene = (() => {
  const { image, pixels } = onmf.data, { state, place, nearest, show, pin, move, onChange } = onmf.image, { by, inflate } = onmf.explore;
  const canvas = by("scene"), context = canvas.getContext("2d"), select = by("shown");
  const small = [...document.querySelectorAll("[data-picture]")];
  const pictures = Object.fromEntries(small.map((element) => [element.dataset.picture, element.querySelector("img")]));
  const rows = Math.ceil(image.lines / image.step), columns = Math.ceil(image.samples / image.step);
  const view = { x: image.samples / 2, y: image.lines / 2, zoom: 1 }; // the point of the image in the middle of the canvas
  let labels = null, veil = null, frame = 0, drag = null; // veil: covers all clusters but the chosen one

  let fitted = null;
  const drawn = pictures.clusters.src;
  function label() {
    labels = fitted.map((c) => (c < 0 ? -1 : onmf.edit.state.owner[c]));
    for (const [i, , to] of onmf.edit.moves()) {
      const [line, sample] = place(i);
      labels[Math.floor(line / image.step) * columns + Math.floor(sample / image.step)] = to;
    }
    pictures.clusters.src = onmf.edit.edited() ? onmf.paintClusters(labels, rows, columns) : drawn;
    drawVeil();
  }
  inflate(image.labels).then((raw) => {
    fitted = new Int16Array(raw.buffer);
    label();
    onmf.edit.onChange(label);
  });

  const ratio = () => Math.min(devicePixelRatio || 1, 2);
  const scale = () => Math.min(canvas.width / image.samples, canvas.height / image.lines) * view.zoom; // canvas pixels of a pixel
  const later = () => { frame ||= requestAnimationFrame(() => { frame = 0; paint(); }); };

  function drawVeil() {
    veil = null;
    if (labels && state.cluster >= 0) {
      const [r, g, b] = getComputedStyle(canvas).backgroundColor.match(/\d+/g).map(Number);
      const colour = ((225 << 24) | (b << 16) | (g << 8) | r) >>> 0; // little-endian, as all browsers are
      veil = Object.assign(document.createElement("canvas"), { width: columns, height: rows });
      const pen = veil.getContext("2d"), drawn = pen.createImageData(columns, rows), out = new Uint32Array(drawn.data.buffer);
      for (let i = 0; i < out.length; i++) out[i] = labels[i] === state.cluster ? 0 : colour;
      pen.putImageData(drawn, 0, 0);
    }
    later();
  }

  function corner() { // of the image, in canvas pixels
    const size = scale(), [width, height] = [image.samples * size, image.lines * size];
    const limit = (at, extent, whole, room) => (whole <= room ? extent / 2 : Math.min(Math.max(at, room / 2 / size), extent - room / 2 / size));
    view.x = limit(view.x, image.samples, width, canvas.width);
    view.y = limit(view.y, image.lines, height, canvas.height);
    return [canvas.width / 2 - view.x * size, canvas.height / 2 - view.y * size];
  }

  function paint() {
    const [width, height] = [canvas.clientWidth, canvas.clientHeight].map((value) => Math.round(value * ratio()));
    if (!width || !height) return;
    if (canvas.width !== width || canvas.height !== height) [canvas.width, canvas.height] = [width, height];
    const size = scale(), [left, top] = corner(), picture = pictures[select.value], step = size * image.step;
    context.clearRect(0, 0, width, height);
    if (!picture.complete) { picture.addEventListener("load", later, { once: true }); return; }
    context.imageSmoothingEnabled = step < 1;
    for (const layer of [picture, veil]) if (layer) context.drawImage(layer, left, top, columns * step, rows * step);
    const [line, sample] = place(state.shown), cell = size * pixels.step, unit = ratio(), [x, y] = spot();
    for (const [colour, wide] of [["#000", 4.5], ["#fff", 2]]) {
      context.strokeStyle = colour;
      context.lineWidth = wide * unit;
      context.beginPath();
      if (cell > 12 * unit) context.rect(left + sample * size, top + line * size, cell, cell); else context.arc(x, y, 6 * unit, 0, 7);
      context.stroke();
    }
    canvas.classList.toggle("zoomed", view.zoom > 1);
    by("whole").hidden = view.zoom === 1;
    canvas.dataset.painted = `${select.value} ${veil ? state.cluster : "all"}`;
  }

  function mark() {
    const [line, sample] = place(state.shown);
    for (const element of small) {
      const ring = element.querySelector(".mark");
      ring.hidden = false;
      ring.style.left = `${100 * (sample + 0.5) / (columns * image.step)}%`;
      ring.style.top = `${100 * (line + 0.5) / (rows * image.step)}%`;
    }
    later();
  }

  function showMap() {
    by("key").replaceChildren(...[...document.querySelectorAll(`[data-key=${select.value}] > *`)].map((node) => node.cloneNode(true)));
    later();
  }
  /* Where the pixel is in the canvas. Buttons and keys zoom there. */
  function spot() {
    const [line, sample] = place(state.shown), [left, top] = corner(), size = scale();
    return [left + (sample + 0.5) * size, top + (line + 0.5) * size];
  }
  function zoom(factor, x = 0, y = 0) {
    const before = scale();
    view.zoom = Math.min(Math.max(view.zoom * factor, 1), Math.max(8, Math.max(image.lines, image.samples) / 12));
    const change = 1 / before - 1 / scale();
    view.x += (x - canvas.width / 2) * change;
    view.y += (y - canvas.height / 2) * change;
    later();
  }
  function follow() { // keep the pixel in view
    const [line, sample] = place(state.pinned), [w, h] = [canvas.width, canvas.height].map((value) => 0.45 * value / scale());
    view.x = Math.min(Math.max(view.x, sample - w), sample + w);
    view.y = Math.min(Math.max(view.y, line - h), line + h);
  }

  const local = (event) => {
    const box = canvas.getBoundingClientRect();
    return [(event.clientX - box.left) * canvas.width / box.width, (event.clientY - box.top) * canvas.height / box.height];
  };
  function under(event) {
    const [x, y] = local(event), [left, top] = corner(), size = scale();
    return nearest((y - top) / size, (x - left) / size);
  }
  canvas.addEventListener("pointerdown", (event) => {
    const [x, y] = local(event);
    drag = { x, y, viewX: view.x, viewY: view.y, moved: false };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!drag) { if (event.pointerType === "mouse") show(under(event)); return; }
    const [x, y] = local(event);
    if (Math.hypot(x - drag.x, y - drag.y) > 4 * ratio()) drag.moved = true;
    if (view.zoom === 1) { show(under(event)); return; } // a finger that slides over the whole map looks at pixels
    if (!drag.moved) return;
    view.x = drag.viewX - (x - drag.x) / scale();
    view.y = drag.viewY - (y - drag.y) / scale();
    later();
  });
  canvas.addEventListener("pointerup", (event) => {
    if (drag && !(drag.moved && view.zoom > 1)) pin(under(event));
    drag = null;
  });
  canvas.addEventListener("pointercancel", () => { drag = null; show(state.pinned); });
  canvas.addEventListener("pointerleave", () => { if (!drag) show(state.pinned); });
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return; // the page scrolls
    event.preventDefault();
    zoom(Math.exp(-event.deltaY / 300), ...local(event));
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    if (event.key === "+") zoom(1.5, ...spot()); else if (event.key === "-") zoom(1 / 1.5, ...spot()); else if (move(event)) follow();
  });
  by("closer").addEventListener("click", () => zoom(1.5, ...spot()));
  by("farther").addEventListener("click", () => zoom(1 / 1.5, ...spot()));
  by("whole").addEventListener("click", () => zoom(0));
  select.addEventListener("change", showMap);
  for (const element of small) {
    element.addEventListener("click", (event) => {
      const box = pictures[element.dataset.picture].getBoundingClientRect();
      pin(nearest((event.clientY - box.top) / box.height * rows * image.step, (event.clientX - box.left) / box.width * columns * image.step));
    });
    element.addEventListener("keydown", move);
  }
  let veiled = -1;
  onChange(() => {
    mark();
    if (veiled !== state.cluster) { veiled = state.cluster; drawVeil(); }
  });
  new ResizeObserver(later).observe(canvas);
  new MutationObserver(drawVeil).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawVeil);
  pin(state.pinned);
  showMap();
  onmf.showTheme();
  return { // where a pixel is on the screen
    at: (line, sample) => {
      const box = canvas.getBoundingClientRect(), [left, top] = corner(), size = scale();
      const [x, y] = [left + (sample + 0.5) * size, top + (line + 0.5) * size];
      return { x: box.left + x * box.width / canvas.width, y: box.top + y * box.height / canvas.height };
    },
  };
})();
