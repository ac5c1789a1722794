// The page: the theme, then all widgets.

const WIDGETS = { scene: SceneView, top: TopView, globe: GlobeView };

(function () {
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const widgets = [];

  function theme(name) {
    root.dataset.theme = name;
    button.textContent = name === "dark" ? "light" : "dark";
    for (const widget of widgets) widget.view.paint();
  }

  theme(dark.matches ? "dark" : "light");
  dark.addEventListener("change", () => theme(dark.matches ? "dark" : "light"));
  button.hidden = false;
  button.addEventListener("click", () => theme(root.dataset.theme === "dark" ? "light" : "dark"));

  const scenes = JSON.parse(document.getElementById("scenes").textContent);
  for (const figure of document.querySelectorAll("figure.widget")) {
    widgets.push(new WIDGETS[figure.dataset.kind](figure, scenes[figure.dataset.scene]));
  }

  // Paper is light and cannot be clicked: draw the widgets again for print, and open the lists of parameters.
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
