"""The example of the package's README runs, and its results are those of JAX."""

import re
from pathlib import Path

import jax
import numpy as np

import stepcompiler


def test_the_example_runs():
    text = (Path(stepcompiler.__file__).parent / "README.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    example = {}
    exec(compile(code, "README.md", "exec"), example)
    assert example["populations"].shape == (100, 10, 2)
    shared = example["matrix"], 0.01

    def run(rate):
        return jax.lax.fori_loop(0, 1000, lambda n, x: example["step"](shared, [rate], x, n, None)[0], np.ones(2))

    np.testing.assert_allclose(example["populations"][:, -1], jax.vmap(run)(example["rates"]), rtol=1e-11)
