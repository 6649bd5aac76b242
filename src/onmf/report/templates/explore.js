"use strict";
/* Shared by the pages to explore: packed data, elements, and tips under the pointer. Texts are inserted as text, never as HTML. */
onmf.explore = (() => {
  const by = (id) => document.getElementById(id);
  const format = new Intl.NumberFormat("en"), number = (value) => format.format(value);

  function bytes(text) {
    const letters = atob(text), out = new Uint8Array(letters.length);
    for (let i = 0; i < letters.length; i++) out[i] = letters.charCodeAt(i);
    return out;
  }
  async function inflate(text) {
    const stream = new Blob([bytes(text)]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  }
  const shares = (text) => Float32Array.from(new Uint16Array(bytes(text).buffer), (code) => (code === 65535 ? NaN : code / 65534));

  function element(tag, text = "", style = "") {
    const made = document.createElement(tag);
    made.textContent = text;
    if (style) made.className = style;
    return made;
  }
  function swatch(colour) {
    const made = element("span", "", "swatch");
    made.style.setProperty("--colour", colour);
    return made;
  }

  /* ---- tips ---- */
  const tip = by("tip");
  function showTip(text, x, y) {
    tip.textContent = text;
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - box.width - 4))}px`;
    tip.style.top = `${y + 18 + box.height > innerHeight ? Math.max(4, y - box.height - 10) : y + 18}px`;
  }
  document.addEventListener("pointerover", (event) => {
    const owner = event.target.closest("[data-tip]");
    if (owner) showTip(owner.dataset.tip, event.clientX, event.clientY);
    else if (!event.target.matches?.("canvas[data-map]")) tip.hidden = true;
  });
  document.addEventListener("focusin", (event) => {
    const owner = event.target.closest("[data-tip]");
    if (!owner) { if (!event.target.matches?.("canvas[data-map]")) tip.hidden = true; return; }
    const box = owner.getBoundingClientRect();
    showTip(owner.dataset.tip, box.left, box.bottom - 18);
  });
  document.addEventListener("scroll", (event) => { if (event.target.id !== "legend") tip.hidden = true; }, true);
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") tip.hidden = true; });

  /* Return a function that draws a section again: at once if it is in view, else when it comes into view. A stale section was not drawn yet. */
  function whenSeen(section, draw, stale = false) {
    let seen = false;
    const refresh = () => { stale = !seen; if (seen) draw(); };
    new IntersectionObserver(([entry]) => { seen = entry.isIntersecting; if (seen && stale) refresh(); }, { rootMargin: "400px" }).observe(section);
    return refresh;
  }

  return { whenSeen, by, number, bytes, inflate, shares, element, swatch, tip, showTip };
})();
