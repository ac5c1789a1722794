"""Run a sweep from an experiment file: all values of a parameter in one store."""

import sys
from pathlib import Path

import numpy as np

import coadjoint as cj


def sweep(out: Path) -> tuple[np.ndarray, np.ndarray]:
    """The size of the noise, and by how much the energy has changed at the end of each run."""
    stored = cj.run(Path(__file__).with_name("sweep.toml"), out)
    data = stored.to_xarray()
    change = abs(data["energy"].isel(time=-1) - data["energy"].isel(time=0))
    return np.array([0.0, 0.05, 0.1, 0.2, 0.4, 0.8]), change.to_numpy()


if __name__ == "__main__":
    for alpha, change in zip(*sweep(Path(sys.argv[1] if len(sys.argv) > 1 else "sweep.zarr")), strict=True):
        print(f"α = {alpha:<5g} the energy has changed by {change:.2e}")
