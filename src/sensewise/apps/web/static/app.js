// The page: settings in, two acquisitions of the same picture side by side as they are made, one clock for both.

import * as chart from "./chart.js";
import { Pad, readGrey, readTokens } from "./draw.js";
import { element, goodText, Lane } from "./lane.js";
import * as paint from "./paint.js";
import { ask, watch } from "./server.js";
import { base64, bytes, fresh, readAddress, stops, writeAddress } from "./state.js";

const $ = (id) => document.getElementById(id);
const NAMES = ["a", "b"];
const PLAY_MS = 4000; // for all steps, at most 260 for one
const calm = matchMedia("(prefers-reduced-motion: reduce)");
const films = { a: null, b: null };
const pixels = { a: null, b: null };
const lanes = {};
let catalog, state, prior, pad, timer, pending;
let galleryFirst = 0;
let galleryImages = [];

function toast(message) {
  $("toast").textContent = message;
  $("toast").hidden = false;
  clearTimeout(toast.timer);
  toast.timer = setTimeout(() => ($("toast").hidden = true), 8000);
}

// ---------------------------------------------------------------- acquiring

const request = (lane) => ({
  prior: state.prior,
  ...(state.tokens ? { tokens: base64(state.tokens) } : { image: state.image }),
  ...(state.size ? { height: state.size[0], width: state.size[1] } : {}),
  label: state.label,
  budget: state.budget,
  steps: state.steps,
  policy: state[lane],
  seed: state.seed,
  noise: state.noise,
  stop: state.stop,
});

/** Acquire again; `step` is the shot to show, or null to play from the start. */
function acquire({ step = null, wait = 0 } = {}) {
  clearTimeout(acquire.timer);
  acquire.timer = setTimeout(() => run(step), wait);
}

async function run(step) {
  cancel();
  const mine = (pending = new AbortController());
  const begun = performance.now();
  const rest = step ?? (calm.matches ? state.steps : null);
  stopClock();
  for (const name of NAMES) films[name] = null;
  pixels.a = pixels.b = null;
  state.step = 0;
  $("notice").hidden = true;
  $("cancel").hidden = false;
  setBusy(true);
  const seen = (name) => (kind, content) => {
    if (mine !== pending) return;
    if (kind === "title") films[name] = { title: content, shots: [], ending: null };
    else if (kind === "ending") films[name].ending = content;
    else films[name].shots.push(content);
    if (kind === "title") showTruth(content);
    else if (kind === "shot") {
      arrived(rest);
      if (NAMES.every((other) => films[other]?.shots.length > 1)) document.body.dataset.first ??= String(Math.round(performance.now() - begun));
    }
  };
  try {
    await Promise.all(NAMES.map((name) => watch(request(name), mine.signal, seen(name))));
  } catch (error) {
    if (mine !== pending) return; // another acquisition has begun
    if (error.name !== "AbortError") fail(error.message);
    mine.abort();
  }
  if (mine !== pending) return;
  finish(mine.signal.aborted);
}

/** A shot has come: show it if it is the one that is waited for. */
function arrived(rest) {
  if (!NAMES.every((name) => films[name]?.shots.length)) return;
  setBusy(false);
  if (rest !== null) return show(Math.min(rest, reach()));
  if (timer !== undefined) return; // the clock shows it in its turn
  show(state.step);
  startClock();
}

/** The last step that can be shown: of an acquisition under way, what both have reached. */
function reach() {
  const [ended, under] = [NAMES.filter((name) => films[name].ending), NAMES.filter((name) => !films[name].ending)];
  const last = (name) => films[name].shots.length - 1;
  return under.length ? Math.min(...under.map(last)) : Math.max(...ended.map(last));
}

/** Nothing more comes. */
function finish(cut) {
  pending = undefined;
  $("cancel").hidden = true;
  setBusy(false);
  document.body.dataset.ready = String(Number(document.body.dataset.ready ?? 0) + 1);
  if (!NAMES.every((name) => films[name]?.shots.length)) return;
  for (const name of NAMES) films[name].ending ??= { stopped: false, audit: 0, fits: true };
  $("scrub").max = reach();
  if (cut) {
    goTo(reach());
    $("verdict").textContent = `Cancelled after step ${reach()}. ${verdict()}`;
    return;
  }
  show(Math.min(state.step, reach()));
  if (timer === undefined) settle();
  look();
  sayFit();
}

/** A prior that does not know pictures like this one says so. */
function sayFit() {
  const misfit = NAMES.map((name) => films[name].ending).find((ending) => !ending.fits);
  $("notice").hidden = !misfit;
  if (misfit) {
    $("notice").textContent = `The prior does not fit this picture: ${misfit.audit} pixels at random places were ${+misfit.ratio.toFixed(1)} times as wrong as it expected. Do not trust its uncertainty.`;
  }
}

function fail(message) {
  toast(message);
  empty(message);
}

/** Nothing to show: say why. */
function empty(message) {
  pending?.abort();
  pending = undefined;
  stopClock();
  for (const name of NAMES) {
    films[name] = null;
    lanes[name].clear();
  }
  paint.nothing($("truth"));
  $("about").textContent = "";
  $("truth").setAttribute("aria-label", "The original: nothing yet");
  $("chart").replaceChildren();
  $("notice").hidden = $("cancel").hidden = true;
  setBusy(false);
  $("scrub-out").textContent = "– / –";
  $("verdict").textContent = message;
}

function cancel() {
  pending?.abort();
}

const setBusy = (busy) => NAMES.forEach((name) => lanes[name].root.classList.toggle("busy", busy));

// ---------------------------------------------------------------- the clock

function startClock() {
  clearInterval(timer);
  timer = setInterval(() => {
    if (!NAMES.every((name) => films[name])) return;
    if (state.step < reach()) show(state.step + 1);
    else if (!pending) pause();
  }, Math.min(260, PLAY_MS / state.steps));
  setPlaying(true);
}

function stopClock() {
  clearInterval(timer);
  timer = undefined;
  setPlaying(false);
}

function play() {
  if (!films.a) return;
  if (state.step >= reach()) show(0);
  startClock();
}

function pause() {
  stopClock();
  if (films.a?.shots.length && films.b?.shots.length) settle();
}

function setPlaying(playing) {
  $("verdict").setAttribute("aria-live", playing ? "off" : "polite"); // nobody wants every shot read aloud
  $("play").setAttribute("aria-label", playing ? "Pause" : "Play");
  $("play-path").setAttribute("d", playing ? "M6 4h4v16H6zM14 4h4v16h-4z" : "M7 4v16l13-8z");
}

function goTo(step) {
  if (!films.a?.shots.length || !films.b?.shots.length) return;
  stopClock();
  show(Math.max(0, Math.min(reach(), step)));
  settle();
}

/** Say and store where playback came to rest. */
function settle() {
  writeAddress(state, prior);
  $("verdict").textContent = verdict(); // written again, so that it is read aloud
}

// ---------------------------------------------------------------- showing

const titleOf = (name) => prior.policies.find((policy) => policy.name === name).title;
const shotOf = (name) => films[name].shots[Math.min(state.step, films[name].shots.length - 1)];

function verdict() {
  const unit = prior.kind === "rows" ? "rows" : "pixels";
  const [one, two] = NAMES.map((name) => shotOf(name).numbers);
  const counts = [...new Set([one.measured, two.measured])].map((count) => count.toLocaleString("en")).join(" and ");
  const share = `${counts} ${unit} measured`;
  if (state.a === state.b) return `${share}: ${goodText(one, prior.goal)}`;
  return `${share}. ${titleOf(state.a)}: ${goodText(one, prior.goal)}. ${titleOf(state.b)}: ${goodText(two, prior.goal)}.`;
}

function showTruth(title) {
  paint.picture($("truth"), title.target, title.shape);
  const [, height, width] = title.shape;
  if (state.at && (state.at[0] >= height || state.at[1] >= width)) state.at = null;
  if (state.at) paint.outline($("truth"), state.at, width);
  $("about").textContent = `${height} x ${width}${state.said ? `, ${state.said}` : ""}`;
  $("truth").setAttribute("aria-label", `The original, ${height} by ${width} pixels`);
  $("scrub").max = title.steps;
  sayBudget(title.budget);
}

function show(step) {
  state.step = step;
  const steps = Math.max(...NAMES.map((name) => (films[name].ending ? films[name].shots.length - 1 : films[name].title.steps)));
  for (const name of NAMES) lanes[name].show(films[name], step, prior, state.at);
  $("scrub").value = step;
  $("scrub").setAttribute("aria-valuetext", `step ${step} of ${steps}, ${shotOf("a").numbers.measured} measured`);
  $("scrub-out").textContent = `${step} / ${steps}`;
  $("back").disabled = step === 0;
  $("next").disabled = step >= reach();
  chart.draw($("chart"), films, prior.goal, step, steps);
  showPixel();
  $("verdict").textContent = verdict();
}

// ---------------------------------------------------------------- one pixel

const shapeNow = () => films.a?.title.shape ?? prior.shape ?? [1, 32, 32];

async function look() {
  if (!state.at || prior.kind !== "tokens" || prior.states > 16 || pending) return showPixel();
  const [row, column] = state.at;
  const wanted = (look.count = (look.count ?? 0) + 1);
  try {
    const found = await Promise.all(NAMES.map((name) => ask("api/pixel", { ...request(name), row, column }).then((r) => r.json())));
    if (wanted !== look.count) return;
    NAMES.forEach((name, i) => (pixels[name] = found[i].probs));
    showPixel();
  } catch (error) {
    toast(error.message);
  }
}

function pick(at) {
  state.at = at;
  pixels.a = pixels.b = null;
  if (!films.a?.shots.length || !films.b?.shots.length) return;
  showTruth(films.a.title);
  show(state.step);
  if (timer === undefined) writeAddress(state, prior);
  look();
}

function levelName(k) {
  if (prior.states === 2) return k ? "white" : "black";
  return `level ${k}`;
}

function showPixel() {
  if (!state.at || !films.a || !films.b) return;
  const [channels, height, width] = shapeNow();
  const place = state.at[0] * width + state.at[1];
  $("pixel-place").textContent = `row ${state.at[0]}, column ${state.at[1]}`;
  const truth = Array.from({ length: channels }, (_, c) => films.a.title.target[c * height * width + place]);
  const parts = NAMES.map((name) => {
    const block = element("div", `believes ${name}`);
    const action = prior.kind === "rows" ? state.at[0] : place;
    const step = films[name].shots.findIndex((shot, r) => r <= state.step && shot.actions.includes(action));
    const when = step === 0 ? "measured before the first step" : `measured in step ${step}`;
    block.append(element("div", "name", `${titleOf(state[name])}: ${step < 0 ? "not measured" : when}${prior.kind === "rows" ? " (its row)" : ""}`));
    const probs = pixels[name]?.[Math.min(state.step, pixels[name].length - 1)];
    if (probs) {
      const target = (c) => Math.round((truth[c] * (prior.states - 1)) / 255);
      probs.forEach((chances, c) => block.append(prior.states <= 4 ? rows(chances, target(c)) : columns(chances, target(c))));
    } else if (prior.states > 16) block.append(interval(shotOf(name), place, truth[0]));
    return block;
  });
  const said = prior.states > 16 ? (truth[0] / 255).toFixed(2) : truth.map((value) => levelName(Math.round((value * (prior.states - 1)) / 255))).join(", ");
  $("pixel-body").replaceChildren(...parts, element("p", "hint", `In truth: ${said}`));
}

/** What is believed of a grey pixel: its mean, and one standard deviation to each side where there is one. */
function interval(shot, place, truth) {
  const bar = element("div", "interval");
  const mean = shot.picture[place] / 255;
  const spread = prior.kind === "readings" ? (prior.limit * shot.doubt[place]) / 255 : 0;
  const range = element("b");
  range.style.left = `${100 * Math.max(0, mean - spread)}%`;
  range.style.width = `${Math.max(0.8, 100 * (Math.min(1, mean + spread) - Math.max(0, mean - spread)))}%`;
  const mark = element("i");
  mark.style.left = `${(100 * truth) / 255}%`;
  const track = element("span", "track");
  track.append(range, mark);
  bar.append(track, element("span", "", spread ? `${mean.toFixed(2)} ± ${spread.toFixed(2)}` : mean.toFixed(2)));
  return bar;
}

function rows(chances, target) {
  const bars = element("div", "bars");
  chances.forEach((chance, k) => {
    const bar = element("div", k === target ? "bar true" : "bar");
    const track = element("i");
    const fill = element("b");
    fill.style.width = `${100 * chance}%`;
    track.append(fill);
    bar.append(element("span", "", levelName(k)), track, element("span", "", `${(100 * chance).toFixed(1)}%`));
    bars.append(bar);
  });
  return bars;
}

function columns(chances, target) {
  const bars = element("div", "columns");
  chances.forEach((chance, k) => {
    const fill = element("b", k === target ? "true" : "");
    fill.style.height = `${100 * chance}%`;
    fill.title = `${levelName(k)}: ${(100 * chance).toFixed(1)}%`;
    bars.append(fill);
  });
  return bars;
}

/** The pixel under a pointer; pictures keep their shape inside their frame. */
function placeOn(canvas, event) {
  const [, height, width] = shapeNow();
  const box = canvas.getBoundingClientRect();
  const scale = Math.min(box.width / width, box.height / height);
  const inside = (value, middle, size) => Math.max(0, Math.min(size - 1, Math.floor((value - middle) / scale + size / 2)));
  return [inside(event.clientY, box.top + box.height / 2, height), inside(event.clientX, box.left + box.width / 2, width)];
}

function walk(event) {
  const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
  if (!moves[event.key]) return;
  event.preventDefault();
  event.stopPropagation();
  const [, height, width] = shapeNow();
  const [row, column] = state.at ?? [Math.floor(height / 2), Math.floor(width / 2)];
  const [down, right] = moves[event.key];
  pick([Math.max(0, Math.min(height - 1, row + down)), Math.max(0, Math.min(width - 1, column + right))]);
}

async function download(lane, name) {
  try {
    const blob = await (await ask(`api/${name}`, request(lane))).blob();
    const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(blob), download: `sensewise-${name}` });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  } catch (error) {
    toast(error.message);
  }
}

// ---------------------------------------------------------------- the picture

async function loadGallery(first) {
  const answer = await (await ask(`api/images?prior=${encodeURIComponent(state.prior)}&first=${first}`)).json();
  galleryFirst = answer.first;
  galleryImages = answer.images;
  const large = Math.max(...answer.images.map((image) => image.shape[1]), 0) > 64;
  $("gallery").classList.toggle("large", large);
  const buttons = answer.images.map((image, i) => {
    const button = Object.assign(element("button"), { type: "button" });
    const number = galleryFirst + i;
    button.setAttribute("aria-label", `${image.name}, number ${number}`);
    button.setAttribute("aria-pressed", String(number === state.image));
    button.dataset.number = number;
    const canvas = document.createElement("canvas");
    paint.picture(canvas, bytes(image.picture), image.shape);
    button.append(canvas);
    button.addEventListener("click", () => choose(number, image.label));
    return button;
  });
  $("gallery").replaceChildren(...buttons);
  $("more").hidden = prior.images <= answer.images.length;
}

function choose(number, label) {
  Object.assign(state, { image: number, tokens: null, size: null, said: "", label });
  syncControls();
  acquire();
}

function chooseTokens(tokens, wait = 250, size = null, said = "") {
  if (state.tokens === null) state.label = null; // nobody said what the new picture shows
  Object.assign(state, { tokens: Uint8Array.from(tokens), image: null, size, said });
  syncControls();
  acquire({ wait });
}

const TABS = ["bundled", "draw", "file"];

/** Open a tab; an empty pad never stands beside another picture. */
function openTab(name, focus = false) {
  for (const tab of TABS) {
    const chosen = tab === name;
    $(`tab-${tab}`).setAttribute("aria-selected", String(chosen));
    $(`tab-${tab}`).tabIndex = chosen ? 0 : -1;
    $(`pane-${tab}`).hidden = !chosen;
    if (chosen && focus) $(`tab-${tab}`).focus();
  }
}

function changeTab(name, focus = false) {
  openTab(name, focus);
  if (name === "draw" && !pad.empty) chooseTokens(pad.tokens, 0);
  else if (name === "draw") empty("Draw something: it is measured when you lift the pen.");
  else if (name === "bundled" && state.image === null && prior.images) choose(0, galleryImages[0]?.label ?? null);
  else if (name === "bundled" && !films.a && !pending) acquire();
}

async function openFile(file) {
  if (!file) return;
  try {
    if (prior.kind === "readings") {
      const { tokens, size, said } = await readGrey(file, prior.sides);
      state.at = null;
      chooseTokens(tokens, 0, size, said);
    } else if (prior.kind === "tokens") {
      const tokens = await readTokens(file, prior.shape, prior.states);
      if (prior.draw) pad.show(tokens);
      chooseTokens(tokens, 0, null, "cut and scaled to the prior's size");
    }
  } catch (error) {
    toast(error.message);
  }
}

/** A picture that was dropped is acquired at its own size, whatever was shown before. */
async function dropped(file) {
  const any = catalog.priors.find((candidate) => candidate.kind === "readings");
  if (any && prior !== any) await usePrior(any);
  openTab("file");
  await openFile(file);
}

// ---------------------------------------------------------------- controls

async function usePrior(chosen) {
  Object.assign(state, fresh(chosen), { said: "" });
  fitPrior();
  await loadGallery(0);
  openTab(prior.images ? "bundled" : prior.draw ? "draw" : "file");
  if (state.image !== null) state.label = galleryImages[0]?.label ?? null;
  syncControls();
}

function fitPrior() {
  prior = catalog.priors.find((candidate) => candidate.name === state.prior);
  $("label").replaceChildren(new Option("Nothing: label unknown", ""), ...prior.labels.map((name, i) => new Option(`It is: ${name}`, i)));
  $("label-field").hidden = prior.labels.length === 0;
  $("noise-field").hidden = prior.kind !== "readings";
  $("stop-field").hidden = prior.kind === "rows";
  $("stop").max = stops(prior).length - 1;
  [$("budget").min, $("budget").max] = prior.budgets;
  $("tab-bundled").hidden = prior.images === 0;
  $("tab-draw").hidden = !prior.draw;
  $("tab-file").hidden = prior.kind === "rows";
  if (prior.draw) pad.fit(prior.shape, prior.states);
  const [least, most] = prior.sides ?? [];
  $("file-hint").textContent = prior.kind === "readings" ? `Measured at its own size, up to ${most} x ${most}; larger ones are made smaller. It stays on this machine.` : "It is cut to a square, scaled to the prior's size and stays on this machine.";
  for (const name of NAMES) lanes[name].fit(prior, state[name]);
  $("chart-title").textContent = prior.goal === "errors" ? "Wrong pixels after each step" : "PSNR in dB after each step";
  $("chart").setAttribute("aria-label", $("chart-title").textContent);
  $("chart-expected").hidden = prior.kind === "rows";
}

function sayBudget(count) {
  const unit = prior.kind === "rows" ? "rows" : "pixels";
  const sites = prior.kind === "rows" ? prior.shape[1] : prior.shape ? prior.shape[1] * prior.shape[2] : state.size ? state.size[0] * state.size[1] : null;
  const known = count ?? (sites === null ? null : Math.round(state.budget * sites));
  $("budget-out").textContent = `${Math.round(100 * state.budget)}%${known === null ? "" : ` = ${known.toLocaleString("en")} ${unit}`}`;
}

function stopText(value) {
  if (value === null) return "never";
  return prior.goal === "errors" ? `${value} wrong` : `${(100 * value).toFixed(1)}% (${(-20 * Math.log10(value)).toFixed(1)} dB)`;
}

function syncControls() {
  $("prior").value = state.prior;
  $("label").value = state.label ?? "";
  $("budget").value = state.budget;
  sayBudget(null);
  $("steps").value = state.steps;
  $("steps-out").textContent = state.steps;
  $("noise").value = state.noise;
  $("noise-out").textContent = state.noise ? `± ${(100 * state.noise).toFixed(0)}% of the range` : "none";
  $("stop").value = stops(prior).indexOf(state.stop);
  $("stop-out").textContent = stopText(state.stop);
  $("stop").setAttribute("aria-valuetext", stopText(state.stop));
  $("seed-out").textContent = `seed ${state.seed}`;
  for (const name of NAMES) lanes[name].select.value = state[name];
  for (const button of $("gallery").children) button.setAttribute("aria-pressed", String(Number(button.dataset.number) === state.image));
}

/** A setting has changed: say it, and acquire again unless there is nothing to acquire. */
function changed(change, wait = 0) {
  Object.assign(state, change);
  syncControls();
  if (state.image !== null || state.tokens !== null) acquire({ wait });
}

function connect() {
  $("prior").addEventListener("change", async () => {
    await usePrior(catalog.priors.find((candidate) => candidate.name === $("prior").value));
    if (state.image === null) empty(prior.draw ? "Draw something: it is measured when you lift the pen." : "Choose a picture of your own.");
    else acquire();
  });
  $("label").addEventListener("change", () => changed({ label: $("label").value === "" ? null : Number($("label").value) }));
  $("budget").addEventListener("input", () => changed({ budget: Number($("budget").value) }, 250));
  $("steps").addEventListener("input", () => changed({ steps: Number($("steps").value) }, 250));
  $("noise").addEventListener("input", () => changed({ noise: Number($("noise").value) }, 250));
  $("stop").addEventListener("input", () => changed({ stop: stops(prior)[Number($("stop").value)] }, 250));
  $("reseed").addEventListener("click", () => changed({ seed: state.seed + 1 }));
  $("more").addEventListener("click", () => {
    const next = galleryFirst + galleryImages.length;
    loadGallery(next < prior.images ? next : 0).catch((error) => toast(error.message));
  });
  for (const tab of TABS) {
    $(`tab-${tab}`).addEventListener("click", () => changeTab(tab));
    $(`tab-${tab}`).addEventListener("keydown", (event) => {
      const shown = TABS.filter((name) => !$(`tab-${name}`).hidden);
      const turn = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!turn) return;
      event.preventDefault();
      event.stopPropagation();
      changeTab(shown[(shown.indexOf(tab) + turn + shown.length) % shown.length], true);
    });
  }
  $("erase").addEventListener("click", () => {
    pad.erasing = !pad.erasing;
    $("erase").setAttribute("aria-pressed", String(pad.erasing));
  });
  $("clear").addEventListener("click", () => {
    pad.clear();
    state.tokens = null;
    empty("Draw something: it is measured when you lift the pen.");
  });
  $("file").addEventListener("change", () => openFile($("file").files[0]));
  for (const [type, over] of [["dragover", true], ["dragleave", false], ["drop", false]]) {
    document.addEventListener(type, (event) => {
      event.preventDefault();
      document.body.classList.toggle("over", over);
      if (type === "drop") dropped(event.dataTransfer.files[0]);
    });
  }
  $("truth").addEventListener("pointerdown", (event) => pick(placeOn($("truth"), event)));
  $("truth").addEventListener("keydown", walk);
  $("play").addEventListener("click", () => (timer === undefined ? play() : pause()));
  $("back").addEventListener("click", () => goTo(state.step - 1));
  $("next").addEventListener("click", () => goTo(state.step + 1));
  $("cancel").addEventListener("click", cancel);
  $("scrub").addEventListener("input", () => goTo(Number($("scrub").value)));
  $("chart").addEventListener("pointerdown", (event) => films.a && goTo(chart.stepAt($("chart"), event, Number($("scrub").max))));
  $("share").addEventListener("click", async () => {
    if (films.a) writeAddress(state, prior);
    try {
      await navigator.clipboard.writeText(location.href);
      toast(state.size ? "Link copied: your own picture is not part of it." : "Link copied: it shows this picture with these settings.");
    } catch {
      toast("Copy the address of this page: it holds the whole view.");
    }
  });
  document.addEventListener("keydown", (event) => {
    if (event.target.matches("input, select, button, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
    const act = {
      " ": () => (timer === undefined ? play() : pause()),
      ArrowLeft: () => goTo(state.step - 1),
      ArrowRight: () => goTo(state.step + 1),
      Home: () => goTo(0),
      End: () => goTo(Infinity),
      Escape: cancel,
    }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => films.a?.shots.length && films.b?.shots.length && show(state.step));
}

async function begin() {
  catalog = await (await ask("api/catalog")).json();
  const wanted = readAddress(catalog);
  state = { said: "", ...wanted };
  pad = new Pad($("pad"), (tokens) => chooseTokens(tokens));
  for (const name of NAMES) {
    lanes[name] = new Lane(name, $(`lane-${name}`), {
      pick: (canvas, event) => pick(placeOn(canvas, event)),
      walk,
      chosen: (policy) => changed({ [name]: policy }),
      download,
    });
  }
  $("prior").replaceChildren(...catalog.priors.map(({ name, title }) => new Option(title, name)));
  fitPrior();
  await loadGallery(state.image === null ? 0 : 60 * Math.floor(state.image / 60));
  if (state.label === undefined) state.label = galleryImages[state.image - galleryFirst]?.label ?? null;
  if (state.tokens && prior.draw) pad.show(state.tokens);
  openTab(state.tokens ? (prior.draw ? "draw" : "file") : prior.images ? "bundled" : prior.draw ? "draw" : "file");
  syncControls();
  connect();
  if (state.image === null && state.tokens === null) {
    empty(prior.draw ? "Draw something: it is measured when you lift the pen." : "Choose a picture of your own.");
    document.body.dataset.ready = "0";
  } else acquire({ step: state.step });
}

begin().catch((error) => {
  $("verdict").textContent = error.message;
});
