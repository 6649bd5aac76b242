"use strict";
/* A chart of lines over a common axis, as SVG. The style sheet has its colours, so that a new theme needs no new drawing. */
onmf.lines = (element, { x, title, valueTitle, gaps = [], dots = false, onClick = null }) => {
  const make = (name, attributes, parent, text = "") => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.textContent = text;
    parent.append(node);
    return node;
  };
  const svg = make("svg", { "aria-hidden": "true" }, element);
  const tip = Object.assign(document.createElement("div"), { className: "tip", hidden: true });
  element.append(tip);
  const breaks = new Set(gaps), whole = x.every(Number.isInteger), right = 18, above = 10, below = 42;
  const [first, last] = x.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity]);
  let curves = [], frame = null; // frame: where values are on the screen

  function ticks(low, high, most) {
    const wanted = (high - low) / Math.max(most, 1) || 1, power = 10 ** Math.floor(Math.log10(wanted));
    const step = power * [1, 2, 5, 10].find((factor) => factor * power >= wanted * 0.999);
    const out = [];
    for (let i = Math.ceil(low / step - 1e-6); i * step <= high + 1e-6 * step; i++) out.push(i * step);
    return out;
  }
  const written = (value) => {
    const size = Math.abs(value);
    return size && (size < 1e-3 || size >= 1e6) ? value.toExponential(1) : Number(value.toPrecision(5)).toLocaleString("en", { maximumFractionDigits: 6 });
  };

  function draw() {
    const [width, height] = [element.clientWidth, element.clientHeight];
    if (!width || !height) return;
    let [low, high] = [0, 0];
    for (const { y } of curves) for (const value of y) { if (value < low) low = value; if (value > high) high = value; }
    if (low === high) high = 1;
    high += 0.03 * (high - low);
    const marks = ticks(low, high, height / 55), left = 30 + 7 * Math.max(...marks.map((value) => written(value).length));
    const across = (value) => left + (value - first) / (last - first || 1) * (width - left - right);
    const up = (value) => above + (high - value) / (high - low) * (height - above - below);
    frame = { across, up, bottom: height - below };
    svg.replaceChildren();
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    for (const value of marks) {
      make("line", { class: "grid-line", x1: left, x2: width - right, y1: up(value), y2: up(value) }, svg);
      make("text", { x: left - 6, y: up(value) + 4, "text-anchor": "end" }, svg, written(value));
    }
    const spots = x.length > 1 ? ticks(first, last, (width - left) / 60) : [first];
    for (const value of whole ? spots.filter(Number.isInteger) : spots) {
      make("line", { class: "grid-line", x1: across(value), x2: across(value), y1: frame.bottom, y2: frame.bottom + 4 }, svg);
      make("text", { x: across(value), y: frame.bottom + 17, "text-anchor": "middle" }, svg, written(value));
    }
    make("text", { x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle" }, svg, title);
    make("text", { x: 0, y: 0, "text-anchor": "middle", transform: `translate(12 ${(above + frame.bottom) / 2}) rotate(-90)` }, svg, valueTitle);
    make("line", { class: "guide", y1: above, y2: frame.bottom, visibility: "hidden" }, svg);
    for (const curve of curves) {
      let path = "";
      for (let j = 0; j < x.length; j++) path += `${j === 0 || breaks.has(j) ? "M" : "L"}${across(x[j]).toFixed(1)} ${up(curve.y[j]).toFixed(1)}`;
      const line = make("path", { d: path, "stroke-width": curve.width ?? 2 }, svg);
      line.style.stroke = curve.colour;
      if (curve.dashed) line.setAttribute("stroke-dasharray", "7 4");
      if (curve.faint) line.setAttribute("class", "faint");
      if (dots) for (let j = 0; j < x.length; j++) make("circle", { cx: across(x[j]), cy: up(curve.y[j]), r: 2.5 }, svg).style.fill = curve.colour;
    }
  }

  function nearest(event) {
    const box = element.getBoundingClientRect(), [left, top] = [event.clientX - box.left, event.clientY - box.top];
    let band = 0;
    for (let j = 1; j < x.length; j++) if (Math.abs(frame.across(x[j]) - left) < Math.abs(frame.across(x[band]) - left)) band = j;
    return { left, top, band };
  }
  element.addEventListener("pointermove", (event) => {
    if (!frame || !curves.length) return;
    const { left, band } = nearest(event), at = frame.across(x[band]), guide = svg.querySelector(".guide");
    for (const end of ["x1", "x2"]) guide.setAttribute(end, at);
    guide.setAttribute("visibility", "visible");
    const shown = curves.filter((curve) => !curve.faint).slice(0, 12);
    tip.replaceChildren(Object.assign(document.createElement("b"), { textContent: written(x[band]) }), ...shown.map((curve) => {
      const row = document.createElement("div"), swatch = Object.assign(document.createElement("span"), { className: "swatch" });
      swatch.style.setProperty("--colour", curve.colour);
      row.append(swatch, `${written(Number(curve.y[band].toPrecision(4)))} ${curve.name}`);
      return row;
    }));
    tip.hidden = false;
    const room = element.clientWidth - tip.offsetWidth;
    tip.style.left = `${Math.max(0, Math.min(left > element.clientWidth / 2 ? at - tip.offsetWidth - 12 : at + 12, room))}px`;
  });
  element.addEventListener("pointerleave", () => { tip.hidden = true; svg.querySelector(".guide")?.setAttribute("visibility", "hidden"); });
  if (onClick) element.addEventListener("click", (event) => {
    if (!frame) return;
    const { top, band } = nearest(event), gap = (curve) => Math.abs(frame.up(curve.y[band]) - top);
    const best = curves.reduce((a, b, i) => (gap(b) < gap(curves[a]) ? i : a), 0);
    if (curves.length && gap(curves[best]) < 15) onClick(best);
  });
  new ResizeObserver(draw).observe(element);
  return (next) => { element.curves = curves = next; draw(); };
};
