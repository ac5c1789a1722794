"""Options of XLA's CPU compiler that scalar loops need, set before the backend starts.

- `xla_cpu_small_while_loop_byte_threshold`: loops over little data are compiled into one function instead of being
  interpreted operation by operation (2.3 µs against 150 ns a step). jaxlib 0.12 does so by itself.
- `xla_cpu_use_multi_output_fusion`: what several results share is computed once, not once for each; small systems then
  run two to three times faster again. It is an experiment of XLA's, and jaxlib 0.10 aborts on some programs with it
  (the gradient of a run on su(3), for one), so it is set only on request.

They can only be given through the environment, and slow loops of large matrix commutators down somewhat.
`COADJOINT_XLA_FLAGS`: "1" (or unset) the first, "fast" both, "0" none.
"""

import os
import warnings

_OPTION = "--xla_backend_extra_options="


def wanted(version: tuple[int, ...], request: str = "1") -> dict[str, str]:
    """The options for a version of jaxlib. An unknown option aborts the process, so each is given only where known."""
    options = {}
    if request == "0":
        return options
    if version < (0, 12):
        options["xla_cpu_small_while_loop_byte_threshold"] = "=1000000"
    if request == "fast" and (0, 10) <= version < (0, 11):
        options["xla_cpu_use_multi_output_fusion"] = ""
    return options


def merged(flags: str, options: dict[str, str]) -> str:
    """XLA_FLAGS with the options added to those the user has; an option the user has set stays as it is."""
    new = [name + value for name, value in options.items() if name not in flags]
    if not new:
        return flags
    words = flags.split()
    for i, word in enumerate(words):
        if word.startswith(_OPTION):
            words[i] = ",".join([word, *new])
            return " ".join(words)
    return " ".join([*words, _OPTION + ",".join(new)])


def set_flags() -> None:
    """Add the options to XLA_FLAGS, or warn that it is too late for that."""
    import jaxlib.version

    before = os.environ.get("XLA_FLAGS", "")
    after = merged(before, wanted(jaxlib.version.__version_info__, os.environ.get("COADJOINT_XLA_FLAGS", "1")))
    if after == before:
        return
    if _started():
        warnings.warn(
            "JAX had already started when coadjoint was imported, so small systems will run several times slower "
            "than they can: import coadjoint before the first JAX computation, or set COADJOINT_XLA_FLAGS=0 to "
            "silence this.",
            RuntimeWarning,
            stacklevel=3,
        )
        return
    os.environ["XLA_FLAGS"] = after


def _started() -> bool:
    from jax._src import xla_bridge  # no public way to ask without starting it

    return xla_bridge.backends_are_initialized()
