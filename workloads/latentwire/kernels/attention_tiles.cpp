// Attention of heads of eight entries by matrix tiles (AMX), forward and backward, to single precision.
//
// A tile multiplies 32 bfloat16 deep, four times a head. So the room holds numbers in parts: x = h + m + l, eight digits each,
// exactly. Products of queries and keys take the six combinations that single precision keeps,
//     [qh qh qh ql] [kh km kl kh]  and  [qm qm 0 0] with the same keys,
// in two instructions. Weights of the average and their derivatives lie between tiles as two parts, 18 digits, and values
// meet them in three; where everything else is bfloat16 one part will do. The sum over keys may run in any order: a tile
// pairs key i with key 16 + i, or query i with 16 + i, so that two registers are packed by a shift and a blend. The padded
// keys of a row weigh nothing. Exponentials and logarithms are to the base 2.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "tiles.h"

namespace {

#ifdef HAS_TILES

using tiles::settle, tiles::TILE;

constexpr int E = 8;
constexpr int GROUP = 2 * TILE;  // keys or queries of a pairing
constexpr float LOG2_E = 1.4426950408889634f, LN_2 = 0.6931471805599453f;
constexpr int APART = 16;        // between rows: strides of powers of two would share lines of the cache
constexpr float NEVER = -1e30f;  // score of a key that is padding

using Words = uint32_t[TILE][TILE];  // a tile of pairs of bfloat16
using Floats = float[TILE][TILE];

inline __m512i bits(__m512 x) { return _mm512_castps_si512(x); }

// The first eight digits of x, all that bfloat16 holds of it, and x such that these are the nearest.
inline __m512 leading(__m512 x) { return _mm512_castsi512_ps(_mm512_and_epi32(bits(x), _mm512_set1_epi32(0xFFFF0000))); }
inline __m256 leading(__m256 x) { return _mm256_and_ps(x, _mm256_castsi256_ps(_mm256_set1_epi32(0xFFFF0000))); }
inline __m512 rounded(__m512 x) { return _mm512_castsi512_ps(_mm512_add_epi32(bits(x), _mm512_set1_epi32(0x8000))); }
inline __m256 rounded(__m256 x) {
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(x), _mm256_set1_epi32(0x8000)));
}

// The leading digits of both, `low` in the lower halves: ((low >> 16) & ~mask) | (high & mask).
inline __m512i paired(__m512 low, __m512 high) {
    const __m512i mask = _mm512_set1_epi32(0xFFFF0000);
    return _mm512_ternarylogic_epi32(mask, bits(high), _mm512_srli_epi32(bits(low), 16), 0xCA);
}
inline __m256i paired(__m256 low, __m256 high) {
    const __m256i mask = _mm256_set1_epi32(0xFFFF0000);
    return _mm256_ternarylogic_epi32(mask, _mm256_castps_si256(high), _mm256_srli_epi32(_mm256_castps_si256(low), 16), 0xCA);
}

// All of x in three parts.
template <typename R>
struct Parts {
    R h, m, l;
};

inline Parts<__m512> parts(__m512 x) {
    const __m512 h = leading(rounded(x)), rest = _mm512_sub_ps(x, h), m = leading(rounded(rest));
    return {h, m, _mm512_sub_ps(rest, m)};
}
inline Parts<__m256> parts(__m256 x) {
    const __m256 h = leading(rounded(x)), rest = _mm256_sub_ps(x, h), m = leading(rounded(rest));
    return {h, m, _mm256_sub_ps(rest, m)};
}

// The first two of them, 18 digits; `paired` cuts off the second what it does not take.
struct Halves {
    __m512 h, m;
};

inline Halves halves(__m512 x) {
    const __m512 h = leading(rounded(x));
    return {h, rounded(_mm512_sub_ps(x, h))};
}

// 2^x to 1e-7 for x that is not above zero by more than rounding; what is below 2^-100 counts for nothing, and its
// products would be denormal, which is slow. What is not a number stays so.
inline __m512 exp2_of(__m512 x) {
    const __m512 n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC), r = _mm512_sub_ps(x, n);
    __m512 p = _mm512_set1_ps(1.327646419e-3f);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(9.675541272e-3f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(5.550713298e-2f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(2.402211973e-1f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(6.931469670e-1f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.f));
    return _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x, _mm512_set1_ps(-100.f), _CMP_NLT_UQ), p, n);
}

// Rows of eight entries, lanes across rows: entry e of rows `first` to `first` + 15, zero from `end` on.
inline __m512 across(const float* x, int64_t stride, int first, int end, int e) {
    const __mmask16 real = end - first >= TILE ? 0xFFFF : (1u << std::max(end - first, 0)) - 1;
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i at = _mm512_mullo_epi32(lanes, _mm512_set1_epi32(static_cast<int>(stride)));
    return _mm512_mask_i32gather_ps(_mm512_setzero_ps(), real, at, x + first * stride + e, sizeof(float));
}

inline __m256 row_of(const float* x, int64_t stride, int row, int end) {
    return row < end ? _mm256_loadu_ps(x + row * stride) : _mm256_setzero_ps();
}

// Sixteen keys as the right side of scores: [h m l h], entries paired. Squares of their lengths.
__m512 keys_across(const float* k, int64_t stride, int first, int end, Words& tile) {
    __m512 squares = _mm512_setzero_ps();
    for (int j = 0; j < E / 2; ++j) {
        const __m512 x = across(k, stride, first, end, 2 * j), y = across(k, stride, first, end, 2 * j + 1);
        squares = _mm512_fmadd_ps(x, x, _mm512_fmadd_ps(y, y, squares));
        const auto even = parts(x), odd = parts(y);
        const __m512i h = paired(even.h, odd.h);
        _mm512_storeu_si512(tile[j], h);
        _mm512_storeu_si512(tile[4 + j], paired(even.m, odd.m));
        _mm512_storeu_si512(tile[8 + j], paired(even.l, odd.l));
        _mm512_storeu_si512(tile[12 + j], h);
    }
    return squares;
}

// Thirty-two rows as the right side of an average over them: [h m], and [l 0] in another tile where that is wanted.
void rows_paired(const float* x, int64_t stride, int first, int end, Words& tile, Words* least) {
    for (int i = 0; i < TILE; ++i) {
        const auto a = parts(row_of(x, stride, first + i, end)), b = parts(row_of(x, stride, first + TILE + i, end));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(tile[i]), paired(a.h, b.h));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(tile[i] + E), paired(a.m, b.m));
        if (least != nullptr) {
            _mm256_storeu_si256(reinterpret_cast<__m256i*>((*least)[i]), paired(a.l, b.l));
            _mm256_storeu_si256(reinterpret_cast<__m256i*>((*least)[i] + E), _mm256_setzero_si256());
        }
    }
}

// Sixteen rows as the left side of scores: [h h h l] and [m m 0 0].
struct Left {
    uint16_t most[TILE][GROUP], more[TILE][GROUP];
};

inline __m128i packed(__m256 x) { return _mm256_cvtepi32_epi16(_mm256_srli_epi32(_mm256_castps_si256(x), 16)); }

void left_side(const float (*rows)[E], Left& left) {
    for (int i = 0; i < TILE; ++i) {
        const auto part = parts(_mm256_loadu_ps(rows[i]));
        const __m128i most[] = {packed(part.h), packed(part.h), packed(part.h), packed(part.l)};
        const __m128i more[] = {packed(part.m), packed(part.m), _mm_setzero_si128(), _mm_setzero_si128()};
        for (int c = 0; c < 4; ++c) {
            _mm_storeu_si128(reinterpret_cast<__m128i*>(left.most[i] + E * c), most[c]);
            _mm_storeu_si128(reinterpret_cast<__m128i*>(left.more[i] + E * c), more[c]);
        }
    }
}

// Thirty-two rows lying, as the left side of a sum over them: their entries [h; m].
void lying(const float (*rows)[E], Words& tile) {
    for (int e = 0; e < E; ++e) {
        const auto a = parts(across(rows[0], E, 0, TILE, e)), b = parts(across(rows[0], E, TILE, GROUP, e));
        _mm512_storeu_si512(tile[e], paired(a.h, b.h));
        _mm512_storeu_si512(tile[E + e], paired(a.m, b.m));
    }
}

// Up to `room` rows times `factor`, zero behind them.
void copied(const float* x, int64_t stride, int rows, int room, float factor, float (*out)[E]) {
    for (int i = 0; i < room; ++i)
        _mm256_storeu_ps(out[i], _mm256_mul_ps(row_of(x, stride, i, rows), _mm256_set1_ps(factor)));
}

inline __m256 folded(const float* row) { return _mm256_add_ps(_mm256_loadu_ps(row), _mm256_loadu_ps(row + E)); }

// Scores of sixteen rows with two tiles of keys; in tiles 3 to 7, so that an average may go on in the others.
inline void scores(const Left& left, const Words* keys, float* first, float* second, int64_t stride) {
    _tile_zero(3);
    _tile_zero(4);
    _tile_loadd(5, left.most, tiles::BYTES);
    _tile_loadd(6, keys[0], tiles::BYTES);
    _tile_loadd(7, keys[1], tiles::BYTES);
    _tile_dpbf16ps(3, 5, 6);
    _tile_dpbf16ps(4, 5, 7);
    _tile_loadd(5, left.more, tiles::BYTES);
    _tile_dpbf16ps(3, 5, 6);
    _tile_dpbf16ps(4, 5, 7);
    _tile_stored(3, first, stride);
    _tile_stored(4, second, stride);
}

// Scratch for the longest row: tiles of keys for scores, of values for averages, and what lies between.
struct Room {
    std::vector<uint32_t> held;
    Words *keys, *values, *across_values, *dk, *dv;
    float* s[2];             // scores [TILE, far] of two blocks of queries
    uint32_t *weights[2], *rest[2];  // their exponentials in two parts

    explicit Room(int64_t padded) {
        const int64_t tile = TILE * TILE, each = padded / TILE;
        held.resize(5 * each * tile + 4 * TILE * (padded + 2 * APART));
        const auto address = reinterpret_cast<uintptr_t>(held.data());
        uint32_t* at = held.data() + (tiles::BYTES - address % tiles::BYTES) % tiles::BYTES / sizeof(uint32_t);
        const auto take = [&](int64_t words) { return std::exchange(at, at + words); };
        keys = reinterpret_cast<Words*>(take(each * tile));
        values = reinterpret_cast<Words*>(take(each * tile));
        across_values = reinterpret_cast<Words*>(take(each * tile));
        dk = reinterpret_cast<Words*>(take(each * tile));
        dv = reinterpret_cast<Words*>(take(each * tile));
        for (int turn = 0; turn < 2; ++turn) {
            s[turn] = reinterpret_cast<float*>(take(TILE * (padded + APART)));
            weights[turn] = take(TILE * (padded / 2 + APART));
            rest[turn] = take(TILE * (padded / 2 + APART));
        }
    }
};

// The exponentials of one row of scores in two parts, and their sum. Scores within `SAFE` of zero need no largest.
constexpr float SAFE = 60.f;

template <bool LOW>
inline float weigh(const float* s, int64_t padded, float reach, uint32_t* weights, uint32_t* rest, float& sum) {
    float highest = 0.f;
    if (!(reach <= SAFE)) {
        __m512 top = _mm512_set1_ps(NEVER);
        for (int64_t j = 0; j < padded; j += TILE) top = _mm512_max_ps(top, _mm512_loadu_ps(s + j));
        highest = _mm512_reduce_max_ps(top);
    }
    const __m512 top = _mm512_set1_ps(highest);
    __m512 sums[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
    for (int64_t j = 0; j < padded; j += GROUP) {
        const __m512 a = exp2_of(_mm512_sub_ps(_mm512_loadu_ps(s + j), top));
        const __m512 b = exp2_of(_mm512_sub_ps(_mm512_loadu_ps(s + j + TILE), top));
        sums[0] = _mm512_add_ps(sums[0], a);
        sums[1] = _mm512_add_ps(sums[1], b);
        const Halves of_a = halves(a), of_b = halves(b);
        _mm512_storeu_si512(weights + j / 2, paired(of_a.h, of_b.h));
        if (!LOW) _mm512_storeu_si512(rest + j / 2, paired(of_a.m, of_b.m));
    }
    sum = _mm512_reduce_add_ps(_mm512_add_ps(sums[0], sums[1]));
    return highest + std::log2(sum);
}

struct Head {
    const float *q, *k, *v;
    int64_t stride, key_stride;
    int queries, keys;
    float scale;

    int64_t padded() const { return (keys + GROUP - 1) / GROUP * GROUP; }
};

// A block of queries on its way: while one is weighed, tiles make the next one's scores and the last one's averages.
struct Block {
    Left left;
    float reach[TILE], sums[TILE];  // bounds of scores, sums of weights
    int first, n;
};

template <bool LOW>
struct Forward {
    const Head& head;
    Room& room;
    float *out, *lse;
    int64_t padded = head.padded(), far = padded + APART, words = padded / 2 + APART;
    float longest = 0.f;  // of the keys

    void prepare() {
        __m512 squares = _mm512_setzero_ps();
        for (int j = 0; j < padded; j += TILE)
            squares = _mm512_max_ps(keys_across(head.k, head.key_stride, j, head.keys, room.keys[j / TILE]), squares);
        longest = std::sqrt(_mm512_reduce_max_ps(squares));
        for (int j = 0; j < padded; j += GROUP)
            rows_paired(head.v, head.key_stride, j, head.keys, room.values[j / TILE], &room.values[j / TILE + 1]);
    }

    void begin(Block& block, int first) const {
        float asked[TILE][E];
        block.first = first;
        block.n = std::max(0, std::min(TILE, head.queries - first));
        copied(head.q + first * head.stride, head.stride, block.n, TILE, head.scale * LOG2_E, asked);
        left_side(asked, block.left);
        for (int i = 0; i < block.n; ++i) {
            float square = 0.f;
            for (int e = 0; e < E; ++e) square += asked[i][e] * asked[i][e];
            block.reach[i] = std::sqrt(square) * longest;
        }
    }

    void score(const Block& block, int turn, int64_t j) const {
        scores(block.left, room.keys + j / TILE, room.s[turn] + j, room.s[turn] + j + TILE, far * sizeof(float));
    }

    void average(int turn, int64_t j) const {
        const auto stride = words * sizeof(uint32_t);
        _tile_loadd(1, room.weights[turn] + j / 2, stride);
        _tile_loadd(2, room.values[j / TILE], tiles::BYTES);
        _tile_dpbf16ps(0, 1, 2);
        _tile_loadd(5, room.values[j / TILE + 1], tiles::BYTES);
        _tile_dpbf16ps(0, 1, 5);
        if (LOW) return;
        _tile_loadd(1, room.rest[turn] + j / 2, stride);
        _tile_dpbf16ps(0, 1, 2);
    }

    void finish(const Block& block) const {
        alignas(64) Floats mixed;
        _tile_stored(0, mixed, tiles::BYTES);
        settle();
        for (int i = 0; i < block.n; ++i)
            _mm256_storeu_ps(out + (block.first + i) * head.stride, _mm256_div_ps(folded(mixed[i]), _mm256_set1_ps(block.sums[i])));
    }

    void run() {
        prepare();
        Block blocks[3];
        const int64_t groups = padded / GROUP, share = (groups + TILE - 1) / TILE;
        begin(blocks[0], 0);
        settle();
        for (int64_t j = 0; j < padded; j += GROUP) score(blocks[0], 0, j);
        const int total = (head.queries + TILE - 1) / TILE;
        for (int b = 0; b <= total; ++b) {  // weigh block b, score b + 1, average b - 1
            Block& block = blocks[b % 3];
            const int turn = b % 2;
            if (b + 1 < total) begin(blocks[(b + 1) % 3], (b + 1) * TILE);
            settle();
            _tile_zero(0);
            for (int i = 0; i < TILE; ++i) {
                if (b < total && i < block.n) {
                    float* s = room.s[turn] + i * far;
                    std::fill(s + head.keys, s + padded, NEVER);
                    uint32_t *weights = room.weights[turn] + i * words, *rest = room.rest[turn] + i * words;
                    lse[block.first + i] = weigh<LOW>(s, padded, block.reach[i], weights, rest, block.sums[i]);
                    settle();
                }
                for (int64_t g = i * share; g < std::min((i + 1) * share, groups); ++g) {
                    if (b + 1 < total) score(blocks[(b + 1) % 3], 1 - turn, g * GROUP);
                    if (b > 0) average(1 - turn, g * GROUP);
                }
            }
            if (b > 0) finish(blocks[(b + 2) % 3]);
        }
    }
};

// What the backward pass holds of a group of keys between two uses of tiles.
struct Between {
    Floats s[2][2], d[2][2];               // scores and gradients of weights [queries / 16][keys / 16]
    Words p_h[2], p_m[2], d_h[2], d_m[2];  // queries paired, by tile of keys
    Words by_row_h[2], by_row_m[2];        // keys paired, by tile of queries
};

// And of a block of queries.
struct alignas(64) Asking {
    Between between;
    Floats dq[2];
    Words asked_lying, given_lying;
    Left asked[2], given[2];
    float along[GROUP], sums[GROUP];
};

struct Pair {
    __m512 p, d;
};

inline Pair derivative(const float* s, const float* d, float sum, float along, __mmask16 real) {
    const __m512 p = _mm512_maskz_mov_ps(real, exp2_of(_mm512_sub_ps(_mm512_loadu_ps(s), _mm512_set1_ps(sum))));
    return {p, _mm512_mul_ps(p, _mm512_sub_ps(_mm512_loadu_ps(d), _mm512_set1_ps(along)))};
}

// From scores and their gradients to weights and derivatives in both pairings.
template <bool LOW>
void derive(Between& held, const float* sums, const float* along, const __mmask16 (&real)[2]) {
    for (int i = 0; i < TILE; ++i) {
        Halves d[2][2];  // [queries][keys]
        for (int v = 0; v < 2; ++v) {
            const Pair a = derivative(held.s[0][v][i], held.d[0][v][i], sums[i], along[i], real[v]);
            const Pair b = derivative(held.s[1][v][i], held.d[1][v][i], sums[TILE + i], along[TILE + i], real[v]);
            const Halves of_a = halves(a.p), of_b = halves(b.p);
            _mm512_store_si512(held.p_h[v][i], paired(of_a.h, of_b.h));
            if (!LOW) _mm512_store_si512(held.p_m[v][i], paired(of_a.m, of_b.m));
            d[0][v] = halves(a.d);
            d[1][v] = halves(b.d);
            _mm512_store_si512(held.d_h[v][i], paired(d[0][v].h, d[1][v].h));
            if (!LOW) _mm512_store_si512(held.d_m[v][i], paired(d[0][v].m, d[1][v].m));
        }
        for (int half = 0; half < 2; ++half) {
            _mm512_store_si512(held.by_row_h[half][i], paired(d[half][0].h, d[half][1].h));
            if (!LOW) _mm512_store_si512(held.by_row_m[half][i], paired(d[half][0].m, d[half][1].m));
        }
    }
}

// Sums over the block's queries, added to two tiles of keys: `sum` += left * (h + m).
template <bool LOW>
inline void gather(const Words& left, const Words* h, const Words* m, Words* sum) {
    _tile_loadd(0, sum[0], tiles::BYTES);
    _tile_loadd(1, sum[1], tiles::BYTES);
    _tile_loadd(4, left, tiles::BYTES);
    _tile_loadd(5, h[0], tiles::BYTES);
    _tile_loadd(6, h[1], tiles::BYTES);
    _tile_dpbf16ps(0, 4, 5);
    _tile_dpbf16ps(1, 4, 6);
    if (!LOW) {
        _tile_loadd(5, m[0], tiles::BYTES);
        _tile_loadd(6, m[1], tiles::BYTES);
        _tile_dpbf16ps(0, 4, 5);
        _tile_dpbf16ps(1, 4, 6);
    }
    _tile_stored(0, sum[0], tiles::BYTES);
    _tile_stored(1, sum[1], tiles::BYTES);
}

// Sums over the group's keys, added to both tiles of queries.
template <bool LOW>
inline void gather_queries(const Between& held, const Words& keys, Floats* dq) {
    _tile_loadd(2, dq[0], tiles::BYTES);
    _tile_loadd(3, dq[1], tiles::BYTES);
    _tile_loadd(7, keys, tiles::BYTES);
    _tile_loadd(4, held.by_row_h[0], tiles::BYTES);
    _tile_loadd(5, held.by_row_h[1], tiles::BYTES);
    _tile_dpbf16ps(2, 4, 7);
    _tile_dpbf16ps(3, 5, 7);
    if (!LOW) {
        _tile_loadd(4, held.by_row_m[0], tiles::BYTES);
        _tile_loadd(5, held.by_row_m[1], tiles::BYTES);
        _tile_dpbf16ps(2, 4, 7);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(2, dq[0], tiles::BYTES);
    _tile_stored(3, dq[1], tiles::BYTES);
}

template <bool LOW>
struct Backward {
    const Head& head;
    Room& room;
    const float *out, *lse, *grad;
    float *dq, *dk, *dv;
    int64_t padded = head.padded();

    void prepare() {
        for (int j = 0; j < padded; j += TILE) {
            keys_across(head.k, head.key_stride, j, head.keys, room.keys[j / TILE]);
            keys_across(head.v, head.key_stride, j, head.keys, room.across_values[j / TILE]);
        }
        for (int j = 0; j < padded; j += GROUP)
            rows_paired(head.k, head.key_stride, j, head.keys, room.values[j / TILE], nullptr);
        std::fill(room.dk[0][0], room.dk[padded / TILE][0], 0u);
        std::fill(room.dv[0][0], room.dv[padded / TILE][0], 0u);
    }

    void begin(Asking& asking, int first, int n) const {
        float asked[GROUP][E], given[GROUP][E];
        const int64_t place = first * head.stride;
        copied(head.q + place, head.stride, n, GROUP, head.scale * LOG2_E, asked);
        copied(grad + place, head.stride, n, GROUP, 1.f, given);
        for (int i = 0; i < GROUP; ++i) {  // what is behind the last query has no gradient
            asking.along[i] = asking.sums[i] = 0.f;
            if (i >= n) continue;
            for (int e = 0; e < E; ++e) asking.along[i] += given[i][e] * out[place + i * head.stride + e];
            asking.sums[i] = lse[first + i];
        }
        for (int half = 0; half < 2; ++half) {
            left_side(asked + half * TILE, asking.asked[half]);
            left_side(given + half * TILE, asking.given[half]);
            std::fill(asking.dq[half][0], asking.dq[half][0] + TILE * TILE, 0.f);
        }
        lying(asked, asking.asked_lying);
        lying(given, asking.given_lying);
    }

    void score(Asking& asking, int64_t j) const {
        Between& held = asking.between;
        for (int half = 0; half < 2; ++half) {
            scores(asking.asked[half], room.keys + j / TILE, held.s[half][0][0], held.s[half][1][0], tiles::BYTES);
            scores(asking.given[half], room.across_values + j / TILE, held.d[half][0][0], held.d[half][1][0], tiles::BYTES);
        }
    }

    void block(Asking& asking) const {
        for (int64_t j = 0; j < padded; j += GROUP) {
            const int left = static_cast<int>(head.keys - j);
            const __mmask16 real[2] = {static_cast<__mmask16>(left >= TILE ? 0xFFFF : (1u << left) - 1),
                                       static_cast<__mmask16>(left >= GROUP ? 0xFFFF : (1u << std::max(left - TILE, 0)) - 1)};
            settle();
            score(asking, j);
            settle();
            derive<LOW>(asking.between, asking.sums, asking.along, real);
            settle();
            gather<LOW>(asking.given_lying, asking.between.p_h, asking.between.p_m, room.dv + j / TILE);
            gather<LOW>(asking.asked_lying, asking.between.d_h, asking.between.d_m, room.dk + j / TILE);
            gather_queries<LOW>(asking.between, room.values[j / TILE], asking.dq);
        }
        settle();
    }

    void run() {
        static thread_local Asking asking;
        prepare();
        for (int first = 0; first < head.queries; first += GROUP) {
            const int n = std::min(GROUP, head.queries - first);
            begin(asking, first, n);
            block(asking);
            for (int i = 0; i < n; ++i) {
                const __m256 found = _mm256_mul_ps(folded(asking.dq[i / TILE][i % TILE]), _mm256_set1_ps(head.scale));
                _mm256_storeu_ps(dq + (first + i) * head.stride, found);
            }
        }
        const auto sum = [](const Words& tile, int e, int lane) {
            const auto* x = reinterpret_cast<const float*>(tile);
            return x[e * TILE + lane] + x[(E + e) * TILE + lane];
        };
        for (int j = 0; j < head.keys; ++j)
            for (int e = 0; e < E; ++e) {
                dk[j * head.key_stride + e] = LN_2 * sum(room.dk[j / TILE], e, j % TILE);
                dv[j * head.key_stride + e] = sum(room.dv[j / TILE], e, j % TILE);
            }
    }
};

template <bool LOW>
void run(const float* q, const float* kv, const int64_t* starts, const int64_t* lengths, float* out, float* lse, const float* grad,
         float* dq, float* dkv, int rows, int heads, int positions, int own) {
    const int64_t width = heads * E, longest = rows ? *std::max_element(lengths, lengths + rows) : 0;
    Room room((longest + GROUP - 1) / GROUP * GROUP);
    const tiles::Scope scope;
    for (int b = 0; b < rows; ++b) {
        const int length = static_cast<int>(lengths[b]), queries = own ? length : positions;
        const int64_t first = own ? starts[b] : static_cast<int64_t>(b) * positions;
        for (int h = 0; h < heads; ++h) {
            const int64_t place = first * width + h * E, held = starts[b] * 2 * width + h * E;
            const Head head{q + place, kv + held, kv + held + width, width, 2 * width, queries, length, 1 / std::sqrt(float(E))};
            float* sums = lse + first * heads + static_cast<int64_t>(h) * queries;
            if (grad == nullptr)
                Forward<LOW>{head, room, out + place, sums}.run();
            else
                Backward<LOW>{head, room, out + place, sums, grad + place, dq + place, dkv + held, dkv + held + width}.run();
        }
    }
}

#endif

}  // namespace

extern "C" {

int tiles_usable() { return tiles::usable(); }

#ifdef HAS_TILES
#define ATTENTION(LOW)                                                                                                         \
    if (e != E) return 1;                                                                                                      \
    run<LOW>(q, kv, starts, lengths, out, lse, grad, dq, dkv, rows, heads, positions, own);                                     \
    return 0;
#else
#define ATTENTION(LOW) return 1;
#endif

// As attention_f32 of native_attention.cpp, for heads of eight entries.
int attention_tiles(int e, const float* q, const float* kv, const int64_t* starts, const int64_t* lengths, float* out, float* lse,
                    const float* grad, float* dq, float* dkv, int rows, int heads, int positions, int own) {
    ATTENTION(false)
}

// The same with weights and their derivatives as bfloat16.
int attention_tiles_low(int e, const float* q, const float* kv, const int64_t* starts, const int64_t* lengths, float* out,
                        float* lse, const float* grad, float* dq, float* dkv, int rows, int heads, int positions, int own) {
    ATTENTION(true)
}
}
