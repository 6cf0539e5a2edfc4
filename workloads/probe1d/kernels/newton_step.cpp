// One pass over a list of pairs after its sums: derivatives, verdict on the last step, next step. In place.
//
// The same rules as maths/newton.advance and maths/separable, whose names stand here. Pairs go through in tiles, whose
// intermediate values stay in the first-level cache; every loop is free of branches and calls.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "exponential.h"

extern "C" {

// Limits of a solver; `rows` is the number of rows of the problem. Flags: what a pass does without.
struct Rules {
    double tol, decrement, tail_loss, singular, rows, step_budget, overshoot, step_limit, rounding, steps,
        trusted;
    int64_t pays, foresees, certifies;
};

// By how much means over rows may be off: see maths/sum_errors.
struct Errors {
    const double *zeroth, *first, *second;
};

// Sums over events and constants of each pair.
struct Pairs {
    const double *m0, *m1, *a0, *a1, *a2;
    const double *count, *zeros, *positives, *ridge, *hits, *hit_sum, *scale, *metric, *reach, *least, *additions, *positive;
};

struct State {
    double *b, *w, *lam, *db, *dw, *g0, *g1, *gmax;
    uint8_t *done, *sure;
    int32_t* evals;
};

// Of a pass: steps halved, pairs left, sum and maximum of lam, largest gradient.
struct Tally {
    double halved, left, lam_sum, lam_max, gradient;
};
}

namespace {

constexpr int TILE = 128;
constexpr double TINY = 1e-300;
constexpr double INFINITE = std::numeric_limits<double>::infinity();
constexpr double BELOW_ONE = 1.0 - std::numeric_limits<double>::epsilon();

struct Gradient {
    double g0, g1, h0, h1, h2, gmax, paid, separable, wrong;
};

inline double larger(double a, double b) { return a > b ? a : b; }
// Flags are numbers: a logical operation of several comparisons keeps GCC from vectors.
inline double flag(bool holds) { return holds ? 1.0 : 0.0; }
inline double smaller(double a, double b) { return a < b ? a : b; }

inline double sigmoid(double b) {
    const double t = exp_negative(-std::fabs(b)), r = 1.0 / (1.0 + t);
    return b >= 0 ? r : t * r;
}

inline double newton_decrement(double g0, double g1, double h0, double h1, double h2) {
    const double det = larger(h0 * h2 - h1 * h1, 1e-12 * h0 * h2);
    return (h2 * g0 * g0 - 2 * h1 * g0 * g1 + h0 * g1 * g1) / det / 2;
}

// See maths/newton.minimum_is_near: one where the decrement bounds the loss that is left.
inline double near(double h0, double h1, double h2, double reach, double decrement) {
    const double det = larger(h0 * h2 - h1 * h1, 1e-12 * h0 * h2);
    return flag(2 * decrement * (h2 + 2 * std::fabs(h1) * reach + h0 * reach * reach) < det);
}

inline Gradient combine(const Pairs p, const Rules rules, int64_t i, double b, double w, double off0, double off1) {
    const double unit = 1.0 / rules.rows, mu = sigmoid(b), mu0 = smaller(mu, BELOW_ONE), s0 = mu0 * (1 - mu0);
    Gradient g;
    g.g0 = (p.m0[i] + p.zeros[i] * mu0 - p.positives[i]) * unit;
    g.g1 = (p.m1[i] - p.hit_sum[i]) * unit + p.ridge[i] * w;
    g.h0 = (p.a0[i] + p.zeros[i] * s0) * unit;
    g.h1 = p.a1[i] * unit;
    g.h2 = p.a2[i] * unit + p.ridge[i];
    g.gmax = larger(std::fabs(g.g0) + off0, (std::fabs(g.g1) + off1) / p.scale[i]);
    g.separable = larger(flag(p.hits[i] == 0), flag(p.hits[i] == p.count[i]));
    // Padding slots are zero rows that the sums hold and `zeros` leaves out; they are no non-zeros.
    const double padding = rules.rows - p.zeros[i] - p.count[i];
    const double wrong = g.wrong = std::fabs(p.m0[i] - padding * mu - p.hits[i]) * unit;
    // Above zero where neither the loss that is left nor a slope at the smallest event shows that the tail is paid.
    const double unpaid = smaller(wrong - (rules.tail_loss - off0), std::fabs(g.g1) + off1 - rules.tol * p.least[i]);
    g.paid = larger(flag(unpaid <= 0), 1 - g.separable);
    return g;
}


// Values of a tile between its loops.
struct Steps {
    double g0[TILE], g1[TILE], h0[TILE], h1[TILE], h2[TILE], gmax[TILE], paid[TILE], lam[TILE], db[TILE], dw[TILE];
    double halve[TILE], fine[TILE], was_done[TILE], separable[TILE], wrong[TILE];
    double sure[TILE];
};

// Judge the last step and solve for the next one.
inline void judge(const Pairs p, const State s, const Rules rules, int64_t first, int size, Steps& t) {
    const double tails = flag(rules.pays != 0);
    for (int k = 0; k < size; ++k) t.was_done[k] = flag(s.done[first + k]);
#pragma omp simd
    for (int k = 0; k < size; ++k) {
        const int64_t i = first + k;
        const Gradient g = combine(p, rules, i, s.b[i], s.w[i], 0.0, 0.0);
        // Downhill slopes along the last step, where it began and where it led: a line search without losses.
        const double before = s.g0[i] * s.db[i] + s.g1[i] * s.dw[i], along = g.g0 * s.db[i] + g.g1 * s.dw[i];
        const double decrement = newton_decrement(g.g0, g.g1, g.h0, g.h1, g.h2);
        const double fine = g.paid * flag(g.gmax <= rules.tol) * flag(decrement <= rules.decrement);
        const double halve = flag(-along > rules.overshoot * std::fabs(before)) * (1 - larger(fine, t.was_done[k]));
        const double flattest = smaller(p.metric[i], g.h2 / larger(std::fabs(g.h1), TINY));
        const double metric = tails * g.separable != 0 ? flattest : p.metric[i];
        const double less = s.lam[i] * 0.1, lam = less < 1e-9 ? 0.0 : less;
        const double d00 = g.h0 * (1 + lam), d11 = g.h2 * (1 + lam), raw = d00 * d11 - g.h1 * g.h1;
        const double det = raw <= rules.singular * d00 * d11 ? larger(raw, 0.0) + 1e-3 * d00 * d11 : raw;
        const double db = (d11 * g.g0 - g.h1 * g.g1) / det, dw = (d00 * g.g1 - g.h1 * g.g0) / det;
        const double length = std::sqrt(db * db + metric * dw * metric * dw);
        const double shrink = smaller(rules.step_budget / length, 1.0);
        t.g0[k] = g.g0, t.g1[k] = g.g1, t.h0[k] = g.h0, t.h1[k] = g.h1, t.h2[k] = g.h2, t.gmax[k] = g.gmax;
        t.paid[k] = g.paid, t.lam[k] = lam;
        t.db[k] = db * shrink, t.dw[k] = dw * shrink;
        t.halve[k] = halve, t.fine[k] = fine, t.separable[k] = g.separable, t.wrong[k] = g.wrong;
    }
}

struct Foreseen {
    double gradient, decrement;
};

// See maths/newton.Foresight.
inline Foreseen foresee(const Pairs p, const Rules rules, int64_t i, const Steps& t, int k) {
    const double h0 = t.h0[k], h1 = t.h1[k], h2 = t.h2[k], db = t.db[k], dw = t.dw[k];
    const double logits = smaller(std::fabs(db) + p.reach[i] * std::fabs(dw), rules.step_limit);
    const double grown = 1.0 / exp_negative(-logits);
    const double phi = logits < 1e-4 ? logits : (grown - 1.0 - logits) / larger(logits, 1e-4);
    const double form = larger(h0 * db * db + 2 * h1 * db * dw + h2 * dw * dw, 0.0);
    const double drift = (logits < rules.step_limit ? phi : INFINITE) * std::sqrt(form);
    const double g0 = t.g0[k] - h0 * db - h1 * dw, g1 = t.g1[k] - h1 * db - h2 * dw;
    const double norm = std::sqrt(larger(2 * newton_decrement(g0, g1, h0, h1, h2), 0.0)) + drift;
    const double slope = (std::fabs(g1) + std::sqrt(h2) * drift) / p.scale[i];
    const double gradient = larger(std::fabs(g0) + std::sqrt(h0) * drift, slope);
    return {rules.foresees ? gradient : INFINITE, rules.foresees ? grown * norm * norm / 2 : INFINITE};
}

// Bounds of gradient and decrement of the loss alone where a pair is about to be left, a step (db, dw) on from these sums:
// maths/newton.Foresight, every norm widened by what float32 sums may be off by, see maths/sum_errors. Infinite where the
// Hessian says too little or a tail may have loss left.
inline Foreseen certify(const Pairs p, const Rules rules, int64_t i, double b, double w, const Steps& t, int k, double db,
                        double dw) {
    const double unit = 1.0 / rules.rows, reach = p.reach[i], scale = p.scale[i], ridge = p.ridge[i];
    const double share = rules.rounding * (rules.steps + p.additions[i] + 2 * (std::fabs(b) + std::fabs(w) * reach)) * unit;
    const double off0 = share * p.m0[i], off1 = share * (p.positive[i] != 0 ? std::fabs(p.m1[i]) : reach * p.m0[i]);
    const double off2 = share * p.a2[i], h0 = t.h0[k], h1 = t.h1[k], h2 = t.h2[k] - ridge, g1 = t.g1[k] - ridge * w;
    const double move_b = std::fabs(db), move_w = std::fabs(dw), logits = smaller(move_b + reach * move_w, rules.step_limit);
    const double grown = 1.0 / exp_negative(-logits);
    const double phi = logits < 1e-4 ? logits : (grown - 1.0 - logits) / larger(logits, 1e-4);
    const double form = h0 * db * db + 2 * h1 * db * dw + h2 * dw * dw;
    const double wider = off0 * db * db + 2 * off1 * move_b * move_w + off2 * dw * dw;
    const double drift = (logits < rules.step_limit ? phi : INFINITE) * std::sqrt(larger(form, 0.0) + wider);
    const double left0 = t.g0[k] - h0 * db - h1 * dw, left1 = g1 - h1 * db - h2 * dw;
    const double error0 = off0 * (1 + move_b) + off1 * move_w, error1 = off1 * (1 + move_b) + off2 * move_w;
    const double slope = (std::fabs(left1) + error1 + std::sqrt(larger(h2, 0.0) + off2) * drift) / scale;
    const double gradient = larger(std::fabs(left0) + error0 + std::sqrt(h0 + off0) * drift, slope);
    const double low0 = h0 - off0 - off1 / scale, low2 = h2 - off2 - off1 * scale;
    const double known = flag(low0 > 0) * flag(low0 * low2 - h1 * h1 > rules.trusted * low0 * low2);
    const double own = larger(newton_decrement(left0, left1, low0, h1, low2), 0.0);
    const double error = larger(newton_decrement(error0, -error1, low0, std::fabs(h1), low2), 0.0);
    const double root = std::sqrt(own) + std::sqrt(error) + drift / std::sqrt(2.0);
    const double paid = larger(1 - t.separable[k], flag((t.wrong[k] + off0) * grown <= rules.tail_loss));
    // No weight shrinks by more than a factor of `grown` on the way, and neither does the Hessian.
    const double bound = grown * root * root, bounded = larger(t.separable[k], near(low0, h1, low2, reach, grown * bound));
    const double decrement = known * paid * bounded != 0 ? bound : INFINITE;
    return {gradient, decrement};
}

// Move on, or take half of the last step back.
inline void move(const Pairs p, const State s, const Rules rules, int64_t first, int size, Steps& t) {
#pragma omp simd
    for (int k = 0; k < size; ++k) {
        const int64_t i = first + k;
        const Foreseen f = foresee(p, rules, i, t, k);
        const bool was_done = t.was_done[k] != 0, fine = t.fine[k] != 0, halve = t.halve[k] != 0, paid = t.paid[k] != 0;
        const bool within = (f.gradient <= rules.tol) & (f.decrement <= rules.decrement);
        const bool foreseen = paid & !fine & !was_done & !halve & within;
        const double now = newton_decrement(t.g0[k], t.g1[k], t.h0[k], t.h1[k], t.h2[k]);
        const bool gains = fine & !was_done & (f.gradient < t.gmax[k]) & (f.decrement <= now);
        const bool last = foreseen | gains, stay = (fine | was_done) & !last;
        const double move_b = halve ? -s.db[i] / 2 : t.db[k], move_w = halve ? -s.dw[i] / 2 : t.dw[k];
        const double taken_b = stay ? 0.0 : move_b, taken_w = stay ? 0.0 : move_w;
        const Foreseen c = certify(p, rules, i, s.b[i], s.w[i], t, k, taken_b, taken_w);
        const double ends = flag(fine | foreseen) * flag(!was_done) * flag(rules.certifies != 0);
        const double sure = ends * flag(c.gradient <= rules.tol) * flag(c.decrement <= rules.decrement);
        s.b[i] = stay ? s.b[i] : s.b[i] - move_b;
        s.w[i] = stay ? s.w[i] : s.w[i] - move_w;
        s.lam[i] = halve ? larger(8 * s.lam[i], 1e-3) : t.lam[k];
        s.db[i] = halve ? s.db[i] / 2 : t.db[k];
        s.dw[i] = halve ? s.dw[i] / 2 : t.dw[k];
        // A halved step is judged again from where it started, so the gradient there is kept.
        s.g0[i] = halve ? s.g0[i] : t.g0[k];
        s.g1[i] = halve ? s.g1[i] : t.g1[k];
        const double bound = sure != 0 ? c.gradient : (last ? f.gradient : t.gmax[k]);
        s.gmax[i] = was_done ? s.gmax[i] : bound;
        t.sure[k] = sure;
        t.fine[k] = fine | was_done | foreseen ? 1.0 : 0.0;
    }
}

inline void count(const State& s, int64_t first, int size, const Steps& t, Tally& tally) {
    for (int k = 0; k < size; ++k) {
        const int64_t i = first + k;
        s.evals[i] += s.done[i] ? 0 : 1;
        s.done[i] = t.fine[k] != 0;
        s.sure[i] |= t.sure[k] != 0;
    }
    double halved = 0, done = 0, lam_sum = 0, lam_max = tally.lam_max, gradient = tally.gradient;
#pragma omp simd reduction(+ : halved, done, lam_sum) reduction(max : lam_max, gradient)
    for (int k = 0; k < size; ++k) {
        halved += t.halve[k], done += t.fine[k], lam_sum += s.lam[first + k];
        lam_max = larger(lam_max, s.lam[first + k]);
        gradient = larger(gradient, larger(std::fabs(t.g0[k]), std::fabs(t.g1[k])));
    }
    tally.halved += halved, tally.left += size - done, tally.lam_sum += lam_sum;
    tally.lam_max = lam_max, tally.gradient = gradient;
}

}  // namespace

extern "C" {

void newton_step(const Pairs* pairs, const State* state, const Rules* rules, int64_t number, Tally* tally) {
    *tally = {};
    Rules own = *rules;
    if (!own.pays) own.tail_loss = INFINITE;
    Steps steps;
    for (int64_t first = 0; first < number; first += TILE) {
        const int size = static_cast<int>(std::min<int64_t>(TILE, number - first));
        judge(*pairs, *state, own, first, size, steps);
        move(*pairs, *state, own, first, size, steps);
        count(*state, first, size, steps, *tally);
    }
}

// Scaled gradient of each pair, and whether it is at its optimum: see maths/certify. `trusted` is a share of the diagonal.
void certify_pairs(const Pairs* pairs, const double* b, const double* w, const Errors* errors, const Rules* given,
                   double trusted, int64_t number, double* gmax, uint8_t* passed) {
    const Pairs p = *pairs;
    const Errors off = *errors;
    const Rules rules = *given;
    for (int64_t first = 0; first < number; first += TILE) {
        const int size = static_cast<int>(std::min<int64_t>(TILE, number - first));
        double fine[TILE];
#pragma omp simd
        for (int k = 0; k < size; ++k) {
            const int64_t i = first + k;
            const double off0 = off.zeroth[i], off1 = off.first[i], scale = p.scale[i];
            const Gradient g = combine(p, rules, i, b[i], w[i], off0, off1);
            const double h0 = g.h0 - off0 - off1 / scale, h2 = g.h2 - off.second[i] - off1 * scale;
            const double known = flag(h0 > 0) * flag(h0 * h2 - g.h1 * g.h1 > trusted * h0 * h2);
            const double own = larger(newton_decrement(g.g0, g.g1, h0, g.h1, h2), 0.0);
            const double error = larger(newton_decrement(off0, -off1, h0, std::fabs(g.h1), h2), 0.0);
            const double root = std::sqrt(own) + std::sqrt(error);
            gmax[i] = g.gmax;
            const double bounded = larger(g.separable, near(h0, g.h1, h2, p.reach[i], root * root));
            fine[k] = flag(g.gmax <= rules.tol) * known * flag(root * root <= rules.decrement) * g.paid * bounded;
        }
        for (int k = 0; k < size; ++k) passed[first + k] = fine[k] != 0;
    }
}
}
