/* The C reference of the benchmarks: the stochastic heavy top by TMK, one trajectory and an ensemble, one core.
 *
 * Built by `make bench` with the system's compiler. The ensemble runs LANES trajectories side by side, one a lane of
 * a vector of doubles; its random numbers (xoshiro256++, polynomial Box-Muller) are part of what is timed.
 */
#include <math.h>
#include <stdint.h>
#include <string.h>

static const double INERTIA[3] = {4, 2, 1}, CHI[3] = {0, 0, 1}, ALPHA[3] = {0.01, 0.02, 0.03};
#define TOLERANCE 1e-14 /* on the last correction of w; TMK() scales it by w, which is stricter */

#define T double
#define NAME(x) one_##x
#define ONE(x) (x)
#define ALL(c) (c)
#include "step.h"
#undef T
#undef NAME
#undef ONE
#undef ALL

#ifdef __AVX512F__
#define LANES 8
#else
#define LANES 4
#endif
typedef double vd __attribute__((vector_size(8 * LANES)));
typedef int64_t vi __attribute__((vector_size(8 * LANES)));
typedef uint64_t vu __attribute__((vector_size(8 * LANES)));
#define T vd
#define NAME(x) many_##x
#define ONE(x) ((vd){0} + (x))
static inline int all(vi m) {
  int64_t every = -1;
  for (int l = 0; l < LANES; l++) every &= m[l];
  return every != 0;
}
#define ALL(c) all(c)
#include "step.h"

/* n steps of one trajectory with given increments. */
void heavy_top(double mu[6], const double *dW, int64_t n, double dt) {
  for (int64_t k = 0; k < n; k++) one_step(mu, mu + 3, dW[k], dt);
}

static inline vu rotl(vu x, int k) { return (x << k) | (x >> (64 - k)); }

static inline vu next(vu s[4]) {
  vu result = rotl(s[0] + s[3], 23) + s[0], t = s[1] << 17;
  s[2] ^= s[0], s[3] ^= s[1], s[1] ^= s[2], s[0] ^= s[3];
  s[2] ^= t;
  s[3] = rotl(s[3], 45);
  return result;
}

static inline vd unit(vu bits) { return (vd)((bits >> 12) | 0x3FF0000000000000u) - 1.0; }

static inline vd vlog(vd u) {
  vi bits = (vi)u, offset = bits - 0x3FE6A09E667F3BCD;
  vd e = __builtin_convertvector(offset >> 52, vd);
  vd m = (vd)(bits - (offset & ~0xFFFFFFFFFFFFF)), f = (m - 1.0) / (m + 1.0), g = f * f, p = {0};
  for (int k = 11; k >= 0; k--) p = p * g + 1.0 / (2 * k + 1);
  return e * 0.6931471805599453 + 2.0 * f * p;
}

static inline vd vsqrt(vd x) {
  for (int l = 0; l < LANES; l++) x[l] = sqrt(x[l]);
  return x;
}

/* Two normals a lane. */
static inline void normals(vu s[4], vd z[2]) {
  vd r = vsqrt(-2.0 * vlog(1.0 - unit(next(s)))), turns = 4.0 * unit(next(s));
  vi q = __builtin_convertvector(turns + 0.5, vi);
  vd t = (turns - __builtin_convertvector(q, vd)) * M_PI_2, x = t * t, sn = {0}, cs = {0};
  for (int k = 8; k >= 0; k--) {
    sn = 1.0 - x * (1.0 / ((2 * k + 2) * (2 * k + 3))) * sn;
    cs = 1.0 - x * (1.0 / ((2 * k + 1) * (2 * k + 2))) * cs;
  }
  sn *= t;
  vi odd = (q & 1) == 1, half = (q & 2) == 2;
  vd a = (vd)(((vi)cs & odd) | ((vi)sn & ~odd)), b = (vd)(((vi)-sn & odd) | ((vi)cs & ~odd));
  vi sign = half & (vi)(-((vd){0}));
  z[0] = r * (vd)((vi)b ^ sign);
  z[1] = r * (vd)((vi)a ^ sign);
}

static uint64_t splitmix(uint64_t *x) {
  uint64_t z = (*x += 0x9E3779B97F4A7C15u);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

/* n steps of `members` trajectories (a multiple of LANES), all from mu0; the end states go to out (members x 6). */
void heavy_top_ensemble(const double mu0[6], double *out, int64_t members, int64_t n, double dt, uint64_t seed) {
  double root = sqrt(dt);
  for (int64_t m = 0; m < members; m += LANES) {
    vu s[4];
    vd p[3], g[3], z[2];
    for (int i = 0; i < 4; i++)
      for (int l = 0; l < LANES; l++) s[i][l] = splitmix(&seed);
    for (int i = 0; i < 3; i++) p[i] = ONE(mu0[i]), g[i] = ONE(mu0[3 + i]);
    for (int64_t k = 0; k < n; k += 2) {
      normals(s, z);
      many_step(p, g, root * z[0], dt);
      if (k + 1 < n) many_step(p, g, root * z[1], dt);
    }
    for (int l = 0; l < LANES; l++)
      for (int i = 0; i < 3; i++) out[(m + l) * 6 + i] = p[i][l], out[(m + l) * 6 + 3 + i] = g[i][l];
  }
}
