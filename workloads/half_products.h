// Products of bfloat16 matrices on one core, c = a b or c += a b. Words hold two terms of a sum, as AVX512-BF16 multiplies them;
// elsewhere a word is widened to two float32. Rows of the left matrix are read where they lie, unless its columns lie together;
// columns of the right one come from a packed panel. Every element is one float32 sum over k, rounded once, so that a row comes to
// the same value whatever rows are computed with it.
#pragma once

#include <vector>

#include "half.h"
#include "products.h"

namespace products {

using bfloat::Half, bfloat::rounded, bfloat::widened;
using Word = uint32_t;  // terms 2 p (low) and 2 p + 1 of a sum; the last has a zero where their number is odd

constexpr int64_t PITCH = VECTORS * LANES<float>;  // columns of a panel
constexpr int64_t CHUNK = 20 * ROWS;               // rows that are packed at once of a left matrix whose columns lie together

#if defined(__AVX512BF16__)
using Pairs = __m512bh;
inline Pairs pairs(Vector<Word> words) { return (Pairs)words; }
inline Vector<float> dot(Vector<float> sum, Pairs a, Pairs b) { return (Vector<float>)_mm512_dpbf16_ps((__m512)sum, a, b); }
#else
struct Pairs {
    Vector<float> low, high;
};
inline Pairs pairs(Vector<Word> words) { return {(Vector<float>)(words << 16), (Vector<float>)(words & 0xffff0000u)}; }
inline Vector<float> dot(Vector<float> sum, const Pairs& a, const Pairs& b) { return sum + a.low * b.low + a.high * b.high; }
#endif

// Words of two rows of `width` numbers, `second` null beyond the last term; zero up to `pitch`.
inline void interleave(const Half* first, const Half* second, int64_t width, Word* to, int64_t pitch) {
    if (second)
        for (int64_t i = 0; i < width; ++i) to[i] = first[i].bits | static_cast<Word>(second[i].bits) << 16;
    else
        for (int64_t i = 0; i < width; ++i) to[i] = first[i].bits;
    std::memset(to + width, 0, (pitch - width) * sizeof(Word));
}

// Sixteen columns of at most 32 terms, `column` numbers apart, of which `width` are there.
inline void sixteen(const Half* from, int64_t column, int64_t terms, int64_t width, Word* to, int64_t pitch) {
    alignas(BYTES) Word square[16 * 16] = {}, across[16 * 16];
    for (int64_t i = 0; i < width; ++i) {
        if (terms == 32) std::memcpy(square + 16 * i, from + i * column, 64);  // of a size known to vectors
        else std::memcpy(square + 16 * i, from + i * column, terms * sizeof(Half));
    }
#if defined(__AVX512F__)
    transpose(reinterpret_cast<const float*>(square), 16, reinterpret_cast<float*>(across), 16);
#else
    for (int p = 0; p < 16; ++p)
        for (int i = 0; i < 16; ++i) across[16 * p + i] = square[16 * i + p];
#endif
    for (int64_t p = 0; 2 * p < terms; ++p) std::memcpy(to + p * pitch, across + 16 * p, 64);
}

// Words of `k` terms for `width` columns, `pitch` words for each two terms, a multiple of sixteen; columns beyond are zero.
inline void pack_words(View<Half> b, int64_t k, int64_t width, Word* to, int64_t pitch) {
    for (int64_t term = 0; term < k; term += b.column == 1 ? 2 : 32) {
        Word* line = to + term / 2 * pitch;
        if (b.column == 1) {
            const Half* first = b.at + term * b.row;
            interleave(first, term + 1 < k ? first + b.row : nullptr, width, line, pitch);
        } else {
            for (int64_t j = 0; j < pitch; j += 16)
                sixteen(b.at + j * b.column + term, b.column, std::min<int64_t>(32, k - term),
                        std::clamp<int64_t>(width - j, 0, 16), line + j, pitch);
        }
    }
}

// Sums of COUNT rows by a panel. ACROSS: `a` has words, `stride` of them for two terms; else rows of `stride` numbers.
template <int COUNT, bool ACROSS>
void block_of_words(const void* a, int64_t stride, const Word* panel, int64_t k, const Out<Half>& out) {
    constexpr int L = LANES<float>;
    Vector<float> sum[COUNT][VECTORS] = {};
    const auto gather = [&](int64_t p, const auto& word_of) __attribute__((always_inline)) {
        Pairs column[VECTORS];
        for (int v = 0; v < VECTORS; ++v) column[v] = pairs(load(panel + p * PITCH + v * L));
        for (int row = 0; row < COUNT; ++row) {
            const Pairs value = pairs(Vector<Word>{} + word_of(row));
            for (int v = 0; v < VECTORS; ++v) sum[row][v] = dot(sum[row][v], value, column[v]);
        }
    };
    if constexpr (ACROSS) {
        const Word* words = static_cast<const Word*>(a);
        for (int64_t p = 0; 2 * p < k; ++p) gather(p, [&](int row) { return words[p * stride + row]; });
    } else {
        const Half* rows = static_cast<const Half*>(a);
        for (int64_t p = 0; p < k / 2; ++p)
            gather(p, [&](int row) {
                Word both;
                std::memcpy(&both, rows + row * stride + 2 * p, sizeof both);
                return both;
            });
        if (k % 2) gather(k / 2, [&](int row) { return static_cast<Word>(rows[row * stride + k - 1].bits); });
    }
    for (int row = 0; row < COUNT; ++row) {
        Half* to = out.at + row * out.row;
        const Half* first = out.add ? to : out.bias;
        alignas(BYTES) float line[PITCH];
        for (int v = 0; v < VECTORS; ++v) store(line + v * L, sum[row][v]);
        if (first)
            for (int64_t i = 0; i < out.width; ++i) line[i] += widened(first[i]);
        if (out.width == PITCH)
            for (int64_t i = 0; i < PITCH; ++i) to[i] = rounded(line[i]);
        else
            for (int64_t i = 0; i < out.width; ++i) to[i] = rounded(line[i]);
    }
}

template <bool ACROSS, int COUNT = ROWS>
void rows_of_words(int64_t count, const void* a, int64_t stride, const Word* panel, int64_t k, const Out<Half>& out) {
    if constexpr (COUNT > 0) {
        if (count == COUNT) block_of_words<COUNT, ACROSS>(a, stride, panel, k, out);
        else rows_of_words<ACROSS, COUNT - 1>(count, a, stride, panel, k, out);
    }
}

// `multiply` of bfloat16.
inline void multiply(int64_t m, int64_t n, int64_t k, View<Half> a, View<Half> b, Half* c, int64_t row, bool add, const Half* bias) {
    static thread_local std::vector<Word> panel, packed;
    const bool across = a.column != 1;
    const int64_t words = (k + 1) / 2, chunk = across ? CHUNK : m;
    panel.resize(words * PITCH);
    for (int64_t first = 0; first < m; first += chunk) {
        const int64_t rows = std::min(chunk, m - first), pitch = (rows + 15) / 16 * 16;
        if (across) {
            packed.resize(words * pitch);
            pack_words(a.from(first, 0).across(), k, rows, packed.data(), pitch);
        }
        for (int64_t j = 0; j < n; j += PITCH) {
            const int64_t width = std::min(PITCH, n - j);
            pack_words(b.from(0, j), k, width, panel.data(), PITCH);
            for (int64_t i = 0; i < rows; i += ROWS) {
                const int64_t count = std::min<int64_t>(ROWS, rows - i);
                const Out<Half> out = {c + (first + i) * row + j, row, width, add, bias ? bias + j : nullptr};
                if (across) rows_of_words<true>(count, packed.data() + i, pitch, panel.data(), k, out);
                else rows_of_words<false>(count, a.at + (first + i) * a.row, a.row, panel.data(), k, out);
            }
        }
    }
}

}  // namespace products
