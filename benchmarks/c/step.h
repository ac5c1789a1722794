/* One TMK step of the stochastic heavy top, for T = double or a vector of doubles (one trajectory a lane).
 *
 *   sigma = (w, v),  w = I^-1 (pi + pi') dt/2 + alpha dW,  v = -chi dt,  (pi', gamma') = flow(sigma, (pi, gamma)),
 *   gamma' = R gamma,  pi' = R (pi + gamma x y),  y = v + c2 w x v + c3 w x (w x v),  R = exp(-w^).
 *
 * The translation part v of sigma is known, so the unknown is the rotation part w alone. It is found by the chord
 * method, with the 3x3 Jacobian frozen at the start of the step, from an explicit step of second order, which need not
 * wait for the inverse. A w whose correction is below the tolerance is the step's: its flow is already there, and gamma
 * is moved only then. Written for this one system, as fast as we know how.
 *
 * The tolerance is that of TMK(), relative to sigma: a correction d of which the next one will be far below it is the
 * last, and moves (pi', gamma') to first order, by ad*_(e, z) with e = d - w x d/2 and z = -v x d/2. With LOOSE it is
 * absolute, a hundred times as large here, and no correction is looked at again.
 */
#ifndef ON_DEVICE
#define ON_DEVICE /* __device__ for a GPU */
#endif

static inline ON_DEVICE T NAME(dot)(const T a[3], const T b[3]) { return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]; }

static inline ON_DEVICE void NAME(cross)(const T a[3], const T b[3], T c[3]) {
  c[0] = a[1] * b[2] - a[2] * b[1];
  c[1] = a[2] * b[0] - a[0] * b[2];
  c[2] = a[0] * b[1] - a[1] * b[0];
}

/* Stumpff functions c1, c2, c3 of x = |w|^2: five terms of their series below 0.02, ten up to 2. */
static inline ON_DEVICE void NAME(stumpff)(T x, T c[4]) {
  T xx = x * x, a = ONE(1. / 39916800), b = ONE(1. / 3628800);
  if (__builtin_expect(!ALL(x < 0.02), 0)) {
    a -= x * (1. / 6227020800. - x * (1. / 1307674368000. - x * (1. / 355687428096000. - x * (1. / 121645100408832000.))));
    b -= x * (1. / 479001600 - x * (1. / 87178291200. - x * (1. / 20922789888000. - x * (1. / 6402373705728000.))));
  }
  c[3] = (1. / 6 - x * (1. / 120)) + xx * ((1. / 5040 - x * (1. / 362880)) + xx * a);
  c[2] = (1. / 2 - x * (1. / 24)) + xx * ((1. / 720 - x * (1. / 40320)) + xx * b);
  c[1] = 1.0 - x * c[3];
}

/* R u = u - c1 w x u + c2 w x (w x u). */
static inline ON_DEVICE void NAME(turn)(const T w[3], const T c[4], const T u[3], T out[3]) {
  T once[3], twice[3];
  NAME(cross)(w, u, once);
  NAME(cross)(w, once, twice);
  for (int i = 0; i < 3; i++) out[i] = u[i] - c[1] * once[i] + c[2] * twice[i];
}

static inline ON_DEVICE void NAME(step)(T p[3], T g[3], T dW, double dt) {
  const double k[3] = {0.5 * dt / INERTIA[0], 0.5 * dt / INERTIA[1], 0.5 * dt / INERTIA[2]};
  const T v[3] = {ONE(-CHI[0] * dt), ONE(-CHI[1] * dt), ONE(-CHI[2] * dt)};
  T known[3], w[3], once[3], twice[3], y[3], u[3], p1[3], c[4], f[3], d[3];
  for (int i = 0; i < 3; i++) known[i] = k[i] * p[i] + ALPHA[i] * dW, w[i] = known[i] + k[i] * p[i];
  NAME(cross)(g, v, u);
  NAME(cross)(p, w, once);
  for (int i = 0; i < 3; i++) w[i] += k[i] * (once[i] + u[i]);
#ifndef LOOSE
  T before2 = ONE(0);
#endif
  /* The inverse of Df(0) = I - diag(k) p^, by cofactors. */
  T a01 = k[0] * p[2], a02 = -k[0] * p[1], a10 = -k[1] * p[2], a12 = k[1] * p[0], a20 = k[2] * p[1], a21 = -k[2] * p[0];
  T A[3][3] = {{1.0 - a12 * a21, a02 * a21 - a01, a01 * a12 - a02},
               {a12 * a20 - a10, 1.0 - a02 * a20, a02 * a10 - a12},
               {a10 * a21 - a20, a01 * a20 - a21, 1.0 - a01 * a10}};
  T inverse = 1.0 / (A[0][0] + a01 * A[1][0] + a02 * A[2][0]);
  for (int i = 0; i < 3; i++)
    for (int j = 0; j < 3; j++) A[i][j] *= inverse;
  for (int iteration = 0; iteration < 20; iteration++) {
    NAME(stumpff)(NAME(dot)(w, w), c);
    NAME(cross)(w, v, once);
    NAME(cross)(w, once, twice);
    for (int i = 0; i < 3; i++) y[i] = v[i] + c[2] * once[i] + c[3] * twice[i];
    NAME(cross)(g, y, u);
    for (int i = 0; i < 3; i++) u[i] += p[i];
    NAME(turn)(w, c, u, p1);
    for (int i = 0; i < 3; i++) f[i] = known[i] + k[i] * p1[i] - w[i];
    for (int i = 0; i < 3; i++) d[i] = A[i][0] * f[0] + A[i][1] * f[1] + A[i][2] * f[2];
    T d2 = NAME(dot)(d, d);
#ifdef LOOSE
    if (ALL(d2 <= TOLERANCE * TOLERANCE)) break;
#else
    T limit2 = TOLERANCE * TOLERANCE * (NAME(dot)(w, w) + NAME(dot)(v, v));
    if (ALL(d2 <= limit2)) break;
    if (ALL((d2 <= limit2) | (d2 * d2 <= 1e-6 * limit2 * before2))) {
      NAME(turn)(w, c, g, g);
      NAME(cross)(w, d, once);
      NAME(cross)(v, d, twice);
      for (int i = 0; i < 3; i++) d[i] -= 0.5 * once[i], twice[i] *= -0.5;
      NAME(cross)(p1, d, once);
      NAME(cross)(g, twice, u);
      for (int i = 0; i < 3; i++) p[i] = p1[i] + (once[i] + u[i]);
      NAME(cross)(g, d, once);
      for (int i = 0; i < 3; i++) g[i] += once[i];
      return;
    }
    before2 = d2;
#endif
    for (int i = 0; i < 3; i++) w[i] += d[i];
  }
  NAME(turn)(w, c, g, g);
  for (int i = 0; i < 3; i++) p[i] = p1[i];
}
