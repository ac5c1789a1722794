// Curves in space, with depth shown by how faint they are, a shaded sphere, axes, and the values under the pointer.

const SHADES = 6;

class SceneView {
  constructor(figure, data) {
    this.tip = figure.querySelector(".tip");
    this.t = floats(data.t);
    this.sphere = data.sphere;
    this.curves = data.curves.map((c) => ({ ...c, points: floats(c.points) }));
    let reach = data.sphere || 0;
    for (const c of this.curves) for (const x of c.points) reach = Math.max(reach, Math.abs(x));
    this.hit = null;
    this.view = new View(figure.querySelector("canvas"), 1.12 * (reach || 1), (view) => this.draw(view));
    this.view.hover = (x, y) => this.hover(x, y);
  }

  draw(view) {
    const context = view.context;
    this.inks = [colour("--c0"), colour("--c1"), colour("--c2")];
    this.screen = this.curves.map((c) => projected(view, c.points));
    this.axes(view);
    this.strokes(context, true);
    if (this.sphere) ball(view, this.sphere);
    this.strokes(context, false);
    this.legend(context);
    if (this.hit) this.mark(view);
  }

  axes(view) {
    const context = view.context;
    const r = view.reach;
    context.lineWidth = 1;
    context.strokeStyle = context.fillStyle = colour("--soft");
    context.font = "13px system-ui, sans-serif";
    context.setLineDash([]);
    [[1, 0, 0], [0, 1, 0], [0, 0, 1]].forEach((e, i) => {
      const [a, b] = [view.project(-r * e[0], -r * e[1], -r * e[2]), view.project(r * e[0], r * e[1], r * e[2])];
      context.globalAlpha = 0.45;
      context.beginPath();
      context.moveTo(a[0], a[1]);
      context.lineTo(b[0], b[1]);
      context.stroke();
      context.globalAlpha = 1;
      context.fillText("xyz"[i], b[0] + 4, b[1] - 4);
    });
  }

  // Segments behind the centre first, then those before it; the farther, the fainter.
  strokes(context, behind) {
    context.lineJoin = "round";
    this.screen.forEach((s, k) => {
      context.strokeStyle = this.inks[k % 3];
      context.lineWidth = this.curves[k].dashed ? 1.1 : 1.3;
      context.setLineDash(this.curves[k].dashed ? [5, 4] : []);
      const count = s.length / 3 - 1;
      for (let shade = 0; shade < SHADES; shade++) {
        const [low, high] = [-1 + (2 * shade) / SHADES, -1 + (2 * (shade + 1)) / SHADES];
        if (behind !== low < -1e-9) continue;
        context.globalAlpha = 0.3 + (0.7 * (shade + 1)) / SHADES;
        context.beginPath();
        let open = false;
        for (let i = 0; i < count; i++) {
          const depth = Math.max(-0.999, Math.min(0.999, s[3 * i + 2]));
          const here = depth >= low && depth < high;
          if (here && !open) context.moveTo(s[3 * i], s[3 * i + 1]);
          if (here) context.lineTo(s[3 * i + 3], s[3 * i + 4]);
          open = here;
        }
        context.stroke();
      }
    });
    context.globalAlpha = 1;
    context.setLineDash([]);
  }

  legend(context) {
    context.font = "13px system-ui, sans-serif";
    this.curves.forEach((c, k) => {
      const y = 18 + 18 * k;
      context.strokeStyle = this.inks[k % 3];
      context.lineWidth = 2;
      context.setLineDash(c.dashed ? [5, 4] : []);
      context.beginPath();
      context.moveTo(10, y - 4);
      context.lineTo(36, y - 4);
      context.stroke();
      context.fillStyle = colour("--ink");
      context.fillText(c.name, 42, y);
    });
    context.setLineDash([]);
  }

  hover(x, y) {
    let best = 14 * 14;
    this.hit = null;
    if (x !== null)
      this.screen.forEach((s, k) => {
        for (let i = 0; i < s.length / 3; i++) {
          const d = (s[3 * i] - x) ** 2 + (s[3 * i + 1] - y) ** 2;
          if (d < best - 1e-9 || (d < best + 4 && this.hit && s[3 * i + 2] > this.hit.depth + 0.3)) {
            best = Math.min(d, best);
            this.hit = { k, i, depth: s[3 * i + 2] };
          }
        }
      });
    this.tip.hidden = !this.hit;
    this.view.later();
  }

  mark(view) {
    const { k, i } = this.hit;
    const [x, y] = [this.screen[k][3 * i], this.screen[k][3 * i + 1]];
    const context = view.context;
    context.fillStyle = this.inks[k % 3];
    context.beginPath();
    context.arc(x, y, 4, 0, 7);
    context.fill();
    const value = Array.from(this.curves[k].points.subarray(3 * i, 3 * i + 3), (v) => v.toFixed(4).padStart(8)).join("");
    this.tip.textContent = `${this.curves[k].name}  t = ${this.t[i].toFixed(2)}\n${value}`;
    this.tip.style.left = `${Math.max(4, Math.min(x + 14, view.width - 190))}px`;
    this.tip.style.top = `${Math.max(4, y - 10)}px`;
  }
}

function projected(view, points) {
  const s = new Float32Array(points.length);
  for (let i = 0; i < points.length; i += 3) {
    const p = view.project(points[i], points[i + 1], points[i + 2]);
    s[i] = p[0];
    s[i + 1] = p[1];
    s[i + 2] = p[2];
  }
  return s;
}

function ball(view, radius) {
  const context = view.context;
  const [r, x, y] = [radius * view.scale, view.width / 2, view.height / 2];
  const shade = context.createRadialGradient(x - 0.35 * r, y - 0.4 * r, 0.05 * r, x, y, r);
  const ink = colour("--ball");
  shade.addColorStop(0, `rgba(${ink}, 0.10)`);
  shade.addColorStop(1, `rgba(${ink}, 0.34)`);
  context.fillStyle = shade;
  context.beginPath();
  context.arc(x, y, r, 0, 7);
  context.fill();
}
