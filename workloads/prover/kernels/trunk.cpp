// The trunk on CPUs, block by block: a block of states goes through all layers before the next one starts, so that only
// weights travel, and those stay in the second-level cache. Built by fused_trunk.py. Three products for one trunk: float32 by
// the widest vectors there are, bfloat16 by pairs (AVX512-BF16), bfloat16 by matrix tiles (AMX). The width is known to the
// compiler: a row of a panel then lies at a fixed distance from the first, and a row of sums stays in registers.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tiles.h"

#if defined(__AVX512F__) || defined(__AVX512BF16__)
#include <immintrin.h>
#endif

namespace {

#if defined(__AVX512F__)
constexpr int LANES = 16, ROWS = 12, VECTORS = 2;  // 24 of 32 registers gather
#elif defined(__AVX__)
constexpr int LANES = 8, ROWS = 6, VECTORS = 2;  // 12 of 16
#else
constexpr int LANES = 4, ROWS = 3, VECTORS = 4;  // 12 of at least 16
#endif
typedef float Vector __attribute__((vector_size(LANES * sizeof(float))));

constexpr int COLUMN = 16;  // columns of a weight that lie together
inline Vector load(const float* from) {
    Vector value;
    std::memcpy(&value, from, sizeof value);
    return value;
}
inline void store(float* to, Vector value) { std::memcpy(to, &value, sizeof value); }

inline float total(Vector value) {
#ifdef __AVX512F__
    return _mm512_reduce_add_ps(reinterpret_cast<__m512>(value));  // compilers take the loop lane by lane
#else
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; ++i) value[i] += value[i + half];
    return value[0];
#endif
}

inline Vector rectified(const float* product, const float* bias) {
    const Vector value = load(product) + load(bias), zero = {};
    return value > zero ? value : zero;
}

// Where vector `v` of row `k` of the panel lies in a weight whose columns lie by 16, each with `pairs` rows behind it.
inline int64_t place(int v, int64_t k, int64_t depth, int pair) {
    const int first = v * LANES;
    return ((first / COLUMN) * depth + k) * COLUMN * pair + first % COLUMN * pair;
}

// product = next * weight^T in float32 for COUNT rows and a panel of columns.
struct Float32 {
    using Number = float;
    static constexpr int BLOCK = 4 * ROWS, PAIR = 1;

    template <int WIDTH, int COUNT>
    static void panel(const float* next, const float* weight, float* product) {
        Vector sum[COUNT][VECTORS] = {};
        for (int64_t k = 0; k < WIDTH; ++k) {
            Vector column[VECTORS];
            for (int v = 0; v < VECTORS; ++v) column[v] = load(weight + place(v, k, WIDTH, PAIR));
            for (int row = 0; row < COUNT; ++row) {
                const float value = next[row * WIDTH + k];
                for (int v = 0; v < VECTORS; ++v) sum[row][v] += value * column[v];
            }
        }
        for (int row = 0; row < COUNT; ++row)
            for (int v = 0; v < VECTORS; ++v) store(product + row * WIDTH + v * LANES, sum[row][v]);
    }

    static void put(float* out, Vector value) { store(out, value); }
};

#ifdef __AVX512BF16__
inline void put_rounded(uint16_t* out, Vector value) {
    const auto rounded = _mm512_cvtneps_pbh(reinterpret_cast<__m512>(value));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), reinterpret_cast<__m256i>(rounded));
}

// The same in bfloat16: each lane multiplies a pair of adjacent numbers.
struct Pairs {
    using Number = uint16_t;
    static constexpr int BLOCK = 4 * ROWS, PAIR = 2;

    template <int WIDTH, int COUNT>
    static void panel(const uint16_t* next, const uint16_t* weight, float* product) {
        __m512 sum[COUNT][VECTORS];
        for (auto& row : sum)
            for (auto& value : row) value = _mm512_setzero_ps();
        for (int64_t k = 0; k < WIDTH / PAIR; ++k) {
            __m512bh column[VECTORS];
            for (int v = 0; v < VECTORS; ++v)
                column[v] = reinterpret_cast<__m512bh>(_mm512_loadu_si512(weight + place(v, k, WIDTH / PAIR, PAIR)));
            for (int row = 0; row < COUNT; ++row) {
                int32_t pair;
                std::memcpy(&pair, next + row * WIDTH + k * PAIR, sizeof pair);
                const auto value = reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
                for (int v = 0; v < VECTORS; ++v) sum[row][v] = _mm512_dpbf16_ps(sum[row][v], value, column[v]);
            }
        }
        for (int row = 0; row < COUNT; ++row)
            for (int v = 0; v < VECTORS; ++v) _mm512_storeu_ps(product + row * WIDTH + v * LANES, sum[row][v]);
    }

    static void put(uint16_t* out, Vector value) { put_rounded(out, value); }
};
#endif

// Rows that are left over have a panel of their own size: what a state comes to depends on no other.
template <typename Product, int WIDTH, int COUNT = ROWS>
void rows_of_panel(int64_t count, const typename Product::Number* next, const typename Product::Number* weight,
                   float* product) {
    if constexpr (COUNT > 0) {
        if (count == COUNT) Product::template panel<WIDTH, COUNT>(next, weight, product);
        else rows_of_panel<Product, WIDTH, COUNT - 1>(count, next, weight, product);
    }
}

template <typename Product, int WIDTH>
void by_panels(int64_t count, const typename Product::Number* next, const typename Product::Number* weight, float* product) {
    constexpr int COLUMNS = VECTORS * LANES;
    for (int64_t column = 0; column < WIDTH; column += COLUMNS)
        for (int64_t row = 0; row < count; row += ROWS)
            rows_of_panel<Product, WIDTH>(count - row < ROWS ? count - row : ROWS, next + row * WIDTH, weight + column * WIDTH,
                                          product + row * WIDTH + column);
}

#ifdef HAS_TILES

using tiles::DEPTH, tiles::TILE, tiles::settle;

// The same by tiles. Tiles 0 to 3 gather, 4 holds the weight, 5 to 7 the rows; rows beyond `count` are computed and lost.
struct Tiles {
    using Number = uint16_t;
    static constexpr int BLOCK = 4 * TILE;
    static void put(uint16_t* out, Vector value) { put_rounded(out, value); }
};

template <int TILES>
void by_tiles(const uint16_t* next, const uint16_t* weight, int64_t width, float* product) {
    const int64_t deep = width / DEPTH, row_bytes = width * sizeof(uint16_t);
    for (int64_t column = 0; column < width; column += TILE) {
        _tile_zero(0);
        if (TILES > 1) _tile_zero(1);
        if (TILES > 2) _tile_zero(2);
        if (TILES > 3) _tile_zero(3);
        for (int64_t k = 0; k < deep; ++k, weight += TILE * DEPTH) {
            const uint16_t* rows = next + k * DEPTH;
            _tile_loadd(4, weight, 64);
            _tile_loadd(5, rows, row_bytes);
            _tile_dpbf16ps(0, 5, 4);
            if (TILES > 1) {
                _tile_loadd(6, rows + TILE * width, row_bytes);
                _tile_dpbf16ps(1, 6, 4);
            }
            if (TILES > 2) {
                _tile_loadd(7, rows + 2 * TILE * width, row_bytes);
                _tile_dpbf16ps(2, 7, 4);
            }
            if (TILES > 3) {
                _tile_loadd(5, rows + 3 * TILE * width, row_bytes);
                _tile_dpbf16ps(3, 5, 4);
            }
        }
        float* out = product + column;
        const int64_t out_bytes = width * sizeof(float);
        _tile_stored(0, out, out_bytes);
        if (TILES > 1) _tile_stored(1, out + TILE * width, out_bytes);
        if (TILES > 2) _tile_stored(2, out + 2 * TILE * width, out_bytes);
        if (TILES > 3) _tile_stored(3, out + 3 * TILE * width, out_bytes);
    }
}

inline void by_tiles(int64_t count, const uint16_t* next, const uint16_t* weight, int64_t width, float* product) {
    settle();
    switch ((count + TILE - 1) / TILE) {
        case 1: return by_tiles<1>(next, weight, width, product);
        case 2: return by_tiles<2>(next, weight, width, product);
        case 3: return by_tiles<3>(next, weight, width, product);
        default: return by_tiles<4>(next, weight, width, product);
    }
}

#endif

template <typename Product, int WIDTH>
void multiply(int64_t count, const typename Product::Number* next, const typename Product::Number* weight, float* product) {
#ifdef HAS_TILES
    if constexpr (std::is_same_v<Product, Tiles>) return by_tiles(count, next, weight, WIDTH, product);
    else
#endif
        by_panels<Product, WIDTH>(count, next, weight, product);
}

// Four sums side by side: the next vector need not wait for the one before.
template <int COUNT, typename Term>
inline float sum_of(const Term& term) {
    Vector sum[4] = {};
    for (int i = 0; i < COUNT; ++i) sum[i % 4] += term(i);
    return total((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

// x += LN(ReLU(product + bias)) of one row, and the same in the product's type.
template <typename Product, int WIDTH>
void activate(const float* product, const float* bias, const float* scale, const float* shift, float* x,
              typename Product::Number* next) {
    constexpr int COUNT = WIDTH / LANES;
    Vector r[COUNT];
    for (int i = 0; i < COUNT; ++i) r[i] = rectified(product + i * LANES, bias + i * LANES);
    const float mean = sum_of<COUNT>([&](int i) { return r[i]; }) / WIDTH;
    for (int i = 0; i < COUNT; ++i) r[i] -= mean;
    const float factor = 1.0f / std::sqrt(sum_of<COUNT>([&](int i) { return r[i] * r[i]; }) / WIDTH + 1e-5f);
    for (int i = 0; i < COUNT; ++i) {
        const int at = i * LANES;
        const Vector out = load(x + at) + (r[i] * factor * load(scale + at) + load(shift + at));
        store(x + at, out);
        Product::put(next + at, out);
    }
}

// The first layer, folded into tables that stand behind one another: of predicates, and from `first` and `second` on of
// first and second arguments.
struct Folded {
    const float* table;
    int64_t first, second;
    float decay;  // what a slot counts of the one before it
    const float *bias, *scale, *shift;
};

constexpr int ATOMS = 6;

template <int WIDTH>
inline void prefetch(const int32_t* state, const Folded& folded) {
    for (int k = 0; k < ATOMS && state[k * 3] != 0; ++k) {
        const int64_t own[] = {state[k * 3], folded.first + state[k * 3 + 1], folded.second + state[k * 3 + 2]};
        for (const int64_t row : own)
            for (int64_t i = 0; i < WIDTH; i += 64 / sizeof(float)) __builtin_prefetch(folded.table + row * WIDTH + i);
    }
}

// The sum over real slots k of decay^k (P[p] + U[a] + V[b]).
template <int WIDTH>
inline void embed(const int32_t* state, const Folded& folded, float* out) {
    float weight = 1.0f;
    std::memset(out, 0, WIDTH * sizeof(float));
    for (int k = 0; k < ATOMS && state[k * 3] != 0; ++k, weight *= folded.decay) {
        const float* p = folded.table + state[k * 3] * WIDTH;
        const float* a = folded.table + (folded.first + state[k * 3 + 1]) * WIDTH;
        const float* b = folded.table + (folded.second + state[k * 3 + 2]) * WIDTH;
        for (int64_t i = 0; i < WIDTH; i += LANES)
            store(out + i, load(out + i) + weight * (load(p + i) + load(a + i) + load(b + i)));
    }
}

template <typename Product, int WIDTH>
struct alignas(64) Block {
    float product[Product::BLOCK * WIDTH];
    float x[Product::BLOCK * WIDTH];
    typename Product::Number next[Product::BLOCK * WIDTH];
};

struct Layers {
    int64_t width, count;
    const void* weights;
    const float *biases, *scales, *shifts;  // a row for each layer; biases have one more, for the hidden layer
};

// What goes into layer 1, of states from tables or, without states, as given: x and the same in the product's type.
template <typename Product, int WIDTH, typename Number = typename Product::Number>
void begin(int64_t count, const int32_t* states, const Folded& folded, const float* x, const Number* next,
           Block<Product, WIDTH>& block) {
    if (states == nullptr) {
        std::memcpy(block.x, x, count * WIDTH * sizeof(float));
        std::memcpy(block.next, next, count * WIDTH * sizeof(Number));
        return;
    }
    std::memset(block.x, 0, count * WIDTH * sizeof(float));
    for (int64_t row = 0; row < count; ++row) {
        if (row + 1 < count) prefetch<WIDTH>(states + (row + 1) * ATOMS * 3, folded);
        float* product = block.product + row * WIDTH;
        embed<WIDTH>(states + row * ATOMS * 3, folded, product);
        activate<Product, WIDTH>(product, folded.bias, folded.scale, folded.shift, block.x + row * WIDTH,
                                 block.next + row * WIDTH);
    }
}

// All layers and the hidden layer, whose ReLU goes to `next` [rows, WIDTH].
template <typename Product, int WIDTH, typename Number = typename Product::Number>
void trunk(int64_t rows, const Layers& layers, const int32_t* states, const Folded& folded, const float* x, Number* next) {
    static thread_local Block<Product, WIDTH> block;
    const Number* weights = static_cast<const Number*>(layers.weights);
    for (int64_t start = 0; start < rows; start += Product::BLOCK) {
        const int64_t count = rows - start < Product::BLOCK ? rows - start : Product::BLOCK;
        Number* out = next + start * WIDTH;
        begin<Product, WIDTH>(count, states ? states + start * ATOMS * 3 : nullptr, folded, x ? x + start * WIDTH : nullptr,
                              out, block);
        for (int64_t layer = 0; layer < layers.count; ++layer) {
            const int64_t own = layer * WIDTH;
            multiply<Product, WIDTH>(count, block.next, weights + own * WIDTH, block.product);
            for (int64_t row = 0; row < count; ++row)
                activate<Product, WIDTH>(block.product + row * WIDTH, layers.biases + own, layers.scales + own,
                                         layers.shifts + own, block.x + row * WIDTH, block.next + row * WIDTH);
        }
        const int64_t last = layers.count * WIDTH;
        multiply<Product, WIDTH>(count, block.next, weights + last * WIDTH, block.product);
        for (int64_t row = 0; row < count; ++row)
            for (int64_t i = 0; i < WIDTH; i += LANES)
                Product::put(out + row * WIDTH + i, rectified(block.product + row * WIDTH + i, layers.biases + last + i));
    }
}

template <typename Product, typename Number = typename Product::Number>
void of_width(int64_t rows, const Layers& layers, const int32_t* states, const Folded& folded, const float* x, Number* next) {
    switch (layers.width) {
        case 32: return trunk<Product, 32>(rows, layers, states, folded, x, next);
        case 64: return trunk<Product, 64>(rows, layers, states, folded, x, next);
        case 128: return trunk<Product, 128>(rows, layers, states, folded, x, next);
        case 256: return trunk<Product, 256>(rows, layers, states, folded, x, next);
        case 512: return trunk<Product, 512>(rows, layers, states, folded, x, next);
    }
}

}  // namespace

extern "C" {

int tiles_usable() { return tiles::usable(); }

int pairs_usable() {
#ifdef __AVX512BF16__
    return 1;
#else
    return 0;
#endif
}

void trunk_float32(int64_t rows, const Layers* layers, const int32_t* states, const Folded* folded, const float* x,
                   float* next) {
    of_width<Float32>(rows, *layers, states, *folded, x, next);
}

void trunk_pairs(int64_t rows, const Layers* layers, const int32_t* states, const Folded* folded, const float* x,
                 uint16_t* next) {
#ifdef __AVX512BF16__
    of_width<Pairs>(rows, *layers, states, *folded, x, next);
#endif
}

void trunk_tiles(int64_t rows, const Layers* layers, const int32_t* states, const Folded* folded, const float* x,
                 uint16_t* next) {
#ifdef HAS_TILES
    const tiles::Scope scope;
    of_width<Tiles>(rows, *layers, states, *folded, x, next);
#endif
}
}
