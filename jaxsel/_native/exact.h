// What float32 distances may be off by, and what they are: see _exact.py.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "clones.h"
#include "rows.h"

namespace {

// Squared distance in double precision, by differences, so that nothing cancels: the sum
// of a term of the entries a and b of two rows, in lanes that compilers vectorize.
#define JAXSEL_SUM(NAME, TYPE_A, TYPE_B, TERM)                                        \
  JAXSEL_CLONES double NAME(const TYPE_A* rows_a, const TYPE_B* rows_b, int64_t d) {  \
    constexpr int kLanes = 16;                                                        \
    double lanes[kLanes] = {}, sum = 0;                                               \
    int64_t j = 0;                                                                    \
    for (; j + kLanes <= d; j += kLanes) {                                            \
      for (int lane = 0; lane < kLanes; ++lane) {                                     \
        const double a = double(rows_a[j + lane]), b = double(rows_b[j + lane]);      \
        lanes[lane] += TERM;                                                          \
      }                                                                               \
    }                                                                                 \
    for (; j < d; ++j) {                                                              \
      const double a = double(rows_a[j]), b = double(rows_b[j]);                      \
      sum += TERM;                                                                    \
    }                                                                                 \
    for (int lane = 0; lane < kLanes; ++lane) sum += lanes[lane];                     \
    return sum;                                                                       \
  }
JAXSEL_SUM(OfFloats, float, float, (a - b) * (a - b))
JAXSEL_SUM(OfDoubles, double, double, (a - b) * (a - b))

// As in _exact.py, where they are explained.
constexpr float kTrust = 1e-4f, kTolerance = 1e-6f, kTiny = 0x1p-126f;
constexpr float kRounding = 0x1p-23f;
constexpr double kTie = 0x1p-50;

// One query's distances: what they may be off by, and what they are.
struct Exact {
  const void *points = nullptr, *query = nullptr;
  const float* error = nullptr;
  float query_error = 0, most = 0, lost_within = 0;
  int64_t d = 0;
  bool wide = false, cosine = false;

  explicit operator bool() const { return points != nullptr; }

  double Distance(int64_t i) const {
    double distance = wide ? OfDoubles(static_cast<const double*>(points) + i * d,
                                       static_cast<const double*>(query), d)
                           : OfFloats(static_cast<const float*>(points) + i * d,
                                      static_cast<const float*>(query), d);
    if (!cosine) return distance;
    return distance == distance ? distance / 2 : 1;  // a row of zeros
  }
  // How far apart equal distances may come out.
  double Tie(double distance) const {
    return kTie * (cosine ? distance + std::sqrt(distance) + kTie * d : distance);
  }
  bool Lost(int64_t i, float distance) const {
    return distance * kTrust < error[i] + query_error;
  }
  // How far equal distances come apart however near: unit rows are rounded.
  float Least(float distance) const {
    if (!cosine) return kTiny;
    return kTiny + static_cast<float>(kTie * (std::sqrt(distance) + kTie * d));
  }
  float Slack(int64_t i, float distance) const {
    return Least(distance) +
           (Lost(i, distance) ? distance * kRounding : error[i] + query_error);
  }
  // At least the slack of every point at this distance.
  float MostSlack(float distance) const {
    return Least(distance) + std::min(most, distance * kTrust);
  }
  // Beyond this no true distance is as small as `reach`.
  float Within(float reach) const {
    reach += 2 * Least(reach);
    return std::min(reach + most, reach * (1 + 2 * kTrust));
  }
};

// The operands from which the `Exact` of each row is made; empty ones make none.
class Exacts {
 public:
  Exacts(const Raw& points, const Raw& queries, const Floats& errors,
         const Floats& query_errors, const std::vector<int64_t>& batch, bool cosine)
      : at_points_(points.dimensions(), batch),
        at_query_(queries.dimensions(), batch),
        at_errors_(errors.dimensions(), batch),
        at_query_errors_(query_errors.dimensions(), batch) {
    if (points.element_count() == 0) return;
    given_ = true;
    n_ = errors.dimensions().back();
    fits_ = Ends(points.dimensions(), {n_, queries.dimensions().back()}) &&
            Ends(query_errors.dimensions(), {3});
    points_ = static_cast<const char*>(points.untyped_data());
    queries_ = static_cast<const char*>(queries.untyped_data());
    errors_ = errors.typed_data();
    query_errors_ = query_errors.typed_data();
    shared_.wide = points.element_type() == ffi::U32;  // the halves of doubles
    shared_.cosine = cosine;
    shared_.d = points.dimensions().back() / (shared_.wide ? 2 : 1);
  }
  // Whether they are of rows of n entries.
  bool Fit(int64_t n) const { return !given_ || (fits_ && n_ == n); }

  Exact At(int64_t row) const {
    Exact exact = shared_;
    if (!given_) return exact;
    const float* error = query_errors_ + at_query_errors_.Offset(row);
    exact.query_error = error[0];
    exact.most = error[1];
    exact.lost_within = error[2];
    exact.error = errors_ + at_errors_.Offset(row);
    exact.points = points_ + at_points_.Offset(row) * 4;
    exact.query = queries_ + at_query_.Offset(row) * 4;
    return exact;
  }

 private:
  Rows at_points_, at_query_, at_errors_, at_query_errors_;
  const char *points_ = nullptr, *queries_ = nullptr;
  const float *errors_ = nullptr, *query_errors_ = nullptr;
  bool given_ = false, fits_ = false;
  int64_t n_ = 0;
  Exact shared_;
};

}  // namespace
