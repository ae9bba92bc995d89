// Wrong pixels after each step, for both policies: true (solid) and expected by the prior (dashed).

const NS = "http://www.w3.org/2000/svg";
const BOX = { left: 40, right: 468, top: 14, bottom: 172 };

function add(parent, tag, attributes, text) {
  const node = document.createElementNS(NS, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  parent.append(node);
  return node;
}

function ceiling(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1)));
  return [1, 1.2, 1.6, 2, 3, 4, 5, 6, 8, 10].map((n) => n * power).find((n) => n >= value);
}

export function draw(svg, recordings, step) {
  svg.replaceChildren();
  const present = Object.entries(recordings).filter(([, recording]) => recording);
  if (!present.length) return;
  const steps = Math.max(...present.map(([, recording]) => recording.errors.length - 1));
  const top = ceiling(Math.max(...present.flatMap(([, recording]) => [...recording.errors, ...recording.expected]), 1));
  const x = (r) => BOX.left + ((BOX.right - BOX.left) * r) / Math.max(1, steps);
  const y = (value) => BOX.bottom - ((BOX.bottom - BOX.top) * value) / top;
  for (const part of [0, 0.5, 1]) {
    add(svg, "line", { class: "grid", x1: BOX.left, x2: BOX.right, y1: y(top * part), y2: y(top * part) });
    add(svg, "text", { x: BOX.left - 6, y: y(top * part) + 4, "text-anchor": "end" }, Number((top * part).toPrecision(3)));
  }
  for (const r of [...new Set([0, Math.round(steps / 2), steps])]) {
    add(svg, "text", { x: x(r), y: BOX.bottom + 18, "text-anchor": r === 0 ? "start" : r === steps ? "end" : "middle" }, r === 0 ? "start" : `step ${r}`);
  }
  add(svg, "line", { class: "now", x1: x(step), x2: x(step), y1: BOX.top, y2: BOX.bottom });
  for (const [lane, recording] of present) {
    const path = (values) => values.map((value, r) => `${r ? "L" : "M"}${x(r).toFixed(1)} ${y(value).toFixed(1)}`).join("");
    add(svg, "path", { class: `${lane} expected`, d: path(recording.expected) });
    add(svg, "path", { class: lane, d: path(recording.errors) });
    const now = Math.min(step, recording.errors.length - 1);
    add(svg, "circle", { class: lane, cx: x(now), cy: y(recording.errors[now]), r: 4.5 });
  }
}

/** The step under a pointer. */
export function stepAt(svg, event, steps) {
  const box = svg.getBoundingClientRect();
  const place = (((event.clientX - box.left) / box.width) * 480 - BOX.left) / (BOX.right - BOX.left);
  return Math.max(0, Math.min(steps, Math.round(place * steps)));
}
