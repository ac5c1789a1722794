// What moves along times `stage.t`: a button, a slider, and `rate` frames a second while it is seen.

function film(figure, stage, rate) {
  const [play, slider, out] = ["button.play", "input", "output"].map((s) => figure.querySelector(s));
  slider.max = stage.t.length - 1;
  const show = () => {
    slider.value = Math.floor(stage.frame);
    out.textContent = `t = ${stage.t[Math.floor(stage.frame)].toFixed(1)}`;
    stage.view.later();
  };
  stage.playing = !window.matchMedia("(prefers-reduced-motion: reduce)").matches;
  play.textContent = stage.playing ? "pause" : "play";
  play.addEventListener("click", () => {
    stage.playing = !stage.playing;
    play.textContent = stage.playing ? "pause" : "play";
  });
  slider.addEventListener("input", () => {
    stage.frame = Number(slider.value);
    show();
  });
  let seen = true;
  new IntersectionObserver((entries) => (seen = entries[0].isIntersecting)).observe(figure);
  let before = null;
  const tick = (now) => {
    if (stage.playing && seen && before !== null) {
      stage.frame = (stage.frame + (rate * Math.min(now - before, 100)) / 1000) % stage.t.length;
      show();
    }
    before = now;
    requestAnimationFrame(tick);
  };
  show();
  requestAnimationFrame(tick);
}
