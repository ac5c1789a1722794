/* One TMK step of the stochastic heavy top, for T = double or a vector of doubles (one trajectory a lane).
 *
 *   sigma = (I^-1 m dt + alpha dW, -chi dt),  m = (pi + pi')/2,  (pi', gamma') = flow(sigma, (pi, gamma)),
 *
 * solved by the chord method with the 3x3 Jacobian frozen at the start of the step. The translation part of sigma is
 * known, so the unknown is the rotation part w alone. Written for this one system, as fast as we know how.
 */

static inline T NAME(dot)(const T a[3], const T b[3]) { return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]; }

static inline void NAME(cross)(const T a[3], const T b[3], T c[3]) {
  c[0] = a[1] * b[2] - a[2] * b[1];
  c[1] = a[2] * b[0] - a[0] * b[2];
  c[2] = a[0] * b[1] - a[1] * b[0];
}

/* Stumpff functions c1..c4 of x = |w|^2 < 2, by their series. */
static inline void NAME(stumpff)(T x, T c[5]) {
  static const double fa[8] = {1. / 6, 1. / 120, 1. / 5040, 1. / 362880, 1. / 39916800, 1. / 6227020800., 1. / 1307674368000., 1. / 355687428096000.};
  static const double fb[8] = {1. / 24, 1. / 720, 1. / 40320, 1. / 3628800, 1. / 479001600, 1. / 87178291200., 1. / 20922789888000., 1. / 6402373705728000.};
  T a = ONE(fa[TERMS - 1]), b = ONE(fb[TERMS - 1]);
  for (int k = TERMS - 2; k >= 0; k--) {
    a = fa[k] - x * a;
    b = fb[k] - x * b;
  }
  c[3] = a;
  c[4] = b;
  c[1] = 1.0 - x * a;
  c[2] = 0.5 - x * b;
}

/* (pi, gamma) moved by exp(ad*_(w, v)). */
static inline void NAME(flow)(const T w[3], const T v[3], const T p[3], const T g[3], T p1[3], T g1[3]) {
  T c[5], gw[3], gww[3], pw[3], pww[3], gv[3], gvw[3], gwv[3];
  NAME(stumpff)(NAME(dot)(w, w), c);
  T da = 0.5 * (c[3] - c[2]), db = c[4] - 0.5 * c[3], dx = 2.0 * NAME(dot)(w, v);
  NAME(cross)(g, w, gw);
  NAME(cross)(gw, w, gww);
  NAME(cross)(p, w, pw);
  NAME(cross)(pw, w, pww);
  NAME(cross)(g, v, gv);
  NAME(cross)(gv, w, gvw);
  NAME(cross)(gw, v, gwv);
  for (int i = 0; i < 3; i++) {
    g1[i] = g[i] + c[1] * gw[i] + c[2] * gww[i];
    p1[i] = p[i] + c[1] * (pw[i] + gv[i]) + c[2] * (pww[i] + gvw[i] + gwv[i]) + dx * (da * gw[i] + db * gww[i]);
  }
}

static inline void NAME(step)(T p[3], T g[3], T dW, double dt) {
  /* Df(0) = I - (dt/2) I^-1 d(pi')/dw, d(pi')/dw e = p x e. */
  T J[3][3], A[3][3];
  const double k[3] = {0.5 * dt / INERTIA[0], 0.5 * dt / INERTIA[1], 0.5 * dt / INERTIA[2]};
  J[0][0] = J[1][1] = J[2][2] = ONE(1.0);
  J[0][1] = k[0] * p[2], J[0][2] = -k[0] * p[1];
  J[1][0] = -k[1] * p[2], J[1][2] = k[1] * p[0];
  J[2][0] = k[2] * p[1], J[2][1] = -k[2] * p[0];
  for (int i = 0; i < 3; i++)
    for (int j = 0; j < 3; j++) {
      int a = (i + 1) % 3, b = (i + 2) % 3, c = (j + 1) % 3, d = (j + 2) % 3;
      A[j][i] = J[a][c] * J[b][d] - J[a][d] * J[b][c];
    }
  T inv = 1.0 / (J[0][0] * A[0][0] + J[0][1] * A[1][0] + J[0][2] * A[2][0]);
  T v[3] = {ONE(-CHI[0] * dt), ONE(-CHI[1] * dt), ONE(-CHI[2] * dt)};
  T w[3], p1[3], g1[3], f[3], d[3];
  /* First chord step from w = 0 (the flow is then the translation alone: pi' = pi + gamma x v). */
  NAME(cross)(g, v, p1);
  for (int i = 0; i < 3; i++) f[i] = (2.0 * p[i] + p1[i]) * k[i] + ALPHA[i] * dW;
  for (int i = 0; i < 3; i++) w[i] = inv * (A[i][0] * f[0] + A[i][1] * f[1] + A[i][2] * f[2]);
  for (int iteration = 0; iteration < 20; iteration++) {
    NAME(flow)(w, v, p, g, p1, g1);
    for (int i = 0; i < 3; i++) f[i] = (p[i] + p1[i]) * k[i] + ALPHA[i] * dW - w[i];
    for (int i = 0; i < 3; i++) d[i] = inv * (A[i][0] * f[0] + A[i][1] * f[1] + A[i][2] * f[2]);
    for (int i = 0; i < 3; i++) w[i] += d[i];
    if (DONE(NAME(dot)(d, d) <= 1e-26 * NAME(dot)(w, w))) break;
  }
  NAME(flow)(w, v, p, g, p1, g1);
  for (int i = 0; i < 3; i++) p[i] = p1[i], g[i] = g1[i];
}
