"""The sizes and thresholds of the runtime."""

from dataclasses import FrozenInstanceError

import pytest

from coadjoint.runtime import tuning


def test_other_values_hold_until_the_context_ends():
    usual = tuning.current()
    with tuning.tuned(max_batch_size=2) as inside:
        assert tuning.current() is inside and inside.max_batch_size == 2
        assert inside.first_chunk == usual.first_chunk
        with pytest.raises(FrozenInstanceError):
            inside.max_batch_size = 4
    assert tuning.current() is usual
    with pytest.raises(TypeError, match="no_such_field"), tuning.tuned(no_such_field=1):
        pass
