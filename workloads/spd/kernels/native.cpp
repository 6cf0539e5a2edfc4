// A toy's iteration: the target, importance functions with one number in and one out, three masked passes, and every gradient.
// Built by native.py; compiled with -fopenmp-simd only.
//
// Importance function n: g = sum over i of v_i gelu(w_i a + b_i) + c. The passes are those of formulas.py. A block of rows goes
// the whole way, forward and backward, while all that it needs lies in the second cache; gradients add up over blocks. Loops run
// over the rows of a block, which lie side by side: [P, K, C] of everything that has a number for each row.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "exponential.h"

namespace {

constexpr int64_t LINE = 64;  // rows of a block; the last one is filled up with rows of zeros


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

// What a call works on: K = 2 modules, P = 2 draws (for both modules, for each alone), C subcomponents, f features, d bottleneck.
// The order is that of `PARTS` in native.py.
template <class T>
struct Toy {
    int64_t rows, count, hidden, features, width;
    double weight[3], minimality, p, beta;
    const T *batch, *sources[2], *deltas[2];                       // [B, f], [K, B, C] and [K, B] of each draw
    const T *down, *up, *bias, *first_V, *first_U, *second_V, *second_U, *w, *b, *v, *c;
    T *lower, *terms;                                              // [K, C, B] and [4]
    T *of_first_V, *of_first_U, *of_second_V, *of_second_U, *of_w, *of_b, *of_v, *of_c;
    T *x, *h, *a, *g, *s, *mu, *mask, *inner, *after, *middle, *outer, *raw, *towards, *of_a, *direct, *line;  // of a block
    T *gelu, *bend;                                                // of a block: value and slope of every hidden unit
    int64_t lines = 0;                                             // of the workspace, LINE numbers each

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
            {&x, features}, {&h, width}, {&a, 2 * C}, {&g, 2 * C}, {&s, 4 * C}, {&mu, 4}, {&mask, 4 * C}, {&inner, 2 * C},
            {&after, 2 * width}, {&middle, 2 * C}, {&outer, 2 * C}, {&raw, 3 * features}, {&towards, 2 * C}, {&of_a, 2 * C},
            {&direct, C}, {&line, 2 * width + 1}, {&gelu, 2 * C * hidden}, {&bend, 2 * C * hidden}};
        for (auto& part : carved) *part.one = space + lines * LINE, lines += part.lines;
    }
};

template <class T>
inline void set(T* to, T value) {
    for (int64_t row = 0; row < LINE; ++row) to[row] = value;
}

template <class T>
inline void add(T* to, T factor, const T* from) {
#pragma omp simd
    for (int64_t row = 0; row < LINE; ++row) to[row] += factor * from[row];
}

template <class T>
inline void add_product(T* to, const T* one, const T* other) {
#pragma omp simd
    for (int64_t row = 0; row < LINE; ++row) to[row] += one[row] * other[row];
}

template <class T>
inline T dot(const T* one, const T* other) {
    T sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t row = 0; row < LINE; ++row) sum += one[row] * other[row];
    return sum;
}

// [rows, columns] to [columns, LINE].
template <class T>
inline void transpose(int64_t rows, int64_t columns, const T* from, T* to) {
    for (int64_t column = 0; column < columns; ++column, to += LINE) {
        for (int64_t row = 0; row < rows; ++row) to[row] = from[row * columns + column];
        for (int64_t row = rows; row < LINE; ++row) to[row] = 0;
    }
}

// Activations of the target and importances of the `rows` rows from `first` on.
template <class T>
void importances(const Toy<T>& t, int64_t first, int64_t rows) {
    const int64_t C = t.count, f = t.features, d = t.width;
    transpose(rows, f, t.batch + first * f, t.x);
    for (int64_t j = 0; j < d; ++j) {
        set(t.h + j * LINE, T(0));
        for (int64_t i = 0; i < f; ++i) add(t.h + j * LINE, t.down[j * f + i], t.x + i * LINE);
    }
    for (int64_t c = 0; c < C; ++c) {
        T *one = t.a + c * LINE, *other = t.a + (C + c) * LINE;
        set(one, T(0));
        set(other, T(0));
        for (int64_t i = 0; i < f; ++i) add(one, t.first_V[i * C + c], t.x + i * LINE);
        for (int64_t j = 0; j < d; ++j) add(other, t.second_V[j * C + c], t.h + j * LINE);
    }
    for (int64_t n = 0; n < 2 * C; ++n) {
        const T* a = t.a + n * LINE;
        T* g = t.g + n * LINE;
        set(g, t.c[n]);
        for (int64_t i = n * t.hidden; i < (n + 1) * t.hidden; ++i) {
            const T slope = t.w[i], shift = t.b[i], share = t.v[i];
            T *gelu = t.gelu + i * LINE, *bend = t.bend + i * LINE;
#pragma omp simd
            for (int64_t row = 0; row < LINE; ++row) {
                const T z = slope * a[row] + shift;
                const Normal<T> at = normal(z);
                const T value = z * at.cumulative;
                gelu[row] = value;
                bend[row] = at.cumulative + z * at.density;
                g[row] += share * value;
            }
        }
    }
}

// From `towards`, the gradient towards g: towards a into `of_a`, and of w, b, v and c.
template <class T>
void importances_backward(const Toy<T>& t) {
    for (int64_t n = 0; n < 2 * t.count; ++n) {
        const T *a = t.a + n * LINE, *d = t.towards + n * LINE;
        T* of_a = t.of_a + n * LINE;
        T total = 0;
#pragma omp simd reduction(+ : total)
        for (int64_t row = 0; row < LINE; ++row) {
            of_a[row] = 0;
            total += d[row];
        }
        t.of_c[n] += total;
        for (int64_t i = n * t.hidden; i < (n + 1) * t.hidden; ++i) {
            const T slope = t.w[i], share = t.v[i];
            const T *gelu = t.gelu + i * LINE, *bend = t.bend + i * LINE;
            T sum_w = 0, sum_b = 0, sum_v = 0;
#pragma omp simd reduction(+ : sum_w, sum_b, sum_v)
            for (int64_t row = 0; row < LINE; ++row) {
                const T inner = d[row] * share * bend[row];
                sum_v += d[row] * gelu[row];
                sum_b += inner;
                sum_w += inner * a[row];
                of_a[row] += inner * slope;
            }
            t.of_w[i] += sum_w;
            t.of_b[i] += sum_b;
            t.of_v[i] += sum_v;
        }
    }
}

template <class T>
inline T upper(T g) {
    return (g > 1 ? 1 + T(0.01) * (g - 1) : g < 0 ? T(0) : g) + T(1e-12);
}

// Sums of the powers of importances, added to `sums` [K * C]; with `keep`, importances for masks and what minimality's gradient
// towards g is but for a factor, which is left in `towards`.
template <class T>
void powers(const Toy<T>& t, int64_t first, int64_t rows, double* sums, bool keep) {
    for (int64_t n = 0; n < 2 * t.count; ++n) {
        const T* g = t.g + n * LINE;
        T *towards = t.towards + n * LINE, *power = t.line, *lower = t.lower + n * t.rows + first;
        if (t.p == 1) {
            for (int64_t row = 0; row < LINE; ++row) power[row] = upper(g[row]);
        } else {
            for (int64_t row = 0; row < LINE; ++row) power[row] = std::pow(upper(g[row]), T(t.p));
        }
        T sum = 0;
        for (int64_t row = rows; row < LINE; ++row) power[row] = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t row = 0; row < LINE; ++row) sum += power[row];
        sums[n] += sum;
        if (!keep) continue;
#pragma omp simd
        for (int64_t row = 0; row < LINE; ++row) {
            const T slope = t.p == 1 ? T(1) : T(t.p) * power[row] / upper(g[row]);
            towards[row] = slope * (g[row] > 1 ? T(0.01) : g[row] >= 0 ? T(1) : T(0));
        }
        for (int64_t row = rows; row < LINE; ++row) towards[row] = 0;
        for (int64_t row = 0; row < rows; ++row) lower[row] = g[row] < 0 ? T(0) : g[row] > 1 ? T(1) : g[row];
    }
}

// The gradient of minimality in `towards`, given the sums over all rows, which count only with beta.
template <class T>
void weigh_powers(const Toy<T>& t, const double* sums) {
    for (int64_t n = 0; n < 2 * t.count; ++n) {
        const double total = sums[n], logged = t.beta * std::log2(1 + total);
        const T slope = T((1 + logged + t.beta * total / ((1 + total) * std::log(2.0))) * t.minimality / t.rows);
        for (int64_t row = 0; row < LINE; ++row) t.towards[n * LINE + row] *= slope;
    }
}

// m - mu of every draw and module.
template <class T>
void masks(const Toy<T>& t) {
    for (int64_t n = 0; n < 4 * t.count; ++n) {
        const T *g = t.g + n % (2 * t.count) * LINE, *s = t.s + n * LINE, *mu = t.mu + n / t.count * LINE;
        T* mask = t.mask + n * LINE;
#pragma omp simd
        for (int64_t row = 0; row < LINE; ++row) {
            const T ci = g[row] < 0 ? T(0) : g[row] > 1 ? T(1) : g[row];
            mask[row] = ci + (1 - ci) * s[row] - mu[row];
        }
    }
}

// What a pass is off by goes into `raw`, as the gradient towards what comes before the last rectifier; the sum of squares is
// returned. Rows of zeros are off by nothing.
template <class T>
double error(const Toy<T>& t, int64_t pass) {
    double squares = 0;
    const T scale = T(2 * t.weight[pass] / (double(t.rows) * t.features));
    for (int64_t i = 0; i < t.features; ++i) {
        T *raw = t.raw + (pass * t.features + i) * LINE, *output = t.line;
        set(output, t.bias[i]);
        for (int64_t j = 0; j < t.width; ++j) add(output, t.up[i * t.width + j], t.h + j * LINE);
        T sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t row = 0; row < LINE; ++row) {
            const T before = raw[row] + t.bias[i];
            const T off = (before < 0 ? T(0) : before) - (output[row] < 0 ? T(0) : output[row]);
            sum += off * off;
            raw[row] = before > 0 ? off * scale : T(0);
        }
        squares += sum;
    }
    return squares;
}

template <class T>
void draws(const Toy<T>& t, int64_t first, int64_t rows) {
    for (int64_t draw = 0; draw < 2; ++draw)
        for (int64_t module = 0; module < 2; ++module) {
            const int64_t n = 2 * draw + module, skipped = module * t.rows + first;
            transpose(rows, t.count, t.sources[draw] + skipped * t.count, t.s + n * t.count * LINE);
            transpose(rows, int64_t(1), t.deltas[draw] + skipped, t.mu + n * LINE);
        }
}

template <class T>
void passes(const Toy<T>& t) {
    const int64_t C = t.count, f = t.features, d = t.width;
    for (int64_t draw = 0; draw < 2; ++draw) {
        const T *first = t.mask + 2 * draw * C * LINE, *second = first + C * LINE, *mu = t.mu + 2 * draw * LINE;
        T* after = t.after + draw * d * LINE;
        for (int64_t j = 0; j < d; ++j) {
            set(after + j * LINE, T(0));
            add_product(after + j * LINE, mu, t.h + j * LINE);
        }
        for (int64_t c = 0; c < C; ++c) {
            T* inner = t.inner + (draw * C + c) * LINE;
            set(inner, T(0));
            add_product(inner, first + c * LINE, t.a + c * LINE);
            for (int64_t j = 0; j < d; ++j) add(after + j * LINE, t.first_U[c * d + j], inner);
        }
        const T* read = draw ? t.h : after;
        T* raw = t.raw + draw * f * LINE;
        for (int64_t i = 0; i < f; ++i) {
            set(t.line, T(0));
            for (int64_t j = 0; j < d; ++j) add(t.line, t.up[i * d + j], read + j * LINE);
            set(raw + i * LINE, T(0));
            add_product(raw + i * LINE, mu + LINE, t.line);
        }
        for (int64_t c = 0; c < C; ++c) {
            T *middle = t.middle + (draw * C + c) * LINE, *outer = t.outer + (draw * C + c) * LINE;
            set(middle, T(0));
            for (int64_t j = 0; j < d; ++j) add(middle, t.second_V[j * C + c], read + j * LINE);
            set(outer, T(0));
            add_product(outer, second + c * LINE, middle);
            for (int64_t i = 0; i < f; ++i) add(raw + i * LINE, t.second_U[c * f + i], outer);
        }
    }
    for (int64_t i = 0; i < f; ++i) {
        T* raw = t.raw + (2 * f + i) * LINE;
        set(raw, T(0));
        for (int64_t j = 0; j < d; ++j) add(raw, t.up[i * d + j], t.after + (d + j) * LINE);
    }
}

// The gradient towards importances that comes through a mask, by what it reaches of g; added to that of minimality.
template <class T>
inline void through_mask(const T* one, const T* s, const T* other, const T* r, const T* g, T* towards) {
#pragma omp simd
    for (int64_t row = 0; row < LINE; ++row) {
        const T incoming = one[row] * (1 - s[row]) + other[row] * (1 - r[row]);
        const T leaked = T(0.01) * (incoming < 0 ? incoming : T(0));
        towards[row] += g[row] <= 0 ? leaked : g[row] <= 1 ? incoming : T(0);
    }
}

template <class T>
void passes_backward(const Toy<T>& t) {
    const int64_t C = t.count, f = t.features, d = t.width;
    T *after = t.line, *line = t.line + 2 * d * LINE;
    for (int64_t j = 0; j < d; ++j) {
        T *both = after + j * LINE, *alone = after + (d + j) * LINE;
        set(both, T(0));
        set(alone, T(0));
        set(line, T(0));
        for (int64_t i = 0; i < f; ++i) {
            add(line, t.up[i * d + j], t.raw + i * LINE);
            add(alone, t.up[i * d + j], t.raw + (2 * f + i) * LINE);
        }
        add_product(both, t.mu + LINE, line);
    }
    for (int64_t c = 0; c < C; ++c) {
        T* towards[2] = {t.of_a + c * LINE, t.of_a + (C + c) * LINE};  // towards the masks of both draws; of_a is not filled yet
        for (int64_t draw = 0; draw < 2; ++draw) {
            const T *raw = t.raw + draw * f * LINE, *read = draw ? t.h : t.after;
            const T *middle = t.middle + (draw * C + c) * LINE, *mask = t.mask + ((2 * draw + 1) * C + c) * LINE;
            set(towards[draw], T(0));
            for (int64_t i = 0; i < f; ++i) {
                add(towards[draw], t.second_U[c * f + i], raw + i * LINE);
                t.of_second_U[c * f + i] += dot(t.outer + (draw * C + c) * LINE, raw + i * LINE);
            }
            set(line, T(0));
            add_product(line, towards[draw], mask);
            for (int64_t j = 0; j < d; ++j) {
                t.of_second_V[j * C + c] += dot(read + j * LINE, line);
                if (draw == 0) add(after + j * LINE, t.second_V[j * C + c], line);
            }
            for (int64_t row = 0; row < LINE; ++row) towards[draw][row] *= middle[row];
        }
        const int64_t n = C + c;
        through_mask(towards[0], t.s + n * LINE, towards[1], t.s + (2 * C + n) * LINE, t.g + n * LINE, t.towards + n * LINE);
    }
    for (int64_t c = 0; c < C; ++c) {
        T* towards[2] = {t.of_a + c * LINE, t.of_a + (C + c) * LINE};
        T* direct = t.direct + c * LINE;
        set(direct, T(0));
        for (int64_t draw = 0; draw < 2; ++draw) {
            set(towards[draw], T(0));
            for (int64_t j = 0; j < d; ++j) add(towards[draw], t.first_U[c * d + j], after + (draw * d + j) * LINE);
            add_product(direct, towards[draw], t.mask + (2 * draw * C + c) * LINE);
            for (int64_t row = 0; row < LINE; ++row) towards[draw][row] *= t.a[c * LINE + row];
        }
        for (int64_t j = 0; j < d; ++j)
            t.of_first_U[c * d + j] +=
                dot(t.inner + c * LINE, after + j * LINE) + dot(t.inner + (C + c) * LINE, after + (d + j) * LINE);
        through_mask(towards[0], t.s + c * LINE, towards[1], t.s + (2 * C + c) * LINE, t.g + c * LINE, t.towards + c * LINE);
    }
    importances_backward(t);
    for (int64_t c = 0; c < C; ++c) {
        add(t.of_a + c * LINE, T(1), t.direct + c * LINE);
        for (int64_t i = 0; i < f; ++i) t.of_first_V[i * C + c] += dot(t.x + i * LINE, t.of_a + c * LINE);
        for (int64_t j = 0; j < d; ++j) t.of_second_V[j * C + c] += dot(t.h + j * LINE, t.of_a + (C + c) * LINE);
    }
}

template <class T>
void toy_gradients(const Toy<T>& t) {
    const int64_t C = t.count, f = t.features, d = t.width;
    const struct { T* one; int64_t size; } gradients[] = {
        {t.of_first_V, f * C}, {t.of_first_U, C * d}, {t.of_second_V, d * C}, {t.of_second_U, C * f}, {t.of_w, 2 * C * t.hidden},
        {t.of_b, 2 * C * t.hidden}, {t.of_v, 2 * C * t.hidden}, {t.of_c, 2 * C}};
    for (auto& gradient : gradients) std::memset(gradient.one, 0, gradient.size * sizeof(T));
    std::vector<double> sums(2 * C), ignored(2 * C);
    double squares[3] = {};
    for (int64_t first = 0; t.beta != 0 && first < t.rows; first += LINE) {
        const int64_t rows = std::min(LINE, t.rows - first);
        importances(t, first, rows);
        powers(t, first, rows, sums.data(), false);
    }
    for (int64_t first = 0; first < t.rows; first += LINE) {
        const int64_t rows = std::min(LINE, t.rows - first);
        importances(t, first, rows);
        powers(t, first, rows, (t.beta != 0 ? ignored : sums).data(), true);
        weigh_powers(t, sums.data());
        draws(t, first, rows);
        masks(t);
        passes(t);
        for (int64_t pass = 0; pass < 3; ++pass) squares[pass] += error(t, pass) / (double(t.rows) * f);
        passes_backward(t);
    }
    double sparse = 0;
    for (double sum : sums) sparse += sum / t.rows * (1 + t.beta * std::log2(1 + sum));
    t.terms[0] = T(sparse), t.terms[1] = T(squares[0]), t.terms[2] = T((squares[1] + squares[2]) / 2);
    t.terms[3] = T(t.minimality * sparse + t.weight[0] * squares[0] + t.weight[1] * squares[1] + t.weight[2] * squares[2]);
}

}  // namespace

extern "C" int64_t toy_numbers(const int64_t* sizes) {
    const double factors[6] = {};
    void* const parts[27] = {};
    return Toy<char>(sizes, factors, parts).lines * LINE;
}

#define EXPORT(T, NAME)                                                                                          \
    extern "C" void toy_gradients_##NAME(const int64_t* sizes, const double* factors, void* const* parts) {      \
        toy_gradients(Toy<T>(sizes, factors, parts));                                                            \
    }

EXPORT(float, f32)
EXPORT(double, f64)
