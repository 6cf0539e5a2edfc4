// Where a solver begins: the solution of each pair on a few nodes in place of the events of its latent.
//
// A start decides only how many evaluations a pair takes, so it is computed in float and never tested. Lanes are pairs.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "exponential.h"

extern "C" {

// Of each pair, with the place of its latent's nodes; `b` and `w` are written.
struct Starts {
    const int64_t* rank;
    const double *count, *positives, *prior, *hits, *hit_sum, *scale;
    double *b, *w;
};
}

namespace {

constexpr int NODES = 16, BINS = NODES / 2, LANES = 16, STEPS = 7;
constexpr float LONGEST = 4.0f, LONGEST_TAIL = 60.0f;  // steps, in logits
constexpr float FURTHEST = 60.0f, FURTHEST_TAIL = 2000.0f;  // what lies beyond, in logits, is no start
constexpr float SETTLED = 0.1f;                        // steps, in logits, that lead nowhere: they go on quadratically
constexpr double PSEUDO_ROWS = 0.02;                   // that smooth the share among silent rows
constexpr float PER_LN2 = 1.44269504f;
constexpr float SINGULAR = 1e-5f, TINY = 1e-30f;
constexpr double PI = 3.14159265358979323846;

// Two nodes with the first four moments of the events of a bin (Gauss quadrature): with central moments s2 and s3 around
// the mean they lie off it by the roots t1 < t2 of t^2 - (s3/s2) t - s2 = 0 and share the events by t2 and -t1.
void gauss(const float* x, int64_t size, float* node, float* weight) {
    double mean = 0, s2 = 0, s3 = 0;
    for (int64_t j = 0; j < size; ++j) mean += x[j] / static_cast<double>(size);
    for (int64_t j = 0; j < size; ++j) {
        const double away = x[j] - mean, square = away * away / static_cast<double>(size);
        s2 += square, s3 += square * away;
    }
    const bool flat = s2 <= 1e-12 * mean * mean;
    const double skew = flat ? 0.0 : s3 / s2, spread = std::sqrt(skew * skew + 4 * s2);
    const double low = flat ? 1.0 : (skew + spread) / 2 / spread;
    node[0] = static_cast<float>(mean + (skew - spread) / 2), node[1] = static_cast<float>(mean + (skew + spread) / 2);
    weight[0] = static_cast<float>(size * low), weight[1] = static_cast<float>(size * (1 - low));
}

inline float logarithm(float m) {  // good to 1 in 100, of a positive number
    uint32_t bits;
    std::memcpy(&bits, &m, sizeof bits);
    const float exponent = static_cast<float>(static_cast<int32_t>(bits >> 23) - 127);
    bits = (bits & 0x7fffffu) | 0x3f800000u;
    float f;
    std::memcpy(&f, &bits, sizeof f);
    return 0.69314718f * (exponent + (-0.33582878f * f + 2.0f) * f - 1.65871022f);
}

// Logit of the share of positives among silent rows, which tails start at: exact, for nothing moves it.
inline double silent_logit(double rows, double count, double positives, double hits) {
    const double share = positives / rows, among = positives - hits + share * PSEUDO_ROWS;
    return std::log(among / (rows - count + 2 * PSEUDO_ROWS - among));
}

struct Lanes {
    float b[LANES], w[LANES], positives[LANES], hit_sum[LANES], tail[LANES], wanted[LANES];
    float first[LANES], last[LANES], moved[LANES];
    float m0[LANES], m1[LANES], a0[LANES], a1[LANES], a2[LANES];
};

inline void add_nodes(const float* node, const float* weight, int used, Lanes& s) {
    float m0[LANES] = {}, m1[LANES] = {}, a0[LANES] = {}, a1[LANES] = {}, a2[LANES] = {}, b[LANES], w[LANES];
    for (int l = 0; l < LANES; ++l) b[l] = PER_LN2 * s.b[l], w[l] = PER_LN2 * s.w[l];  // powers of two cost least
    for (int k = 0; k < used; ++k) {
        const float x = node[k], c = weight[k];
#pragma omp simd
        for (int l = 0; l < LANES; ++l) {
            const float eta = b[l] + w[l] * x, t = exp2_negative(-std::fabs(eta));
            const float r = 1.0f / (1.0f + t), low = t * r, mu = c * (eta >= 0 ? r : low);
            const float v = c * (low * r), vx = v * x;
            m0[l] += mu, m1[l] += mu * x, a0[l] += v, a1[l] += vx, a2[l] += vx * x;
        }
    }
    for (int l = 0; l < LANES; ++l) s.m0[l] = m0[l], s.m1[l] = m1[l], s.a0[l] = a0[l], s.a1[l] = a1[l], s.a2[l] = a2[l];
}

// A Newton step in (b, w); of a tail, in w alone towards the weight that its non-zeros may have left.
inline void step(float silent, float scale, float target, Lanes& s) {
#pragma omp simd
    for (int l = 0; l < LANES; ++l) {
        const float t = exp_negative(-std::fabs(s.b[l])), r = 1.0f / (1.0f + t), mu = s.b[l] >= 0 ? r : t * r;
        const float g0 = s.m0[l] + silent * mu - s.positives[l], g1 = s.m1[l] - s.hit_sum[l];
        const float h0 = s.a0[l] + silent * (t * r * r) + TINY, h2 = s.a2[l] + TINY, h1 = s.a1[l];
        const float raw = h0 * h2 - h1 * h1, least = SINGULAR * h0 * h2, det = raw > least ? raw : least;
        const float db = (h2 * g0 - h1 * g1) / det, dw = (h0 * g1 - h1 * g0) / det, sdw = scale * dw;
        const float length = std::sqrt(db * db + sdw * sdw), shrink = length > LONGEST ? LONGEST / length : 1.0f;
        const float left = logarithm(s.m0[l] / target + TINY) * s.m0[l] / (h1 == 0 ? TINY : h1), far = LONGEST_TAIL / scale;
        const float along = left > far ? far : (left < -far ? -far : left);
        const bool tail = s.tail[l] != 0;
        const float size = std::fabs(g0) + std::fabs(g1) / scale;
        s.last[l] = tail ? 0.0f : size;
        s.moved[l] = tail ? std::fabs(along) * scale : length;
        s.b[l] -= tail ? 0.0f : shrink * db;
        s.w[l] -= tail ? along : shrink * dw;
    }
}

inline bool settled(const Lanes& s) {
    float furthest = 0;
    for (int l = 0; l < LANES; ++l) furthest = s.wanted[l] * s.moved[l] > furthest ? s.moved[l] : furthest;
    return furthest < SETTLED;
}

}  // namespace

extern "C" {

// Nodes [rows, NODES] and their weights of ascending rows x [rows, width] with some `counts` of events.
void make_nodes(const float* x, int64_t width, const double* counts, int64_t rows, float* node, float* weight) {
    for (int64_t row = 0; row < rows; ++row, x += width, node += NODES, weight += NODES) {
        const int64_t count = static_cast<int64_t>(counts[row]);
        if (count <= NODES) {
            for (int64_t k = 0; k < count; ++k) node[k] = x[k], weight[k] = 1.0f;
            continue;
        }
        int64_t start = 0;
        for (int k = 1; k <= BINS; ++k) {  // narrow at both ends, where few events decide
            const int64_t stop = std::llround(count * (1 - std::cos(PI * k / BINS)) / 2);
            if (stop > start) gauss(x + start, stop - start, node + 2 * k - 2, weight + 2 * k - 2);
            start = stop;
        }
    }
}

// Starts of all pairs; those of a latent lie together. A pair of one label among non-zeros of one sign has its optimum far
// out: it starts where probabilities of the wrong label add up to `target` there. What has no solution starts at the prior.
void start_on_nodes(const float* nodes, const float* weights, const Starts* given, double rows, double target,
                    int64_t number) {
    const Starts& g = *given;
    for (int64_t p = 0; p < number;) {
        int size = 1;
        while (size < LANES && p + size < number && g.rank[p + size] == g.rank[p]) ++size;
        const float *node = nodes + g.rank[p] * NODES, *weight = weights + g.rank[p] * NODES;
        const double count = g.count[p], scale = g.scale[p];
        int used = NODES;
        while (used > 0 && weight[used - 1] == 0) --used;
        double sum = 0;
        for (int k = 0; k < used; ++k) sum += weight[k] * node[k];
        // Where values of either sign cancel, their mean says nothing of how far w moves a logit.
        const double mean = sum / count, reach = std::fabs(mean) > 0.3 * scale ? mean : scale;
        const bool one_sign = used > 0 && (node[0] > 0) == (node[used - 1] > 0);
        Lanes s = {};
        bool any = false;
        double sign[LANES];
        for (int l = 0; l < size; ++l) {
            const int64_t i = p + l;
            const bool one_label = g.positives[i] == 0 || g.positives[i] == rows;
            const bool all = g.hits[i] == count, tail = all || g.hits[i] == 0;
            const bool wanted = used > 0 && !one_label && (one_sign || !tail);
            any |= wanted;
            s.wanted[l] = wanted ? 1.0f : 0.0f;
            sign[l] = all ? -1.0 : 1.0;  // non-zeros with the class alone are those without it, mirrored
            g.b[i] = wanted && g.hits[i] < g.positives[i] ? silent_logit(rows, count, g.positives[i], g.hits[i]) : g.prior[i];
            g.w[i] = 0;
            // Values taken as present or absent give the first step.
            const double odds = tail ? target / count : g.hits[i] / (count - g.hits[i]);
            s.w[l] = wanted ? static_cast<float>((logarithm(static_cast<float>(odds)) - sign[l] * g.b[i]) / reach) : 0.0f;
            s.b[l] = static_cast<float>(sign[l] * g.b[i]), s.tail[l] = tail ? 1.0f : 0.0f;
            s.positives[l] = static_cast<float>(g.positives[i]), s.hit_sum[l] = static_cast<float>(g.hit_sum[i]);
        }
        for (int k = 0; any && k < STEPS; ++k) {
            add_nodes(node, weight, used, s);
            step(rows - count, scale, target, s);
            if (k == 0) std::copy(s.last, s.last + LANES, s.first);
            if (settled(s)) break;
        }
        for (int l = 0; l < size; ++l) {
            const float furthest = s.tail[l] == 0 ? FURTHEST : FURTHEST_TAIL;
            const bool near = std::fabs(s.b[l]) < furthest && std::fabs(s.w[l]) * scale < furthest;  // false for NaN
            if (s.wanted[l] == 0 || !near || s.last[l] > s.first[l]) continue;
            g.w[p + l] = sign[l] * s.w[l];
            if (s.tail[l] == 0) g.b[p + l] = s.b[l];
        }
        p += size;
    }
}
}
