"use strict";
/* The map of the rows. */
onmf.rows.map = (() => {
  const { documents, nodes, classes, groups, nouns, sure: sureName } = onmf.data;
  const { ready, sure, surprise, known, group, mapped, runnerUp, texts, named, merged, nodeOf, onMerge } = onmf.rows;
  const { by, bytes } = onmf.explore;
  if (!documents.places || !mapped.length) return null;
  const LABEL = 2; // words in a label
  const clusters = () => ({
    title: "Clusters",
    members: Int16Array.from(mapped, (i) => merged.place[nodeOf(i)] ?? -1),
    groups: merged.active.map((node) => ({ name: named(node), colour: nodes[node].colour, label: nodes[node].name.split(", ").slice(0, LABEL).join(", ") })),
  });
  const groupings = { cluster: clusters() };
  if (known) groupings.class = { title: "Classes", members: Int16Array.from(mapped, (i) => known[i]), groups: classes };
  if (group) groupings.group = { title: "Groups", members: Int32Array.from(mapped, (i) => group[i]), groups };

  function describe(point) {
    const i = mapped[point], lines = [texts.ids[i] ?? "", nodeOf(i) < 0 ? "Unassigned" : `Cluster ${named(nodeOf(i))}`];
    if (runnerUp(i) >= 0) lines.push(`${sureName === "margin" ? "Margin" : "Confidence"} ${sure[i].toFixed(3)}; runner-up ${named(runnerUp(i))}`);
    if (group && group[i] >= 0) lines.push(`Group ${groups[group[i]].name}`);
    if (known && known[i] >= 0) lines.push(`Class ${classes[known[i]].name}`);
    return lines.join("\n");
  }
  const map = onmf.pointMap({ canvas: by("points"), places: new Uint16Array(bytes(documents.places).buffer), groupings, describe, open: (point) => onmf.rows.read(mapped[point]) });

  by("colour").addEventListener("change", (event) => {
    const what = event.target.value;
    if (what === "surprise") map.colourBySurprise(Float32Array.from(mapped, (i) => surprise[i]));
    else if (what !== "sure") map.colourBy(what);
    if (what !== "sure") return;
    const values = Float32Array.from(mapped, (i) => sure[i]); // doubtful rows are painted last, in the strongest colour
    const top = sureName === "confidence" ? 1 : map.top(values);
    map.colourBy(what, { values: values.map((value) => Math.max(top - value, 1e-9)), top, ends: [sureName === "confidence" ? "1, sure" : `${top.toFixed(1)}, sure`, "0, doubtful"] });
  });
  onMerge(() => map.regroup("cluster", clusters()));
  ready.then(() => map.tellFar({ ...nouns, name: (point) => texts.ids[mapped[point]] }));
  return map;
})();
