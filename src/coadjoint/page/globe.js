// A globe to turn: a field on latitudes and longitudes along time, one byte a value, drawn pixel by pixel.

const FINEST = 640; // pixels across the globe; more is not seen and takes time

class GlobeView {
  constructor(figure, data) {
    this.t = floats(data.t);
    this.values = Uint8Array.from(atob(data.values), (c) => c.charCodeAt(0));
    this.colours = Uint8Array.from(atob(data.colours), (c) => c.charCodeAt(0));
    Object.assign(this, { rows: data.rows, columns: 2 * data.rows, size: data.size, name: data.name, frame: 0 });
    this.tip = figure.querySelector(".tip");
    this.disc = document.createElement("canvas");
    this.view = new View(figure.querySelector("canvas"), 1.08, (view) => this.draw(view));
    this.view.hover = (x, y) => this.hover(x, y);
    film(figure, this, Math.max(8, this.t.length / 15));
  }

  // Between the four values about a point: latitude from north to south at (i + ½)π/rows, longitude at 2πj/columns.
  at(latitude, longitude) {
    const [rows, columns, start] = [this.rows, this.columns, Math.floor(this.frame) * this.rows * this.columns];
    const i = Math.max(0, Math.min(rows - 1, (0.5 - latitude / Math.PI) * rows - 0.5));
    const j = (((longitude / (2 * Math.PI)) * columns) % columns + columns) % columns;
    const [i0, j0] = [Math.min(Math.floor(i), rows - 2), Math.floor(j) % columns];
    const [a, b, j1] = [i - i0, j - Math.floor(j), (j0 + 1) % columns];
    const row = start + i0 * columns;
    const v = this.values;
    const above = (1 - b) * v[row + j0] + b * v[row + j1];
    return (1 - a) * above + a * ((1 - b) * v[row + columns + j0] + b * v[row + columns + j1]);
  }

  // The point of the sphere under a point of the disc, both in units of the radius; null outside.
  point(x, y) {
    const z = Math.sqrt(1 - x * x - y * y);
    if (!(z >= 0)) return null;
    const m = this.view.matrix;
    const up = m[2] * x + m[5] * y + m[8] * z;
    const longitude = Math.atan2(m[1] * x + m[4] * y + m[7] * z, m[0] * x + m[3] * y + m[6] * z);
    return [Math.asin(Math.max(-1, Math.min(1, up))), longitude, z];
  }

  draw(view) {
    if (!this.view) this.view = view; // the first time, from within its constructor
    const across = Math.max(2, Math.min(FINEST, Math.round(2 * view.scale * (window.devicePixelRatio || 1))));
    if (this.disc.width !== across) this.disc.width = this.disc.height = across;
    const context = this.disc.getContext("2d");
    const image = context.createImageData(across, across);
    for (let k = 0, row = 0; row < across; row++)
      for (let column = 0; column < across; column++, k += 4) {
        const found = this.point((2 * column + 1) / across - 1, 1 - (2 * row + 1) / across);
        if (!found) continue;
        const c = 3 * Math.round(this.at(found[0], found[1]));
        const shade = 0.82 + 0.18 * found[2];
        for (let i = 0; i < 3; i++) image.data[k + i] = shade * this.colours[c + i];
        image.data[k + 3] = 255;
      }
    context.putImageData(image, 0, 0);
    const [x, y] = [view.width / 2 - view.scale, view.height / 2 - view.scale];
    view.context.drawImage(this.disc, x, y, 2 * view.scale, 2 * view.scale);
    this.lines(view);
    this.bar(view);
  }

  // Meridians and parallels every 30 degrees, the equator stronger, and the outline.
  lines(view) {
    const context = view.context;
    const line = (strong, at) => {
      context.strokeStyle = `rgba(0, 0, 0, ${strong ? 0.45 : 0.16})`;
      context.beginPath();
      for (let k = 0, on = false; k <= 120; k++) {
        const [latitude, longitude] = at(k / 120);
        const r = Math.cos(latitude);
        const p = view.project(r * Math.cos(longitude), r * Math.sin(longitude), Math.sin(latitude));
        if (p[2] > 0) on ? context.lineTo(p[0], p[1]) : context.moveTo(p[0], p[1]);
        on = p[2] > 0;
      }
      context.stroke();
    };
    context.lineWidth = 0.8;
    const step = Math.PI / 6;
    for (let k = -2; k <= 2; k++) line(k === 0, (s) => [k * step, 2 * Math.PI * s]);
    for (let k = 0; k < 12; k++) line(false, (s) => [(s - 0.5) * Math.PI, k * step]);
    context.strokeStyle = colour("--soft");
    context.beginPath();
    context.arc(view.width / 2, view.height / 2, view.scale, 0, 2 * Math.PI);
    context.stroke();
  }

  // What the colours mean.
  bar(view) {
    const context = view.context;
    const [left, top, height] = [14, 16, Math.min(140, view.height - 32)];
    for (let k = 0; k < height; k++) {
      const c = 3 * Math.round(255 * (1 - k / (height - 1)));
      context.fillStyle = `rgb(${this.colours[c]}, ${this.colours[c + 1]}, ${this.colours[c + 2]})`;
      context.fillRect(left, top + k, 10, 1.5);
    }
    context.fillStyle = colour("--soft");
    context.font = "12px system-ui, sans-serif";
    const number = this.size.toPrecision(2);
    context.fillText(number, left + 14, top + 9);
    context.fillText("0", left + 14, top + height / 2 + 4);
    context.fillText(`−${number}`, left + 14, top + height);
  }

  hover(x, y) {
    const view = this.view;
    const found = x === null ? null : this.point((x - view.width / 2) / view.scale, (view.height / 2 - y) / view.scale);
    this.tip.hidden = !found;
    if (!found) return;
    const [latitude, longitude] = [found[0], found[1] < 0 ? found[1] + 2 * Math.PI : found[1]].map((a) => (180 * a) / Math.PI);
    const value = (this.at(found[0], found[1]) / 127.5 - 1) * this.size;
    const side = latitude < 0 ? "S" : "N";
    this.tip.textContent = `${Math.abs(latitude).toFixed(0)}° ${side}, ${longitude.toFixed(0)}° E\n${this.name} ${value.toPrecision(2)}`;
    this.tip.style.left = `${Math.min(x + 24, view.width - 130)}px`;
    this.tip.style.top = `${y + 8}px`;
  }
}
