/* The C reference of the benchmarks: the stochastic heavy top by TMK, one trajectory and an ensemble, one core.
 *
 * Built by `make bench` with the system's compiler, and once more with -DLOOSE (step.h). The ensemble runs LANES
 * trajectories side by side, one a lane of a vector of doubles; its random numbers (xoshiro256++, polynomial Box-Muller)
 * are part of what is timed.
 */
#include "vectors.h"

static const double INERTIA[3] = {4, 2, 1}, CHI[3] = {0, 0, 1}, ALPHA[3] = {0.01, 0.02, 0.03};
#define TOLERANCE 1e-14

#define T double
#define NAME(x) one_##x
#define ONE(x) (x)
#define ALL(c) (c)
#include "step.h"
#undef T
#undef NAME
#undef ONE
#undef ALL

#define T vd
#define NAME(x) many_##x
#define ONE(x) ((vd){0} + (x))
#define ALL(c) all(c)
#include "step.h"

/* n steps of one trajectory with given increments. */
void heavy_top(double mu[6], const double *dW, int64_t n, double dt) {
  for (int64_t k = 0; k < n; k++) one_step(mu, mu + 3, dW[k], dt);
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
