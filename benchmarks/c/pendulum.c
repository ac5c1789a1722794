/* A pendulum-like Hamiltonian on so(3)* by TMK, with sin and cos: an ensemble, one core.
 *
 *   h = (mu_1^2/I_1 + mu_2^2/I_2 + mu_3^2/I_3)/2 + b sin mu_1 - a cos mu_3,   one SALT noise along beta,
 *   sigma = dh(m) dt + beta dW,   m = (mu + mu')/2,   mu' = R mu,   R = exp(-sigma^).
 *
 * sigma is found by the chord method with the Jacobian frozen at the start, from sigma = 0, until what is left to
 * correct is below the tolerance, by the same tests as in the library; the last correction is applied to first order.
 * sin and cos are the polynomials of src/stepcompiler/mathematics, reduced by pi/2 in three parts, within 1 ulp.
 */
#include "vectors.h"

static const double INERTIA[3] = {4, 2, 1}, BETA[3] = {0.01, 0.02, 0.03}, A = 1.0, B = 0.5;
#define TOLERANCE 1e-14

static inline vd fma_(vd a, vd b, vd c) {
#if defined __AVX512F__
  return (vd)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
#elif defined __FMA__
  return (vd)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
#else
  for (int l = 0; l < LANES; l++) a[l] = fma(a[l], b[l], c[l]);
  return a;
#endif
}

static inline vd each(double x) { return (vd){0} + x; }
static inline vd pick(vi p, vd a, vd b) { return (vd)((p & (vi)a) | (~p & (vi)b)); }
static inline vd magnitude(vd x) { return (vd)((vi)x & 0x7FFFFFFFFFFFFFFF); }

/* sin x and cos x: x = k pi/2 + r + low. */
static inline void sincos_(vd x, vd *sine, vd *cosine) {
  if (__builtin_expect(!all(magnitude(x) < 0x1p30), 0)) {
    for (int l = 0; l < LANES; l++) (*sine)[l] = sin(x[l]), (*cosine)[l] = cos(x[l]);
    return;
  }
  vd magic = each(0x1.8p52), shifted = fma_(x, each(0.6366197723675814), magic), k = shifted - magic;
  vd exact = fma_(-k, each(1.5707963267948966), x), p = k * 6.123233995736766e-17;
  vd q = fma_(k, each(6.123233995736766e-17), -p), s = exact - p, t = s - exact;
  vd low = (exact - (s - t)) + (-p - t), rest = low - fma_(k, each(-1.4973849048591698e-33), q), r = s + rest;
  low = rest - (r - s);
  vi turns = (vi)shifted, odd = (turns & 1) == 1;
  vd z = r * r, zz = z * z, z4 = zz * zz, half = 0.5 * z, c = 1.0 - half, c_low = -half - (c - 1.0);
  vd ps = fma_(z4, fma_(z, each(1.5897025041401868e-10), each(-2.50507624417303e-08)),
               fma_(zz, fma_(z, each(2.755731372275924e-06), each(-0.00019841269829910034)),
                    fma_(z, each(0.008333333333322568), each(-0.16666666666666632))));
  vd pc = fma_(z4, fma_(z, each(-1.1361329311167757e-11), each(2.087575854830859e-09)),
               fma_(zz, fma_(z, each(-2.755731463779755e-07), each(2.4801587290587596e-05)),
                    fma_(z, each(-0.001388888888887615), each(0.041666666666666616))));
  vd sn = r + fma_(z * r, ps, fma_(low, -half, low));
  vd cs = c + ((c_low - 0.5 * fma_(r, r, -z)) + fma_(zz, pc, -r * low));
  vd a = (vd)((vi)pick(odd, cs, sn) ^ ((turns & 2) << 62)), b = (vd)((vi)pick(odd, sn, cs) ^ (((turns + 1) & 2) << 62));
  *sine = pick(magnitude(x) < 0x1p-28, x, a), *cosine = b;
}

static inline void cross(const vd a[3], const vd b[3], vd c[3]) {
  c[0] = a[1] * b[2] - a[2] * b[1], c[1] = a[2] * b[0] - a[0] * b[2], c[2] = a[0] * b[1] - a[1] * b[0];
}

static inline vd dot(const vd a[3], const vd b[3]) { return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]; }

/* c1 = sin x/x and c2 = (1 - cos x)/x^2 of x^2: five or six terms below 0.02, ten up to 2. */
static inline void stumpff(vd x, vd c[2]) {
  vd xx = x * x, a = each(1. / 362880), b = each(1. / 3628800);
  if (__builtin_expect(!all(x < 0.02), 0)) {
    a -= x * (1. / 39916800 - x * (1. / 6227020800. - x * (1. / 1307674368000. - x * (1. / 355687428096000.))));
    b -= x * (1. / 479001600 - x * (1. / 87178291200. - x * (1. / 20922789888000. - x * (1. / 6402373705728000.))));
  }
  c[0] = (1.0 - x * (1. / 6)) + xx * ((1. / 120 - x * (1. / 5040)) + xx * a);
  c[1] = (1. / 2 - x * (1. / 24)) + xx * ((1. / 720 - x * (1. / 40320)) + xx * b);
}

static inline void step(vd p[3], vd dW, double dt) {
  vd s0, c0, s2, c2, known[3], f[3], w[3], d[3], k[3], once[3], twice[3], change[3], c[2];
  sincos_(p[0], &s0, &c0), sincos_(p[2], &s2, &c2);
  k[0] = 0.5 * dt * (1 / INERTIA[0] - B * s0), k[1] = each(0.5 * dt / INERTIA[1]), k[2] = 0.5 * dt * (1 / INERTIA[2] + A * c2);
  for (int i = 0; i < 3; i++) known[i] = BETA[i] * dW, f[i] = known[i] + p[i] * (dt / INERTIA[i]);
  f[0] += (B * dt) * c0, f[2] += (A * dt) * s2;
  /* The inverse of Df(0) = I - diag(k) p^, by cofactors. */
  vd a01 = k[0] * p[2], a02 = -k[0] * p[1], a10 = -k[1] * p[2], a12 = k[1] * p[0], a20 = k[2] * p[1], a21 = -k[2] * p[0];
  vd M[3][3] = {{1.0 - a12 * a21, a02 * a21 - a01, a01 * a12 - a02},
                {a12 * a20 - a10, 1.0 - a02 * a20, a02 * a10 - a12},
                {a10 * a21 - a20, a01 * a20 - a21, 1.0 - a01 * a10}};
  vd inverse = 1.0 / (M[0][0] + a01 * M[1][0] + a02 * M[2][0]);
  for (int i = 0; i < 3; i++)
    for (int j = 0; j < 3; j++) M[i][j] *= inverse;
  for (int i = 0; i < 3; i++) w[i] = M[i][0] * f[0] + M[i][1] * f[1] + M[i][2] * f[2];
  vd before = dot(w, w);
  for (int iteration = 0; iteration < 30; iteration++) {
    stumpff(dot(w, w), c);
    cross(w, p, once), cross(w, once, twice);
    for (int i = 0; i < 3; i++) change[i] = c[1] * twice[i] - c[0] * once[i];
    sincos_(p[0] + 0.5 * change[0], &s0, &c0), sincos_(p[2] + 0.5 * change[2], &s2, &c2);
    for (int i = 0; i < 3; i++) f[i] = known[i] + (p[i] + 0.5 * change[i]) * (dt / INERTIA[i]) - w[i];
    f[0] += (B * dt) * c0, f[2] += (A * dt) * s2;
    for (int i = 0; i < 3; i++) d[i] = M[i][0] * f[0] + M[i][1] * f[1] + M[i][2] * f[2], w[i] += d[i];
    vd size = dot(w, w), last = dot(d, d);
    vi small = last <= TOLERANCE * TOLERANCE * size;
    vi foreseen = (last < 0.0625 * before) & (last * last <= (1e-3 * TOLERANCE) * (1e-3 * TOLERANCE) * size * before);
    if (all((small | foreseen) & (last <= 1e-20))) break;
    before = last;
  }
  vd moved[3];
  for (int i = 0; i < 3; i++) moved[i] = p[i] + change[i];
  cross(moved, d, once); /* flow(w) = flow(w - d) + mu' x d, to first order */
  for (int i = 0; i < 3; i++) p[i] = moved[i] + once[i];
}

/* n steps of `members` trajectories (a multiple of LANES), all from mu0; the end states go to out (members x 3). */
void pendulum_ensemble(const double mu0[3], double *out, int64_t members, int64_t n, double dt, uint64_t seed) {
  double root = sqrt(dt);
  for (int64_t m = 0; m < members; m += LANES) {
    vu s[4];
    vd p[3], z[2];
    for (int i = 0; i < 4; i++)
      for (int l = 0; l < LANES; l++) s[i][l] = splitmix(&seed);
    for (int i = 0; i < 3; i++) p[i] = each(mu0[i]);
    for (int64_t k = 0; k < n; k += 2) {
      normals(s, z);
      step(p, root * z[0], dt);
      if (k + 1 < n) step(p, root * z[1], dt);
    }
    for (int l = 0; l < LANES; l++)
      for (int i = 0; i < 3; i++) out[(m + l) * 3 + i] = p[i][l];
  }
}

/* n steps of one trajectory in all lanes with given increments: what the tests of the program compare. */
void pendulum(double mu[3], const double *dW, int64_t n, double dt) {
  vd p[3];
  for (int i = 0; i < 3; i++) p[i] = each(mu[i]);
  for (int64_t k = 0; k < n; k++) step(p, each(dW[k]), dt);
  for (int i = 0; i < 3; i++) mu[i] = p[i][0];
}
