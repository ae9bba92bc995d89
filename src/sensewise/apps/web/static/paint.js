// Pictures on canvases: bytes in one or three channels, doubt as heat, what was measured, marks.

const STOPS = [[0, 0, 4], [28, 16, 68], [79, 18, 123], [129, 37, 129], [181, 54, 122], [229, 80, 100], [251, 135, 97], [254, 194, 135], [252, 253, 191]];
const HEAT = Array.from({ length: 256 }, (_, i) => {
  const place = Math.sqrt(i / 255) * (STOPS.length - 1); // roots, so that small doubts are seen
  const low = Math.min(Math.floor(place), STOPS.length - 2);
  return STOPS[low].map((value, c) => Math.round(value + (STOPS[low + 1][c] - value) * (place - low)));
});
const word = ([r, g, b]) => new Uint32Array(new Uint8Array([r, g, b, 255]).buffer)[0]; // four bytes at once
const HEAT_WORDS = HEAT.map(word);
const WRONG = [255, 140, 26];
const TINTS = { a: [[64, 16, 26], [255, 122, 140]], b: [[20, 32, 66], [140, 176, 255]] };
const SMOOTH = 100; // pixels of a side from which a picture is not shown as squares
const scratch = document.createElement("canvas");

export function parse(colour) {
  const match = /^#(..)(..)(..)$/.exec(colour.trim());
  return match ? match.slice(1).map((part) => parseInt(part, 16)) : [200, 200, 200];
}

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name);

/** Put colours `data` (four bytes per pixel) onto a canvas, small pictures enlarged so that marks fit between pixels. */
function blit(canvas, height, width, data) {
  const scale = Math.max(1, Math.floor(384 / Math.max(height, width)));
  if (canvas.width !== width * scale) canvas.width = width * scale;
  if (canvas.height !== height * scale) canvas.height = height * scale;
  canvas.classList.toggle("smooth", Math.max(height, width) >= SMOOTH);
  canvas.style.setProperty("--ratio", `${width} / ${height}`);
  scratch.width = width;
  scratch.height = height;
  scratch.getContext("2d").putImageData(new ImageData(data, width, height), 0, 0);
  const context = canvas.getContext("2d");
  context.imageSmoothingEnabled = false;
  context.drawImage(scratch, 0, 0, canvas.width, canvas.height);
  return [context, scale];
}

/** Bytes `(C, H, W)` as four per pixel: grey for one channel, else the first three. */
function colours(picture, [channels, height, width]) {
  const pixels = height * width;
  const data = new Uint8ClampedArray(4 * pixels);
  const green = channels < 3 ? 0 : pixels;
  for (let i = 0; i < pixels; i++) {
    data[4 * i] = picture[i];
    data[4 * i + 1] = picture[green + i];
    data[4 * i + 2] = picture[2 * green + i];
    data[4 * i + 3] = 255;
  }
  return data;
}

export function picture(canvas, values, shape) {
  blit(canvas, shape[1], shape[2], colours(values, shape));
}

/** Nothing to see: the canvas in the colour of what is hidden. */
export function nothing(canvas) {
  const context = canvas.getContext("2d");
  const [r, g, b] = parse(css("--hidden"));
  context.fillStyle = `rgb(${r} ${g} ${b})`;
  context.fillRect(0, 0, canvas.width, canvas.height);
}

/** What was measured up to a shot: pixels, or rows of k-space. */
export function measured(canvas, film, last, lane, two) {
  const [channels, height, width] = film.title.shape;
  const rows = film.title.grid.length === 1;
  const words = new Uint32Array(height * width).fill(word(parse(css("--hidden"))));
  const data = new Uint8ClampedArray(words.buffer);
  for (const shot of film.shots.slice(0, last + 1)) {
    shot.actions.forEach((action, n) => {
      if (rows) {
        for (let x = 0; x < width; x++) data.fill(shot.values[n * width + x], 4 * (action * width + x), 4 * (action * width + x) + 3);
      } else if (two) data.set(TINTS[lane][shot.values[n] ? 1 : 0], 4 * action);
      else for (let c = 0; c < 3; c++) data[4 * action + c] = shot.values[n * channels + (channels < 3 ? 0 : c)];
    });
  }
  const [context, scale] = blit(canvas, height, width, data);
  if (last === 0 || scale < 4) return;
  context.strokeStyle = "#ffd166";
  context.lineWidth = Math.max(1, scale / 6);
  const inset = context.lineWidth / 2;
  for (const i of film.shots[last].actions) {
    context.strokeRect((i % width) * scale + inset, Math.floor(i / width) * scale + inset, scale - 2 * inset, scale - 2 * inset);
  }
}

export function heat(canvas, shot, [, height, width]) {
  const words = Uint32Array.from(shot.doubt, (doubt) => HEAT_WORDS[doubt]);
  blit(canvas, height, width, new Uint8ClampedArray(words.buffer));
}

/** The reconstruction; wrong pixels of two levels in orange. */
export function rebuilt(canvas, film, shot, two) {
  const { shape, target } = film.title;
  const data = colours(shot.picture, shape);
  if (two) shot.picture.forEach((value, i) => value !== target[i] && data.set(WRONG, 4 * i));
  blit(canvas, shape[1], shape[2], data);
}

/** A frame around the pixel that is being looked at. */
export function outline(canvas, [row, column], width) {
  const scale = canvas.width / width;
  const context = canvas.getContext("2d");
  for (const [colour, line] of [["#000000", 4], ["#ffffff", 2]]) {
    context.strokeStyle = colour;
    context.lineWidth = Math.max(1, (line * scale) / 10);
    context.strokeRect(column * scale - 1, row * scale - 1, scale + 2, scale + 2);
  }
}
