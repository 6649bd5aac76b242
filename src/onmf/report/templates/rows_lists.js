"use strict";
/* The cards of the clusters, their charts over time, and the row that is open. */
(() => {
  const { nodes, classes, means, sure: sureName } = onmf.data;
  const { n, cluster, sure, surprise, length, known, fittedRunnerUp, runnerUp, deciding, day, texts, ready, named, merged, nodeOf, countsByPeriod, mostly, periods, onMerge } = onmf.rows;
  const { clusterOf, clusters, mover, onChange } = onmf.edit;
  const { by, number, element, swatch, whenSeen } = onmf.explore;
  const FIRST = matchMedia("(max-width: 52rem)").matches ? 8 : 24, TYPICAL = 3;
  const total = clusters.reduce((sum, { size }) => sum + size, 0);
  let shownCards = FIRST, shownTimes = FIRST;

  function button(text, action, style = "") {
    const made = element("button", text, style);
    made.type = "button";
    made.addEventListener("click", action);
    return made;
  }

  /* ---- cards ---- */
  /* Rows of a cluster with the largest margins, or with the smallest: few counts decide about short ones, which are left out. */
  function ends(node, shorter, last) {
    let inside = [];
    for (let i = 0; i < n; i++) if (nodeOf(i) === node) inside.push(i);
    const floor = inside.length ? Float32Array.from(inside, (i) => length[i]).sort()[Math.floor(shorter * (inside.length - 1))] : 0;
    inside = inside.filter((i) => length[i] >= floor && (last || (runnerUp(i) >= 0 && merged.owner[runnerUp(i)] !== node)));
    inside.sort((a, b) => (last ? sure[b] - sure[a] : sure[a] - sure[b]));
    const seen = new Set();
    return inside.filter((i) => !seen.has(texts.excerpts[i]) && seen.add(texts.excerpts[i])).slice(0, TYPICAL);
  }
  function fold(title, node, shorter, last) {
    const details = element("details"), list = element("ul", "", "texts");
    details.append(element("summary", title), list);
    details.addEventListener("toggle", async () => {
      if (!details.open || list.children.length) return;
      await ready;
      const found = ends(node, shorter, last);
      list.replaceChildren(...found.map((i) => {
        const item = element("li");
        item.append(button(texts.ids[i], () => onmf.rows.read(i), "link id"));
        if (known && known[i] >= 0) item.append(element("span", ` (${classes[known[i]].name})`, "soft"));
        item.append(element("span", texts.excerpts[i], "excerpt"));
        return item;
      }));
      if (!found.length) list.append(element("li", "none"));
    });
    return details;
  }
  function card(node) {
    const { size, words, frequent, colour } = nodes[node], made = element("article", "", "card"), bars = element("ul", "", "bars");
    made.id = `cluster-${node}`;
    made.style.setProperty("--colour", colour);
    for (const [word, width] of words) {
      const item = element("li"), bar = element("span", "", "bar");
      bar.style.width = `${width}%`;
      bar.setAttribute("aria-hidden", "true");
      item.append(element("span", word), bar);
      bars.append(item);
    }
    const most = mostly(node), title = element("h3", named(node));
    title.id = `cluster-${node}-title`;
    made.setAttribute("aria-labelledby", title.id);
    const show = button(`Show its ${onmf.data.nouns.rows}`, () => onmf.rows.list(node));
    show.dataset.cluster = node;
    const last = element("p");
    last.append(show);
    made.append(title, element("p", `${number(size)} ${onmf.data.nouns.rows}, ${(100 * size / Math.max(total, 1)).toFixed(1)} %${most ? `; mostly ${most}` : ""}`, "size"),
      element("h4", `Distinctive ${onmf.data.nouns.features}`), bars, element("p", `Most frequent: ${frequent.join(", ")}`, "soft"),
      fold(`Typical ${onmf.data.nouns.rows}`, node, 0.5, true), fold(`Doubtful ${onmf.data.nouns.rows}`, node, 0.25, false), last);
    return made;
  }
  function offerMore(id, shown, what) {
    by(id).hidden = shown >= merged.active.length;
    by(id).textContent = `Show all ${merged.active.length} ${what}`;
  }
  function drawCards() {
    by("cards").replaceChildren(...merged.active.slice(0, shownCards).map(card));
    offerMore("more-cards", shownCards, "clusters");
  }
  by("more-cards").addEventListener("click", () => { shownCards = Infinity; drawCards(); });
  onmf.rows.showCard = (c) => {
    shownCards = Math.max(shownCards, merged.place[merged.owner[c]] + 1);
    drawCards();
    by(`cluster-${merged.owner[c]}`).scrollIntoView();
    by(`cluster-${merged.owner[c]}`).querySelector("summary").focus({ preventScroll: true });
  };

  /* ---- time ---- */
  const everything = periods ? periods.names.map((_, t) => periods.counts.reduce((sum, row) => sum + row[t], 0)) : [];
  function chart(name, colour, counts) {
    const made = element("div", "", "time"), title = element("h3"), drawing = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    const high = Math.max(1, ...counts);
    made.style.setProperty("--colour", colour);
    if (colour !== "var(--soft)") title.append(swatch(colour));
    title.append(name);
    drawing.setAttribute("viewBox", `0 0 ${counts.length} 100`);
    drawing.setAttribute("preserveAspectRatio", "none");
    drawing.setAttribute("role", "img");
    drawing.setAttribute("aria-label", `Documents by ${periods.unit}; at most ${high}`);
    counts.forEach((count, t) => {
      for (const [style, height] of [["", 100 * count / high], ["hit", 100]]) {
        const rect = document.createElementNS("http://www.w3.org/2000/svg", "rect");
        for (const [key, value] of Object.entries({ x: t + 0.08, y: 100 - height, width: 0.84, height, class: style })) rect.setAttribute(key, value);
        if (style) rect.dataset.tip = `${periods.names[t]}: ${number(count)} of ${number(everything[t])} ${onmf.data.nouns.rows}${everything[t] ? ` (${(100 * count / everything[t]).toFixed(1)} %)` : ""}`;
        drawing.append(rect);
      }
    });
    const foot = element("p");
    foot.append(element("span", periods.names[0]), element("span", `up to ${number(high)}`), element("span", periods.names.at(-1)));
    made.append(title, drawing, foot);
    return made;
  }
  function drawTimes() {
    by("times").replaceChildren(chart("All clusters", "var(--soft)", everything), ...merged.active.slice(0, shownTimes).map((node) => chart(named(node), nodes[node].colour, countsByPeriod(node))));
    offerMore("more-times", shownTimes, "charts");
  }
  if (periods) by("more-times").addEventListener("click", () => { shownTimes = Infinity; drawTimes(); });

  /* ---- the open row ---- */
  const reader = by("reader"), fittedName = (c) => `${clusters[c].number}: ${clusters[c].name}`;
  let opened = -1;
  function line(parts) {
    const made = element("p");
    made.append(...parts);
    return made;
  }
  async function read(i) {
    await ready;
    const body = by("reader-body"), words = deciding(i), runner = fittedRunnerUp(i), own = cluster[i];
    opened = i;
    by("reader-title").textContent = texts.ids[i];
    body.replaceChildren();
    const now = clusterOf(i), before = now === onmf.edit.state.owner[own] ? "" : own < 0 ? ", moved here" : `, moved from ${fittedName(own)}`;
    if (now < 0) body.append(line([own < 0 ? `Unassigned${length[i] ? "" : `: it has none of the ${onmf.data.nouns.features}`}.` : `Unassigned${before}.`]));
    else body.append(line([swatch(clusters[now].colour), `Cluster ${onmf.edit.named(now)}${before}`]));
    body.append(mover(i));
    const more = [];
    if (runner >= 0) more.push(`${means[sureName].replace(":", ` ${sure[i].toFixed(3)}:`)}`);
    if (Number.isFinite(surprise[i])) more.push(`${means.surprise.replace(":", ` ${surprise[i].toPrecision(2)}:`)}`);
    if (known && known[i] >= 0) more.push(`Class ${classes[known[i]].name}.`);
    if (day(i)) more.push(`Date ${day(i)}.`);
    if (more.length) body.append(element("p", more.join(" "), "soft"));
    const quote = element("blockquote"), marked = new Set(words.map(({ word }) => word.toLowerCase()));
    for (const part of texts.excerpts[i].split(/([\p{L}\p{M}]+)/u)) quote.append(marked.has(part.toLowerCase()) ? element("mark", part) : part);
    if (onmf.data.texts) body.append(quote);
    if (words.length) {
      const list = element("ul", "", "deciding"), largest = Math.max(...words.map(({ weight }) => Math.abs(weight)));
      const sides = element("p", "", "sides");
      sides.append(element("span", `◀ for the runner-up, ${fittedName(runner)}`), element("span", `for ${fittedName(own)} ▶`));
      for (const { word, weight } of words) {
        const item = element("li"), track = element("span", "", weight < 0 ? "track against" : "track"), bar = element("i");
        bar.style.setProperty("--width", `${(50 * Math.abs(weight) / largest).toFixed(1)}%`);
        track.append(bar);
        item.append(element("span", word), track, element("span", (weight < 0 ? "−" : "+") + Math.abs(weight).toFixed(1), "soft"));
        list.append(item);
      }
      body.append(element("h4", `${onmf.data.nouns.features[0].toUpperCase()}${onmf.data.nouns.features.slice(1)} that decided`), sides, list);
    }
    if (now >= 0) body.append(line([button(`Show the ${onmf.data.nouns.rows} of its cluster`, () => { reader.close(); onmf.rows.list(nodeOf(i)); })]));
    if (reader.open) return;
    reader.showModal();
    reader.scrollTop = 0;
  }
  by("reader-close").addEventListener("click", () => reader.close());
  reader.addEventListener("click", (event) => { if (event.target === reader) reader.close(); }); // beside it
  onmf.rows.read = read;
  onChange(() => { if (reader.open) read(opened); });

  onMerge(whenSeen(by("clusters"), drawCards));
  if (periods) onMerge(whenSeen(by("time"), drawTimes));
  drawCards();
  if (periods) drawTimes();
})();
