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

// 1 / d for 1 <= d <= 2: the best parabola, good to 1 in 99, and two steps of third order cost less than a division.
inline double reciprocal(double d) {
    double r = (32.0 / 99 * d - 144.0 / 99) * d + 210.0 / 99;
    double e = 1.0 - d * r;
    r = r + r * (e + e * e);
    e = 1.0 - d * r;
    return r + r * (e + e * e);
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
          int64_t stride, double* out) {
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
        for (int i = 0; i < SUMS[KIND]; ++i) out[i * stride + p] = total[i];
    }
}

template <typename T>
constexpr int LANES = 64 / sizeof(T);

// Longest row of pairs of several rows that is gathered, and longest run of additions in one lane.
constexpr int64_t NARROW = 128;

// Lanes over pairs from p on, so that no sum is taken across lanes. SAME: all of one row, else gathered.
template <typename T, typename X, int KIND, bool WEIGHTED, bool SAME>
void across(const X* x, const X* weight, int64_t width, const int64_t* row, const T* b, const T* w, int64_t p, int64_t stride,
            double* out) {
    constexpr int L = LANES<T>;
    double total[6][L] = {};
    const X* xs = x + row[p] * width;
    const X* ws = WEIGHTED ? weight + row[p] * width : nullptr;
    int32_t start[L];
    for (int l = 0; l < L; ++l) start[l] = static_cast<int32_t>((row[p + l] - row[p]) * width);
    for (int64_t first = 0; first < width; first += NARROW) {
        T m0[L] = {}, m1[L] = {}, a0[L] = {}, a1[L] = {}, a2[L] = {}, loss[L] = {};
        const int64_t stop = first + NARROW < width ? first + NARROW : width;
        for (int64_t j = first; j < stop; ++j) {
            const T here = static_cast<T>(xs[j]), times = WEIGHTED ? static_cast<T>(ws[j]) : T(1);
#pragma omp simd
            for (int l = 0; l < L; ++l) {
                const int32_t at = start[l] + static_cast<int32_t>(j);
                const T v = SAME ? here : static_cast<T>(xs[at]);
                const T c = SAME || !WEIGHTED ? times : static_cast<T>(ws[at]);
                const Terms<T> e = event<T, KIND>(v, c, b[p + l], w[p + l]);
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
            for (int l = 0; l < L; ++l) total[i][l] += found[i][l];
    }
    for (int i = 0; i < SUMS[KIND]; ++i)
        for (int l = 0; l < L; ++l) out[i * stride + p + l] = total[i][l];
}

inline bool one_row(const int64_t* row, int lanes) {
    bool same = true;
    for (int l = 1; l < lanes; ++l) same &= row[l] == row[0];
    return same;
}

template <typename T, typename X, int KIND, bool WEIGHTED>
void sums(const X* x, const X* weight, int64_t width, const int64_t* row, const T* b, const T* w, int64_t pairs,
          int64_t stride, double* out) {
    constexpr int L = LANES<T>;
    int64_t p = 0;
    for (; p + L <= pairs; p += L) {
        if (one_row(row + p, L))
            across<T, X, KIND, WEIGHTED, true>(x, weight, width, row, b, w, p, stride, out);
        else if (sizeof(T) == 4 && width <= NARROW)
            across<T, X, KIND, WEIGHTED, false>(x, weight, width, row, b, w, p, stride, out);
        else  // gathers of many lines, or of double lanes, cost more than the sums across lanes they save
            wide<T, X, KIND, WEIGHTED>(x, weight, width, row, b, w, p, p + L, stride, out);
    }
    wide<T, X, KIND, WEIGHTED>(x, weight, width, row, b, w, p, pairs, stride, out);
}

template <typename T, typename X>
void dispatch(const X* x, const X* weight, int64_t width, const int64_t* row, const T* b, const T* w, int64_t pairs,
              int64_t stride, int kind, double* out) {
    if (weight == nullptr)
        (kind ? sums<T, X, 1, false> : sums<T, X, 0, false>)(x, weight, width, row, b, w, pairs, stride, out);
    else
        (kind ? sums<T, X, 1, true> : sums<T, X, 0, true>)(x, weight, width, row, b, w, pairs, stride, out);
}

}  // namespace

// Sums of some pairs of a longer list, from their places in it on: `stride` is the list's length, `row` numbers their rows
// in x [, width].
extern "C" {

void sums_f32(const float* x, const float* weight, int64_t width, const int64_t* row, const float* b, const float* w,
              int64_t pairs, int64_t stride, int kind, double* out) {
    dispatch<float, float>(x, weight, width, row, b, w, pairs, stride, kind, out);
}

void sums_f64_x32(const float* x, const float* weight, int64_t width, const int64_t* row, const double* b, const double* w,
                  int64_t pairs, int64_t stride, int kind, double* out) {
    dispatch<double, float>(x, weight, width, row, b, w, pairs, stride, kind, out);
}

void sums_f64(const double* x, const double* weight, int64_t width, const int64_t* row, const double* b, const double* w,
              int64_t pairs, int64_t stride, int kind, double* out) {
    dispatch<double, double>(x, weight, width, row, b, w, pairs, stride, kind, out);
}
}
