/* Vectors of doubles, one trajectory a lane, and their random numbers: xoshiro256++, polynomial Box-Muller. */
#include <math.h>
#include <stdint.h>
#ifdef __FMA__
#include <immintrin.h>
#endif

#ifdef __AVX512F__
#define LANES 8
#else
#define LANES 4
#endif
typedef double vd __attribute__((vector_size(8 * LANES)));
typedef int64_t vi __attribute__((vector_size(8 * LANES)));
typedef uint64_t vu __attribute__((vector_size(8 * LANES)));

static inline int all(vi m) {
#ifdef __AVX512DQ__
  return _mm512_movepi64_mask((__m512i)m) == 0xFF;
#else
  int64_t every = -1;
  for (int l = 0; l < LANES; l++) every &= m[l];
  return every != 0;
#endif
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
