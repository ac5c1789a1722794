// A spinning top: a body of revolution about its third axis, moved by unit quaternions, with the path of its axis.

const PROFILE = [[0, 0], [0.05, 0.12], [0.1, 0.42], [0.3, 0.62], [0.32, 0.7], [0.12, 0.8], [0.045, 0.84], [0.045, 1.0], [0, 1.0]];
const AROUND = 24;

function rotation(w, x, y, z) {
  return [
    1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y),
    2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x),
    2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y),
  ];
}

function apply(m, v) {
  return [0, 3, 6].map((i) => m[i] * v[0] + m[i + 1] * v[1] + m[i + 2] * v[2]);
}

// A rotation that takes the unit vector g to (0, 0, −1).
function uprighting(g) {
  const w = 1 - g[2];
  if (w < 1e-9) return [1, 0, 0, 0, -1, 0, 0, 0, -1];
  const n = Math.hypot(w, -g[1], g[0]);
  return rotation(w / n, -g[1] / n, g[0] / n, 0);
}

function quads() {
  const at = ([r, h], k) => {
    const a = (2 * Math.PI * k) / AROUND;
    return [r * Math.cos(a), r * Math.sin(a), h];
  };
  const out = [];
  for (let i = 0; i + 1 < PROFILE.length; i++)
    for (let k = 0; k < AROUND; k++) {
      const corners = [at(PROFILE[i], k), at(PROFILE[i], k + 1), at(PROFILE[i + 1], k + 1), at(PROFILE[i + 1], k)];
      const [dr, dh] = [PROFILE[i + 1][0] - PROFILE[i][0], PROFILE[i + 1][1] - PROFILE[i][1]];
      const a = (2 * Math.PI * (k + 0.5)) / AROUND;
      const n = Math.hypot(dr, dh) || 1;
      const stripe = Math.floor(k / (AROUND / 6)) % 2 === 0;
      out.push({ corners, normal: [(dh / n) * Math.cos(a), (dh / n) * Math.sin(a), -dr / n], stripe });
    }
  return out;
}

class TopView {
  constructor(figure, data) {
    this.t = floats(data.t);
    this.q = floats(data.q);
    this.upright = uprighting(data.gravity);
    this.quads = quads();
    this.frame = 0;
    this.tips = Array.from(this.t, (_, i) => apply(this.pose(i), [0, 0, 1]));
    this.view = new View(figure.querySelector("canvas"), 1.1, (view) => this.draw(view));
    film(figure, this, 2 * (this.t.length - 1) / (this.t[this.t.length - 1] - this.t[0])); // twice as fast as the clock
  }

  pose(i) {
    return times(this.upright, rotation(...this.q.subarray(4 * i, 4 * i + 4)));
  }

  draw(view) {
    const i = Math.floor(this.frame || 0);
    const pose = this.pose(i);
    this.gravity(view);
    this.path(view, i, true);
    this.body(view, pose);
    this.path(view, i, false);
  }

  gravity(view) {
    const context = view.context;
    const [a, b] = [view.project(0, 0, 1), view.project(0, 0, -1)];
    context.strokeStyle = colour("--soft");
    context.lineWidth = 1;
    context.setLineDash([4, 4]);
    context.beginPath();
    context.moveTo(a[0], a[1]);
    context.lineTo(b[0], b[1]);
    context.stroke();
    context.setLineDash([]);
    context.fillStyle = colour("--soft");
    context.font = "13px system-ui, sans-serif";
    context.fillText("gravity ↓", b[0] + 6, b[1]);
  }

  // The path of the tip up to now, the older the fainter; behind the body or before it.
  path(view, end, behind) {
    const context = view.context;
    context.strokeStyle = colour("--c1");
    context.lineWidth = 1.6;
    const span = 420;
    for (let i = Math.max(1, end - span); i <= end; i++) {
      const [a, b] = [view.project(...this.tips[i - 1]), view.project(...this.tips[i])];
      if (a[2] < 0 !== behind) continue;
      context.globalAlpha = 0.1 + 0.9 * (1 - (end - i) / span);
      context.beginPath();
      context.moveTo(a[0], a[1]);
      context.lineTo(b[0], b[1]);
      context.stroke();
    }
    context.globalAlpha = 1;
  }

  body(view, pose) {
    const context = view.context;
    const dark = document.documentElement.dataset.theme === "dark";
    const faces = this.quads.map((q) => {
      const corners = q.corners.map((c) => view.project(...apply(pose, c)));
      const n = apply(view.matrix, apply(pose, q.normal));
      return { corners, n, stripe: q.stripe, depth: corners.reduce((s, c) => s + c[2], 0) };
    });
    faces.sort((a, b) => a.depth - b.depth);
    for (const f of faces) {
      if (f.n[2] < -0.05) continue;
      const light = Math.max(0, 0.35 * f.n[0] + 0.5 * f.n[1] + 0.75 * f.n[2]);
      const level = (dark ? 30 : 34) + 36 * light;
      context.fillStyle = context.strokeStyle = f.stripe ? `hsl(205 70% ${level}%)` : `hsl(28 25% ${level + 14}%)`;
      context.beginPath();
      f.corners.forEach((c, k) => (k ? context.lineTo(c[0], c[1]) : context.moveTo(c[0], c[1])));
      context.closePath();
      context.fill();
      context.stroke();
    }
  }
}
