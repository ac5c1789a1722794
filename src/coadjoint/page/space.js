"use strict";
// A canvas to look into space through: a view that is turned by dragging and zoomed by the wheel, and its projection.

function floats(text) {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  return new Float32Array(bytes.buffer);
}

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// The matrix a·b of 3×3 matrices stored by rows.
function times(a, b) {
  const c = new Array(9);
  for (let i = 0; i < 3; i++)
    for (let j = 0; j < 3; j++) c[3 * i + j] = a[3 * i] * b[j] + a[3 * i + 1] * b[3 + j] + a[3 * i + 2] * b[6 + j];
  return c;
}

// Rows: right, up, towards the eye. Azimuth about the vertical, then elevation.
function viewMatrix(azimuth, elevation) {
  const [ca, sa, ce, se] = [Math.cos(azimuth), Math.sin(azimuth), Math.cos(elevation), Math.sin(elevation)];
  return [-sa, ca, 0, -se * ca, -se * sa, ce, ce * ca, ce * sa, se];
}

class View {
  constructor(canvas, reach, draw) {
    Object.assign(this, { canvas, reach, draw, queued: false });
    this.context = canvas.getContext("2d");
    this.reset();
    this.listen();
    new ResizeObserver(() => this.resize()).observe(canvas);
    this.resize();
  }

  reset() {
    this.azimuth = -0.96;
    this.elevation = 0.38;
    this.zoom = 1;
  }

  resize() {
    const ratio = window.devicePixelRatio || 1;
    this.width = this.canvas.clientWidth;
    this.height = this.canvas.clientHeight;
    this.canvas.width = Math.max(1, Math.round(this.width * ratio));
    this.canvas.height = Math.max(1, Math.round(this.height * ratio));
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.paint();
  }

  later() {
    if (this.queued) return;
    this.queued = true;
    requestAnimationFrame(() => {
      this.queued = false;
      this.paint();
    });
  }

  paint() {
    this.matrix = viewMatrix(this.azimuth, this.elevation);
    this.scale = (this.zoom * 0.42 * Math.min(this.width, this.height)) / this.reach;
    this.context.clearRect(0, 0, this.width, this.height);
    this.draw(this);
  }

  // Orthographic: x and y on the canvas, z towards the eye in units of the reach.
  project(x, y, z) {
    const m = this.matrix;
    return [
      this.width / 2 + this.scale * (m[0] * x + m[1] * y + m[2] * z),
      this.height / 2 - this.scale * (m[3] * x + m[4] * y + m[5] * z),
      (m[6] * x + m[7] * y + m[8] * z) / this.reach,
    ];
  }

  turn(dx, dy) {
    this.azimuth -= dx;
    this.elevation = Math.max(-1.57, Math.min(1.57, this.elevation + dy));
    this.later();
  }

  magnify(factor) {
    this.zoom = Math.max(0.3, Math.min(20, this.zoom * factor));
    this.later();
  }

  listen() {
    const canvas = this.canvas;
    let last = null;
    canvas.addEventListener("pointerdown", (e) => {
      last = [e.clientX, e.clientY];
      canvas.setPointerCapture(e.pointerId);
    });
    canvas.addEventListener("pointermove", (e) => {
      if (last) {
        this.turn((e.clientX - last[0]) * 0.01, (e.clientY - last[1]) * 0.01);
        last = [e.clientX, e.clientY];
      } else if (this.hover) {
        const box = canvas.getBoundingClientRect();
        this.hover(e.clientX - box.left, e.clientY - box.top);
      }
    });
    for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => (last = null));
    canvas.addEventListener("pointerleave", () => this.hover && this.hover(null));
    canvas.addEventListener("wheel", (e) => {
      e.preventDefault();
      this.magnify(Math.exp(-e.deltaY * 0.0015));
    }, { passive: false });
    canvas.addEventListener("dblclick", () => {
      this.reset();
      this.later();
    });
    const keys = { ArrowLeft: [-0.1, 0], ArrowRight: [0.1, 0], ArrowUp: [0, -0.1], ArrowDown: [0, 0.1] };
    canvas.addEventListener("keydown", (e) => {
      if (keys[e.key]) this.turn(...keys[e.key]);
      else if (e.key === "+" || e.key === "-") this.magnify(e.key === "+" ? 1.15 : 1 / 1.15);
      else return;
      e.preventDefault();
    });
  }
}
