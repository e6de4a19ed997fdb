// The row operations that XLA is slow at on a CPU: a stable argsort, the KNN semivalues
// of one order, the k smallest entries, and distances whose digits cancelled. Each works
// on the rows of a [..., n] array, many rows at once on XLA's own threads. And matching
// pursuit, which XLA's loops and their compilation slow down.
//
// Everything here has a pure JAX twin in jaxsel/neighbors, jaxsel/value and jaxsel/match,
// which is what runs where this file was not compiled, and what the tests compare it with.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <vector>

#include "exact.h"
#include "pursuit.h"
#include "rows.h"
#include "settle.h"
#include "smallest.h"
#include "sort.h"

namespace {

// Rewrites the distances that lost their digits.
ffi::Error Repair(ffi::ThreadPool pool, Floats distances, Raw points, Raw queries,
                  Floats errors, Floats query_errors, ffi::ResultBuffer<ffi::F32> out,
                  bool cosine) {
  const auto dims = out->dimensions();
  const int64_t n = dims.back();
  const auto batch = BatchOf(dims);
  if (!Fits(distances.dimensions(), batch, n)) {
    return BadShape("jaxsel_repair: distances must have rows of n entries");
  }
  const Rows at_distance(distances.dimensions(), batch);
  const Exacts exacts(points, queries, errors, query_errors, batch, cosine);
  if (!exacts.Fit(n)) return BadShape("jaxsel_repair: features and errors must be of n points");
  const float* in = distances.typed_data();
  float* to = out->typed_data();
  struct None {};
  ForEachRow<None>(pool, n ? CountRows(batch) : 0, [=](int64_t row, None&) {
    const Exact exact = exacts.At(row);
    const float* from = in + at_distance.Offset(row);
    float* row_out = to + row * n;
    if (from != row_out) std::copy(from, from + n, row_out);
    constexpr int64_t kBlock = 32;
    for (int64_t start = 0; start < n; start += kBlock) {
      const int64_t end = std::min(n, start + kBlock);
      int any = 0;
      for (int64_t i = start; i < end; ++i) any |= row_out[i] <= exact.lost_within;
      if (!any) continue;
      for (int64_t i = start; i < end; ++i) {
        if (exact.Lost(i, row_out[i])) {
          row_out[i] = static_cast<float>(exact.Distance(i));
        }
      }
    }
  });
  return ffi::Error::Success();
}

// The order of a row for points that gain so much and weights that drop so much.
ffi::Error Order(ffi::ThreadPool pool, Floats distances, Floats gains, Floats drop,
                 Raw points, Raw queries, Floats errors, Floats query_errors,
                 ffi::ResultBuffer<ffi::S32> order, bool cosine) {
  const auto dims = order->dimensions();
  const int64_t n = dims.back();
  const auto batch = BatchOf(dims);
  for (const Floats& operand : {distances, gains, drop}) {
    if (!Fits(operand.dimensions(), batch, n)) {
      return BadShape("jaxsel_order: all operands must have rows of n entries");
    }
  }
  const Rows at_distance(distances.dimensions(), batch),
      at_gain(gains.dimensions(), batch), at_drop(drop.dimensions(), batch);
  const Exacts exacts(points, queries, errors, query_errors, batch, cosine);
  if (!exacts.Fit(n)) return BadShape("jaxsel_order: features and errors must be of n points");
  const float *d = distances.typed_data(), *g = gains.typed_data(),
              *p = drop.typed_data();
  int32_t* out = order->typed_data();
  const auto falls = std::make_shared<Falls>();
  if (n) falls->Read(p, n);
  ForEachRow<OrderScratch<float>>(
      pool, n ? CountRows(batch) : 0, [=](int64_t row, OrderScratch<float>& s) {
        const float *distance = d + at_distance.Offset(row),
                    *gain = g + at_gain.Offset(row), *drop = p + at_drop.Offset(row);
        SortRow(distance, n, out + row * n, s.sort);
        if (const Exact exact = exacts.At(row)) {
          Settle(out + row * n, distance, n, gain, drop, s.falls.For(drop, n, *falls),
                 exact, nullptr, s);
        }
      });
  return ffi::Error::Success();
}

ffi::Error Argsort(ffi::ThreadPool pool, Floats distances,
                   ffi::ResultBuffer<ffi::S32> order) {
  const auto dims = distances.dimensions();
  if (dims.size() == 0 || dims.back() > kMost ||
      !Is(order->dimensions(), BatchOf(dims), dims.back())) {
    return BadShape("jaxsel_argsort: distances and order must be alike, [..., n]");
  }
  const int64_t n = dims.back();
  const float* in = distances.typed_data();
  int32_t* out = order->typed_data();
  ForEachRow<SortScratch>(pool, n ? CountRows(BatchOf(dims)) : 0,
                          [=](int64_t row, SortScratch& scratch) {
                            SortRow(in + row * n, n, out + row * n, scratch);
                          });
  return ffi::Error::Success();
}

// ---------------------------------------------------------------------------------
// Balls

// What the points of a block that are within a radius come to.
struct Members {
  int32_t size = 0;
  bool border = false;  // whether a distance is within `slack` of the radius
  float gain = 0;
};

JAXSEL_CLONES Members CountMembers(const float* __restrict distance,
                                   const float* __restrict gain, int64_t n,
                                   float radius, float slack) {
  constexpr int kLanes = 16;  // side by side, or each step waits for the one before
  int32_t size[kLanes] = {}, border[kLanes] = {};
  float sum[kLanes] = {};
  const int64_t even = n - n % kLanes;
  for (int64_t i = 0; i < even; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const float here = distance[i + lane];
      size[lane] += here <= radius;
      border[lane] |= std::abs(here - radius) <= slack;
      sum[lane] += here <= radius ? gain[i + lane] : 0;
    }
  }
  for (int64_t i = even; i < n; ++i) {
    size[0] += distance[i] <= radius;
    border[0] |= std::abs(distance[i] - radius) <= slack;
    sum[0] += distance[i] <= radius ? gain[i] : 0;
  }
  Members members;
  for (int lane = 0; lane < kLanes; ++lane) {
    members.size += size[lane];
    members.border |= border[lane] != 0;
    members.gain += sum[lane];
  }
  return members;
}

// From distances to values, in place.
JAXSEL_CLONES void WriteMembers(float* __restrict distance, const float* __restrict gain,
                                int64_t n, float radius, float slope, float level) {
  for (int64_t i = 0; i < n; ++i) {
    distance[i] = distance[i] <= radius ? slope * gain[i] - level : 0;
  }
}

// The threshold KNN-Shapley values of one query: those of its neighbours, the points in
// a closed ball, and 0 outside. `limit` is the radius as a double, `reach` what is left
// of it as a float; points that are too near it are decided by the features as given.
// See jaxsel/value/_ball.py and _threshold.py.
ffi::Error Threshold(ffi::ThreadPool pool, Floats distances, Floats gains, Floats reach,
                     ffi::Buffer<ffi::U32> limit, Floats harmonic, Floats prior,
                     Raw points, Raw queries, Floats errors, Floats query_errors,
                     ffi::ResultBuffer<ffi::F32> values, bool cosine) {
  const auto dims = values->dimensions();
  const int64_t n = dims.back();
  const auto batch = BatchOf(dims);
  if (!Fits(distances.dimensions(), batch, n) || !Fits(gains.dimensions(), batch, n) ||
      reach.element_count() != 1 || limit.element_count() != 2 ||
      prior.element_count() != 1 ||
      static_cast<int64_t>(harmonic.element_count()) != n + 1) {
    return BadShape("jaxsel_threshold: distances and gains must have rows of n entries");
  }
  const Rows at_distance(distances.dimensions(), batch),
      at_gain(gains.dimensions(), batch);
  const Exacts exacts(points, queries, errors, query_errors, batch, cosine);
  if (!exacts.Fit(n)) return BadShape("jaxsel_threshold: features and errors must be of n points");
  double edge;
  std::memcpy(&edge, limit.typed_data(), sizeof edge);
  const float radius = *reach.typed_data(), alone = *prior.typed_data();
  const float *near = distances.typed_data(), *gained = gains.typed_data(),
              *sums = harmonic.typed_data();
  float* out = values->typed_data();
  using Wrong = std::vector<int64_t>;  // points that float32 puts on the other side
  ForEachRow<Wrong>(pool, n ? CountRows(batch) : 0, [=](int64_t row, Wrong& wrong) {
    const float *distance = near + at_distance.Offset(row),
                *gain = gained + at_gain.Offset(row);
    const Exact exact = exacts.At(row);
    const float least = kTiny + radius * kRounding,
                slack = exact ? exact.most + least : -1;
    wrong.clear();
    int64_t size = 0;
    double total = 0;
    constexpr int64_t kBlock = 256;
    for (int64_t start = 0; start < n; start += kBlock) {
      const int64_t end = std::min(n, start + kBlock);
      const Members found = CountMembers(distance + start, gain + start, end - start,
                                         radius, slack);
      size += found.size;
      total += found.gain;
      if (!found.border) continue;
      for (int64_t i = start; i < end; ++i) {
        const float room = exact.error[i] + exact.query_error + least;
        if (std::abs(distance[i] - radius) > room) continue;
        const bool taken = distance[i] <= radius;
        if (taken == (exact.Distance(i) <= edge)) continue;
        wrong.push_back(i);
        size += taken ? -1 : 1;
        total += taken ? -gain[i] : gain[i];
      }
    }
    const double members = std::max<int64_t>(size, 1),
                 others = std::max<int64_t>(size - 1, 1);
    const double later = size > 1 ? double(sums[size]) - 1 : 0;
    const float slope = static_cast<float>((1 + later + later / others) / members);
    const float level = static_cast<float>((alone + later * total / others) / members);
    float* value = out + row * n;  // may be the distances' own memory
    if (value != distance) std::copy(distance, distance + n, value);
    for (const int64_t i : wrong) {  // to the side where they belong
      value[i] = value[i] <= radius ? std::numeric_limits<float>::infinity() : 0;
    }
    WriteMembers(value, gain, n, radius, slope, level);
  });
  return ffi::Error::Success();
}

// ---------------------------------------------------------------------------------
// Semivalues

constexpr int64_t kRanks = 1024;  // of a block, whose sums stay in the first cache

// The weights of a block of ranks, as sums of the drops, which float32 weights may lose. The
// weight of its last rank is read, before the roundings of the drops add up.
void WriteLevels(const float* weight, const float* drop, int64_t n, double* level) {
  double here = level[n - 1] = weight[n - 1];
  int64_t r = n - 1;
  for (; r >= 4; r -= 4) {  // four whose sums do not wait for one another
    const double near = double(drop[r - 2]) + drop[r - 3], far = double(drop[r]) + drop[r - 1];
    level[r - 1] = here + drop[r];
    level[r - 2] = here + far;
    level[r - 3] = here + (far + drop[r - 2]);
    level[r - 4] = here += far + near;
  }
  for (; r > 0; --r) level[r - 1] = here += drop[r];
}

// The weights of all ranks, which rows share: of long rows, whose sort takes longer, they
// are summed anew, for the memory.
struct Levels {
  const float *weight = nullptr, *drop = nullptr;
  std::vector<double> at;

  void Read(const float* weights, const float* drops, int64_t n) {
    weight = weights;
    drop = drops;
    at.resize(n > int64_t{1} << 16 ? 0 : n);
    for (int64_t r = 0; r < static_cast<int64_t>(at.size()); r += kRanks) {
      WriteLevels(weight + r, drop + r, std::min(n - r, kRanks), at.data() + r);
    }
  }
  // The levels of a row: those that all rows share, if its weights are the same.
  const Levels& For(const float* weights, const float* drops, int64_t n,
                    const Levels& shared) {
    if (shared.weight == weights && shared.drop == drops) return shared;
    Read(weights, drops, n);
    return *this;
  }
};

// weight_r (u_r - u_{r+1}) of n ranks.
template <typename Gain>
JAXSEL_INLINE void Terms(const Gain* __restrict gain, const double* __restrict level,
                         int64_t n, double* __restrict term) {
  for (int64_t i = 0; i < n; ++i) {
    term[i] = level[i] * (double(gain[i]) - double(gain[i + 1]));
  }
}
JAXSEL_CLONES void WriteTerms(const float* gain, const double* level, int64_t n,
                              double* term) {
  Terms(gain, level, n, term);
}
JAXSEL_CLONES void WriteTerms(const uint8_t* gain, const double* level, int64_t n,
                              double* term) {
  Terms(gain, level, n, term);
}

// v_r = v_{r+1} + weight_r (u_r - u_{r+1}), at each point's own place, in doubles: among
// equal gains no terms cancel. `near` has the gains at the first ranks. Four ranks at a
// time, whose sums do not wait for one another.
template <typename Gain>
void WriteValues(const int32_t* order, const Gain* gain, const std::vector<Gain>& near,
                 const Levels& levels, int64_t n, float* value) {
  Gain gains[kRanks + 1];
  double sums[kRanks], terms[kRanks], worth = 0;
  gains[0] = 0;  // behind the last rank
  for (int64_t stop = n, first; stop > 0; stop = first) {
    first = (stop - 1) / kRanks * kRanks;
    const int32_t* at = order + first;
    int64_t r = stop - first;
    gains[r] = gains[0];
    const int64_t known = std::clamp<int64_t>(near.size() - first, 0, r);
    if (known) std::copy_n(near.data() + first, known, gains);
    for (int64_t i = known; i < r; ++i) gains[i] = gain[at[i]];
    if (levels.at.empty()) WriteLevels(levels.weight + first, levels.drop + first, r, sums);
    WriteTerms(gains, levels.at.empty() ? sums : &levels.at[first], r, terms);
    for (; r % 4; --r) {
      worth += terms[r - 1];
      value[at[r - 1]] = static_cast<float>(worth);
    }
    for (; r > 0; r -= 4) {
      const double t3 = terms[r - 1], t2 = t3 + terms[r - 2], t1 = t2 + terms[r - 3],
                   t0 = t2 + (terms[r - 3] + terms[r - 4]);
      value[at[r - 1]] = static_cast<float>(worth + t3);
      value[at[r - 2]] = static_cast<float>(worth + t2);
      value[at[r - 3]] = static_cast<float>(worth + t1);
      worth += t0;
      value[at[r - 4]] = static_cast<float>(worth);
    }
  }
}

// As WriteValues, where points that are `tied(rank)` with the one before share the mean
// over all orders of them.
template <typename Gain, typename Tied>
void WriteMeans(const int32_t* order, const Gain* gain, const float* weight,
                const float* drop, int64_t n, Tied tied, float* value) {
  // The weight of rank `first`; what a point that gains `behind` is worth one rank on.
  double level = n ? weight[n - 1] : 0, worth = 0, behind = 0, mean;
  const auto weight_before = [&](int64_t rank) {
    return rank % 1024 || !rank ? level + drop[rank] : weight[rank - 1];
  };
  for (int64_t stop = n, first; stop > 0;
       stop = first, level = weight_before(first), behind = mean) {
    first = stop - 1;
    mean = gain[order[first]];
    if (first == 0 || !tied(first)) {
      worth += level * (mean - behind);
      value[order[first]] = static_cast<float>(worth);
      continue;
    }
    double least = level, mass = 0;
    do {
      level += drop[first];
      mass += level - least;
      mean += gain[order[--first]];
    } while (first > 0 && tied(first));
    const double size = stop - first, slope = least + mass / (size - 1);
    mean /= size;
    worth += least * (mean - behind);
    for (int64_t r = first; r < stop; ++r) {
      value[order[r]] = static_cast<float>(worth + slope * (gain[order[r]] - mean));
    }
  }
}

template <typename Gain>
struct ValueScratch {
  OrderScratch<Gain> ordering;
  std::vector<int32_t> order;
  Levels levels;
};

// The values of points in order of their distance, with near ties settled. The gains are
// floats, or booleans.
template <typename Gain>
ffi::Error SemivalueOf(const Gain* g, ffi::ThreadPool& pool, Floats distances, Raw gains,
                       Floats weight, Floats drop, Raw points, Raw queries, Floats errors,
                       Floats query_errors, ffi::ResultBuffer<ffi::F32> values,
                       bool average, bool cosine) {
  const auto dims = values->dimensions();
  if (dims.size() == 0 || dims.back() > kMost) {
    return BadShape("jaxsel_semivalue: values must have shape [..., n]");
  }
  const int64_t n = dims.back();
  const auto batch = BatchOf(dims);
  for (const auto& shape : {distances.dimensions(), gains.dimensions(),
                            weight.dimensions(), drop.dimensions()}) {
    if (!Fits(shape, batch, n)) {
      return BadShape("jaxsel_semivalue: all operands must have rows of n entries");
    }
  }
  const Rows at_distance(distances.dimensions(), batch), at_gain(gains.dimensions(), batch),
      at_weight(weight.dimensions(), batch), at_drop(drop.dimensions(), batch);
  const Exacts exacts(points, queries, errors, query_errors, batch, cosine);
  if (!exacts.Fit(n)) return BadShape("jaxsel_semivalue: features and errors must be of n points");
  const float *d = distances.typed_data(), *w = weight.typed_data(),
              *p = drop.typed_data();
  float* out = values->typed_data();
  const auto levels = std::make_shared<Levels>();
  const auto falls = std::make_shared<Falls>();
  if (n && !average) levels->Read(w, p, n);
  if (n && exacts.At(0)) falls->Read(p, n);
  ForEachRow<ValueScratch<Gain>>(
      pool, n ? CountRows(batch) : 0, [=](int64_t row, ValueScratch<Gain>& s) {
        s.order.resize(n);
        const float* distance = d + at_distance.Offset(row);
        int32_t* order = s.order.data();
        Ties* ties = average ? &s.ordering.ties : nullptr;
        SortRow(distance, n, order, s.ordering.sort, ties);
        const Gain* gain = g + at_gain.Offset(row);
        const float *weight = w + at_weight.Offset(row), *drop = p + at_drop.Offset(row);
        if (const Exact exact = exacts.At(row)) {
          OrderScratch<Gain>& scratch = s.ordering;
          Settle(order, distance, n, gain, drop, scratch.falls.For(drop, n, *falls), exact,
                 ties, scratch);
        }
        float* value = out + row * n;
        if (!ties) {
          return WriteValues(order, gain, s.ordering.gain,
                             s.levels.For(weight, drop, n, *levels), n, value);
        }
        WriteMeans(order, gain, weight, drop, n, [=](int64_t r) { return (*ties)[r]; },
                   value);
      });
  return ffi::Error::Success();
}

ffi::Error Semivalue(ffi::ThreadPool pool, Floats distances, Raw gains, Floats weight,
                     Floats drop, Raw points, Raw queries, Floats errors,
                     Floats query_errors, ffi::ResultBuffer<ffi::F32> values,
                     bool average, bool cosine) {
  const auto of = [&](auto* gain) {
    return SemivalueOf(gain, pool, distances, gains, weight, drop, points, queries, errors,
                       query_errors, values, average, cosine);
  };
  switch (gains.element_type()) {
    case ffi::F32:
      return of(static_cast<const float*>(gains.untyped_data()));
    case ffi::PRED:
      return of(static_cast<const uint8_t*>(gains.untyped_data()));
    default:
      return BadShape("jaxsel_semivalue: gains must be float32 or booleans");
  }
}

// The values of points whose order is known. `near` holds their distances in that order,
// whose equals are tied, or nothing.
ffi::Error Ranked(ffi::ThreadPool pool, ffi::Buffer<ffi::S32> orders, Floats near,
                  Floats gains, Floats weight, Floats drop,
                  ffi::ResultBuffer<ffi::F32> values) {
  const auto dims = values->dimensions();
  if (dims.size() == 0 || dims.back() > kMost) {
    return BadShape("jaxsel_ranked: values must have shape [..., n]");
  }
  const int64_t n = dims.back();
  const auto batch = BatchOf(dims);
  const bool average = near.element_count() > 0;
  for (const Floats& operand : {gains, weight, drop}) {
    if (!Fits(operand.dimensions(), batch, n)) {
      return BadShape("jaxsel_ranked: all operands must have rows of n entries");
    }
  }
  if (!Fits(orders.dimensions(), batch, n) ||
      (average && !Fits(near.dimensions(), batch, n))) {
    return BadShape("jaxsel_ranked: order and near must have rows of n entries");
  }
  const Rows at_order(orders.dimensions(), batch), at_near(near.dimensions(), batch),
      at_gain(gains.dimensions(), batch), at_weight(weight.dimensions(), batch),
      at_drop(drop.dimensions(), batch);
  const int32_t* o = orders.typed_data();
  const float *d = near.typed_data(), *g = gains.typed_data(), *w = weight.typed_data(),
              *p = drop.typed_data();
  float* out = values->typed_data();
  const auto shared = std::make_shared<Levels>();
  if (n && !average) shared->Read(w, p, n);
  ForEachRow<Levels>(pool, n ? CountRows(batch) : 0, [=](int64_t row, Levels& levels) {
    const int32_t* order = o + at_order.Offset(row);
    const float *gain = g + at_gain.Offset(row), *weight = w + at_weight.Offset(row),
                *drop = p + at_drop.Offset(row), *near = d + at_near.Offset(row);
    float* value = out + row * n;
    if (!average) {
      return WriteValues<float>(order, gain, {}, levels.For(weight, drop, n, *shared), n, value);
    }
    const auto tied = [=](int64_t r) { return SortKey(near[r]) == SortKey(near[r - 1]); };
    WriteMeans(order, gain, weight, drop, n, tied, value);
  });
  return ffi::Error::Success();
}

ffi::Error Smallest(ffi::ThreadPool pool, Floats values, Raw points, Raw queries,
                    Floats errors, Floats query_errors,
                    ffi::ResultBuffer<ffi::F32> top, ffi::ResultBuffer<ffi::S32> indices,
                    bool cosine) {
  const auto dims = values.dimensions();
  const auto kept = top->dimensions();
  if (dims.size() == 0 || kept.size() == 0 || dims.back() > kMost ||
      kept.back() > dims.back() || !Is(kept, BatchOf(dims), kept.back()) ||
      !Is(indices->dimensions(), BatchOf(dims), kept.back())) {
    return BadShape("jaxsel_smallest: of [..., n] values, k <= n: two of [..., k]");
  }
  const int64_t n = dims.back(), k = kept.back();
  const auto batch = BatchOf(kept);
  const Rows at_value(values.dimensions(), batch);
  const Exacts exacts(points, queries, errors, query_errors, batch, cosine);
  if (!exacts.Fit(n)) return BadShape("jaxsel_smallest: features and errors must be of n points");
  const float* in = values.typed_data();
  float* out = top->typed_data();
  int32_t* index = indices->typed_data();
  ForEachRow<TopScratch>(
      pool, k ? CountRows(batch) : 0, [=](int64_t row, TopScratch& scratch) {
        const float* from = in + at_value.Offset(row);
        TopRow(from, n, k, out + row * k, index + row * k, scratch);
        if (const Exact exact = exacts.At(row)) {
          SettleTop(from, n, k, exact, out + row * k, index + row * k, scratch);
        }
      });
  return ffi::Error::Success();
}

}  // namespace

// What every operation that knows the features takes after its own operands.
#define JAXSEL_EXACT .Arg<Raw>().Arg<Raw>().Arg<Floats>().Arg<Floats>()

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    JaxselArgsort, Argsort,
    ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().Arg<Floats>().Ret<ffi::Buffer<ffi::S32>>());

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxselRepair, Repair,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<Floats>()
                                  JAXSEL_EXACT
                                  .Ret<Floats>()
                                  .Attr<bool>("cosine"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxselThreshold, Threshold,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<Floats>()
                                  .Arg<Floats>()
                                  .Arg<Floats>()
                                  .Arg<ffi::Buffer<ffi::U32>>()
                                  .Arg<Floats>()
                                  .Arg<Floats>()
                                  JAXSEL_EXACT
                                  .Ret<Floats>()
                                  .Attr<bool>("cosine"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxselOrder, Order,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<Floats>()
                                  .Arg<Floats>()
                                  .Arg<Floats>()
                                  JAXSEL_EXACT
                                  .Ret<ffi::Buffer<ffi::S32>>()
                                  .Attr<bool>("cosine"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxselSemivalue, Semivalue,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<Floats>()
                                  .Arg<Raw>()
                                  .Arg<Floats>()
                                  .Arg<Floats>()
                                  JAXSEL_EXACT
                                  .Ret<Floats>()
                                  .Attr<bool>("average")
                                  .Attr<bool>("cosine"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxselRanked, Ranked,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<ffi::Buffer<ffi::S32>>()
                                  .Arg<Floats>()
                                  .Arg<Floats>()
                                  .Arg<Floats>()
                                  .Arg<Floats>()
                                  .Ret<Floats>());

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxselSmallest, Smallest,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<Floats>()
                                  JAXSEL_EXACT
                                  .Ret<Floats>()
                                  .Ret<ffi::Buffer<ffi::S32>>()
                                  .Attr<bool>("cosine"));

// For ctypes: it takes rows as they are, and no program has to be compiled for them.
extern "C" int32_t JaxselPursue(const void* rows, bool doubles, int64_t n, int64_t d,
                                const double* target, const double* extra,
                                const uint8_t* valid, int64_t budget, double floor,
                                bool positive, bool nomp, int32_t* indices,
                                double* weights, double* objective, double* norm,
                                double* longest, int32_t* steps, uint8_t* rounded) {
  const auto pursue = doubles ? Pursue<double> : Pursue<float>;
  try {
    return pursue(rows, n, d, target, extra, valid, budget, floor, positive, nomp, indices,
                  weights, objective, norm, longest, steps, rounded);
  } catch (const std::bad_alloc&) {
    return -1;
  }
}
