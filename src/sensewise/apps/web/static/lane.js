// One policy's acquisition: its pictures, its numbers, its downloads.

import * as paint from "./paint.js";

export const element = (tag, className = "", text = "") => Object.assign(document.createElement(tag), { className, textContent: text });

const DOWNLOADS = { "mask.npy": "mask.npy", "mask.png": "mask.png", "reconstruction.png": "picture.png", "animation.gif": "film.gif" };
const whole = (value) => value.toLocaleString("en");
export const wrongText = (count) => (count === 0 ? "no pixel wrong" : `${whole(count)} wrong`);
export const goodText = (numbers, goal) => (goal === "errors" ? wrongText(numbers.errors) : `${numbers.psnr.toFixed(1)} dB`);

export class Lane {
  constructor(name, root, { pick, walk, chosen, download }) {
    this.name = name;
    this.root = root;
    this.views = {};
    const spoken = name === "a" ? "first" : "second";
    this.select = Object.assign(element("select", "head"), { id: `policy-${name}` });
    this.select.setAttribute("aria-label", name === "a" ? "First policy" : "Second policy");
    this.select.addEventListener("change", () => chosen(this.select.value));
    this.big = element("p", "big");
    this.big.append(element("span", "", "–"), element("small"));
    const small = element("div", "small");
    this.captions = {};
    for (const view of ["rebuilt", "measured", "heat"]) {
      const canvas = Object.assign(document.createElement("canvas"), { width: 384, height: 384, tabIndex: 0 });
      canvas.setAttribute("role", "img");
      canvas.setAttribute("aria-label", "Nothing yet");
      canvas.dataset.view = view;
      canvas.addEventListener("pointerdown", (event) => pick(canvas, event));
      canvas.addEventListener("keydown", walk);
      this.views[view] = canvas;
      if (view === "rebuilt") continue;
      const figure = element("figure");
      this.captions[view] = element("figcaption");
      figure.append(canvas, this.captions[view]);
      small.append(figure);
    }
    const frame = element("div", "frame");
    frame.append(this.views.rebuilt);
    this.facts = element("dl");
    const downloads = element("div", "downloads");
    for (const [file, title] of Object.entries(DOWNLOADS)) {
      const button = Object.assign(element("button", "quiet", title), { type: "button" });
      button.setAttribute("aria-label", `Download ${file} of the ${spoken} policy`);
      button.addEventListener("click", () => download(name, file));
      downloads.append(button);
    }
    root.append(this.select, frame, this.big, small, this.facts, downloads);
  }

  fit(prior, policy) {
    this.select.replaceChildren(...prior.policies.map(({ name, title }) => new Option(title, name)));
    this.select.value = policy;
    this.captions.measured.textContent = prior.kind === "rows" ? "Measured rows of k-space" : "Measured";
    this.captions.heat.textContent = prior.kind === "rows" ? "True error" : "Uncertainty";
  }

  clear() {
    for (const canvas of Object.values(this.views)) {
      paint.nothing(canvas);
      canvas.setAttribute("aria-label", "Nothing yet");
    }
    this.big.firstChild.textContent = "–";
    this.big.lastChild.textContent = "";
    this.facts.replaceChildren();
  }

  /** Show a film up to a step, or its last shot if it ended before. */
  show(film, step, prior, at) {
    const last = Math.min(step, film.shots.length - 1);
    const shot = film.shots[last];
    const { shape, grid } = film.title;
    const two = prior.goal === "errors" && shape[0] === 1;
    paint.rebuilt(this.views.rebuilt, film, shot, two);
    paint.measured(this.views.measured, film, last, this.name, two);
    paint.heat(this.views.heat, shot, shape);
    if (at) for (const canvas of Object.values(this.views)) paint.outline(canvas, at, shape[2]);
    const { numbers } = shot;
    const sites = shape[0] * shape[1] * shape[2];
    this.big.firstChild.textContent = prior.goal === "errors" ? whole(numbers.errors) : numbers.psnr.toFixed(1);
    const expected = prior.goal === "errors" ? numbers.expected_errors : numbers.expected_psnr;
    const goal = prior.goal === "errors" ? ` of ${whole(sites)} wrong` : " dB PSNR";
    this.big.lastChild.textContent = goal + (expected === undefined ? "" : `, ${expected.toFixed(1)} expected`);
    this.big.classList.toggle("exact", prior.goal === "errors" && numbers.errors === 0);
    const actions = grid.reduce((product, n) => product * n, 1);
    this.say({
      "nats left": numbers.nats === undefined ? null : numbers.nats.toFixed(1),
      NMSE: numbers.nmse === undefined ? null : numbers.nmse.toFixed(4),
      measured: `${whole(numbers.measured)} · ${((100 * numbers.measured) / actions).toFixed(1)}%`,
    });
    this.views.rebuilt.setAttribute("aria-label", `Reconstruction after step ${last}: ${goodText(numbers, prior.goal)}`);
    this.views.measured.setAttribute("aria-label", `${whole(numbers.measured)} measured ${prior.kind === "rows" ? "rows" : "pixels"} after step ${last}`);
    this.views.heat.setAttribute("aria-label", `${this.captions.heat.textContent} after step ${last}`);
  }

  say(facts) {
    const parts = Object.entries(facts).filter(([, text]) => text !== null);
    this.facts.replaceChildren(...parts.flatMap(([name, text]) => [element("dt", "", name), element("dd", "", text)]));
  }
}
