// Sums over a bucket's events for a flat list of pairs. Built by native.py; compiled with -fopenmp-simd only.
//
// Terms of an event with eta = b + w x: t = exp(-|eta|) <= 1, r = 1 / (1 + t), mu = r or t r, s = t r^2.
// float sums run over at most BLOCK events before they are joined in double; double sums run straight through.
// float events take eta in units of ln 2, so that exp is a power of two and needs no reduction of its argument.

#include <cmath>
#include <cstdint>
#include <cstring>

#include "exponential.h"

namespace {

constexpr int64_t BLOCK = 512;

// What eta is measured in, and t = exp(-|eta|) from y = -|eta| in that unit.
template <typename T>
constexpr double UNIT = sizeof(T) == 4 ? 0.69314718055994530942 : 1.0;
template <typename T>
constexpr double PER_UNIT = sizeof(T) == 4 ? 1.44269504088896340736 : 1.0;

inline double power(double y) { return exp_negative(y); }

inline float power(float y) { return exp2_negative(y); }

inline float reciprocal(float d) { return 1.0f / d; }

// 1 / d for 1 <= d <= 2: the best parabola, good to 1 in 99, and two steps of third order cost less than a division.
inline double reciprocal(double d) {
    double r = (32.0 / 99 * d - 144.0 / 99) * d + 210.0 / 99;
    double e = 1.0 - d * r;
    r = r + r * (e + e * e);
    e = 1.0 - d * r;
    return r + r * (e + e * e);
}

// log2(1 + t) for 0 <= t <= 1: t times a polynomial of degree 8 by Remez, good to half a rounding of its own.
inline float log_one_plus(float t) {
    float p = 7.549254324e-3f;
    p = p * t - 4.256737834e-2f;
    p = p * t + 1.128567662e-1f;
    p = p * t - 1.971195226e-1f;
    p = p * t + 2.756417174e-1f;
    p = p * t - 3.584085686e-1f;
    p = p * t + 4.806929735e-1f;
    p = p * t - 7.213402092e-1f;
    return t * (p * t + 1.4426949975f);
}

// log(1 + t) as 2 artanh(t / (2 + t)): exact for small t, where log(1 + t) cancels.
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

// Terms of one event; b, w and the loss in units of UNIT. KIND 0: gradient and Hessian, 1: loss as well, 2: loss alone.
template <typename T, int KIND>
inline Terms<T> event(T v, T b, T w) {
    const T eta = b + w * v;
    const T t = power(-std::fabs(eta));
    const T loss = KIND == 0 ? T(0) : (eta > 0 ? eta : T(0)) + log_one_plus(t);
    if (KIND == 2) return {T(0), T(0), T(0), T(0), T(0), loss};
    const T r = reciprocal(T(1) + t), low = t * r;
    const T mu = eta >= 0 ? r : low;
    const T s = low * r, sx = s * v;
    return {mu, mu * v, s, sx, sx * v, loss};
}

// Sums of one pair over [start, stop), lanes over events.
template <typename T, typename X, int KIND>
inline Terms<T> run(const X* x, int64_t start, int64_t stop, T b, T w) {
    T m0 = 0, m1 = 0, a0 = 0, a1 = 0, a2 = 0, loss = 0;
#pragma omp simd reduction(+ : m0, m1, a0, a1, a2, loss)
    for (int64_t j = start; j < stop; ++j) {
        const Terms<T> e = event<T, KIND>(static_cast<T>(x[j]), b, w);
        m0 += e.m0;
        m1 += e.m1;
        a0 += e.a0;
        a1 += e.a1;
        a2 += e.a2;
        loss += e.loss;
    }
    return {m0, m1, a0, a1, a2, loss};
}

// Sums by kind: the first of the six that are kept, and the first that are not.
constexpr int FROM[] = {0, 0, 5}, TO[] = {5, 6, 6};

// One pair, lanes over events.
template <typename T, typename X, int KIND>
void alone(const X* x, int64_t width, double b, double w, int64_t stride, double* out) {
    const int64_t block = sizeof(T) == 4 ? BLOCK : width;
    const T own_b = static_cast<T>(b * PER_UNIT<T>), own_w = static_cast<T>(w * PER_UNIT<T>);
    double total[6] = {};
    for (int64_t start = 0; start < width; start += block) {
        const int64_t stop = start + block < width ? start + block : width;
        const Terms<T> e = run<T, X, KIND>(x, start, stop, own_b, own_w);
        const T part[6] = {e.m0, e.m1, e.a0, e.a1, e.a2, e.loss};
        for (int i = FROM[KIND]; i < TO[KIND]; ++i) total[i] += part[i];
    }
    total[5] *= UNIT<T>;
    for (int i = FROM[KIND]; i < TO[KIND]; ++i) out[(i - FROM[KIND]) * stride] = total[i];
}

template <typename T>
constexpr int LANES = 64 / sizeof(T);

// Longest run of additions in one lane.
constexpr int64_t RUN = 128;

// Up to LANES pairs of one row, lanes over pairs, so that no sum is taken across lanes.
template <typename T, typename X, int KIND>
void across(const X* x, int64_t width, const double* b, const double* w, int pairs, int64_t stride,
            double* out) {
    constexpr int L = LANES<T>;
    double total[6][L] = {};
    T own_b[L] = {}, own_w[L] = {};
    for (int l = 0; l < pairs; ++l) {
        own_b[l] = static_cast<T>(b[l] * PER_UNIT<T>);
        own_w[l] = static_cast<T>(w[l] * PER_UNIT<T>);
    }
    for (int64_t first = 0; first < width; first += RUN) {
        T m0[L] = {}, m1[L] = {}, a0[L] = {}, a1[L] = {}, a2[L] = {}, loss[L] = {};
        const int64_t stop = first + RUN < width ? first + RUN : width;
        for (int64_t j = first; j < stop; ++j) {
            const T v = static_cast<T>(x[j]);
#pragma omp simd
            for (int l = 0; l < L; ++l) {
                const Terms<T> e = event<T, KIND>(v, own_b[l], own_w[l]);
                if (KIND < 2) {
                    m0[l] += e.m0;
                    m1[l] += e.m1;
                    a0[l] += e.a0;
                    a1[l] += e.a1;
                    a2[l] += e.a2;
                }
                if (KIND > 0) loss[l] += e.loss;
            }
        }
        const T* found[6] = {m0, m1, a0, a1, a2, loss};
        for (int i = FROM[KIND]; i < TO[KIND]; ++i)
            for (int l = 0; l < L; ++l) total[i][l] += found[i][l];
    }
    for (int l = 0; l < L; ++l) total[5][l] *= UNIT<T>;
    for (int i = FROM[KIND]; i < TO[KIND]; ++i)
        for (int l = 0; l < pairs; ++l) out[(i - FROM[KIND]) * stride + l] = total[i][l];
}

template <typename T, typename X, int KIND>
void sums(const X* x, int64_t width, const int64_t* row, const double* b, const double* w, int64_t pairs,
          int64_t stride, double* out) {
    constexpr int L = LANES<T>;
    for (int64_t p = 0; p < pairs;) {
        int number = 1;
        while (number < L && p + number < pairs && row[p + number] == row[p]) ++number;
        const X* xs = x + row[p] * width;
        // Half of the lanes empty still costs less than as many sums across lanes.
        if (2 * number >= L)
            across<T, X, KIND>(xs, width, b + p, w + p, number, stride, out + p);
        else
            for (int64_t q = p; q < p + number; ++q)
                alone<T, X, KIND>(xs, width, b[q], w[q], stride, out + q);
        p += number;
    }
}

template <typename T, typename X>
void dispatch(const X* x, int64_t width, const int64_t* row, const double* b, const double* w, int64_t pairs, int64_t stride,
              int kind, double* out) {
    const auto of_kind = kind == 0 ? sums<T, X, 0> : kind == 1 ? sums<T, X, 1> : sums<T, X, 2>;
    of_kind(x, width, row, b, w, pairs, stride, out);
}

}  // namespace

// Sums of some pairs of a longer list, from their places in it on: `stride` is the list's length, `row` numbers their rows
// in x [, width].
extern "C" {

void sums_f32(const float* x, int64_t width, const int64_t* row, const double* b, const double* w,
              int64_t pairs, int64_t stride, int kind, double* out) {
    dispatch<float>(x, width, row, b, w, pairs, stride, kind, out);
}

void sums_f64_x32(const float* x, int64_t width, const int64_t* row, const double* b, const double* w,
                  int64_t pairs, int64_t stride, int kind, double* out) {
    dispatch<double>(x, width, row, b, w, pairs, stride, kind, out);
}

void sums_f64(const double* x, int64_t width, const int64_t* row, const double* b, const double* w,
              int64_t pairs, int64_t stride, int kind, double* out) {
    dispatch<double>(x, width, row, b, w, pairs, stride, kind, out);
}
}
