// Sums over a bucket's events for a flat list of pairs. Built by native.py; compiled with -fopenmp-simd only.
//
// Terms of an event with eta = b + w x: t = exp(-|eta|) <= 1, r = 1 / (1 + t), mu = r or t r, s = t r^2.
// float sums run over at most BLOCK events before they are joined in double; double sums run straight through.

#include <cmath>
#include <cstdint>
#include <cstring>

#include "exponential.h"

namespace {

constexpr int64_t BLOCK = 512;

inline float reciprocal(float d) { return 1.0f / d; }

// 1 / d for 1 <= d <= 2: a float division and two Newton steps cost less than a double division.
inline double reciprocal(double d) {
    double r = static_cast<double>(1.0f / static_cast<float>(d));
    r = r + r * (1.0 - d * r);
    return r + r * (1.0 - d * r);
}

// log(1 + t) for 0 <= t <= 1 as 2 artanh(t / (2 + t)): exact for small t, where log(1 + t) cancels.
inline float log_one_plus(float t) {
    const float q = t / (2.0f + t), z = q * q;
    float p = 1.0f / 15.0f;
    p = p * z + 1.0f / 13.0f;
    p = p * z + 1.0f / 11.0f;
    p = p * z + 1.0f / 9.0f;
    p = p * z + 1.0f / 7.0f;
    p = p * z + 1.0f / 5.0f;
    p = p * z + 1.0f / 3.0f;
    return 2.0f * q * (p * z + 1.0f);
}

inline double log_one_plus(double t) {
    const double q = t / (2.0 + t), z = q * q;
    double p = 0.0;
#pragma GCC unroll 16
    for (int k = 33; k >= 3; k -= 2) p = p * z + 1.0 / k;
    return 2.0 * q * (p * z + 1.0);
}

template <typename T>
struct Terms {
    T m0, m1, a0, a1, a2, loss;
};

// Terms of one event of weight c. KIND 0: gradient and Hessian, 1: loss as well.
template <typename T, int KIND>
inline Terms<T> event(T v, T c, T b, T w) {
    const T eta = b + w * v;
    const T t = exp_negative(-std::fabs(eta));
    const T r = reciprocal(T(1) + t);
    const T mu = (eta >= 0 ? r : t * r) * c;
    const T s = t * r * r * c;
    const T loss = KIND == 1 ? c * ((eta > 0 ? eta : T(0)) + log_one_plus(t)) : T(0);
    return {mu, mu * v, s, s * v, s * v * v, loss};
}

// Sums of one pair over [start, stop), lanes over events.
template <typename T, typename X, int KIND, bool WEIGHTED>
inline Terms<T> run(const X* x, const X* weight, int64_t start, int64_t stop, T b, T w) {
    T m0 = 0, m1 = 0, a0 = 0, a1 = 0, a2 = 0, loss = 0;
#pragma omp simd reduction(+ : m0, m1, a0, a1, a2, loss)
    for (int64_t j = start; j < stop; ++j) {
        const Terms<T> e = event<T, KIND>(static_cast<T>(x[j]), WEIGHTED ? static_cast<T>(weight[j]) : T(1), b, w);
        m0 += e.m0;
        m1 += e.m1;
        a0 += e.a0;
        a1 += e.a1;
        a2 += e.a2;
        loss += e.loss;
    }
    return {m0, m1, a0, a1, a2, loss};
}

constexpr int SUMS[] = {5, 6};

// Pairs [first, last) one after the other.
template <typename T, typename X, int KIND, bool WEIGHTED>
void wide(const X* x, const X* weight, int64_t width, const int64_t* row, const T* b, const T* w, int64_t first, int64_t last,
          int64_t pairs, double* out) {
    const int64_t block = sizeof(T) == 4 ? BLOCK : width;
    for (int64_t p = first; p < last; ++p) {
        const X* xs = x + row[p] * width;
        const X* ws = WEIGHTED ? weight + row[p] * width : nullptr;
        double total[6] = {0, 0, 0, 0, 0, 0};
        for (int64_t start = 0; start < width; start += block) {
            const int64_t stop = start + block < width ? start + block : width;
            const Terms<T> e = run<T, X, KIND, WEIGHTED>(xs, ws, start, stop, b[p], w[p]);
            const T part[6] = {e.m0, e.m1, e.a0, e.a1, e.a2, e.loss};
            for (int i = 0; i < SUMS[KIND]; ++i) total[i] += part[i];
        }
        for (int i = 0; i < SUMS[KIND]; ++i) out[i * pairs + p] = total[i];
    }
}

// Short rows: lanes over LANES pairs, so that no sum is taken across lanes. Rows are at most NARROW events long.
template <typename T, typename X, int KIND, bool WEIGHTED>
int64_t narrow(const X* x, const X* weight, int64_t width, const int64_t* row, const T* b, const T* w, int64_t pairs,
               double* out) {
    constexpr int LANES = 64 / sizeof(T);
    int64_t p = 0;
    for (; p + LANES <= pairs; p += LANES) {
        T m0[LANES] = {}, m1[LANES] = {}, a0[LANES] = {}, a1[LANES] = {}, a2[LANES] = {}, loss[LANES] = {};
        int32_t start[LANES];
        for (int l = 0; l < LANES; ++l) start[l] = static_cast<int32_t>(row[p + l] * width);
        for (int32_t j = 0; j < width; ++j) {
#pragma omp simd
            for (int l = 0; l < LANES; ++l) {
                const int32_t at = start[l] + j;
                const Terms<T> e =
                    event<T, KIND>(static_cast<T>(x[at]), WEIGHTED ? static_cast<T>(weight[at]) : T(1), b[p + l], w[p + l]);
                m0[l] += e.m0;
                m1[l] += e.m1;
                a0[l] += e.a0;
                a1[l] += e.a1;
                a2[l] += e.a2;
                if (KIND == 1) loss[l] += e.loss;
            }
        }
        const T* found[6] = {m0, m1, a0, a1, a2, loss};
        for (int i = 0; i < SUMS[KIND]; ++i)
            for (int l = 0; l < LANES; ++l) out[i * pairs + p + l] = found[i][l];
    }
    return p;
}

constexpr int64_t NARROW = 128;

template <typename T, typename X, int KIND, bool WEIGHTED>
void sums(const X* x, const X* weight, int64_t width, const int64_t* row, const T* b, const T* w, int64_t pairs, double* out) {
    int64_t done = 0;
    // Gathers of double lanes cost more than the sums across lanes they save.
    if (sizeof(T) == 4 && width <= NARROW) done = narrow<T, X, KIND, WEIGHTED>(x, weight, width, row, b, w, pairs, out);
    wide<T, X, KIND, WEIGHTED>(x, weight, width, row, b, w, done, pairs, pairs, out);
}

template <typename T, typename X, bool WEIGHTED>
void by_kind(const X* x, const X* weight, int64_t width, const int64_t* row, const T* b, const T* w, int64_t pairs, int kind,
             double* out) {
    if (kind == 0) sums<T, X, 0, WEIGHTED>(x, weight, width, row, b, w, pairs, out);
    if (kind == 1) sums<T, X, 1, WEIGHTED>(x, weight, width, row, b, w, pairs, out);
}

template <typename T, typename X>
void dispatch(const X* x, const X* weight, int64_t width, const int64_t* row, const T* b, const T* w, int64_t pairs, int kind,
              double* out) {
    if (weight == nullptr)
        by_kind<T, X, false>(x, weight, width, row, b, w, pairs, kind, out);
    else
        by_kind<T, X, true>(x, weight, width, row, b, w, pairs, kind, out);
}

}  // namespace

extern "C" {

void sums_f32(const float* x, const float* weight, int64_t width, const int64_t* row, const float* b, const float* w,
              int64_t pairs, int kind, double* out) {
    dispatch<float, float>(x, weight, width, row, b, w, pairs, kind, out);
}

void sums_f64_x32(const float* x, const float* weight, int64_t width, const int64_t* row, const double* b, const double* w,
                  int64_t pairs, int kind, double* out) {
    dispatch<double, float>(x, weight, width, row, b, w, pairs, kind, out);
}

void sums_f64(const double* x, const double* weight, int64_t width, const int64_t* row, const double* b, const double* w,
              int64_t pairs, int kind, double* out) {
    dispatch<double, double>(x, weight, width, row, b, w, pairs, kind, out);
}

}
