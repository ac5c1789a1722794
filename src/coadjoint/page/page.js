// The page: the theme, then every stage.

const STAGES = { scene: SceneView, top: TopView, globe: GlobeView };

(function () {
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const stages = [];

  function theme(name) {
    root.dataset.theme = name;
    button.textContent = name === "dark" ? "light" : "dark";
    for (const stage of stages) stage.view.paint();
  }

  theme(dark.matches ? "dark" : "light");
  dark.addEventListener("change", () => theme(dark.matches ? "dark" : "light"));
  button.hidden = false;
  button.addEventListener("click", () => theme(root.dataset.theme === "dark" ? "light" : "dark"));

  const scenes = JSON.parse(document.getElementById("scenes").textContent);
  for (const figure of document.querySelectorAll("figure.stage")) {
    stages.push(new STAGES[figure.dataset.kind](figure, scenes[figure.dataset.scene]));
  }

  // Paper is light and cannot be clicked: the stages are drawn anew for it, and the parameters shown.
  let before = null;
  window.addEventListener("beforeprint", () => {
    const closed = [...document.querySelectorAll("details:not([open])")];
    before = { name: root.dataset.theme, closed };
    for (const d of closed) d.open = true;
    theme("light");
  });
  window.addEventListener("afterprint", () => {
    if (!before) return;
    for (const d of before.closed) d.open = false;
    theme(before.name);
    before = null;
  });
})();
