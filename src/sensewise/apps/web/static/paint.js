// Pictures on canvases: tokens in any number of channels and levels, entropy maps, marks.

const STOPS = [[0, 0, 4], [28, 16, 68], [79, 18, 123], [129, 37, 129], [181, 54, 122], [229, 80, 100], [251, 135, 97], [254, 194, 135], [252, 253, 191]];
const HEAT = Array.from({ length: 256 }, (_, i) => {
  const place = (i / 255) * (STOPS.length - 1);
  const low = Math.min(Math.floor(place), STOPS.length - 2);
  return STOPS[low].map((value, c) => Math.round(value + (STOPS[low + 1][c] - value) * (place - low)));
});
const WRONG = [255, 140, 26];
const TINTS = { a: [[64, 16, 26], [255, 122, 140]], b: [[20, 32, 66], [140, 176, 255]] };
const scratch = document.createElement("canvas");

export function parse(colour) {
  const match = /^#(..)(..)(..)$/.exec(colour.trim());
  return match ? match.slice(1).map((part) => parseInt(part, 16)) : [200, 200, 200];
}

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name);

/** Colour of the tokens at pixel i: grey for one channel, else the first three channels. */
function colourOf(tokens, i, pixels, channels, states) {
  const level = (c) => Math.round((255 * (tokens[c * pixels + i] - 1)) / (states - 1));
  if (channels < 3) {
    const grey = level(0);
    return [grey, grey, grey];
  }
  return [level(0), level(1), level(2)];
}

/** Put one colour a pixel onto a canvas, enlarged so that marks can be drawn between pixels. */
function blit(canvas, height, width, colour) {
  const scale = Math.max(1, Math.floor(384 / Math.max(height, width)));
  if (canvas.width !== width * scale) canvas.width = width * scale;
  if (canvas.height !== height * scale) canvas.height = height * scale;
  scratch.width = width;
  scratch.height = height;
  const image = new ImageData(width, height);
  for (let i = 0; i < height * width; i++) {
    const [r, g, b] = colour(i);
    image.data.set([r, g, b, 255], 4 * i);
  }
  scratch.getContext("2d").putImageData(image, 0, 0);
  const context = canvas.getContext("2d");
  context.imageSmoothingEnabled = false;
  context.drawImage(scratch, 0, 0, canvas.width, canvas.height);
  return [context, scale];
}

export function picture(canvas, tokens, [channels, height, width], states) {
  blit(canvas, height, width, (i) => colourOf(tokens, i, height * width, channels, states));
}

export function measured(canvas, recording, frame, [channels, height, width], states, lane) {
  const hidden = parse(css("--hidden"));
  const binary = states === 2 && channels === 1;
  const [context, scale] = blit(canvas, height, width, (i) => {
    if (recording.step[i] < 0 || recording.step[i] > frame) return hidden;
    return binary ? TINTS[lane][recording.target[i] - 1] : colourOf(recording.target, i, height * width, channels, states);
  });
  if (frame === 0 || scale < 4) return;
  context.strokeStyle = "#ffd166";
  context.lineWidth = Math.max(1, scale / 6);
  for (let i = 0; i < height * width; i++) {
    if (recording.step[i] === frame) {
      const inset = context.lineWidth / 2;
      context.strokeRect((i % width) * scale + inset, Math.floor(i / width) * scale + inset, scale - 2 * inset, scale - 2 * inset);
    }
  }
}

export function heat(canvas, recording, frame, [, height, width], peak) {
  const pixels = height * width;
  blit(canvas, height, width, (i) => HEAT[Math.min(255, Math.round((recording.entropy[frame * pixels + i] * recording.peak) / peak))]);
}

export function rebuilt(canvas, recording, frame, [channels, height, width], states) {
  const pixels = height * width;
  const tokens = recording.reconstruction.subarray(frame * channels * pixels, (frame + 1) * channels * pixels);
  blit(canvas, height, width, (i) => {
    if (states === 2 && channels === 1 && tokens[i] !== recording.target[i]) return WRONG;
    return colourOf(tokens, i, pixels, channels, states);
  });
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
