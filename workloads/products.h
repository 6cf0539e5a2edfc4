// Products of matrices on one core, c = a b or c += a b: sums of a block of rows by a panel of columns stay in registers, and the
// panel is packed so that it is read in order. Either matrix may lie across. Every element is one sum over k in ascending order,
// cut into pieces of at most DEPTH, so that a row comes to the same value whatever rows stand beside it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

namespace products {

#if defined(__AVX512F__)
constexpr int BYTES = 64, ROWS = 12, VECTORS = 2;  // 24 of 32 registers gather
#elif defined(__AVX__)
constexpr int BYTES = 32, ROWS = 6, VECTORS = 2;  // 12 of 16
#else
constexpr int BYTES = 16, ROWS = 3, VECTORS = 4;  // 12 of at least 16
#endif
constexpr int64_t DEPTH = 256;  // of a panel, which stays in the first cache

template <class T>
constexpr int LANES = BYTES / sizeof(T);
template <class T>
constexpr int COLUMNS = VECTORS * LANES<T>;

template <class T>
struct VectorOf {
    typedef T type __attribute__((vector_size(BYTES)));
};
template <class T>
using Vector = typename VectorOf<T>::type;

template <class T>
inline Vector<T> load(const T* from) {
    Vector<T> value;
    std::memcpy(&value, from, sizeof value);
    return value;
}

template <class T>
inline void store(T* to, Vector<T> value) {
    std::memcpy(to, &value, sizeof value);
}

// Element (i, j) lies at `at[i * row + j * column]`; one of both is 1.
template <class T>
struct View {
    const T* at;
    int64_t row, column;

    View from(int64_t i, int64_t j) const { return {at + i * row + j * column, row, column}; }
    View across() const { return {at, column, row}; }
};

#if defined(__AVX512F__)
// Sixteen rows of sixteen numbers to sixteen columns.
inline void transpose(const float* from, int64_t row, float* to, int64_t pitch) {
    __m512 r[16], t[16];
    for (int i = 0; i < 16; ++i) r[i] = _mm512_loadu_ps(from + i * row);
    for (int i = 0; i < 8; ++i) {
        t[2 * i] = _mm512_unpacklo_ps(r[2 * i], r[2 * i + 1]);
        t[2 * i + 1] = _mm512_unpackhi_ps(r[2 * i], r[2 * i + 1]);
    }
    const auto low = [&](int i, int j) {
        return _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(t[i]), _mm512_castps_pd(t[j])));
    };
    const auto high = [&](int i, int j) {
        return _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(t[i]), _mm512_castps_pd(t[j])));
    };
    for (int i = 0; i < 16; i += 4) {
        r[i] = low(i, i + 2);
        r[i + 1] = high(i, i + 2);
        r[i + 2] = low(i + 1, i + 3);
        r[i + 3] = high(i + 1, i + 3);
    }
    // Quarter q of r[4 i + j] now holds column 4 q + j of rows 4 i to 4 i + 3.
    for (int j = 0; j < 4; ++j) {
        const __m512 even = _mm512_shuffle_f32x4(r[j], r[4 + j], 0x88), odd = _mm512_shuffle_f32x4(r[j], r[4 + j], 0xdd);
        const __m512 even2 = _mm512_shuffle_f32x4(r[8 + j], r[12 + j], 0x88);
        const __m512 odd2 = _mm512_shuffle_f32x4(r[8 + j], r[12 + j], 0xdd);
        _mm512_storeu_ps(to + j * pitch, _mm512_shuffle_f32x4(even, even2, 0x88));
        _mm512_storeu_ps(to + (4 + j) * pitch, _mm512_shuffle_f32x4(odd, odd2, 0x88));
        _mm512_storeu_ps(to + (8 + j) * pitch, _mm512_shuffle_f32x4(even, even2, 0xdd));
        _mm512_storeu_ps(to + (12 + j) * pitch, _mm512_shuffle_f32x4(odd, odd2, 0xdd));
    }
}
#endif

// `depth` rows of `width` columns, side by side with `pitch` between rows; columns beyond are zero.
template <class T>
void pack(View<T> b, int64_t depth, int64_t width, T* to, int64_t pitch) {
    if (b.column == 1) {
        for (int64_t k = 0; k < depth; ++k) {
            if (width == pitch) std::memcpy(to + k * pitch, b.at + k * b.row, pitch * sizeof(T));  // of a size known to vectors
            else {
                std::memcpy(to + k * pitch, b.at + k * b.row, width * sizeof(T));
                std::memset(to + k * pitch + width, 0, (pitch - width) * sizeof(T));
            }
        }
        return;
    }
    for (int64_t n = 0; n < pitch; n += LANES<T>) {
        int64_t k = 0;
#if defined(__AVX512F__)
        if constexpr (sizeof(T) == sizeof(float))
            for (; n + 16 <= width && k + 16 <= depth; k += 16) transpose(b.at + n * b.column + k, b.column, to + k * pitch + n, pitch);
#endif
        for (; k < depth; ++k)
            for (int64_t i = n; i < n + LANES<T>; ++i) to[k * pitch + i] = i < width ? b.at[i * b.column + k] : T(0);
    }
}

// Where a block's sums go: rows of `row` numbers, of which `width` are written. They begin at what is there (`add`), at `bias`
// or at zero.
template <class T>
struct Out {
    T* at;
    int64_t row, width;
    bool add;
    const T* bias;
};

template <class T, int COUNT, int WIDTH, bool ACROSS>
void block(const T* a, int64_t stride, const T* panel, int64_t depth, const Out<T>& out) {
    constexpr int L = LANES<T>, PITCH = WIDTH * L;
    Vector<T> sum[COUNT][WIDTH] = {};
    for (int64_t k = 0; k < depth; ++k) {
        Vector<T> column[WIDTH];
        for (int v = 0; v < WIDTH; ++v) column[v] = load(panel + k * PITCH + v * L);
        for (int row = 0; row < COUNT; ++row) {
            const T value = ACROSS ? a[k * stride + row] : a[row * stride + k];
            for (int v = 0; v < WIDTH; ++v) sum[row][v] += value * column[v];
        }
    }
    for (int row = 0; row < COUNT; ++row) {
        T* to = out.at + row * out.row;
        alignas(BYTES) T line[PITCH];
        for (int v = 0; v < WIDTH; ++v) store(line + v * L, sum[row][v]);
        const T* first = out.add ? to : out.bias;
        if (out.width == PITCH) {
            for (int v = 0; v < WIDTH; ++v) store(to + v * L, first ? load(line + v * L) + load(first + v * L) : load(line + v * L));
        } else {
            for (int64_t i = 0; i < out.width; ++i) to[i] = line[i] + (first ? first[i] : T(0));
        }
    }
}

template <class T, int WIDTH, bool ACROSS, int COUNT = ROWS>
void rows_of_block(int64_t count, const T* a, int64_t stride, const T* panel, int64_t depth, const Out<T>& out) {
    if constexpr (COUNT > 0) {
        if (count == COUNT) block<T, COUNT, WIDTH, ACROSS>(a, stride, panel, depth, out);
        else rows_of_block<T, WIDTH, ACROSS, COUNT - 1>(count, a, stride, panel, depth, out);
    }
}

template <class T, int WIDTH>
void panel_of(int64_t m, View<T> a, const T* panel, int64_t depth, Out<T> out) {
    for (int64_t i = 0; i < m; i += ROWS, out.at += ROWS * out.row) {
        const int64_t count = std::min<int64_t>(ROWS, m - i);
        if (a.row == 1) rows_of_block<T, WIDTH, true>(count, a.at + i, a.column, panel, depth, out);
        else rows_of_block<T, WIDTH, false>(count, a.at + i * a.row, a.row, panel, depth, out);
    }
}

// c [m, n] with rows of `row` numbers = or += a [m, k] b [k, n] + bias [n], where there is one.
template <class T>
void multiply(int64_t m, int64_t n, int64_t k, View<T> a, View<T> b, T* c, int64_t row, bool add = false, const T* bias = nullptr) {
    alignas(BYTES) static thread_local T panel[DEPTH * COLUMNS<T>];
    const int64_t pieces = (k + DEPTH - 1) / DEPTH, piece = pieces ? (k + pieces - 1) / pieces : 0;
    if (k == 0 && !add)
        for (int64_t i = 0; i < m; ++i)
            for (int64_t j = 0; j < n; ++j) c[i * row + j] = bias ? bias[j] : T(0);
    for (int64_t first = 0; first < k; first += piece) {
        const int64_t depth = std::min(piece, k - first);
        for (int64_t j = 0; j < n;) {
            const int64_t left = n - j, width = std::min<int64_t>(left, left <= LANES<T> ? LANES<T> : COLUMNS<T>);
            const Out<T> out = {c + j, row, width, add || first > 0, first == 0 && bias ? bias + j : nullptr};
            const View<T> own = b.from(first, j), left_side = a.from(0, first);
            if (left <= LANES<T>) {
                pack<T>(own, depth, width, panel, LANES<T>);
                panel_of<T, 1>(m, left_side, panel, depth, out);
            } else {
                pack<T>(own, depth, width, panel, COLUMNS<T>);
                panel_of<T, VECTORS>(m, left_side, panel, depth, out);
            }
            j += width;
        }
    }
}

}  // namespace products
