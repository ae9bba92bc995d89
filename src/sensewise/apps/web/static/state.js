// What is shown, and how it lives in the address: a view can be shared by its link.

const MAX_SHARED = 4096; // tokens of a drawn picture that still fit into an address

export function bytes(text) {
  const raw = atob(text);
  const found = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) found[i] = raw.charCodeAt(i);
  return found;
}

export function base64(array) {
  let text = "";
  for (let i = 0; i < array.length; i += 8192) text += String.fromCharCode(...array.subarray(i, i + 8192));
  return btoa(text);
}

/** Tokens 1..N as a short text: ceil(log2 N) bits each. */
export function packTokens(tokens, states) {
  const bits = Math.max(1, Math.ceil(Math.log2(states)));
  const out = new Uint8Array(Math.ceil((tokens.length * bits) / 8));
  tokens.forEach((token, i) => {
    for (let bit = 0; bit < bits; bit++) {
      const place = i * bits + bit;
      if (((token - 1) >> bit) & 1) out[place >> 3] |= 1 << (place & 7);
    }
  });
  return base64(out).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

export function unpackTokens(text, count, states) {
  try {
    const bits = Math.max(1, Math.ceil(Math.log2(states)));
    const packed = bytes(text.replaceAll("-", "+").replaceAll("_", "/"));
    if (packed.length !== Math.ceil((count * bits) / 8)) return null;
    return Uint8Array.from({ length: count }, (_, i) => {
      let value = 0;
      for (let bit = 0; bit < bits; bit++) {
        const place = i * bits + bit;
        value |= ((packed[place >> 3] >> (place & 7)) & 1) << bit;
      }
      return Math.min(value + 1, states);
    });
  } catch {
    return null;
  }
}

const whole = (text, low, high, otherwise) => {
  const value = Number(text);
  return text !== null && text !== "" && Number.isInteger(value) && value >= low && value <= high ? value : otherwise;
};

const between = (text, low, high, otherwise) => {
  const value = Number(text);
  return text !== null && text !== "" && value >= low && value <= high ? value : otherwise;
};

/** Errors below which an acquisition may stop, the first of them never: wrong pixels, or a fraction of the range. */
export const stops = (prior) =>
  prior.kind === "rows" ? [null] : prior.goal === "errors" ? [null, 50, 20, 10, 5, 2, 1, 0.5, 0.2] : [null, 0.1, 0.08, 0.06, 0.05, 0.04, 0.03, 0.02, 0.015, 0.01];

/** What a prior is shown with before anybody chooses. */
export const fresh = (prior) => ({
  prior: prior.name,
  image: prior.images ? 0 : null,
  tokens: null,
  size: null,
  label: null,
  budget: prior.budgets[2],
  steps: prior.steps,
  a: prior.best,
  b: prior.rival,
  noise: 0,
  stop: null,
  at: null,
});

/** The state that an address asks for; whatever does not fit is replaced by what fits. */
export function readAddress(catalog) {
  const query = new URLSearchParams(location.search);
  const prior = catalog.priors.find((p) => p.name === query.get("prior")) ?? catalog.priors[0];
  const usual = fresh(prior);
  const policy = (key) => (prior.policies.some((p) => p.name === query.get(key)) ? query.get(key) : usual[key]);
  const drawn = query.get("draw") && prior.shape && prior.kind === "tokens";
  const tokens = drawn ? unpackTokens(query.get("draw"), prior.shape.reduce((product, n) => product * n, 1), prior.states) : null;
  const at = /^(\d{1,3}),(\d{1,3})$/.exec(query.get("at") ?? "");
  const steps = whole(query.get("steps"), 1, catalog.max_steps, usual.steps);
  return {
    ...usual,
    image: tokens || prior.images === 0 ? null : whole(query.get("image"), 0, prior.images - 1, 0),
    tokens,
    label: query.has("label") ? whole(query.get("label"), 0, prior.labels.length - 1, null) : undefined,
    budget: between(query.get("budget"), 0.005, 0.95, usual.budget),
    steps,
    a: policy("a"),
    b: policy("b"),
    seed: whole(query.get("seed"), 0, 2 ** 31 - 1, 0),
    noise: prior.kind === "readings" ? between(query.get("noise"), 0, 0.5, 0) : 0,
    stop: stops(prior).find((value) => value !== null && value === Number(query.get("stop"))) ?? null,
    step: whole(query.get("step"), 0, steps, null),
    at: at ? [Number(at[1]), Number(at[2])] : null,
  };
}

export function writeAddress(state, prior) {
  const query = new URLSearchParams({ prior: state.prior });
  if (!state.tokens) query.set("image", state.image ?? 0);
  else if (!state.size && state.tokens.length <= MAX_SHARED) query.set("draw", packTokens(state.tokens, prior.states));
  if (prior.labels.length) query.set("label", state.label ?? "unknown");
  for (const key of ["budget", "steps", "a", "b", "seed"]) query.set(key, state[key]);
  if (state.noise) query.set("noise", state.noise);
  if (state.stop !== null) query.set("stop", state.stop);
  if (state.step !== null) query.set("step", state.step);
  if (state.at) query.set("at", state.at.join(","));
  history.replaceState(null, "", `?${query.toString().replaceAll("%2C", ",")}`);
}
