// Confusion counts of pairs from values that are sorted once: predictions are one end of a latent's values.

#include <cmath>
#include <cstdint>

extern "C" {

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

// Of latents whose ascending values are the rows of x [number, width], by classes at `columns`; b, w and counts [latents, c].
template <typename X>
void count(const X* x, int64_t width, const int64_t* latent, const double* counts, int64_t number, const int64_t* columns,
           int64_t c, const int64_t* start, const double* group, int64_t classes, int64_t rows, const int64_t* positives,
           const double* b, const double* w, int64_t* tp, int64_t* fp, int64_t* tn, int64_t* fn) {
    for (int64_t r = 0; r < number; ++r) {
        const int64_t events = static_cast<int64_t>(counts[r]);
        for (int64_t k = 0; k < c; ++k) {
            const int64_t i = latent[r] * c + k, key = latent[r] * classes + columns[k];
            const int64_t hits = start[key + 1] - start[key];
            int64_t predicted = fired(x + r * width, events, b[i], w[i]), right = 0;
            for (int64_t e = start[key]; e < start[key + 1]; ++e) right += fires(b[i], w[i], group[e]);
            if (b[i] > 0) predicted += rows - events, right += positives[k] - hits;
            tp[i] = right, fp[i] = predicted - right, fn[i] = positives[k] - right;
            tn[i] = rows - predicted - fn[i];
        }
    }
}

}  // namespace

extern "C" {

void count_f32(const float* x, int64_t width, const int64_t* latent, const double* counts, int64_t number,
               const int64_t* columns, int64_t c, const int64_t* start, const double* group, int64_t classes, int64_t rows,
               const int64_t* positives, const double* b, const double* w, int64_t* tp, int64_t* fp, int64_t* tn, int64_t* fn) {
    count(x, width, latent, counts, number, columns, c, start, group, classes, rows, positives, b, w, tp, fp, tn, fn);
}

void count_f64(const double* x, int64_t width, const int64_t* latent, const double* counts, int64_t number,
               const int64_t* columns, int64_t c, const int64_t* start, const double* group, int64_t classes, int64_t rows,
               const int64_t* positives, const double* b, const double* w, int64_t* tp, int64_t* fp, int64_t* tn, int64_t* fn) {
    count(x, width, latent, counts, number, columns, c, start, group, classes, rows, positives, b, w, tp, fp, tn, fn);
}
}
