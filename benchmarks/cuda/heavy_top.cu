/* The CUDA C++ reference of `make bench-gpu`: ensembles of the stochastic heavy top by TMK, one thread a trajectory.
 *
 * - "fixed point": six fixed-point iterations a step, whatever they give, and curand's normal numbers;
 * - "chord": the chord iteration of ../c/step.h, to 1e-14 of sigma, with curand's normal numbers, and
 * - "chord, polynomials": the same with Box-Muller by polynomials in place of libm's log and sincos.
 *
 * With -DLOOSE the chord iterations have the looser tolerance of ../c/step.h, and their names say so. Each is run with
 * several numbers of threads a block; the best counts. Lines of JSON go to standard output.
 *
 *     heavy_top MEMBERS STEPS [MEMBERS STEPS …]
 */
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <curand_kernel.h>

__device__ static constexpr double INERTIA[3] = {4, 2, 1}, CHI[3] = {0, 0, 1}, ALPHA[3] = {0.01, 0.02, 0.03};
#define TOLERANCE 1e-14
#define T double
#define NAME(x) one_##x
#define ONE(x) (x)
#define ALL(c) (c)
#define ON_DEVICE __device__
#include "../c/step.h"

enum Method { FIXED, CHORD, CHORD_POLYNOMIALS };

/* (pi', gamma') = flow(w, (pi, gamma)) with v = (0, 0, dt). */
__device__ __forceinline__ void flow(const double *w, const double *p, const double *g, double *p1, double *g1, double dt) {
  double x = one_dot(w, w), a, b, d;
  if (x < 1e-2) {
    a = 1 - x / 6 * (1 - x / 20 * (1 - x / 42 * (1 - x / 72)));
    b = .5 * (1 - x / 12 * (1 - x / 30 * (1 - x / 56)));
    d = (1 - x / 20 * (1 - x / 42 * (1 - x / 72))) / 6;
  } else {
    double t = sqrt(x), s, c;
    sincos(t, &s, &c);
    a = s / t, b = (1 - c) / x, d = (t - s) / (x * t);
  }
  double y[3], z[3], v[3] = {0, 0, dt}, vw[3], vww[3], u[3], t[3];
  one_cross(g, w, y), one_cross(y, w, z);
  for (int i = 0; i < 3; i++) g1[i] = g[i] + a * y[i] + b * z[i];
  one_cross(p, w, y), one_cross(y, w, z), one_cross(v, w, vw), one_cross(vw, w, vww);
  for (int i = 0; i < 3; i++) u[i] = v[i] + b * vw[i] + d * vww[i];
  one_cross(g1, u, t);
  for (int i = 0; i < 3; i++) p1[i] = p[i] + a * y[i] + b * z[i] + t[i];
}

__device__ __forceinline__ void fixed_point(double *p, double *g, double dW, double dt) {
  double w[3], p1[3], g1[3];
  for (int i = 0; i < 3; i++) w[i] = dt / INERTIA[i] * p[i] + ALPHA[i] * dW;
  for (int n = 0; n < 6; n++) {
    flow(w, p, g, p1, g1, dt);
    for (int i = 0; i < 3; i++) w[i] = dt / INERTIA[i] * .5 * (p[i] + p1[i]) + ALPHA[i] * dW;
  }
  flow(w, p, g, p1, g1, dt);
  for (int i = 0; i < 3; i++) p[i] = p1[i], g[i] = g1[i];
}

__device__ __forceinline__ double unit(uint32_t high, uint32_t low) {
  return __longlong_as_double((((int64_t)high << 32 | low) >> 12 & 0xFFFFFFFFFFFFF) | 0x3FF0000000000000) - 1.0;
}

/* Two normals of four words: log and sincos by polynomials. */
__device__ __forceinline__ double2 polynomials(uint4 r) {
  double u = 1.0 - unit(r.x, r.y);
  int64_t bits = __double_as_longlong(u), offset = bits - 0x3FE6A09E667F3BCD;
  double e = (double)(int)(offset >> 52), m = __longlong_as_double(bits - (offset & ~0xFFFFFFFFFFFFF));
  double f = (m - 1.0) / (m + 1.0), q = f * f, l = 0, sn = 0, cs = 0;
#pragma unroll
  for (int k = 10; k >= 0; k--) l = l * q + 1.0 / (2 * k + 1);
  double radius = sqrt(-2.0 * (e * 0.6931471805599453 + 2.0 * f * l)), turns = 4.0 * unit(r.z, r.w), n = rint(turns);
  double t = (turns - n) * 1.5707963267948966, x = t * t;
#pragma unroll
  for (int k = 8; k >= 0; k--) {
    sn = 1.0 - x * (1.0 / ((2 * k + 2) * (2 * k + 3))) * sn;
    cs = 1.0 - x * (1.0 / ((2 * k + 1) * (2 * k + 2))) * cs;
  }
  sn *= t;
  int quarter = (int)n & 3;
  double a = quarter & 1 ? sn : cs, b = quarter & 1 ? cs : sn;
  return make_double2(radius * (quarter == 1 || quarter == 2 ? -a : a), radius * (quarter >= 2 ? -b : b));
}

template <int METHOD>
__global__ void run(double *out, int members, int steps) {
  int id = blockIdx.x * blockDim.x + threadIdx.x;
  if (id >= members) return;
  curandStatePhilox4_32_10_t state;
  curand_init(1, id, 0, &state);
  const double dt = 0.01, root = 0.1, x = 0.7071067811865476;
  double p[3] = {-x, x, 0}, g[3] = {-x, x, 0};
  for (int k = 0; k < steps; k += 2) {
    double2 n = METHOD == CHORD_POLYNOMIALS ? polynomials(curand4(&state)) : curand_normal2_double(&state);
#pragma unroll 1
    for (int h = 0; h < 2; h++) {
      double dW = (h ? n.y : n.x) * root;
      if (METHOD == FIXED) fixed_point(p, g, dW, dt);
      else one_step(p, g, dW, dt);
    }
  }
  for (int i = 0; i < 3; i++) out[i * (size_t)members + id] = p[i], out[(i + 3) * (size_t)members + id] = g[i];
}

template <int METHOD>
static double rate(double *out, int members, int steps, int block) {
  cudaEvent_t begin, end;
  cudaEventCreate(&begin), cudaEventCreate(&end);
  for (int warm = 1; warm >= 0; warm--) {
    cudaEventRecord(begin);
    run<METHOD><<<(members + block - 1) / block, block>>>(out, members, warm ? steps / 50 : steps);
    cudaEventRecord(end), cudaEventSynchronize(end);
  }
  float ms;
  cudaEventElapsedTime(&ms, begin, end);
  return cudaGetLastError() ? 0 : members * (double)steps / ms * 1e3;
}

int main(int argc, char **argv) {
#ifdef LOOSE
  const char *names[] = {"", "chord, looser", "chord, polynomials, looser"};
  const int first = CHORD;
#else
  const char *names[] = {"fixed point", "chord", "chord, polynomials"};
  const int first = FIXED;
#endif
  for (int at = 1; at + 1 < argc; at += 2) {
    const int members = atoi(argv[at]), all = atoi(argv[at + 1]);
    double *out;
    if (cudaMalloc(&out, 6 * sizeof(double) * (size_t)members)) return 1;
    for (int method = first; method < 3; method++)
      for (int block : {128, 256, 512}) {
        /* Noise makes the tops faster, and their steps harder to solve: all are wanted. Six iterations are always six. */
        const int steps = method == FIXED ? all / 10 : all;
        double found = method == FIXED   ? rate<FIXED>(out, members, steps, block)
                       : method == CHORD ? rate<CHORD>(out, members, steps, block)
                                         : rate<CHORD_POLYNOMIALS>(out, members, steps, block);
        double first[2];
        cudaMemcpy(first, out, sizeof first, cudaMemcpyDeviceToHost);
        printf("{\"method\": \"%s\", \"members\": %d, \"block\": %d, \"rate\": %.4e, \"pi\": %.15g}\n", names[method],
               members, block, found, first[0]);
      }
    cudaFree(out);
  }
}
