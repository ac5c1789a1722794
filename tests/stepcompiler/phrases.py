"""What random programs are made of: expressions, one per line, with the shape where it is not that of x.

Real: x (of lengths n, m) and y. Whole: i, j, k, and l ≤ n. True or false: a, b. Complex: z, u.
"""

UNARY = """
    jnp.sin({x})
    jnp.cos({x})
    jnp.tanh({x})
    jnp.arctan({x})
    jnp.exp(-({x}) ** 2)
    {x} / (1 + {x}**2)
    jnp.sqrt(1 + {x}**2)
    jnp.log1p({x}**2)
    jnp.abs({x})
    jax.nn.sigmoid({x})
    jax.nn.softplus({x})
    lax.erf({x})
    jnp.floor(2 * {x})
    jnp.round({x} * 3)
    jnp.sign({x}) * {x}
    jnp.expm1(jnp.sin({x}))
    jnp.cbrt(2 + jnp.sin({x}))
    jax.nn.relu({x})
    jnp.nan_to_num({x})
    lax.integer_pow(jnp.sin({x}), 3)
    1 / (2 + jnp.cos({x}))
    jax.nn.gelu({x})
    jnp.square(jnp.sin({x}))
    lax.rsqrt(1 + {x}**2)
    -{x}
    jnp.where({x} > 0.2, {x}, -0.5 * {x})
    jnp.clip({x}, -0.6, 0.8)
    lax.stop_gradient({x})
    jnp.arcsinh({x})
    jnp.sinc({x})
    jax.nn.silu({x})
    lax.optimization_barrier({x})
    jnp.arccos(0.9 * jnp.tanh({x}))
    lax.reduce_precision({x}, 11, 30)
    jnp.exp2(jnp.sin({x}))
    jnp.log(1.5 + jnp.cos({x}))
    jnp.sinh(jnp.sin({x}))
    jnp.frexp({x} + 3.1)[0]
    jnp.modf({x})[0]
    jnp.deg2rad(60 * {x})
    jnp.copysign({x}, jnp.cos({x}))
    (jnp.int32(5 * {x}) + {x})
    jnp.heaviside({x}, 0.5)
    lax.erf_inv(0.8 * jnp.sin({x}))
    lax.lgamma(2 + {x}**2)
"""

BINARY = """
    {x} + {y}
    {x} - {y}
    {x} * {y}
    {x} / (2 + jnp.cos({y}))
    jnp.maximum({x}, {y})
    jnp.minimum({x}, {y})
    jnp.arctan2({x}, 2 + jnp.sin({y}))
    jnp.hypot({x}, 1 + {y})
    (1.5 + jnp.sin({x})) ** jnp.tanh({y})
    jnp.where({x} < {y}, {x}, 2 * {y})
    {x} % (1.3 + jnp.sin({y}))
    jnp.logaddexp({x}, {y})
    jnp.where({x} > 0, {x}, {y})
    0.3 * {x} - 1.7 * {y}
    {x} * {y} + {x}
    jnp.fmod({x}, 1.4 + {y} ** 2)
    jnp.floor_divide({x}, 0.7 + {y} ** 2)
    jnp.copysign({x}, {y})
    jnp.select([{x} > 0.5, {y} > 0.1], [{x}, {y}], 0.2)
    {x} - {x} * {y} * 0.0
    jnp.arctan2({x}, {y})
    jnp.multiply({x}, {y}) - jnp.multiply({x}, {x})
"""

WHOLE = """
    {i} + {j}
    {i} * {j} - 3
    {i} % 3
    {i} // 2
    {i} % ({j} * {j} + 1)
    {i} // (abs({j}) + 1)
    -{i}
    {i} & {j}
    {i} | 5
    {i} ^ {j}
    ~{i}
    {i} << 1
    {i} >> 1
    jnp.maximum({i}, {j})
    jnp.clip({i}, -1, 2)
    abs({i})
    jnp.where({i} > {j}, {i}, {j})
    lax.population_count({i})
    jnp.sign({i})
    {i} ** 2
    lax.clz({i}) - 3
    {i}.astype(jnp.int8) * jnp.int8(50)
    {i}.astype(jnp.uint8) + jnp.uint8(250)
    {i}.astype(jnp.int16)
    lax.rem(*jnp.broadcast_arrays({i}, {i} * 0 + 3))
    lax.div(*jnp.broadcast_arrays({i}, {i} * 0 - 2))
    jnp.right_shift({i}, 2)
    lax.shift_right_logical(*jnp.broadcast_arrays({i}, {i} * 0 + 1)) % 16
    jnp.sum({i})
    jnp.max({i})
    jnp.gcd({i}, 6)
"""

MIXED = """
    jnp.where({b}, {x}, jnp.sin({x}))
    {x} * {b}
    {x} + ({i} % 4)
    {x} * ({i} % 3 - 1)
    jnp.sum({b}) + {x}
    jnp.where({i} > 1, {x}, 0.4)
    jnp.float64({i} % 5) * {x}
    {x} ** ({i} % 3)
    jnp.ldexp({x}, {i} % 3)
    lax.select_n(jnp.any({b}), {x}, -{x})
    (1.0 + 0.1 * {i} % 1.0) * {x}
    jnp.true_divide({i} % 7, 3) * {x}
    lax.bitcast_convert_type({x}, jnp.int64) * 0 + {x}
    lax.select_n(jnp.clip(jnp.sum({i}), 0, 2), {x}, -{x}, 2 * {x})
"""

SINGLE = """
    jnp.sin({x}.astype(jnp.float32)).astype(float)
    jnp.float64(jnp.float32({x}) * jnp.float32(1.7))
    (jnp.asarray({x}, jnp.float32) + {x}).astype(float)
    jnp.asarray(jnp.sum({x}, dtype=jnp.float32), float) * {x}
    jnp.tanh(jnp.asarray({x}, jnp.float32) ** 2) * {x}
    jnp.asarray(jnp.cumsum(jnp.ravel(jnp.asarray({x}, jnp.float32)))[-1], float) + {x}
    jnp.exp(-jnp.abs({x}).astype('float32')).astype('float64')
    jnp.where({x} > 0, jnp.asarray({x}, jnp.float32), 0).astype(float)
    ({x} * 8).astype(jnp.float32).astype(jnp.int32) * 0.1 + {x}
    jnp.arctan2(jnp.float32({x}), jnp.float32(1.3)).astype(float)
    (jnp.float32({x}) / jnp.float32(3.0)).astype(float) - {x}
    jnp.sqrt(1 + jnp.float32({x}) ** 2).astype(float)
    lax.bitcast_convert_type(lax.bitcast_convert_type(jnp.float32({x}), jnp.int32), jnp.float32).astype(float)
    lax.erf(jnp.float32({x})).astype(float)
    (jnp.float32({x}) ** jnp.int32(3)).astype(float)
"""

COMPLEX_MADE = """
    jnp.exp(1j * {x})
    {x} + 0.5j
    lax.complex({x}, jnp.cos({x}))
    {x} * (1 + 2j)
    jnp.sqrt({x} + 2 + 0.3j)
    jnp.asarray({x}, complex)
    1 / ({x} + 1.5j)
    jnp.exp({x} * (0.2 - 0.7j))
"""

COMPLEX_MORE = """
    {z} * {u}
    {z} + {u}
    {z} / ({u} * jnp.conj({u}) + 1)
    jnp.conj({z})
    1j * {z}
    {z} - 2 * {u}
    {z}**2 * 0.3
    jnp.where(jnp.real({z}) > 0, {z}, {u})
    jnp.exp({z} / (1 + jnp.abs({z})))
    jnp.sin({z} / (1 + jnp.abs({z})))
    jnp.fft.fft(jnp.ravel({z}))[0] * 0.2 + {z}
    jnp.sum({z}) + 0 * {z}
    {z} / (2.5 + 1j)
    lax.stop_gradient({z}) * {u}
    jnp.tanh(0.3 * {z})
    jnp.sqrt({z} * jnp.conj({z}) + 1.0)
    jnp.log(3.0 + {z} / (1 + jnp.abs({z})))
    -{z}
    ({z}.astype(jnp.complex64) * 2).astype(complex)
    jnp.cumsum(jnp.ravel({z}))[-1] + 0 * {z}
"""

COMPLEX_BACK = """
    jnp.real({z})
    jnp.imag({z})
    jnp.abs({z})
    jnp.abs({z}) ** 2
    jnp.angle({z} + 3)
    jnp.real({z} * jnp.conj({z}))
    jnp.real(jnp.vdot({z}, {z})) + 0 * {z}.real
    {z}.real - {z}.imag
    jnp.where({z} == {z}, 0.3, {z}.real)
    jnp.where(jnp.abs({z}.imag) > 0.2, {z}.real, 0.1)
"""

ARRAY = """
    jnp.sum({x})  # ()
    jnp.max({x})  # ()
    jnp.min({x})  # ()
    jnp.prod(jnp.tanh({x}))  # ()
    jnp.mean({x})  # ()
    jnp.sort({x})  # (n,)
    {x}[jnp.argsort({x})]  # (n,)
    jnp.cumsum({x})  # (n,)
    jnp.sort({x})[::-1]  # (n,)
    jnp.cumprod({x})  # (n,)
    lax.cummax({x}, reverse=True)  # (n,)
    lax.cummin({x})  # (n,)
    lax.cumlogsumexp({x})  # (n,)
    jax.nn.softmax({x})  # (n,)
    jax.nn.logsumexp({x})  # ()
    {x}[::-1]  # (n,)
    {x}[::2]  # ((n + 1) // 2,)
    {x}[:{l}]  # (m,)
    {x}[-{l}:]  # (m,)
    jnp.roll({x}, 1)  # (n,)
    jnp.outer({x}, {x}[:{l}])  # (n, m)
    jnp.stack([{x}, jnp.sin({x})])  # (2, n)
    {x}[:, None] * {x}  # (n, n)
    jnp.concatenate([{x}, {x}[:1]])  # (n + 1,)
    jnp.pad({x}, (1, 0), constant_values=0.3)  # (n + 1,)
    {x} @ {x}  # ()
    jnp.diff({x})  # (n - 1,)
    jnp.linalg.norm({x} + 0.1)  # ()
    {x}[jnp.argmax({x})]  # ()
    {x}[0] - {x}[-1]  # ()
    1.0 * jnp.argmin({x})  # ()
    jnp.median({x})  # ()
    jnp.var({x})  # ()
    jnp.repeat({x}, 2)  # (2 * n,)
    jnp.tile({x}, 2)  # (2 * n,)
    jnp.einsum('i,j,i->j', {x}, {x}, jnp.sin({x}))  # (n,)
    lax.pad({x}, 0.2, [(-1, 1, 0)])  # (n,)
    jnp.interp({x}, np.array([-1.0, 0.1, 1.2]), np.array([0.4, -0.7, 1.0]))  # (n,)
    lax.top_k({x}, 2)[0]  # (2,)
    jnp.polyval(np.array([0.3, -0.2, 1.0]), {x})  # (n,)
    jnp.flip(jnp.cumsum(jnp.flip({x})))  # (n,)
    jnp.convolve({x}, np.array([0.5, 1.0, -0.2]), 'same')  # (max(n, 3),)
    jnp.linalg.solve(jnp.outer({x}, {x}) + 2 * jnp.eye({n}), {x})  # (n,)
    lax.associative_scan(jnp.multiply, {x})  # (n,)
    lax.sort([jnp.floor(2 * {x}), {x}], num_keys=2)[1]  # (n,)
    jnp.searchsorted(np.array([-0.5, 0.1, 0.9]), {x}) * 0.3 + {x}  # (n,)
    jnp.trapezoid({x})  # ()
    jnp.partition({x}, 1)[1]  # ()
    jnp.piecewise({x}, [{x} < 0.1], [lambda s: -s, lambda s: 2 * s])  # (n,)
    jnp.nanmax({x})  # ()
    jnp.ptp({x})  # ()
    jnp.linalg.det(jnp.outer({x}, {x}) + jnp.eye({n}))  # ()
    jnp.triu(jnp.outer({x}, jnp.cos({x})))  # (n, n)
    jnp.diag({x})  # (n, n)
    jnp.unwrap({x})  # (n,)
    jnp.argsort({x}) * {x}  # (n,)
"""

MATRIX = """
    {x}.T  # (m, n)
    jnp.sum({x}, axis=0)  # (m,)
    jnp.sum({x}, axis=-1)  # (n,)
    jnp.max({x}, axis=0)  # (m,)
    {x} @ {x}.T  # (n, n)
    jnp.ravel({x})  # (n * m,)
    {x}[0]  # (m,)
    {x}[:, -1]  # (n,)
    jnp.sort({x}, axis=0)  # (n, m)
    jnp.cumsum({x}, axis=1)  # (n, m)
    jnp.einsum('ij,kj->ik', {x}, jnp.sin({x}))  # (n, n)
    {x}[::-1]  # (n, m)
    {x}[:, jnp.argsort({x}[0])]  # (n, m)
    1.0 * jnp.argmax({x}, axis=1)  # (n,)
    jnp.roll({x}, 1, axis=1)  # (n, m)
    jnp.take_along_axis({x}, jnp.argsort({x}, axis=1), axis=1)  # (n, m)
    jnp.prod(jnp.cos({x}), axis=1)  # (n,)
    jnp.concatenate([{x}, {x}], axis=1)  # (n, 2 * m)
    {x} / (1 + jnp.sum({x}**2))  # (n, m)
    jnp.swapaxes({x}[None], 0, 1)[:, 0]  # (n, m)
    lax.cummax({x}, axis=0)  # (n, m)
    jax.vmap(jnp.dot)({x}, {x})  # (n,)
    jnp.linalg.norm({x} + 0.2, axis=1)  # (n,)
    jnp.max({x})  # ()
    jax.nn.softmax({x}, axis=0)  # (n, m)
    jnp.where({x} > 0, {x}, {x}[:1])  # (n, m)
"""

DYNAMIC = """
    lax.dynamic_slice({x}, ({i},), (2,))  # (2,)
    lax.dynamic_update_slice({x}, {x}[:2] * 2, ({i},))  # (n,)
    {x}[{i}]  # ()
    lax.dynamic_index_in_dim({x}, {i}, keepdims=False)  # ()
    {x}.at[{j}].{how}(0.4, mode='{mode}')  # (n,)
    {x}.at[{j}].get(mode='{fill}', fill_value=0.7)  # ()
    jnp.roll({x}, {i})  # (n,)
    {x}.at[{k}].{how}({x}[0] + 0.3)  # (n,)
    jnp.take({x}, {k}, mode='clip')  # shape of k
    jnp.take({x}, {k}, mode='wrap')  # shape of k
    {x}[{k} % {n}]  # shape of k
    jax.nn.one_hot({i}, {n}) * {x}  # (n,)
    jnp.stack([{x}, -{x}])[{i} % 2, {k} % {n}]  # shape of k
    {x}.at[{i} % {n}].mul({x}[-1])  # (n,)
    lax.dynamic_update_index_in_dim({x}, jnp.sum({x}), {i}, 0)  # (n,)
    jnp.zeros({n}).at[{k} % {n}].add({x}[0])  # (n,)
    lax.dynamic_slice(jnp.outer({x}, jnp.array([1.0, 0.5])), ({i}, {i} - 1), (2, 1))[:, 0]  # (2,)
    lax.dynamic_update_slice(jnp.outer({x}, jnp.array([1.0, 0.5])), jnp.full((1, 2), {x}[0]), ({i}, 0 * {i}))  # (n, 2)
    jax.ops.segment_sum({x}, jnp.clip(jnp.arange({n}) + {i}, 0, 2), 3)  # (3,)
    jnp.where(jnp.arange({n}) < {i}, {x}, 0.3)  # (n,)
    jnp.bincount({k} % 3, weights=jnp.resize({x}, {shape}), length=3)  # (3,)
    jnp.choose({i} % 2, [{x}, 2 * {x}], mode='clip')  # (n,)
"""

TRUTH = """
    {a} & {b}
    {a} | {b}
    ~{a}
    {a} ^ {b}
    jnp.logical_and({a}, ~{b})
    {a} == {b}
"""
