// Orthogonal matching pursuit among rows, in double precision: see match/_by_rows.py.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#endif

#include "exact.h"

namespace {

JAXSEL_SUM(DotOfFloats, float, double, a * b)
JAXSEL_SUM(DotOfDoubles, double, double, a * b)

inline double Dot(const float* x, const double* y, int64_t d) { return DotOfFloats(x, y, d); }
inline double Dot(const double* x, const double* y, int64_t d) { return DotOfDoubles(x, y, d); }

// y += a x
JAXSEL_CLONES void Add(double a, const float* x, double* y, int64_t d) {
  for (int64_t j = 0; j < d; ++j) y[j] += a * double(x[j]);
}
JAXSEL_CLONES void Add(double a, const double* x, double* y, int64_t d) {
  for (int64_t j = 0; j < d; ++j) y[j] += a * x[j];
}

// Products of rows of bytes with one vector. Rows lie in blocks of kBlock, and a block as
// pairs of columns: [d / 2][kBlock][2], so that sums stay in their lanes.
constexpr int64_t kBlock = 16;
void DotsOfBytes(const int8_t* bytes, const int16_t* vector, int64_t n, int64_t d, int32_t* out) {
  for (int64_t i = 0; i < n; i += kBlock) {
    int32_t sums[kBlock] = {};
    for (int64_t j = 0; j < d; j += 2, bytes += 2 * kBlock) {
      for (int64_t row = 0; row < kBlock; ++row) {
        sums[row] += bytes[2 * row] * vector[j] + bytes[2 * row + 1] * vector[j + 1];
      }
    }
    std::copy(sums, sums + kBlock, out + i);
  }
}

#if defined(__x86_64__) && defined(__GNUC__)
__attribute__((target("avx2"))) void DotsOfBytesAvx2(const int8_t* bytes, const int16_t* vector,
                                                     int64_t n, int64_t d, int32_t* out) {
  for (int64_t i = 0; i < n; i += kBlock) {
    __m256i low = _mm256_setzero_si256(), high = low;
    for (int64_t j = 0; j < d; j += 2, bytes += 2 * kBlock) {
      int32_t both;
      std::memcpy(&both, vector + j, sizeof both);
      const __m256i pair = _mm256_set1_epi32(both);
      const auto* from = reinterpret_cast<const __m128i*>(bytes);
      const __m256i first = _mm256_cvtepi8_epi16(_mm_loadu_si128(from));
      const __m256i second = _mm256_cvtepi8_epi16(_mm_loadu_si128(from + 1));
      low = _mm256_add_epi32(low, _mm256_madd_epi16(first, pair));
      high = _mm256_add_epi32(high, _mm256_madd_epi16(second, pair));
    }
    auto* to = reinterpret_cast<__m256i*>(out + i);
    _mm256_storeu_si256(to, low);
    _mm256_storeu_si256(to + 1, high);
  }
}
#endif

JAXSEL_CLONES void AddMoments(const double* row, double* sum, double* squares, int64_t d) {
  for (int64_t j = 0; j < d; ++j) sum[j] += row[j], squares[j] += row[j] * row[j];
}

// Standardizes a row in place; returns its largest entry.
JAXSEL_CLONES double Standardize(const double* centre, const double* inverse, double* row,
                                 int64_t d) {
  for (int64_t j = 0; j < d; ++j) row[j] = (row[j] - centre[j]) * inverse[j];
  constexpr int kLanes = 16;
  double peaks[kLanes] = {}, peak = 0;
  int64_t j = 0;
  for (; j + kLanes <= d; j += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const double size = std::abs(row[j + lane]);
      peaks[lane] = size > peaks[lane] ? size : peaks[lane];
    }
  }
  for (; j < d; ++j) peak = std::max(peak, std::abs(row[j]));
  for (double of_lane : peaks) peak = std::max(peak, of_lane);
  return peak;
}

JAXSEL_CLONES void Round(const double* row, double factor, int8_t* out, int64_t d) {
  for (int64_t j = 0; j < d; ++j) {
    const float value = static_cast<float>(row[j] * factor);
    out[j] = static_cast<int8_t>(static_cast<int32_t>(value + (value < 0 ? -.5f : .5f)));
  }
}

// An estimate of unit * byte product + offset, whose error is at most unit * share + rest.
struct Interval {
  double offset, unit, share, rest;
};

JAXSEL_CLONES double BoundScores(const int32_t* products, const double* units,
                                 const double* factor, Interval of, bool positive, int64_t n,
                                 double* upper) {
  constexpr int kLanes = 8;
  double least[kLanes] = {}, best = 0;
  const auto bound = [&](int64_t i, double* least) {
    const double value = of.offset + units[i] * of.unit * products[i];
    const double size = positive ? value : std::abs(value);
    const double error = units[i] * of.share + of.rest;
    const double low = (size - error) * factor[i];
    *least = low > *least ? low : *least;
    upper[i] = (size + error) * factor[i];
  };
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) bound(i + lane, &least[lane]);
  }
  for (; i < n; ++i) bound(i, &best);
  for (double low : least) best = std::max(best, low);
  return best * (1 - 8 * std::numeric_limits<double>::epsilon());
}

constexpr int64_t kSample = 1024;  // rows, for centre and scales
constexpr double kEps = std::numeric_limits<double>::epsilon(), kRoot = 0x1p-26;

// Rows rounded to a byte an entry, around the mean row, by scales of columns and rows:
// they bound all products with a vector at a fourth of the memory of floats, or less.
template <typename T>
class ByteRows {
 public:
  ByteRows(const T* rows, const std::vector<uint8_t>& open, int64_t n, int64_t d)
      : n_((n + kBlock - 1) / kBlock * kBlock), d_(d), padded_((d + 1) / 2 * 2),
        bytes_(n_ * padded_), unit_(n), centre_(d), scale_(d), vector_(padded_), products_(n_) {
    std::vector<double> sum(d), squares(d), inverse(d), row(d);
    int64_t count = 0;
    // Any centre and scales are right; those of some rows are about the best.
    for (int64_t i = 0; i < n; i += std::max<int64_t>(n / kSample, 1)) {
      if (!open[i]) continue;
      std::copy(rows + i * d, rows + (i + 1) * d, row.begin());
      AddMoments(row.data(), sum.data(), squares.data(), d);
      ++count;
    }
    for (int64_t j = 0; count && j < d; ++j) {
      centre_[j] = sum[j] / count;
      const double variance = squares[j] / count - centre_[j] * centre_[j];
      // Where the variance is rounding, any scale will do.
      scale_[j] = variance > 0 ? std::sqrt(variance) : 1;
      inverse[j] = 1 / scale_[j];
      usable_ &= std::isfinite(scale_[j]) && std::isfinite(inverse[j]);
    }
    std::vector<int8_t> rounded(padded_);
    for (int64_t i = 0; usable_ && i < n; ++i) {
      if (!open[i]) continue;
      std::copy(rows + i * d, rows + (i + 1) * d, row.begin());
      const double peak = Standardize(centre_.data(), inverse.data(), row.data(), d);
      usable_ = std::isfinite(peak);
      if (!(peak > 0)) continue;
      Round(row.data(), 127 / peak, rounded.data(), d);
      int8_t* to = &bytes_[i / kBlock * kBlock * padded_ + i % kBlock * 2];
      for (int64_t j = 0; j < padded_; j += 2, to += 2 * kBlock) {
        to[0] = rounded[j], to[1] = rounded[j + 1];
      }
      unit_[i] = peak / 127;
    }
  }

  bool usable() const { return usable_; }

  // Bounds scores from above, `upper` [n], and the best of them from below: of products
  // with a vector, or their sizes, times `factor`.
  double Bound(const double* vector, const double* factor, bool positive, double* upper) {
    double offset = 0, sizes = 0, total = 0, peak = 0;
    for (int64_t j = 0; j < d_; ++j) {
      offset += centre_[j] * vector[j];
      sizes += std::abs(centre_[j] * vector[j]);
      const double scaled = std::abs(scale_[j] * vector[j]);
      total += scaled, peak = std::max(peak, scaled);
    }
    // The largest for which sums of products fit 32 bits.
    const double most = std::min<double>(32767, 2147483647. / 127 / padded_);
    const double unit = peak > 0 ? peak / most : 1;
    for (int64_t j = 0; j < d_; ++j) {
      vector_[j] = static_cast<int16_t>(std::lrint(scale_[j] * vector[j] / unit));
    }
    dots_(bytes_.data(), vector_.data(), n_, padded_, products_.data());
    // Half a unit, and a little for the arithmetic, of each entry of row and vector.
    const double share = .501 * total + .501 * 127 * d_ * unit;
    const double rest = 2 * (d_ + 1) * kEps * sizes;
    const Interval product{offset, unit, share, rest};
    return BoundScores(products_.data(), unit_.data(), factor, product, positive, unit_.size(),
                       upper);
  }

 private:
  static auto Dots() {
#if defined(__x86_64__) && defined(__GNUC__)
    if (__builtin_cpu_supports("avx2")) return DotsOfBytesAvx2;
#endif
    return DotsOfBytes;
  }

  void (*const dots_)(const int8_t*, const int16_t*, int64_t, int64_t, int32_t*) = Dots();
  int64_t n_, d_, padded_;
  std::vector<int8_t> bytes_;
  std::vector<double> unit_, centre_, scale_;
  std::vector<int16_t> vector_;
  std::vector<int32_t> products_;
  bool usable_ = true;
};

// Reasons to stop: those of match/_types.py.
enum Status : int32_t { kBudget = 0, kMatched = 1, kExhausted = 2, kPrecision = 3 };

template <typename T>
class Pursuit {
 public:
  Pursuit(const T* rows, int64_t n, int64_t d, const double* target, const double* extra,
          const uint8_t* valid, bool positive, bool nomp)
      : rows_(rows), n_(n), d_(d), target_(target), extra_(extra), positive_(positive),
        diag_(n), open_(n), scale_(n), upper_(n), residual_(target, target + d),
        norm_(Dot(target, target, d)), last_(norm_), error_(kEps * std::sqrt(norm_)) {
    std::vector<double> wide(d);
    for (int64_t i = 0; i < n; ++i) {
      std::copy(rows + i * d, rows + (i + 1) * d, wide.begin());
      diag_[i] = Dot(wide.data(), wide.data(), d);
      open_[i] = valid[i] && diag_[i] > 0 && std::isfinite(diag_[i]);
      if (valid[i] && diag_[i] > longest_length_) longest_length_ = diag_[i];
      if (open_[i]) scale_[i] = nomp ? 1 / std::sqrt(diag_[i]) : 1;
    }
  }

  // Chooses up to `budget` rows, until the objective is at most `floor` of the target's.
  int32_t Run(int64_t budget, double floor, int32_t* indices, double* weights,
              double* objective) {
    ByteRows<T> bytes(rows_, open_, n_, d_);
    bytes_ = &bytes;
    screens_ = bytes.usable();
    for (;;) {
      const int64_t t = steps();
      if (t >= budget) return kBudget;
      if (norm_ > 0 && last_ <= floor * norm_) return kMatched;
      double size;
      const int64_t j = Next(&size);
      if (j < 0) return kExhausted;
      if (!Choose(j, size)) continue;
      if (!Fits()) return kPrecision;
      indices[t] = static_cast<int32_t>(j);
      std::copy(weights_.begin(), weights_.end(), weights);
      objective[t] = last_;
      steps_ = t + 1;
    }
  }

  int64_t steps() const { return steps_; }
  bool rounded() const { return rounded_; }
  double norm() const { return norm_; }
  // The largest squared length of a candidate, infinite ones included.
  double longest() const { return longest_length_; }

 private:
  const T* row_of(int64_t c) const { return rows_ + index_[c] * d_; }

  bool Passes(int64_t i, double size) const {
    return size > 32 * kEps * std::sqrt(diag_[i]) * std::sqrt(norm_);
  }

  double Size(int64_t i) const {
    const double product = Dot(rows_ + i * d_, residual_.data(), d_);
    return positive_ ? product : std::abs(product);
  }

  // Bounds all scores with the residual.
  void Screen() {
    if (fresh_) return;
    least_ = bytes_->Bound(residual_.data(), scale_.data(), positive_, upper_.data());
    fresh_ = true;
  }

  // The candidate with the best score, the first of equal ones, or -1.
  int64_t Next(double* size) {
    if (screens_) Screen();
    int64_t best = -1, count = 0;
    double most = 0;
    const auto consider = [&](int64_t i) {
      const double exact = Size(i), score = exact * scale_[i];
      ++count;
      if (score > most && Passes(i, exact)) most = score, best = i, *size = exact;
    };
    if (screens_) {
      for (int64_t i = 0; i < n_; ++i) {
        if (upper_[i] >= least_ && open_[i]) consider(i);
      }
      // Bounds that tell too few apart cost more than they save.
      wasted_ = count > n_ / 8 ? wasted_ + 1 : 0;
      screens_ = wasted_ < 3;
      if (best >= 0 && most >= least_) return best;
    }
    for (int64_t i = 0; i < n_; ++i) {
      if (open_[i]) consider(i);
    }
    return best;
  }

  // Adds a candidate to the chosen ones, unless it lies in the span of the basic ones.
  bool Choose(int64_t j, double size) {
    open_[j] = 0, scale_[j] = 0;
    const T* row = rows_ + j * d_;
    index_.resize(steps_), diagonal_.resize(steps_), ridge_.resize(steps_), product_.resize(steps_);
    weights_.resize(steps_), dependent_.assign(steps_ + 1, 0);
    index_.push_back(j);
    diagonal_.push_back(diag_[j] + extra_[j]);
    ridge_.push_back(extra_[j]);
    product_.push_back(Dot(row, target_, d_));
    weights_.push_back(0);
    if (!Enter(steps_)) {
      rounded_ = true;
      return false;
    }
    size_ = size;
    if (longest_ < 0 || longest_ == j) {
      longest_ = -1;
      for (int64_t i = 0; i < n_; ++i) {
        if (open_[i] && (longest_ < 0 || diag_[i] > diag_[longest_])) longest_ = i;
      }
    }
    // A correlation below this multiple of the residual's error is in doubt.
    const double square = std::max(longest_ < 0 ? 0 : diag_[longest_], diag_[j]);
    doubtful_ = 16 * std::sqrt(square / d_);
    return true;
  }

  // Fits all weights again; false if rounding keeps the objective from falling.
  bool Fits() {
    const std::vector<double> before = weights_;
    double error = 0;
    for (int64_t round = 0; round < 8 * steps_ + 64; ++round) {
      std::vector<double> fitted(basic_.size());
      for (size_t b = 0; b < basic_.size(); ++b) fitted[b] = product_[basic_[b]];
      Forward(&fitted);
      Backward(&fitted);
      if (positive_ && !Feasible(&fitted)) continue;
      error = Refine(&fitted);
      // A correction leaves about its share of the target; where rounding may matter, the
      // next one measures what is left.
      const double length = std::sqrt(norm_);
      const bool close = size_ < 1e8 * doubtful_ * kEps * length;
      error = close || error > kRoot * length ? Refine(&fitted) : error * error / length;
      if (positive_ && !Feasible(&fitted)) continue;
      for (size_t b = 0; b < basic_.size(); ++b) weights_[basic_[b]] = fitted[b];
      Subtract(fitted);
      if (!positive_ || !EnterViolating()) break;
    }
    double objective = Dot(residual_.data(), residual_.data(), d_);
    for (int64_t c : basic_) objective += ridge_[c] * weights_[c] * weights_[c];
    if (!(objective <= last_ + 64 * kEps * norm_)) {
      weights_ = before;
      return false;
    }
    last_ = objective;
    error_ = std::max(error_, error);
    rounded_ |= size_ < doubtful_ * error_;
    return true;
  }

  // Corrects the weights of the basic atoms by the products of their residual, which
  // cancels before it is rounded; returns the length of the correction.
  double Refine(std::vector<double>* fitted) {
    Subtract(*fitted);
    std::vector<double> gap(basic_.size());
    for (size_t b = 0; b < basic_.size(); ++b) {
      const int64_t c = basic_[b];
      gap[b] = Dot(row_of(c), residual_.data(), d_) - ridge_[c] * (*fitted)[b];
    }
    std::vector<double> correction = gap;
    Forward(&correction);
    const double square = Dot(correction.data(), correction.data(), correction.size());
    Backward(&correction);
    for (size_t b = 0; b < basic_.size(); ++b) (*fitted)[b] += correction[b];
    return std::sqrt(square);
  }

  void Subtract(const std::vector<double>& fitted) {
    fresh_ = false;
    std::copy(target_, target_ + d_, residual_.begin());
    for (size_t b = 0; b < basic_.size(); ++b) {
      Add(-fitted[b], row_of(basic_[b]), residual_.data(), d_);
    }
  }

  // Walks towards the fitted weights until one is zero (Lawson and Hanson, Solving Least
  // Squares Problems, 1974, ch. 23); true if none is in the way.
  bool Feasible(std::vector<double>* fitted) {
    double most = 0, share = 1;
    for (double weight : *fitted) most = std::max(most, std::abs(weight));
    const double slack = 16 * kEps * most;
    size_t first = basic_.size();
    for (size_t b = 0; b < basic_.size(); ++b) {
      double& to = (*fitted)[b];
      const double from = weights_[basic_[b]];
      if (to >= -slack) {
        to = std::max(to, 0.);
      } else if (first == basic_.size() || from / (from - to) < share) {
        share = from / (from - to), first = b;
      }
    }
    if (first == basic_.size()) return true;
    for (size_t b = 0; b < basic_.size(); ++b) {
      double& weight = weights_[basic_[b]];
      weight = std::max(weight + share * ((*fitted)[b] - weight), 0.);
    }
    // If the atom that came last gets no weight at all, rounding let it in.
    if (share == 0 && basic_[first] == entered_) dependent_[entered_] = 1;
    weights_[basic_[first]] = 0;
    Leave(first);
    return false;
  }

  // Adds the chosen atom outside the basis whose rise lowers the objective most.
  bool EnterViolating() {
    std::vector<uint8_t> inside(dependent_.size());
    double reach = 0;
    if (screens_ && basic_.size() < inside.size()) Screen();
    for (int64_t c : basic_) {
      inside[c] = 1;
      reach = std::max(reach, weights_[c] * std::sqrt(diagonal_[c]));
    }
    for (;;) {
      int64_t best = -1;
      double most = 0;
      for (size_t c = 0; c < inside.size(); ++c) {
        if (inside[c] || dependent_[c]) continue;
        if (screens_ && !(upper_[index_[c]] > 0)) continue;
        const double product = Dot(row_of(c), residual_.data(), d_);
        const double root = std::sqrt(diagonal_[c]);
        const double slack = 16 * kEps * (reach * root + std::abs(product_[c]));
        if (product > slack && product / root > most) most = product / root, best = c;
      }
      if (best < 0) return false;
      if (Enter(best)) return true;
      dependent_[best] = 1;
    }
  }

  // Adds a row to the Cholesky factor of the basic atoms, unless rounding is all it has.
  bool Enter(int64_t c) {
    const std::vector<double> entering(row_of(c), row_of(c) + d_);
    std::vector<double> row(basic_.size());
    for (size_t b = 0; b < basic_.size(); ++b) {
      row[b] = Dot(row_of(basic_[b]), entering.data(), d_);
    }
    Forward(&row);
    const double pivot = diagonal_[c] - Dot(row.data(), row.data(), row.size());
    if (!(pivot > 256 * kEps * diagonal_[c])) return false;
    row.push_back(std::sqrt(pivot));
    factor_.push_back(std::move(row));
    basic_.push_back(c);
    scale_[index_[c]] = 0;
    entered_ = c;
    return true;
  }

  // Takes an atom out of the factor; rotations make the rows below triangular again.
  void Leave(size_t place) {
    // Its product is bounded again, to tell when it has to come back.
    scale_[index_[basic_[place]]] = 1;
    factor_.erase(factor_.begin() + place);
    basic_.erase(basic_.begin() + place);
    for (size_t k = place; k < factor_.size(); ++k) {
      const double a = factor_[k][k], b = factor_[k][k + 1], length = std::hypot(a, b);
      for (size_t i = k; i < factor_.size(); ++i) {
        double &x = factor_[i][k], &y = factor_[i][k + 1];
        const double turned = (a * x + b * y) / length;
        y = (a * y - b * x) / length, x = turned;
      }
      factor_[k].pop_back();
    }
  }

  void Forward(std::vector<double>* x) const {
    for (size_t i = 0; i < x->size(); ++i) {
      const std::vector<double>& row = factor_[i];
      (*x)[i] = ((*x)[i] - Dot(row.data(), x->data(), i)) / row[i];
    }
  }

  void Backward(std::vector<double>* x) const {
    for (size_t i = x->size(); i-- > 0;) {
      const std::vector<double>& row = factor_[i];
      (*x)[i] /= row[i];
      Add(-(*x)[i], row.data(), x->data(), i);
    }
  }

  const T* rows_;
  const int64_t n_, d_;
  const double *target_, *extra_;
  const bool positive_;
  std::vector<double> diag_;
  std::vector<uint8_t> open_;
  std::vector<double> scale_;  // of correlations in scores; 0 if closed, or basic
  std::vector<double> upper_;  // bounds of scores
  std::vector<double> residual_;
  const double norm_;
  double last_, error_;  // the objective, and the largest rounding error yet
  ByteRows<T>* bytes_ = nullptr;
  bool screens_ = true, fresh_ = false, rounded_ = false;
  double least_ = 0;
  int wasted_ = 0;
  int64_t steps_ = 0, longest_ = -1, entered_ = -1;
  double size_ = 0, longest_length_ = 0, doubtful_ = 0;
  // Of the chosen, in their order: rows, diagonal of K, ridge, products with the target.
  std::vector<int64_t> index_;
  std::vector<double> diagonal_, ridge_, product_, weights_;
  std::vector<uint8_t> dependent_;
  std::vector<int64_t> basic_;               // whose weights may differ from zero
  std::vector<std::vector<double>> factor_;  // Cholesky, of K among them
};

template <typename T>
int32_t Pursue(const void* rows, int64_t n, int64_t d, const double* target,
               const double* extra, const uint8_t* valid, int64_t budget, double floor,
               bool positive, bool nomp, int32_t* indices, double* weights, double* objective,
               double* norm, double* longest, int32_t* steps, uint8_t* rounded) {
  Pursuit<T> pursuit(static_cast<const T*>(rows), n, d, target, extra, valid, positive, nomp);
  const int32_t status = pursuit.Run(budget, floor, indices, weights, objective);
  *norm = pursuit.norm();
  *longest = pursuit.longest();
  *steps = static_cast<int32_t>(pursuit.steps());
  *rounded = pursuit.rounded();
  return status;
}

}  // namespace
