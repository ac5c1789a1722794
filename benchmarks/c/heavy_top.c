/* The C reference of the benchmarks: the stochastic heavy top by TMK, one trajectory and an ensemble, one core.
 *
 * Built by `make bench` with the system's compiler. The ensemble runs four trajectories side by side, one a lane of
 * a vector of four doubles; its random numbers (xoshiro256++, polynomial Box-Muller) are part of what is timed.
 */
#include <math.h>
#include <stdint.h>
#include <string.h>

static const double INERTIA[3] = {4, 2, 1}, CHI[3] = {0, 0, 1}, ALPHA[3] = {0.01, 0.02, 0.03};
#define TERMS 8

#define T double
#define NAME(x) one_##x
#define ONE(x) (x)
#define DONE(c) (c)
#include "step.h"
#undef T
#undef NAME
#undef ONE
#undef DONE

typedef double v4 __attribute__((vector_size(32)));
typedef int64_t i4 __attribute__((vector_size(32)));
typedef uint64_t u4 __attribute__((vector_size(32)));
#define T v4
#define NAME(x) four_##x
#define ONE(x) ((v4){x, x, x, x})
static inline int all4(i4 m) { return m[0] && m[1] && m[2] && m[3]; }
#define DONE(c) all4(c)
#include "step.h"

/* n steps of one trajectory with given increments. */
void heavy_top(double mu[6], const double *dW, int64_t n, double dt) {
  for (int64_t k = 0; k < n; k++) one_step(mu, mu + 3, dW[k], dt);
}

static inline u4 rotl(u4 x, int k) { return (x << k) | (x >> (64 - k)); }

static inline u4 next(u4 s[4]) {
  u4 result = rotl(s[0] + s[3], 23) + s[0], t = s[1] << 17;
  s[2] ^= s[0], s[3] ^= s[1], s[1] ^= s[2], s[0] ^= s[3];
  s[2] ^= t;
  s[3] = rotl(s[3], 45);
  return result;
}

static inline v4 unit(u4 bits) { return (v4)((bits >> 12) | 0x3FF0000000000000u) - 1.0; }

static inline v4 vlog(v4 u) {
  i4 bits = (i4)u, offset = bits - 0x3FE6A09E667F3BCD;
  v4 e = __builtin_convertvector(offset >> 52, v4);
  v4 m = (v4)(bits - (offset & ~0xFFFFFFFFFFFFF)), f = (m - 1.0) / (m + 1.0), g = f * f, p = {0, 0, 0, 0};
  for (int k = 11; k >= 0; k--) p = p * g + 1.0 / (2 * k + 1);
  return e * 0.6931471805599453 + 2.0 * f * p;
}

static inline v4 vsqrt(v4 x) { return (v4){sqrt(x[0]), sqrt(x[1]), sqrt(x[2]), sqrt(x[3])}; }

/* Two normals a lane. */
static inline void normals(u4 s[4], v4 z[2]) {
  v4 r = vsqrt(-2.0 * vlog(1.0 - unit(next(s)))), turns = 4.0 * unit(next(s));
  i4 q = __builtin_convertvector(turns + 0.5, i4);
  v4 t = (turns - __builtin_convertvector(q, v4)) * M_PI_2, x = t * t, sn = {0, 0, 0, 0}, cs = {0, 0, 0, 0};
  for (int k = 8; k >= 0; k--) {
    sn = 1.0 - x * (1.0 / ((2 * k + 2) * (2 * k + 3))) * sn;
    cs = 1.0 - x * (1.0 / ((2 * k + 1) * (2 * k + 2))) * cs;
  }
  sn *= t;
  i4 odd = (q & 1) == 1, half = (q & 2) == 2;
  v4 a = (v4)(((i4)cs & odd) | ((i4)sn & ~odd)), b = (v4)(((i4)-sn & odd) | ((i4)cs & ~odd));
  i4 sign = half & (i4)((v4){-0.0, -0.0, -0.0, -0.0});
  z[0] = r * (v4)((i4)b ^ sign);
  z[1] = r * (v4)((i4)a ^ sign);
}

static uint64_t splitmix(uint64_t *x) {
  uint64_t z = (*x += 0x9E3779B97F4A7C15u);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

/* n steps of `members` trajectories (a multiple of 4), all from mu0; the end states go to out (members x 6). */
void heavy_top_ensemble(const double mu0[6], double *out, int64_t members, int64_t n, double dt, uint64_t seed) {
  double root = sqrt(dt);
  for (int64_t m = 0; m < members; m += 4) {
    u4 s[4];
    v4 p[3], g[3], z[2];
    for (int i = 0; i < 4; i++)
      for (int l = 0; l < 4; l++) s[i][l] = splitmix(&seed);
    for (int i = 0; i < 3; i++) p[i] = ONE(mu0[i]), g[i] = ONE(mu0[3 + i]);
    for (int64_t k = 0; k < n; k += 2) {
      normals(s, z);
      four_step(p, g, root * z[0], dt);
      if (k + 1 < n) four_step(p, g, root * z[1], dt);
    }
    for (int l = 0; l < 4; l++)
      for (int i = 0; i < 3; i++) out[(m + l) * 6 + i] = p[i][l], out[(m + l) * 6 + 3 + i] = g[i][l];
  }
}
