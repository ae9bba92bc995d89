// The page: settings in, two acquisitions of the same picture side by side, one clock for both.

import * as chart from "./chart.js";
import { Pad, readFile } from "./draw.js";
import * as paint from "./paint.js";
import { base64, bytes, readAddress, writeAddress } from "./state.js";

const $ = (id) => document.getElementById(id);
const LANES = ["a", "b"];
const PLAY_MS = 260;
const calm = matchMedia("(prefers-reduced-motion: reduce)");
const recordings = { a: null, b: null };
const pixels = { a: null, b: null };
const lanes = {};
let catalog, state, prior, pad, timer, pending;
let galleryFirst = 0;
let galleryLabels = [];

// ---------------------------------------------------------------- talking to the server

async function ask(path, body, signal, retries = 5) {
  const options = body ? { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal } : { signal };
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server does not answer. Is `sensewise serve` still running?");
  }
  if (response.ok) return response;
  if (response.status === 503 && retries > 0) {
    const seconds = Number(response.headers.get("Retry-After")) || 2;
    await new Promise((resolve) => setTimeout(resolve, 1000 * seconds));
    signal?.throwIfAborted();
    return ask(path, body, signal, retries - 1);
  }
  const answer = await response.json().catch(() => ({}));
  throw new Error(answer.error ?? `The server answered ${response.status}.`);
}

const request = (lane) => ({
  prior: state.prior,
  ...(state.tokens ? { tokens: base64(state.tokens) } : { image: state.image }),
  label: state.label,
  budget: state.budget,
  steps: state.steps,
  policy: state[lane],
  seed: state.seed,
});

function decode(answer) {
  const recording = { ...answer };
  for (const name of ["target", "reconstruction", "entropy"]) recording[name] = bytes(answer[name]);
  recording.step = new Int8Array(bytes(answer.step).buffer);
  return recording;
}

function toast(message) {
  $("toast").textContent = message;
  $("toast").hidden = false;
  clearTimeout(toast.timer);
  toast.timer = setTimeout(() => ($("toast").hidden = true), 6000);
}

// ---------------------------------------------------------------- acquiring

/** Acquire again; `step` is the frame to show, or null to play from the start. */
function acquire({ step = null, wait = 0 } = {}) {
  clearTimeout(acquire.timer);
  acquire.timer = setTimeout(() => run(step), wait);
}

async function run(step) {
  pending?.abort();
  const mine = (pending = new AbortController());
  pause();
  LANES.forEach((lane) => lanes[lane].root.classList.add("busy"));
  try {
    const answers = await Promise.all(LANES.map((lane) => ask("api/acquire", request(lane), mine.signal).then((r) => r.json())));
    LANES.forEach((lane, i) => (recordings[lane] = decode(answers[i])));
  } catch (error) {
    if (error.name !== "AbortError") {
      toast(error.message);
      $("verdict").textContent = error.message;
    }
    return;
  } finally {
    if (mine === pending) LANES.forEach((lane) => lanes[lane].root.classList.remove("busy"));
  }
  pixels.a = pixels.b = null;
  $("scrub").max = state.steps;
  show(step ?? (calm.matches ? state.steps : 0));
  look();
  if (step === null && !calm.matches) play();
  document.body.dataset.ready = String(Number(document.body.dataset.ready ?? 0) + 1);
}

// ---------------------------------------------------------------- the clock

function play() {
  if (!recordings.a) return;
  if (state.step >= state.steps) show(0);
  clearInterval(timer);
  timer = setInterval(() => (state.step < state.steps ? show(state.step + 1) : pause()), PLAY_MS);
  setPlaying(true);
}

function pause() {
  clearInterval(timer);
  timer = undefined;
  setPlaying(false);
  if (recordings.a) settle();
}

function setPlaying(playing) {
  $("verdict").setAttribute("aria-live", playing ? "off" : "polite"); // nobody wants every frame read aloud
  $("play").setAttribute("aria-label", playing ? "Pause" : "Play");
  $("play-path").setAttribute("d", playing ? "M6 4h4v16H6zM14 4h4v16h-4z" : "M7 4v16l13-8z");
}

function goTo(step) {
  pause();
  show(Math.max(0, Math.min(state.steps, step)));
  settle();
}

/** Say and store where playback came to rest. */
function settle() {
  writeAddress(state, prior);
  $("verdict").textContent = verdict(); // written again, so that it is read aloud
}

// ---------------------------------------------------------------- showing

const wrongText = (count) => (count === 0 ? "no pixel wrong" : `${count.toLocaleString("en")} wrong`);

function verdict() {
  const names = LANES.map((lane) => titleOf(state[lane]));
  const [one, two] = LANES.map((lane) => recordings[lane].errors[state.step]);
  const share = `${recordings.a.measured[state.step]} pixels measured`;
  if (state.a === state.b) return `${share}: ${wrongText(one)}`;
  return `${share}. ${names[0]}: ${wrongText(one)}. ${names[1]}: ${wrongText(two)}.`;
}

const titleOf = (name) => catalog.policies.find((policy) => policy.name === name).title;

function show(step) {
  state.step = step;
  const sites = prior.shape.reduce((product, n) => product * n, 1);
  const [, height, width] = prior.shape;
  const peak = Math.max(recordings.a.peak, recordings.b.peak);
  for (const lane of LANES) {
    const recording = recordings[lane];
    const { views, numbers } = lanes[lane];
    paint.measured(views.measured, recording, step, prior.shape, prior.states, lane);
    paint.heat(views.heat, recording, step, prior.shape, peak);
    paint.rebuilt(views.rebuilt, recording, step, prior.shape, prior.states);
    if (state.at) Object.values(views).forEach((view) => paint.outline(view, state.at, width));
    const wrong = recording.errors[step];
    numbers.wrong.firstChild.textContent = wrong.toLocaleString("en");
    numbers.wrong.lastChild.textContent = ` of ${sites.toLocaleString("en")} wrong`;
    numbers.wrong.classList.toggle("exact", wrong === 0);
    numbers.expected.textContent = recording.expected[step].toFixed(1);
    numbers.nats.textContent = recording.nats[step].toFixed(1);
    numbers.measured.textContent = `${recording.measured[step]} · ${((100 * recording.measured[step]) / (height * width)).toFixed(1)}%`;
    views.rebuilt.setAttribute("aria-label", `Reconstruction after step ${step}: ${wrongText(wrong)}`);
    views.measured.setAttribute("aria-label", `${recording.measured[step]} measured pixels after step ${step}`);
    views.heat.setAttribute("aria-label", `Uncertainty after step ${step}: ${recording.nats[step].toFixed(1)} nats in all`);
  }
  $("scrub").value = step;
  $("scrub").setAttribute("aria-valuetext", `step ${step} of ${state.steps}, ${recordings.a.measured[step]} pixels measured`);
  $("scrub-out").textContent = `${step} / ${state.steps}`;
  $("back").disabled = step === 0;
  $("next").disabled = step === state.steps;
  chart.draw($("chart"), recordings, step);
  showPixel();
  $("verdict").textContent = verdict();
}

// ---------------------------------------------------------------- one pixel

async function look() {
  if (!state.at) return showPixel();
  const [row, column] = state.at;
  const wanted = (look.count = (look.count ?? 0) + 1);
  try {
    const found = await Promise.all(LANES.map((lane) => ask("api/pixel", { ...request(lane), row, column }).then((r) => r.json())));
    if (wanted !== look.count) return;
    LANES.forEach((lane, i) => (pixels[lane] = found[i]));
    showPixel();
  } catch (error) {
    toast(error.message);
  }
}

function pick(at) {
  state.at = at;
  show(state.step);
  if (timer === undefined) writeAddress(state, prior);
  look();
}

const element = (tag, className = "", text = "") => Object.assign(document.createElement(tag), { className, textContent: text });

function levelName(k) {
  if (prior.states === 2) return k ? "white" : "black";
  return `level ${k}`;
}

function showPixel() {
  if (!state.at || !pixels.a || !pixels.b) return;
  $("pixel-place").textContent = `row ${state.at[0]}, column ${state.at[1]}`;
  const parts = LANES.map((lane) => {
    const { probs, step, target } = pixels[lane];
    const block = element("div", `believes ${lane}`);
    const known = step >= 0 && step <= state.step;
    const when = step === 0 ? "by the probe" : `in step ${step}`;
    block.append(element("div", "name", `${titleOf(state[lane])}: ${known ? `measured ${when}` : "not measured"}`));
    const now = probs[Math.min(state.step, probs.length - 1)];
    now.forEach((chances, channel) => block.append(prior.states <= 4 ? rows(chances, target[channel]) : columns(chances, target[channel])));
    return block;
  });
  const truth = pixels.a.target.map((token) => levelName(token - 1)).join(", ");
  $("pixel-body").replaceChildren(...parts, element("p", "hint", `In truth: ${truth}`));
}

function rows(chances, target) {
  const bars = element("div", "bars");
  chances.forEach((chance, k) => {
    const bar = element("div", k === target - 1 ? "bar true" : "bar");
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
    const fill = element("b", k === target - 1 ? "true" : "");
    fill.style.height = `${100 * chance}%`;
    fill.title = `${levelName(k)}: ${(100 * chance).toFixed(1)}%`;
    bars.append(fill);
  });
  return bars;
}

// ---------------------------------------------------------------- building the lanes

function buildLane(lane) {
  const root = $(`lane-${lane}`);
  const views = {};
  const frame = element("div", "views");
  for (const [name, title] of [["measured", "Measured"], ["heat", "Uncertainty"], ["rebuilt", "Reconstruction"]]) {
    const figure = element("figure");
    const canvas = Object.assign(document.createElement("canvas"), { width: 384, height: 384, tabIndex: 0 });
    canvas.setAttribute("role", "img");
    canvas.dataset.view = name;
    canvas.addEventListener("pointerdown", (event) => pick(placeOn(canvas, event)));
    canvas.addEventListener("keydown", (event) => walk(event));
    figure.append(element("figcaption", "", title), canvas);
    frame.append(figure);
    views[name] = canvas;
  }
  const side = element("div", "side");
  const policy = element("div", "policy");
  const select = Object.assign(element("select"), { id: `policy-${lane}` });
  select.setAttribute("aria-label", lane === "a" ? "First policy" : "Second policy");
  catalog.policies.forEach(({ name, title }) => select.append(new Option(title, name)));
  select.value = state[lane];
  select.addEventListener("change", () => {
    state[lane] = select.value;
    acquire();
  });
  policy.append(select);
  const numbers = { wrong: element("div", "big") };
  numbers.wrong.append(element("span", "", "–"), element("small"));
  const list = element("dl");
  for (const [name, title] of [["expected", "expected"], ["nats", "nats left"], ["measured", "measured"]]) {
    numbers[name] = element("dd", "", "–");
    list.append(element("dt", "", title), numbers[name]);
  }
  const downloads = element("div", "downloads");
  downloads.append(element("span", "", "Download"));
  for (const name of ["mask.npy", "mask.png", "animation.gif"]) {
    const button = Object.assign(element("button", "quiet", name.replace("animation", "film")), { type: "button" });
    button.setAttribute("aria-label", `Download ${name} of the ${lane === "a" ? "first" : "second"} policy`);
    button.addEventListener("click", () => download(lane, name));
    downloads.append(button);
  }
  side.append(policy, numbers.wrong, list, downloads);
  root.append(frame, side);
  lanes[lane] = { root, views, numbers };
}

function placeOn(canvas, event) {
  const [, height, width] = prior.shape;
  const box = canvas.getBoundingClientRect();
  const inside = (value, size) => Math.max(0, Math.min(size - 1, Math.floor(value * size)));
  return [inside((event.clientY - box.top) / box.height, height), inside((event.clientX - box.left) / box.width, width)];
}

function walk(event) {
  const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
  if (!moves[event.key]) return;
  event.preventDefault();
  event.stopPropagation();
  const [, height, width] = prior.shape;
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
  galleryLabels = answer.labels ?? [];
  const buttons = answer.tokens.map((tokens, i) => {
    const button = Object.assign(element("button"), { type: "button" });
    const number = galleryFirst + i;
    const name = answer.labels ? prior.labels[answer.labels[i]] : "picture";
    button.setAttribute("aria-label", `${name}, number ${number}`);
    button.setAttribute("aria-pressed", String(number === state.image));
    button.dataset.number = number;
    const canvas = document.createElement("canvas");
    paint.picture(canvas, bytes(tokens), prior.shape, prior.states);
    button.append(canvas);
    button.addEventListener("click", () => choose(number, answer.labels ? answer.labels[i] : null));
    return button;
  });
  $("gallery").replaceChildren(...buttons);
}

function choose(number, label) {
  Object.assign(state, { image: number, tokens: null, label });
  syncControls();
  acquire();
}

function chooseTokens(tokens, wait = 250) {
  if (state.tokens === null) state.label = null; // nobody said what the new picture shows
  Object.assign(state, { tokens: Uint8Array.from(tokens), image: null });
  syncControls();
  acquire({ wait });
}

const TABS = ["bundled", "draw", "file"];

function openTab(name, focus = false) {
  for (const tab of TABS) {
    const chosen = tab === name;
    $(`tab-${tab}`).setAttribute("aria-selected", String(chosen));
    $(`tab-${tab}`).tabIndex = chosen ? 0 : -1;
    $(`pane-${tab}`).hidden = !chosen;
    if (chosen && focus) $(`tab-${tab}`).focus();
  }
}

async function openFile(file) {
  if (!file) return;
  try {
    const tokens = await readFile(file, prior.shape, prior.states);
    pad.show(tokens);
    chooseTokens(tokens, 0);
  } catch (error) {
    toast(error.message);
  }
}

// ---------------------------------------------------------------- controls

function usePrior() {
  prior = catalog.priors.find((p) => p.name === state.prior);
  $("label").replaceChildren(new Option("Nothing: label unknown", ""), ...prior.labels.map((name, i) => new Option(`It is: ${name}`, i)));
  $("label-field").hidden = prior.labels.length === 0;
  pad.fit(prior.shape, prior.states);
  $("tab-bundled").hidden = prior.images === 0;
}

function syncControls() {
  $("prior").value = state.prior;
  $("label").value = state.label ?? "";
  $("budget").value = state.budget;
  const [, height, width] = prior.shape;
  $("budget-out").textContent = `${Math.round(100 * state.budget)}% = ${Math.round(state.budget * height * width)} pixels`;
  $("steps").value = state.steps;
  $("steps-out").textContent = state.steps;
  $("seed-out").textContent = `seed ${state.seed}`;
  for (const button of $("gallery").children) button.setAttribute("aria-pressed", String(Number(button.dataset.number) === state.image));
}

function connect() {
  $("prior").addEventListener("change", async () => {
    Object.assign(state, { prior: $("prior").value, image: 0, tokens: null, label: null, at: null });
    usePrior();
    if (prior.images) await start(0);
    else openTab("draw");
  });
  $("label").addEventListener("change", () => ((state.label = $("label").value === "" ? null : Number($("label").value)), acquire()));
  $("budget").addEventListener("input", () => {
    state.budget = Number($("budget").value);
    const pixelCount = Math.round(state.budget * prior.shape[1] * prior.shape[2]);
    state.steps = Math.min(state.steps, Math.max(1, Math.floor(pixelCount * 0.8)));
    syncControls();
    acquire({ wait: 150 });
  });
  $("steps").addEventListener("input", () => {
    const pixelCount = Math.round(state.budget * prior.shape[1] * prior.shape[2]);
    state.steps = Math.min(Number($("steps").value), Math.max(1, Math.floor(pixelCount * 0.8)));
    syncControls();
    acquire({ wait: 150 });
  });
  $("reseed").addEventListener("click", () => ((state.seed += 1), syncControls(), acquire()));
  $("more").addEventListener("click", () => loadGallery(galleryFirst + 60 < prior.images ? galleryFirst + 60 : 0).catch((e) => toast(e.message)));
  TABS.forEach((tab) => $(`tab-${tab}`).addEventListener("click", () => openTab(tab)));
  document.querySelector(".tabs").addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    event.stopPropagation();
    const open = TABS.filter((tab) => !$(`tab-${tab}`).hidden);
    const now = open.findIndex((tab) => $(`tab-${tab}`).getAttribute("aria-selected") === "true");
    openTab(open[(now + by + open.length) % open.length], true);
  });
  $("erase").addEventListener("click", () => {
    pad.erasing = !pad.erasing;
    $("erase").setAttribute("aria-pressed", String(pad.erasing));
  });
  $("clear").addEventListener("click", () => pad.clear());
  $("file").addEventListener("change", () => openFile($("file").files[0]));
  $("drop").addEventListener("dragover", (event) => (event.preventDefault(), $("drop").classList.add("over")));
  $("drop").addEventListener("dragleave", () => $("drop").classList.remove("over"));
  $("drop").addEventListener("drop", (event) => {
    event.preventDefault();
    $("drop").classList.remove("over");
    openFile(event.dataTransfer.files[0]);
  });
  $("play").addEventListener("click", () => (timer === undefined ? play() : pause()));
  $("back").addEventListener("click", () => goTo(state.step - 1));
  $("next").addEventListener("click", () => goTo(state.step + 1));
  $("scrub").addEventListener("input", () => goTo(Number($("scrub").value)));
  $("chart").addEventListener("pointerdown", (event) => goTo(chart.stepAt($("chart"), event, state.steps)));
  $("chart").addEventListener("pointermove", (event) => event.buttons & 1 && goTo(chart.stepAt($("chart"), event, state.steps)));
  $("share").addEventListener("click", async () => {
    writeAddress(state, prior);
    try {
      await navigator.clipboard.writeText(location.href);
      toast("The link to this view is in the clipboard.");
    } catch {
      toast("Copy the address of this page: it holds the whole view.");
    }
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => recordings.a && show(state.step));
  window.addEventListener("keydown", keys);
}

function keys(event) {
  if (!recordings.a || event.ctrlKey || event.metaKey || event.altKey) return;
  const on = event.target;
  if (on.matches("input:not([type=range]), select, textarea")) return;
  if (on.matches("input[type=range]") && event.key !== " ") return;
  const act = {
    " ": () => on.matches("button, a, label, input[type=file]") || (timer === undefined ? play() : pause(), event.preventDefault()),
    ArrowLeft: () => goTo(state.step - 1),
    ArrowRight: () => goTo(state.step + 1),
    Home: () => (goTo(0), event.preventDefault()),
    End: () => (goTo(state.steps), event.preventDefault()),
  }[event.key];
  act?.();
}

// ---------------------------------------------------------------- starting

/** Show the gallery page of image `number` and acquire that image, with its own label if none was asked for. */
async function start(number, step = null, ownLabel = true) {
  await loadGallery(Math.floor(number / 60) * 60);
  state.image = number;
  if (ownLabel) state.label = galleryLabels[number - galleryFirst] ?? null;
  syncControls();
  acquire({ step });
}

async function begin() {
  catalog = await (await ask("api/catalog")).json();
  catalog.priors.forEach(({ name, title }) => $("prior").append(new Option(name === title ? name : `${title} (${name})`, name)));
  $("prior-field").hidden = catalog.priors.length < 2;
  $("steps").max = catalog.max_steps;
  state = readAddress(catalog);
  pad = new Pad($("pad"), (tokens) => (pad.empty ? undefined : chooseTokens(tokens)));
  usePrior();
  LANES.forEach(buildLane);
  connect();
  const asked = state.step;
  if (state.tokens) {
    state.label ??= null;
    pad.show(state.tokens);
    openTab("draw");
    if (prior.images) await loadGallery(0);
    syncControls();
    acquire({ step: asked });
  } else if (prior.images) await start(state.image, asked, state.label === undefined);
  else openTab("draw");
}

begin().catch((error) => {
  $("verdict").textContent = error.message;
  toast(error.message);
});
