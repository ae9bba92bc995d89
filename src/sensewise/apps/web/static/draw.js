// A drawing pad on the prior's own pixels, and pictures from files.

import { picture } from "./paint.js";

const RADIUS = 1.3; // of the pen at 32 pixels, about as thick as the strokes of MNIST

export class Pad {
  constructor(canvas, changed) {
    this.canvas = canvas;
    this.changed = changed;
    this.erasing = false;
    this.last = null;
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      this.last = null;
      this.stroke(event);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (event.buttons & 1) (event.getCoalescedEvents?.() ?? [event]).forEach((part) => this.stroke(part));
    });
    canvas.addEventListener("pointerup", () => this.changed(this.tokens));
  }

  fit(shape, states) {
    this.shape = shape;
    this.states = states;
    this.clear();
  }

  clear() {
    this.show(new Uint8Array(this.shape.reduce((product, n) => product * n, 1)).fill(1));
  }

  show(tokens) {
    this.tokens = Uint8Array.from(tokens);
    this.paint();
  }

  paint() {
    const levels = this.tokens.map((token) => Math.round((255 * (token - 1)) / (this.states - 1)));
    picture(this.canvas, levels, this.shape);
  }

  get empty() {
    return this.tokens.every((token) => token === 1);
  }

  stroke(event) {
    const [, height, width] = this.shape;
    const box = this.canvas.getBoundingClientRect();
    const point = [((event.clientY - box.top) / box.height) * height, ((event.clientX - box.left) / box.width) * width];
    const from = this.last ?? point;
    const dots = Math.ceil(2 * Math.hypot(point[0] - from[0], point[1] - from[1])) + 1;
    for (let dot = 1; dot <= dots; dot++) {
      this.dab(from[0] + ((point[0] - from[0]) * dot) / dots, from[1] + ((point[1] - from[1]) * dot) / dots);
    }
    this.last = point;
    this.paint();
  }

  dab(y, x) {
    const [channels, height, width] = this.shape;
    const radius = (RADIUS * width) / 32 * (this.erasing ? 1.6 : 1);
    for (let row = Math.max(0, Math.floor(y - radius)); row <= Math.min(height - 1, y + radius); row++) {
      for (let column = Math.max(0, Math.floor(x - radius)); column <= Math.min(width - 1, x + radius); column++) {
        if (Math.hypot(row + 0.5 - y, column + 0.5 - x) > radius) continue;
        for (let c = 0; c < channels; c++) {
          this.tokens[c * height * width + row * width + column] = this.erasing ? 1 : this.states;
        }
      }
    }
  }
}

const LARGEST = 30_000_000; // bytes

async function bitmapOf(file) {
  if (file.size > LARGEST) throw new Error("That file is larger than 30 MB: choose a smaller picture.");
  try {
    return await createImageBitmap(file);
  } catch {
    throw new Error("That file is not a picture that this browser can read. `sensewise acquire` also reads TIFF, DICOM and AFM files.");
  }
}

/** Part of a bitmap at another size, on white: four bytes per pixel. */
function pixelsOf(bitmap, [left, top, wide, high], width, height) {
  const canvas = Object.assign(document.createElement("canvas"), { width, height });
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.fillStyle = "#ffffff";
  context.fillRect(0, 0, width, height);
  context.imageSmoothingQuality = "high";
  context.drawImage(bitmap, left, top, wide, high, 0, 0, width, height);
  return context.getImageData(0, 0, width, height).data;
}

const grey = (data, i) => (data[4 * i] + data[4 * i + 1] + data[4 * i + 2]) / 3;

/** A picture file as grey levels at its own size, made smaller where a side is too long; and what was done. */
export async function readGrey(file, [least, most]) {
  const bitmap = await bitmapOf(file);
  const scale = Math.min(1, most / Math.max(bitmap.width, bitmap.height));
  const [width, height] = [bitmap.width, bitmap.height].map((side) => Math.round(side * scale));
  if (Math.min(width, height) < least) throw new Error(`That picture is ${bitmap.width} x ${bitmap.height}: at least ${least} pixels a side are needed.`);
  const data = pixelsOf(bitmap, [0, 0, bitmap.width, bitmap.height], width, height);
  const tokens = Uint8Array.from({ length: width * height }, (_, i) => Math.round(grey(data, i)));
  if (tokens.every((value) => value === tokens[0])) throw new Error("That picture is the same everywhere: there is nothing to find out.");
  const colour = tokens.some((_, i) => data[4 * i] !== data[4 * i + 1] || data[4 * i] !== data[4 * i + 2]);
  const done = [scale < 1 ? `${bitmap.width} x ${bitmap.height} made smaller` : "", colour ? "colour made grey" : ""].filter(Boolean);
  return { tokens, size: [height, width], said: done.join(", ") };
}

/** A picture file as tokens: its middle square, scaled; dark ink on paper is turned round for two-level priors. */
export async function readTokens(file, [channels, height, width], states) {
  const bitmap = await bitmapOf(file);
  const side = Math.min(bitmap.width, bitmap.height);
  const data = pixelsOf(bitmap, [(bitmap.width - side) / 2, (bitmap.height - side) / 2, side, side], width, height);
  const pixels = height * width;
  const values = Float32Array.from({ length: channels * pixels }, (_, n) => {
    const i = n % pixels;
    return (channels === 1 ? grey(data, i) : data[4 * i + Math.floor(n / pixels)]) / 255;
  });
  const bright = values.reduce((sum, value) => sum + value, 0) / values.length > 0.5;
  const turn = states === 2 && channels === 1 && bright;
  return Uint8Array.from(values, (value) => 1 + Math.round((turn ? 1 - value : value) * (states - 1)));
}
