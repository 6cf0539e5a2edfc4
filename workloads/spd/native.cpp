// Importance functions with one number in and one out, forward and backward, without a tensor of hidden features.
// Built by native.py; compiled with -fopenmp-simd only.
//
// Network n: g = sum over i of v_i gelu(w_i a + b_i) + c. Loops run over rows, which lie side by side.

#include <cmath>
#include <cstdint>
#include <cstring>

namespace {

template <class T>
struct Normal {
    T cumulative, density;
};

// exp(y) for y <= 0: 2^k times Cephes' polynomial on |r| <= ln 2 / 2.
inline float exp_negative(float y) {
    y = y < -87.0f ? -87.0f : y;
    const float shifted = y * 1.44269504088896341f + 12582912.0f;  // rounds to the nearest integer
    const float k = shifted - 12582912.0f;
    const float r = (y - k * 0.693359375f) + k * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    const int32_t scale = (static_cast<int32_t>(k) + 127) << 23;
    float factor;
    std::memcpy(&factor, &scale, sizeof factor);
    return p * factor;
}

// Abramowitz and Stegun 7.1.26: erfc to 1.5e-7, by one exponential that the density needs as well.
inline Normal<float> normal(float z) {
    const float e = exp_negative(-0.5f * z * z);
    const float t = 1.0f / (1.0f + 0.3275911f * 0.70710678118f * std::fabs(z));
    float p = 1.061405429f;
    p = p * t - 1.453152027f;
    p = p * t + 1.421413741f;
    p = p * t - 0.284496736f;
    p = p * t + 0.254829592f;
    const float tail = 0.5f * p * t * e;
    return {z < 0.0f ? tail : 1.0f - tail, 0.39894228040f * e};
}

inline Normal<double> normal(double z) {
    return {0.5 * std::erfc(-z * 0.70710678118654752440), 0.39894228040143267794 * std::exp(-0.5 * z * z)};
}

template <class T>
void forward(int64_t networks, int64_t rows, int64_t hidden, const T* a, const T* w, const T* b, const T* v, const T* c, T* g) {
    for (int64_t n = 0; n < networks; ++n, a += rows, g += rows) {
        for (int64_t row = 0; row < rows; ++row) g[row] = c[n];
        for (int64_t i = n * hidden; i < (n + 1) * hidden; ++i) {
            const T slope = w[i], shift = b[i], share = v[i];
#pragma omp simd
            for (int64_t row = 0; row < rows; ++row) {
                const T z = slope * a[row] + shift;
                g[row] += share * z * normal(z).cumulative;
            }
        }
    }
}

// From d, the gradient towards g: towards a, and of w, b, v and c.
template <class T>
void backward(int64_t networks, int64_t rows, int64_t hidden, const T* a, const T* w, const T* b, const T* v, const T* d, T* of_a,
              T* of_w, T* of_b, T* of_v, T* of_c) {
    for (int64_t n = 0; n < networks; ++n, a += rows, d += rows, of_a += rows) {
        T total = 0;
#pragma omp simd reduction(+ : total)
        for (int64_t row = 0; row < rows; ++row) {
            of_a[row] = 0;
            total += d[row];
        }
        of_c[n] = total;
        for (int64_t i = n * hidden; i < (n + 1) * hidden; ++i) {
            const T slope = w[i], shift = b[i], share = v[i];
            T sum_w = 0, sum_b = 0, sum_v = 0;
#pragma omp simd reduction(+ : sum_w, sum_b, sum_v)
            for (int64_t row = 0; row < rows; ++row) {
                const T z = slope * a[row] + shift;
                const Normal<T> at = normal(z);
                const T inner = d[row] * share * (at.cumulative + z * at.density);
                sum_v += d[row] * z * at.cumulative;
                sum_b += inner;
                sum_w += inner * a[row];
                of_a[row] += inner * slope;
            }
            of_w[i] = sum_w;
            of_b[i] = sum_b;
            of_v[i] = sum_v;
        }
    }
}

}  // namespace

#define EXPORT(T, NAME)                                                                                                         \
    extern "C" void importance_forward_##NAME(int64_t networks, int64_t rows, int64_t hidden, const T* a, const T* w, const T* b, \
                                              const T* v, const T* c, T* g) {                                                   \
        forward<T>(networks, rows, hidden, a, w, b, v, c, g);                                                                   \
    }                                                                                                                           \
    extern "C" void importance_backward_##NAME(int64_t networks, int64_t rows, int64_t hidden, const T* a, const T* w, const T* b, \
                                               const T* v, const T* d, T* of_a, T* of_w, T* of_b, T* of_v, T* of_c) {           \
        backward<T>(networks, rows, hidden, a, w, b, v, d, of_a, of_w, of_b, of_v, of_c);                                       \
    }

EXPORT(float, f32)
EXPORT(double, f64)
