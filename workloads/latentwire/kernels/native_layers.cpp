// Norms, gates and rotations of a frozen model's layers, forward and backward: each in one pass over what it reads.
// Numbers of 16 bits are widened on the way in and rounded once on the way out.

#include <cmath>
#include <cstdint>
#include <cstring>

#include "exponential.h"
#include "half.h"

namespace {

using Bfloat16 = bfloat::Half;

template <typename T>
struct Computed {
    using type = T;
};
template <>
struct Computed<Bfloat16> {
    using type = float;
};
template <typename T>
using Wide = typename Computed<T>::type;

inline double wide(double x) { return x; }
inline float wide(float x) { return x; }
inline float wide(Bfloat16 x) { return bfloat::widened(x); }

inline void put(double& out, double x) { out = x; }
inline void put(float& out, float x) { out = x; }
inline void put(Bfloat16& out, float x) { out = bfloat::rounded(x); }

// y = weight * x / rms(x), rows of `width`; `inverse` keeps 1 / rms(x) of each row.
template <typename T, typename W = Wide<T>>
void norm_forward(int64_t rows, int64_t width, double eps, const T* x, const T* weight, T* y, W* inverse) {
    for (int64_t row = 0; row < rows; ++row) {
        const T* in = x + row * width;
        T* out = y + row * width;
        W sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < width; ++i) sum += wide(in[i]) * wide(in[i]);
        const W factor = 1 / std::sqrt(sum / width + static_cast<W>(eps));
#pragma omp simd
        for (int64_t i = 0; i < width; ++i) put(out[i], wide(in[i]) * factor * wide(weight[i]));
        inverse[row] = factor;
    }
}

template <typename T, typename W = Wide<T>>
void norm_backward(int64_t rows, int64_t width, const T* x, const T* weight, const W* inverse, const T* grad, T* dx) {
    for (int64_t row = 0; row < rows; ++row) {
        const T *in = x + row * width, *given = grad + row * width;
        T* out = dx + row * width;
        const W factor = inverse[row];
        W along = 0;
#pragma omp simd reduction(+ : along)
        for (int64_t i = 0; i < width; ++i) along += wide(given[i]) * wide(weight[i]) * wide(in[i]);
        along *= factor * factor / width;
#pragma omp simd
        for (int64_t i = 0; i < width; ++i) put(out[i], (wide(given[i]) * wide(weight[i]) - wide(in[i]) * along) * factor);
    }
}

template <typename W>
inline W sigmoid(W x) {
    const W t = exp_negative(-std::fabs(x));
    return (x >= 0 ? W(1) : t) / (W(1) + t);
}

// out = silu(gate) * up, where `joined` has gate and up of a row behind one another.
template <typename T, typename W = Wide<T>>
void gate_forward(int64_t rows, int64_t width, const T* joined, T* out) {
    for (int64_t row = 0; row < rows; ++row) {
        const T *gate = joined + row * 2 * width, *up = gate + width;
        T* y = out + row * width;
#pragma omp simd
        for (int64_t i = 0; i < width; ++i) put(y[i], wide(gate[i]) * sigmoid<W>(wide(gate[i])) * wide(up[i]));
    }
}

template <typename T, typename W = Wide<T>>
void gate_backward(int64_t rows, int64_t width, const T* joined, const T* grad, T* djoined) {
    for (int64_t row = 0; row < rows; ++row) {
        const T *gate = joined + row * 2 * width, *up = gate + width, *given = grad + row * width;
        T *dgate = djoined + row * 2 * width, *dup = dgate + width;
#pragma omp simd
        for (int64_t i = 0; i < width; ++i) {
            const W x = wide(gate[i]), s = sigmoid<W>(x), g = wide(given[i]);
            put(dup[i], g * x * s);
            put(dgate[i], g * wide(up[i]) * s * (1 + x * (1 - s)));
        }
    }
}

// The first `turned` of a row's heads turned by `sign` times the angle of its position, the others copied. `cos` and `sin`
// have a row for each of `period` positions, which repeat.
template <typename T, typename W = Wide<T>>
void rotate(int64_t rows, int64_t heads, int64_t width, int64_t turned, int64_t period, double sign, const T* x, const T* cos,
            const T* sin, T* y) {
    const int64_t half = width / 2;
    for (int64_t row = 0; row < rows; ++row) {
        const T *c = cos + row % period * width, *s = sin + row % period * width;
        for (int64_t head = 0; head < heads; ++head) {
            const T* in = x + (row * heads + head) * width;
            T* out = y + (row * heads + head) * width;
            if (head >= turned) {
                std::memcpy(out, in, width * sizeof(T));
                continue;
            }
#pragma omp simd
            for (int64_t i = 0; i < half; ++i) {
                const W a = wide(in[i]), b = wide(in[half + i]), turn = static_cast<W>(sign) * wide(s[i]);
                put(out[i], a * wide(c[i]) - b * turn);
                put(out[half + i], b * wide(c[half + i]) + a * turn);
            }
        }
    }
}

}  // namespace

extern "C" {

#define LAYERS(NAME, T)                                                                                                        \
    void norm_forward_##NAME(int64_t rows, int64_t width, double eps, const T* x, const T* weight, T* y, Wide<T>* inverse) {    \
        norm_forward(rows, width, eps, x, weight, y, inverse);                                                                 \
    }                                                                                                                          \
    void norm_backward_##NAME(int64_t rows, int64_t width, const T* x, const T* weight, const Wide<T>* inverse, const T* grad,  \
                              T* dx) {                                                                                         \
        norm_backward(rows, width, x, weight, inverse, grad, dx);                                                              \
    }                                                                                                                          \
    void gate_forward_##NAME(int64_t rows, int64_t width, const T* joined, T* out) { gate_forward(rows, width, joined, out); } \
    void gate_backward_##NAME(int64_t rows, int64_t width, const T* joined, const T* grad, T* djoined) {                        \
        gate_backward(rows, width, joined, grad, djoined);                                                                     \
    }                                                                                                                          \
    void rotate_##NAME(int64_t rows, int64_t heads, int64_t width, int64_t turned, int64_t period, double sign, const T* x,     \
                       const T* cos, const T* sin, T* y) {                                                                     \
        rotate(rows, heads, width, turned, period, sign, x, cos, sin, y);                                                      \
    }

LAYERS(f32, float)
LAYERS(f64, double)
LAYERS(bf16, Bfloat16)
}
