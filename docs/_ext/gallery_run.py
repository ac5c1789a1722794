"""Run scripts of the gallery and save their pictures: python gallery_run.py FOLDER SCRIPT ..."""

import hashlib
import runpy
import sys
import time
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def picture(script: Path, folder: Path) -> None:
    """What the script draws: `animation` as a film, otherwise `fig`."""
    drawn = runpy.run_path(str(script))
    if "animation" in drawn:
        drawn["animation"].save(folder / f"{script.stem}.gif", writer="pillow", dpi=80)
    else:
        drawn["fig"].savefig(folder / f"{script.stem}.png", dpi=110)
    plt.close("all")
    (folder / f"{script.stem}.sha256").write_text(digest(script))


def digest(script: Path) -> str:
    """What the script is: a picture of it need not be drawn again."""
    return hashlib.sha256(script.read_bytes()).hexdigest()


if __name__ == "__main__":
    for name in sys.argv[2:]:
        began = time.perf_counter()
        picture(Path(name), Path(sys.argv[1]))
        print(f"gallery: {Path(name).stem}, {time.perf_counter() - began:.1f} s", flush=True)
