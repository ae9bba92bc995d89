// What is shown, and how it lives in the address: a view can be shared by its link.

export const DEFAULTS = { prior: "", image: 0, tokens: null, label: null, budget: 0.1, steps: 16, a: "greedy", b: "random", seed: 0, step: null, at: null };
const MAX_SHARED = 4096; // tokens of a drawn picture that still fit into an address

export function bytes(text) {
  return Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
}

export function base64(array) {
  let text = "";
  for (const value of array) text += String.fromCharCode(value);
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

/** The state that an address asks for; whatever does not fit is replaced by its default. */
export function readAddress(catalog) {
  const query = new URLSearchParams(location.search);
  const prior = catalog.priors.find((p) => p.name === query.get("prior")) ?? catalog.priors[0];
  const policy = (key) => (catalog.policies.some((p) => p.name === query.get(key)) ? query.get(key) : DEFAULTS[key]);
  const count = prior.shape.reduce((product, n) => product * n, 1);
  const budget = Number(query.get("budget"));
  const tokens = query.get("draw") ? unpackTokens(query.get("draw"), count, prior.states) : null;
  const at = /^(\d+),(\d+)$/.exec(query.get("at") ?? "");
  const steps = whole(query.get("steps"), 1, catalog.max_steps, DEFAULTS.steps);
  const inside = at && Number(at[1]) < prior.shape[1] && Number(at[2]) < prior.shape[2];
  return {
    prior: prior.name,
    image: tokens || prior.images === 0 ? null : whole(query.get("image"), 0, prior.images - 1, 0),
    tokens,
    label: query.has("label") ? whole(query.get("label"), 0, prior.labels.length - 1, null) : undefined,
    budget: budget > 0 && budget < 1 ? budget : DEFAULTS.budget,
    steps,
    a: policy("a"),
    b: policy("b"),
    seed: whole(query.get("seed"), 0, 2 ** 31 - 1, 0),
    step: whole(query.get("step"), 0, steps, null),
    at: inside ? [Number(at[1]), Number(at[2])] : null,
  };
}

export function writeAddress(state, prior) {
  const query = new URLSearchParams({ prior: state.prior });
  if (state.tokens) {
    if (state.tokens.length <= MAX_SHARED) query.set("draw", packTokens(state.tokens, prior.states));
  } else query.set("image", state.image);
  query.set("label", state.label ?? "unknown");
  for (const key of ["budget", "steps", "a", "b", "seed"]) query.set(key, state[key]);
  if (state.step !== null) query.set("step", state.step);
  if (state.at) query.set("at", state.at.join(","));
  history.replaceState(null, "", `?${query.toString().replaceAll("%2C", ",")}`);
}
