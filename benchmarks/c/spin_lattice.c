/* Spins on a periodic simple cubic lattice in a heat bath, by Heun's method of Munthe-Kaas, as a plain loop in C.
 *
 *   z(S) = (g + theta S x g) dt + sigma dW,  g = dh/dS = -J (sum of six neighbours),  S' = R(-z) S  (Rodrigues),
 *   S_1 = R(-z(S_n)) S_n,   S_{n+1} = R(-(z(S_n) + z(S_1))/2) S_n, brought back to its length.
 *
 * Arrays S[spin][3]. Random numbers: xoshiro256+ and Box and Muller. Three loops over the lattice a step: the increments
 * and the first z and S_1; the second z; the last rotation is fused with it.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

static uint64_t s[4];

static inline uint64_t turned(uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }

static inline double uniform(void) {
  uint64_t r = s[0] + s[3], t = s[1] << 17;
  s[2] ^= s[0], s[3] ^= s[1], s[1] ^= s[2], s[0] ^= s[3], s[2] ^= t, s[3] = turned(s[3], 45);
  return ((r >> 11) + 0.5) * 0x1p-53;
}

/* u = v - c1 w x v + c2 w x (w x v): the rotation of v by -|w| about w. */
static inline void turn(const double w[3], const double v[3], double u[3]) {
  double x = w[0] * w[0] + w[1] * w[1] + w[2] * w[2], r = sqrt(x);
  double c1 = x > 1e-12 ? sin(r) / r : 1 - x / 6, c2 = x > 1e-12 ? (1 - cos(r)) / x : 0.5 - x / 24;
  double a = w[1] * v[2] - w[2] * v[1], b = w[2] * v[0] - w[0] * v[2], c = w[0] * v[1] - w[1] * v[0];
  u[0] = v[0] - c1 * a + c2 * (w[1] * c - w[2] * b);
  u[1] = v[1] - c1 * b + c2 * (w[2] * a - w[0] * c);
  u[2] = v[2] - c1 * c + c2 * (w[0] * b - w[1] * a);
}

static inline void element(const double (*S)[3], int64_t i, const int64_t near[6], double J, double theta, double z[3]) {
  double g[3];
  for (int c = 0; c < 3; c++)
    g[c] = -J * (S[near[0]][c] + S[near[1]][c] + S[near[2]][c] + S[near[3]][c] + S[near[4]][c] + S[near[5]][c]);
  const double *v = S[i];
  z[0] = g[0] + theta * (v[1] * g[2] - v[2] * g[1]);
  z[1] = g[1] + theta * (v[2] * g[0] - v[0] * g[2]);
  z[2] = g[2] + theta * (v[0] * g[1] - v[1] * g[0]);
}

static inline void neighbours(int64_t x, int64_t y, int64_t q, int64_t L, int64_t near[6]) {
  int64_t up[3] = {x + 1 < L ? x + 1 : 0, y + 1 < L ? y + 1 : 0, q + 1 < L ? q + 1 : 0};
  int64_t low[3] = {x ? x - 1 : L - 1, y ? y - 1 : L - 1, q ? q - 1 : L - 1};
  near[0] = (up[0] * L + y) * L + q, near[1] = (low[0] * L + y) * L + q;
  near[2] = (x * L + up[1]) * L + q, near[3] = (x * L + low[1]) * L + q;
  near[4] = (x * L + y) * L + up[2], near[5] = (x * L + y) * L + low[2];
}

void spin_lattice(double (*S)[3], int64_t L, int64_t steps, double dt, double J, double theta, double sigma, uint64_t seed) {
  int64_t n = L * L * L;
  double(*first)[3] = malloc(sizeof *first * n), (*noise)[3] = malloc(sizeof *noise * n), (*moved)[3] = malloc(sizeof *moved * n);
  for (int k = 0; k < 4; k++) s[k] = seed * 0x9E3779B97F4A7C15ULL + 0xD1B54A32D192ED03ULL * (k + 1);
  double size = sigma * sqrt(dt), spare = 0;
  int has = 0;
  for (int64_t step = 0; step < steps; step++) {
    for (int64_t i = 0, x = 0; x < L; x++)
      for (int64_t y = 0; y < L; y++)
        for (int64_t q = 0; q < L; q++, i++) {
          int64_t near[6];
          double z[3];
          neighbours(x, y, q, L, near);
          element(S, i, near, J, theta, z);
          for (int c = 0; c < 3; c++) {
            if (sigma > 0) {
              if (!has) {
                double r = sqrt(-2 * log(uniform())), a = 6.283185307179586 * uniform();
                noise[i][c] = size * r * cos(a), spare = size * r * sin(a), has = 1;
              } else noise[i][c] = spare, has = 0;
            } else noise[i][c] = 0;
            first[i][c] = z[c] * dt + noise[i][c];
          }
          turn(first[i], S[i], moved[i]);
        }
    for (int64_t i = 0, x = 0; x < L; x++)
      for (int64_t y = 0; y < L; y++)
        for (int64_t q = 0; q < L; q++, i++) {
          int64_t near[6];
          double z[3], w[3], v[3] = {S[i][0], S[i][1], S[i][2]};
          neighbours(x, y, q, L, near);
          element((const double(*)[3])moved, i, near, J, theta, z);
          for (int c = 0; c < 3; c++) w[c] = 0.5 * (first[i][c] + z[c] * dt + noise[i][c]);
          turn(w, v, S[i]);
          double a = v[0] * v[0] + v[1] * v[1] + v[2] * v[2], b = S[i][0] * S[i][0] + S[i][1] * S[i][1] + S[i][2] * S[i][2];
          double back = 1 + 0.5 * (a - b) / a;
          for (int c = 0; c < 3; c++) S[i][c] *= back;
        }
  }
  free(first), free(noise), free(moved);
}
