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
    picture(this.canvas, this.tokens, this.shape, this.states);
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
    picture(this.canvas, this.tokens, this.shape, this.states);
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

/** A picture file as tokens: its middle square, scaled; dark ink on paper is turned round for two-level priors. */
export async function readFile(file, [channels, height, width], states) {
  if (file.size > 30_000_000) throw new Error("That file is larger than 30 MB: choose a smaller picture.");
  let bitmap;
  try {
    bitmap = await createImageBitmap(file);
  } catch {
    throw new Error("That file is not a picture that this browser can read.");
  }
  const side = Math.min(bitmap.width, bitmap.height);
  const canvas = Object.assign(document.createElement("canvas"), { width, height });
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.fillStyle = "#ffffff";
  context.fillRect(0, 0, width, height);
  context.imageSmoothingQuality = "high";
  context.drawImage(bitmap, (bitmap.width - side) / 2, (bitmap.height - side) / 2, side, side, 0, 0, width, height);
  const { data } = context.getImageData(0, 0, width, height);
  const pixels = height * width;
  const values = new Float32Array(channels * pixels);
  for (let i = 0; i < pixels; i++) {
    for (let c = 0; c < channels; c++) {
      values[c * pixels + i] = (channels === 1 ? (data[4 * i] + data[4 * i + 1] + data[4 * i + 2]) / 3 : data[4 * i + c]) / 255;
    }
  }
  const bright = values.reduce((sum, value) => sum + value, 0) / values.length > 0.5;
  const turn = states === 2 && channels === 1 && bright;
  return Uint8Array.from(values, (value) => 1 + Math.round((turn ? 1 - value : value) * (states - 1)));
}
