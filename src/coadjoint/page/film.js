// Animate along times `widget.t`: a button, a slider, and `rate` frames per second while the widget is visible.

function film(figure, widget, rate) {
  const [play, slider, out] = ["button.play", "input", "output"].map((s) => figure.querySelector(s));
  slider.max = widget.t.length - 1;
  const show = () => {
    slider.value = Math.floor(widget.frame);
    out.textContent = `t = ${widget.t[Math.floor(widget.frame)].toFixed(1)}`;
    widget.view.later();
  };
  widget.playing = !window.matchMedia("(prefers-reduced-motion: reduce)").matches;
  play.textContent = widget.playing ? "pause" : "play";
  play.addEventListener("click", () => {
    widget.playing = !widget.playing;
    play.textContent = widget.playing ? "pause" : "play";
  });
  slider.addEventListener("input", () => {
    widget.frame = Number(slider.value);
    show();
  });
  let seen = true;
  new IntersectionObserver((entries) => (seen = entries[0].isIntersecting)).observe(figure);
  let before = null;
  const tick = (now) => {
    if (widget.playing && seen && before !== null) {
      widget.frame = (widget.frame + (rate * Math.min(now - before, 100)) / 1000) % widget.t.length;
      show();
    }
    before = now;
    requestAnimationFrame(tick);
  };
  show();
  requestAnimationFrame(tick);
}
