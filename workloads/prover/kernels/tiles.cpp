// The trunk in bfloat16 on CPUs with matrix tiles (AMX): a block of states goes through all layers before the next one
// starts, so that only weights travel, and those stay in the second-level cache. Built by tiles.py.

#include <cmath>
#include <cstdint>
#include <cstring>

#include "tiles.h"

namespace {

#ifdef HAS_TILES

using tiles::DEPTH, tiles::TILE, tiles::settle;

constexpr int BLOCK = 4 * TILE;       // states that go through the layers together
constexpr int LANES = 16;
constexpr int WIDEST = 512;

struct alignas(64) Block {
    float product[BLOCK * WIDEST];
    uint16_t next[BLOCK * WIDEST];
};

// product = next * weight^T for TILES times 16 rows. Tiles 0 to 3 gather, 4 holds the weight, 5 to 7 the rows.
template <int TILES>
void multiply(const uint16_t* next, const uint16_t* weight, int64_t width, float* product) {
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

void multiply(int64_t tiles, const uint16_t* next, const uint16_t* weight, int64_t width, float* product) {
    settle();
    switch (tiles) {
        case 1: return multiply<1>(next, weight, width, product);
        case 2: return multiply<2>(next, weight, width, product);
        case 3: return multiply<3>(next, weight, width, product);
        default: return multiply<4>(next, weight, width, product);
    }
}

inline __m512 rectified(const float* product, const float* bias) {
    return _mm512_max_ps(_mm512_add_ps(_mm512_loadu_ps(product), _mm512_loadu_ps(bias)), _mm512_setzero_ps());
}

inline void put(uint16_t* out, __m512 value) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(value)));
}

// x += LN(ReLU(product + bias)) of one row, and the same rounded.
template <int VECTORS>
void activate(const float* product, const float* bias, const float* scale, const float* shift, float* x, uint16_t* next) {
    constexpr float width = VECTORS * LANES;
    __m512 r[VECTORS], sum = _mm512_setzero_ps(), square = _mm512_setzero_ps();
    for (int i = 0; i < VECTORS; ++i) {
        r[i] = rectified(product + i * LANES, bias + i * LANES);
        sum = _mm512_add_ps(sum, r[i]);
    }
    const __m512 mean = _mm512_set1_ps(_mm512_reduce_add_ps(sum) / width);
    for (int i = 0; i < VECTORS; ++i) {
        r[i] = _mm512_sub_ps(r[i], mean);
        square = _mm512_fmadd_ps(r[i], r[i], square);
    }
    const __m512 factor = _mm512_set1_ps(1.0f / std::sqrt(_mm512_reduce_add_ps(square) / width + 1e-5f));
    for (int i = 0; i < VECTORS; ++i) {
        const __m512 normal = _mm512_mul_ps(r[i], factor);
        const __m512 value = _mm512_fmadd_ps(normal, _mm512_loadu_ps(scale + i * LANES), _mm512_loadu_ps(shift + i * LANES));
        const __m512 out = _mm512_add_ps(_mm512_loadu_ps(x + i * LANES), value);
        _mm512_storeu_ps(x + i * LANES, out);
        put(next + i * LANES, out);
    }
}

void activate(int64_t width, const float* product, const float* bias, const float* scale, const float* shift, float* x,
              uint16_t* next) {
    switch (width / LANES) {
        case 2: return activate<2>(product, bias, scale, shift, x, next);
        case 4: return activate<4>(product, bias, scale, shift, x, next);
        case 8: return activate<8>(product, bias, scale, shift, x, next);
        case 16: return activate<16>(product, bias, scale, shift, x, next);
        case 32: return activate<32>(product, bias, scale, shift, x, next);
    }
}

#endif

}  // namespace

extern "C" {

int tiles_usable() { return tiles::usable(); }

// Layers 1 to `layers` and the hidden layer. `weights` come tile by tile, layer behind layer; `biases` has one row more than
// `scales` and `shifts`, for the hidden layer. x [rows, width] is changed; next [rows, width] goes in rounded from x and
// comes out as ReLU of the hidden product.
void trunk(int64_t rows, int64_t width, int64_t layers, const uint16_t* weights, const float* biases, const float* scales,
           const float* shifts, float* x, uint16_t* next) {
#ifdef HAS_TILES
    static thread_local Block block;
    const tiles::Scope scope;
    for (int64_t start = 0; start < rows; start += BLOCK) {
        const int64_t count = rows - start < BLOCK ? rows - start : BLOCK, tiles = (count + TILE - 1) / TILE;
        std::memcpy(block.next, next + start * width, count * width * sizeof(uint16_t));
        std::memset(block.next + count * width, 0, (tiles * TILE - count) * width * sizeof(uint16_t));
        for (int64_t layer = 0; layer < layers; ++layer) {
            const int64_t own = layer * width;
            multiply(tiles, block.next, weights + own * width, width, block.product);
            for (int64_t row = 0; row < count; ++row)
                activate(width, block.product + row * width, biases + own, scales + own, shifts + own,
                         x + (start + row) * width, block.next + row * width);
        }
        multiply(tiles, block.next, weights + layers * width * width, width, block.product);
        for (int64_t row = 0; row < count; ++row)
            for (int64_t i = 0; i < width; i += LANES)
                put(next + (start + row) * width + i, rectified(block.product + row * width + i, biases + layers * width + i));
    }
#endif
}
}
