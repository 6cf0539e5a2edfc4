// Confusion counts of pairs from values that are sorted once: predictions are one end of a latent's values.

#include <cmath>
#include <cstdint>

extern "C" {

// Pairs of all latents and the `wanted` classes at `columns` of all; values by group as `group_values` writes them;
// `positives` [wanted], parameters and counts [latents, wanted].
struct Pairs {
    int64_t rows, classes, wanted;
    const int64_t *columns, *positives, *start;
    const double *group, *b, *w;
    int64_t *tp, *fp, *tn, *fn;
};

// Values by (latent, class): group[start[key] .. start[key + 1]) for key = latent * classes + class. A row has the classes
// columns[labels[row] .. labels[row + 1]). `start` [latents * classes + 1] and, with room for all, `group` are written.
void group_values(const int64_t* rows, int64_t number, const int64_t* latent, const double* value, const int64_t* labels,
                  const int64_t* columns, int64_t classes, int64_t groups, int64_t* start, double* group) {
    for (int64_t key = 0; key <= groups; ++key) start[key] = 0;
    const auto each = [&](const auto& visit) {
        for (int64_t row = 0; row < number; ++row)
            for (int64_t q = labels[row]; q < labels[row + 1]; ++q)
                for (int64_t e = rows[row]; e < rows[row + 1]; ++e) visit(latent[e] * classes + columns[q], value[e]);
    };
    // Counted two places on: once the values are written, each start has moved to where it belongs.
    each([&](int64_t key, double) {
        if (key + 2 <= groups) ++start[key + 2];
    });
    for (int64_t key = 2; key <= groups; ++key) start[key] += start[key - 1];
    each([&](int64_t key, double x) { group[start[key + 1]++] = x; });
}
}

namespace {

// sigmoid(b + w x) > 1/2, told by a sum that is rounded once: its sign is exact.
inline bool fires(double b, double w, double x) { return std::fma(w, x, b) > 0; }

// How many of `count` ascending values fire: the predicate changes once along them.
template <typename X>
int64_t fired(const X* x, int64_t count, double b, double w) {
    const bool rising = w >= 0;
    int64_t low = 0, high = count;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (fires(b, w, x[middle]) == rising)
            high = middle;
        else
            low = middle + 1;
    }
    return rising ? count - low : low;
}

template <typename X>
void count(const X* x, int64_t width, const int64_t* latent, const double* counts, int64_t number, const Pairs& p) {
    for (int64_t r = 0; r < number; ++r) {
        const int64_t events = static_cast<int64_t>(counts[r]);
        for (int64_t k = 0; k < p.wanted; ++k) {
            const int64_t i = latent[r] * p.wanted + k, key = latent[r] * p.classes + p.columns[k];
            const int64_t hits = p.start[key + 1] - p.start[key];
            const double b = p.b[i], w = p.w[i];
            int64_t predicted = fired(x + r * width, events, b, w), right = 0;
            for (int64_t e = p.start[key]; e < p.start[key + 1]; ++e) right += fires(b, w, p.group[e]);
            if (b > 0) predicted += p.rows - events, right += p.positives[k] - hits;
            p.tp[i] = right, p.fp[i] = predicted - right, p.fn[i] = p.positives[k] - right;
            p.tn[i] = p.rows - predicted - p.fn[i];
        }
    }
}

}  // namespace

extern "C" {

// Of latents whose ascending values are the rows of x [number, width], some `counts` of them.
void count_f32(const float* x, int64_t width, const int64_t* latent, const double* counts, int64_t number, const Pairs* p) {
    count(x, width, latent, counts, number, *p);
}

void count_f64(const double* x, int64_t width, const int64_t* latent, const double* counts, int64_t number, const Pairs* p) {
    count(x, width, latent, counts, number, *p);
}
}
