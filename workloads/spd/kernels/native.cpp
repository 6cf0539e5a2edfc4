// A toy's iteration: the target, importance functions with one number in and one out, three masked passes, and every gradient.
// Built by native.py; compiled with -fopenmp-simd only.
//
// Importance function n: g = sum over i of v_i gelu(w_i a + b_i) + c. The passes are those of formulas.py. Loops run over rows,
// which lie side by side: [P, K, C] of everything that has a number for each row.

#include <cmath>
#include <cstdint>
#include <cstring>

#include "exponential.h"

namespace {

template <class T>
struct Normal {
    T cumulative, density;
};

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

// What a call works on: K = 2 modules, P = 2 draws (for both modules, for each alone), C subcomponents, f features, d bottleneck.
// The order is that of `PARTS` in native.py.
template <class T>
struct Toy {
    int64_t rows, count, hidden, features, width;
    double weight[3], minimality, p, beta;
    const T *batch, *sources[2], *deltas[2];                       // [B, f], [K, B, C] and [K, B] of each draw
    const T *down, *up, *bias, *first_V, *first_U, *second_V, *second_U, *w, *b, *v, *c;
    T *lower, *terms;                                              // [K, B, C] and [4]
    T *of_first_V, *of_first_U, *of_second_V, *of_second_U, *of_w, *of_b, *of_v, *of_c;
    T *x, *h, *a, *g, *s, *mask, *inner, *after, *middle, *outer, *raw, *towards, *of_a, *direct, *line;  // in the workspace
    int64_t lines = 0;                                             // of the workspace, B numbers each

    Toy(const int64_t* sizes, const double* factors, void* const* parts) {
        rows = sizes[0], count = sizes[1], hidden = sizes[2], features = sizes[3], width = sizes[4];
        for (int i = 0; i < 3; ++i) weight[i] = factors[i];
        minimality = factors[3], p = factors[4], beta = factors[5];
        const T** in[] = {&batch, &sources[0], &sources[1], &deltas[0], &deltas[1], &down, &up, &bias, &first_V, &first_U,
                          &second_V, &second_U, &w, &b, &v, &c};
        for (auto one : in) *one = static_cast<const T*>(*parts++);
        T** out[] = {&lower, &terms, &of_first_V, &of_first_U, &of_second_V, &of_second_U, &of_w, &of_b, &of_v, &of_c};
        for (auto one : out) *one = static_cast<T*>(*parts++);
        T* space = static_cast<T*>(*parts);
        const int64_t C = count;
        const struct { T** one; int64_t lines; } carved[] = {
            {&x, features}, {&h, width}, {&a, 2 * C}, {&g, 2 * C}, {&s, 4 * C}, {&mask, 4 * C}, {&inner, 2 * C},
            {&after, 2 * width}, {&middle, 2 * C}, {&outer, 2 * C}, {&raw, 3 * features}, {&towards, 2 * C}, {&of_a, 2 * C},
            {&direct, C}, {&line, 2 * width + 1}};
        for (auto& part : carved) *part.one = space + lines * rows, lines += part.lines;
    }
};

template <class T>
inline void set(int64_t rows, T* to, T value) {
    for (int64_t row = 0; row < rows; ++row) to[row] = value;
}

template <class T>
inline void add(int64_t rows, T* to, T factor, const T* from) {
#pragma omp simd
    for (int64_t row = 0; row < rows; ++row) to[row] += factor * from[row];
}

template <class T>
inline void add_product(int64_t rows, T* to, const T* one, const T* other) {
#pragma omp simd
    for (int64_t row = 0; row < rows; ++row) to[row] += one[row] * other[row];
}

template <class T>
inline T dot(int64_t rows, const T* one, const T* other) {
    T sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t row = 0; row < rows; ++row) sum += one[row] * other[row];
    return sum;
}

// [rows, columns] to [columns, rows].
template <class T>
inline void transpose(int64_t rows, int64_t columns, const T* from, T* to) {
    for (int64_t row = 0; row < rows; ++row)
        for (int64_t column = 0; column < columns; ++column) to[column * rows + row] = from[row * columns + column];
}

// Importances for masks, the minimality loss, and its gradient towards g, which is left in `towards`.
template <class T>
double sparsity(const Toy<T>& t) {
    double found = 0;
    for (int64_t n = 0; n < 2 * t.count; ++n) {
        const T* g = t.g + n * t.rows;
        T* towards = t.towards + n * t.rows;
        T* mask = t.lower + n / t.count * t.count * t.rows + n % t.count;
        T sum = 0;
        for (int64_t row = 0; row < t.rows; ++row) {
            mask[row * t.count] = g[row] < 0 ? T(0) : g[row] > 1 ? T(1) : g[row];
            const T upper = (g[row] > 1 ? 1 + T(0.01) * (g[row] - 1) : g[row] < 0 ? T(0) : g[row]) + T(1e-12);
            const T power = t.p == 1 ? upper : std::pow(upper, T(t.p));
            sum += power;
            towards[row] = (t.p == 1 ? T(1) : T(t.p) * power / upper) * (g[row] > 1 ? T(0.01) : g[row] >= 0 ? T(1) : T(0));
        }
        const double total = sum, logged = t.beta * std::log2(1 + total);
        found += total / t.rows * (1 + logged);
        const T slope = T((1 + logged + t.beta * total / ((1 + total) * std::log(2.0))) * t.minimality / t.rows);
        for (int64_t row = 0; row < t.rows; ++row) towards[row] *= slope;
    }
    return found;
}

// m - mu of every draw and module.
template <class T>
void masks(const Toy<T>& t) {
    for (int64_t n = 0; n < 4 * t.count; ++n) {
        const int64_t draw = n / (2 * t.count), module = n / t.count % 2;
        const T *g = t.g + n % (2 * t.count) * t.rows, *s = t.s + n * t.rows, *mu = t.deltas[draw] + module * t.rows;
        T* mask = t.mask + n * t.rows;
#pragma omp simd
        for (int64_t row = 0; row < t.rows; ++row) {
            const T ci = g[row] < 0 ? T(0) : g[row] > 1 ? T(1) : g[row];
            mask[row] = ci + (1 - ci) * s[row] - mu[row];
        }
    }
}

// What a pass is off by goes into `raw`, as the gradient towards what comes before the last rectifier; the mean square is returned.
template <class T>
double error(const Toy<T>& t, int64_t pass) {
    double squares = 0;
    const T scale = T(2 * t.weight[pass] / (double(t.rows) * t.features));
    for (int64_t i = 0; i < t.features; ++i) {
        T *raw = t.raw + (pass * t.features + i) * t.rows, *output = t.line;
        set(t.rows, output, t.bias[i]);
        for (int64_t j = 0; j < t.width; ++j) add(t.rows, output, t.up[i * t.width + j], t.h + j * t.rows);
        T sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t row = 0; row < t.rows; ++row) {
            const T before = raw[row] + t.bias[i];
            const T off = (before < 0 ? T(0) : before) - (output[row] < 0 ? T(0) : output[row]);
            sum += off * off;
            raw[row] = before > 0 ? off * scale : T(0);
        }
        squares += sum;
    }
    return squares / (double(t.rows) * t.features);
}

template <class T>
void toy_forward(const Toy<T>& t) {
    const int64_t B = t.rows, C = t.count, f = t.features, d = t.width;
    transpose(B, f, t.batch, t.x);
    for (int64_t draw = 0; draw < 2; ++draw)
        for (int64_t module = 0; module < 2; ++module)
            transpose(B, C, t.sources[draw] + module * B * C, t.s + (2 * draw + module) * C * B);
    for (int64_t j = 0; j < d; ++j) {
        set(B, t.h + j * B, T(0));
        for (int64_t i = 0; i < f; ++i) add(B, t.h + j * B, t.down[j * f + i], t.x + i * B);
    }
    for (int64_t c = 0; c < 2 * C; ++c) set(B, t.a + c * B, T(0));
    for (int64_t c = 0; c < C; ++c) {
        for (int64_t i = 0; i < f; ++i) add(B, t.a + c * B, t.first_V[i * C + c], t.x + i * B);
        for (int64_t j = 0; j < d; ++j) add(B, t.a + (C + c) * B, t.second_V[j * C + c], t.h + j * B);
    }
    forward(2 * C, B, t.hidden, t.a, t.w, t.b, t.v, t.c, t.g);
    masks(t);
    for (int64_t draw = 0; draw < 2; ++draw) {
        const T *first = t.mask + 2 * draw * C * B, *second = first + C * B, *mu = t.deltas[draw];
        T* after = t.after + draw * d * B;
        for (int64_t j = 0; j < d; ++j) {
            set(B, after + j * B, T(0));
            add_product(B, after + j * B, mu, t.h + j * B);
        }
        for (int64_t c = 0; c < C; ++c) {
            T* inner = t.inner + (draw * C + c) * B;
            set(B, inner, T(0));
            add_product(B, inner, first + c * B, t.a + c * B);
            for (int64_t j = 0; j < d; ++j) add(B, after + j * B, t.first_U[c * d + j], inner);
        }
        const T* read = draw ? t.h : after;
        T* raw = t.raw + draw * f * B;
        for (int64_t i = 0; i < f; ++i) {
            set(B, t.line, T(0));
            for (int64_t j = 0; j < d; ++j) add(B, t.line, t.up[i * d + j], read + j * B);
            set(B, raw + i * B, T(0));
            add_product(B, raw + i * B, mu + B, t.line);
        }
        for (int64_t c = 0; c < C; ++c) {
            T *middle = t.middle + (draw * C + c) * B, *outer = t.outer + (draw * C + c) * B;
            set(B, middle, T(0));
            for (int64_t j = 0; j < d; ++j) add(B, middle, t.second_V[j * C + c], read + j * B);
            set(B, outer, T(0));
            add_product(B, outer, second + c * B, middle);
            for (int64_t i = 0; i < f; ++i) add(B, raw + i * B, t.second_U[c * f + i], outer);
        }
    }
    for (int64_t i = 0; i < f; ++i) {
        T* raw = t.raw + (2 * f + i) * B;
        set(B, raw, T(0));
        for (int64_t j = 0; j < d; ++j) add(B, raw, t.up[i * d + j], t.after + (d + j) * B);
    }
    const double sparse = sparsity(t), both = error(t, 0), second = error(t, 1), first = error(t, 2);
    t.terms[0] = T(sparse), t.terms[1] = T(both), t.terms[2] = T((first + second) / 2);
    t.terms[3] = T(t.minimality * sparse + t.weight[0] * both + t.weight[1] * second + t.weight[2] * first);
}

// The gradient towards importances that comes through a mask, by what it reaches of g; added to that of minimality.
template <class T>
inline void through_mask(int64_t rows, const T* one, const T* s, const T* other, const T* r, const T* g, T* towards) {
#pragma omp simd
    for (int64_t row = 0; row < rows; ++row) {
        const T incoming = one[row] * (1 - s[row]) + other[row] * (1 - r[row]);
        const T leaked = T(0.01) * (incoming < 0 ? incoming : T(0));
        towards[row] += g[row] <= 0 ? leaked : g[row] <= 1 ? incoming : T(0);
    }
}

template <class T>
void toy_backward(const Toy<T>& t) {
    const int64_t B = t.rows, C = t.count, f = t.features, d = t.width;
    T *after = t.line, *line = t.line + 2 * d * B;
    for (int64_t j = 0; j < d; ++j) {
        T *both = after + j * B, *alone = after + (d + j) * B;
        set(B, both, T(0));
        set(B, alone, T(0));
        set(B, line, T(0));
        for (int64_t i = 0; i < f; ++i) {
            add(B, line, t.up[i * d + j], t.raw + i * B);
            add(B, alone, t.up[i * d + j], t.raw + (2 * f + i) * B);
        }
        add_product(B, both, t.deltas[0] + B, line);
    }
    for (int64_t c = 0; c < C; ++c) {
        T* towards[2] = {t.of_a + c * B, t.of_a + (C + c) * B};  // towards the masks of both draws; of_a is not filled yet
        for (int64_t j = 0; j < d; ++j) t.of_second_V[j * C + c] = 0;
        for (int64_t i = 0; i < f; ++i) t.of_second_U[c * f + i] = 0;
        for (int64_t draw = 0; draw < 2; ++draw) {
            const T *raw = t.raw + draw * f * B, *read = draw ? t.h : t.after;
            const T *middle = t.middle + (draw * C + c) * B, *mask = t.mask + ((2 * draw + 1) * C + c) * B;
            set(B, towards[draw], T(0));
            for (int64_t i = 0; i < f; ++i) {
                add(B, towards[draw], t.second_U[c * f + i], raw + i * B);
                t.of_second_U[c * f + i] += dot(B, t.outer + (draw * C + c) * B, raw + i * B);
            }
            set(B, line, T(0));
            add_product(B, line, towards[draw], mask);
            for (int64_t j = 0; j < d; ++j) {
                t.of_second_V[j * C + c] += dot(B, read + j * B, line);
                if (draw == 0) add(B, after + j * B, t.second_V[j * C + c], line);
            }
            for (int64_t row = 0; row < B; ++row) towards[draw][row] *= middle[row];
        }
        const int64_t n = C + c;
        through_mask(B, towards[0], t.s + n * B, towards[1], t.s + (2 * C + n) * B, t.g + n * B, t.towards + n * B);
    }
    for (int64_t c = 0; c < C; ++c) {
        T* towards[2] = {t.of_a + c * B, t.of_a + (C + c) * B};
        T* direct = t.direct + c * B;
        set(B, direct, T(0));
        for (int64_t draw = 0; draw < 2; ++draw) {
            set(B, towards[draw], T(0));
            for (int64_t j = 0; j < d; ++j) add(B, towards[draw], t.first_U[c * d + j], after + (draw * d + j) * B);
            add_product(B, direct, towards[draw], t.mask + (2 * draw * C + c) * B);
            for (int64_t row = 0; row < B; ++row) towards[draw][row] *= t.a[c * B + row];
        }
        for (int64_t j = 0; j < d; ++j)
            t.of_first_U[c * d + j] =
                dot(B, t.inner + c * B, after + j * B) + dot(B, t.inner + (C + c) * B, after + (d + j) * B);
        through_mask(B, towards[0], t.s + c * B, towards[1], t.s + (2 * C + c) * B, t.g + c * B, t.towards + c * B);
    }
    backward(2 * C, B, t.hidden, t.a, t.w, t.b, t.v, t.towards, t.of_a, t.of_w, t.of_b, t.of_v, t.of_c);
    for (int64_t c = 0; c < C; ++c) {
        add(B, t.of_a + c * B, T(1), t.direct + c * B);
        for (int64_t i = 0; i < f; ++i) t.of_first_V[i * C + c] = dot(B, t.x + i * B, t.of_a + c * B);
        for (int64_t j = 0; j < d; ++j) t.of_second_V[j * C + c] += dot(B, t.h + j * B, t.of_a + (C + c) * B);
    }
}

}  // namespace

extern "C" int64_t toy_lines(const int64_t* sizes) {
    const double factors[6] = {};
    void* const parts[27] = {};
    return Toy<char>(sizes, factors, parts).lines;
}

#define EXPORT(T, NAME)                                                                                          \
    extern "C" void toy_forward_##NAME(const int64_t* sizes, const double* factors, void* const* parts) {        \
        toy_forward(Toy<T>(sizes, factors, parts));                                                              \
    }                                                                                                            \
    extern "C" void toy_backward_##NAME(const int64_t* sizes, const double* factors, void* const* parts) {       \
        toy_backward(Toy<T>(sizes, factors, parts));                                                             \
    }

EXPORT(float, f32)
EXPORT(double, f64)
