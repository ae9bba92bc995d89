// How good each policy is after each step: true (solid) and expected by the prior (dashed).

const NS = "http://www.w3.org/2000/svg";
const BOX = { left: 34, right: 332, top: 12, bottom: 164 };

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

/** The range of the axis: wrong pixels from 0, dB in whole fives around what there is. */
function range(values, goal) {
  if (goal === "errors") return [0, ceiling(Math.max(...values, 1))];
  const [low, high] = [Math.min(...values), Math.max(...values)];
  return [5 * Math.floor(low / 5), Math.max(5 * Math.ceil(high / 5), 5 * Math.floor(low / 5) + 10)];
}

export function draw(svg, films, goal, step, steps) {
  svg.replaceChildren();
  const lines = [];
  for (const [lane, film] of Object.entries(films)) {
    const shots = film?.shots ?? [];
    for (const key of [`expected_${goal}`, goal]) {
      if (shots.length && key in shots[0].numbers) lines.push([lane, key !== goal, shots.map((shot) => shot.numbers[key])]);
    }
  }
  if (!lines.length) return;
  const [low, high] = range(lines.flatMap(([, , values]) => values), goal);
  const x = (r) => BOX.left + ((BOX.right - BOX.left) * r) / Math.max(1, steps);
  const y = (value) => BOX.bottom - ((BOX.bottom - BOX.top) * (value - low)) / (high - low);
  for (const part of [0, 0.5, 1]) {
    const value = low + (high - low) * part;
    add(svg, "line", { class: "grid", x1: BOX.left, x2: BOX.right, y1: y(value), y2: y(value) });
    add(svg, "text", { x: BOX.left - 6, y: y(value) + 4, "text-anchor": "end" }, Number(value.toPrecision(3)));
  }
  for (const r of [...new Set([0, Math.round(steps / 2), steps])]) {
    add(svg, "text", { x: x(r), y: BOX.bottom + 18, "text-anchor": r === 0 ? "start" : r === steps ? "end" : "middle" }, r === 0 ? "start" : `step ${r}`);
  }
  add(svg, "line", { class: "now", x1: x(step), x2: x(step), y1: BOX.top, y2: BOX.bottom });
  for (const [lane, expected, values] of lines) {
    add(svg, "path", { class: expected ? `${lane} expected` : lane, d: values.map((value, r) => `${r ? "L" : "M"}${x(r).toFixed(1)} ${y(value).toFixed(1)}`).join("") });
    if (expected) continue;
    const now = Math.min(step, values.length - 1);
    add(svg, "circle", { class: lane, cx: x(now), cy: y(values[now]), r: 4.5 });
  }
}

/** The step under a pointer. */
export function stepAt(svg, event, steps) {
  const box = svg.getBoundingClientRect();
  const place = (((event.clientX - box.left) / box.width) * 340 - BOX.left) / (BOX.right - BOX.left);
  return Math.max(0, Math.min(steps, Math.round(place * steps)));
}
