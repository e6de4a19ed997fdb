// The row operations that XLA is slow at on a CPU: a stable argsort, the KNN semivalues
// of one order, the k smallest entries, and distances whose digits cancelled. Each works
// on the rows of a [..., n] array, many rows at once on XLA's own threads.
//
// Everything here has a pure JAX twin in jaxsel/neighbors and jaxsel/value, which is
// what runs where this file was not compiled, and what the tests compare it with.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <memory>
#include <mutex>
#include <type_traits>
#include <utility>
#include <vector>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;
using Floats = ffi::Buffer<ffi::F32>;
using Raw = ffi::AnyBuffer;

namespace {

// ---------------------------------------------------------------------------------
// Rows, and the threads that take them

// Where each row of an operand starts. Under jax.vmap an operand that is not batched
// arrives with leading dimensions of size 1, so it is broadcast here and never copied.
class Rows {
 public:
  template <typename Dims>
  Rows(const Dims& dims, const std::vector<int64_t>& batch) {
    int64_t stride = 1;
    for (size_t axis = batch.size(); axis < dims.size(); ++axis) stride *= dims[axis];
    for (int64_t axis = static_cast<int64_t>(batch.size()) - 1; axis >= 0; --axis) {
      axes_.push_back({batch[axis], dims[axis] == 1 ? 0 : stride});
      stride *= dims[axis];
    }
  }
  int64_t Offset(int64_t row) const {
    int64_t offset = 0;
    for (const auto& [size, stride] : axes_) {
      offset += row % size * stride;
      row /= size;
    }
    return offset;
  }

 private:
  std::vector<std::pair<int64_t, int64_t>> axes_;
};

template <typename Dims>
std::vector<int64_t> BatchOf(const Dims& dims) {
  return std::vector<int64_t>(dims.begin(), dims.end() - 1);
}

// Whether an operand has rows of n entries for this batch; see Rows.
template <typename Dims>
bool Fits(const Dims& dims, const std::vector<int64_t>& batch, int64_t n) {
  if (dims.size() != batch.size() + 1 || dims.back() != n) return false;
  for (size_t axis = 0; axis < batch.size(); ++axis) {
    if (dims[axis] != 1 && dims[axis] != batch[axis]) return false;
  }
  return true;
}

// Whether a result has exactly this batch of rows of n entries.
template <typename Dims>
bool Is(const Dims& dims, const std::vector<int64_t>& batch, int64_t n) {
  return dims.size() == batch.size() + 1 && dims.back() == n &&
         std::equal(batch.begin(), batch.end(), dims.begin());
}

// Whether the last dimensions are these.
template <typename Dims>
bool Ends(const Dims& dims, std::initializer_list<int64_t> last) {
  return dims.size() >= last.size() &&
         std::equal(last.begin(), last.end(), dims.end() - last.size());
}

// Python checks shapes first; this is for whoever calls the handlers otherwise.
ffi::Error BadShape(const char* what) {
  return ffi::Error(ffi::ErrorCode::kInvalidArgument, what);
}

constexpr int64_t kMost = std::numeric_limits<int32_t>::max();  // indices are int32

int64_t CountRows(const std::vector<int64_t>& batch) {
  int64_t rows = 1;
  for (int64_t size : batch) rows *= size;
  return rows;
}

// Calls `work(row, scratch)` for every row. The calling thread takes rows like any
// other, so it never waits for a task that has not started: no deadlock when several
// of these calls share one small pool.
template <typename Scratch, typename Work>
void ForEachRow(ffi::ThreadPool& pool, int64_t rows, Work work) {
  struct State {
    std::atomic<int64_t> next{0}, done{0};
    std::mutex mutex;
    std::condition_variable finished;
  };
  auto state = std::make_shared<State>();
  auto run = [state, rows, work] {
    int64_t row = state->next.fetch_add(1);
    if (row >= rows) return;
    Scratch scratch;
    for (; row < rows; row = state->next.fetch_add(1)) {
      work(row, scratch);
      if (state->done.fetch_add(1) + 1 == rows) {
        std::lock_guard<std::mutex> lock(state->mutex);
        state->finished.notify_all();
      }
    }
  };
  const int64_t helpers = std::min<int64_t>(pool.num_threads(), rows) - 1;
  for (int64_t i = 0; i < helpers; ++i) {
    auto copy = run;
    pool.Schedule(std::move(copy));
  }
  run();
  std::unique_lock<std::mutex> lock(state->mutex);
  state->finished.wait(lock, [&] { return state->done.load() >= rows; });
}

// ---------------------------------------------------------------------------------
// Order

// An unsigned integer that sorts as the float does (-0 and 0 alike, NaN last). By bits
// alone: XLA's threads take denormal operands of float arithmetic for 0.
inline uint32_t SortKey(float value) {
  constexpr uint32_t kSign = uint32_t{1} << 31, kInfinity = 0x7f800000;
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  if ((bits & ~kSign) > kInfinity) return ~uint32_t{0};
  if (bits == kSign) bits = 0;
  return bits ^ (bits >> 31 ? ~uint32_t{0} : kSign);
}

constexpr int kBits = 11;  // three passes; 2048 counters stay in the first cache
constexpr uint32_t kBuckets = 1u << kBits, kMask = kBuckets - 1;

struct SortScratch {
  std::vector<uint64_t> a, b;
  std::vector<uint32_t> count;
};

// Whether the point at each rank is as far as the one before; one place more than ranks.
using Ties = std::vector<uint8_t>;

// Writes the stable ascending order of row[0..n) to out, by a radix sort of
// (key, index) pairs: 5 ns an entry, whatever the data. Says who is tied, if asked.
void SortRow(const float* row, int64_t n, int32_t* out, SortScratch& s,
             Ties* ties = nullptr) {
  s.a.resize(n);
  s.b.resize(n);
  s.count.assign(3 * kBuckets, 0);
  uint32_t *low = s.count.data(), *middle = low + kBuckets, *high = middle + kBuckets;
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t key = SortKey(row[i]);
    ++low[key & kMask];
    ++middle[key >> kBits & kMask];
    ++high[key >> 2 * kBits];
  }
  for (uint32_t* count : {low, middle, high}) {
    uint32_t start = 0;
    for (uint32_t j = 0; j < kBuckets; ++j) start += std::exchange(count[j], start);
  }
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t key = SortKey(row[i]);
    s.a[low[key & kMask]++] = key << 32 | static_cast<uint64_t>(i);
  }
  for (const uint64_t pair : s.a) s.b[middle[pair >> (32 + kBits) & kMask]++] = pair;
  if (!ties) {
    for (const uint64_t pair : s.b) {
      out[high[pair >> (32 + 2 * kBits)]++] = static_cast<int32_t>(pair);
    }
    return;
  }
  for (const uint64_t pair : s.b) s.a[high[pair >> (32 + 2 * kBits)]++] = pair;
  for (int64_t r = 0; r < n; ++r) out[r] = static_cast<int32_t>(s.a[r]);
  ties->assign(n + 1, 0);
  for (int64_t r = 1; r < n; ++r) {
    (*ties)[r] = s.a[r] >> 32 == s.a[r - 1] >> 32;
  }
}

// ---------------------------------------------------------------------------------
// What float32 distances cannot tell apart: see jaxsel/neighbors/_exact.py

// Squared distance in double precision, by differences, so that nothing cancels.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define JAXSEL_CLONES __attribute__((target_clones("avx512f", "arch=haswell", "default")))
#else
#define JAXSEL_CLONES
#endif
#define JAXSEL_SQUARED_DISTANCE(NAME, TYPE)                              \
  JAXSEL_CLONES double NAME(const TYPE* x, const TYPE* q, int64_t d) {   \
    constexpr int kLanes = 16;                                           \
    double lanes[kLanes] = {}, sum = 0;                                  \
    int64_t j = 0;                                                       \
    for (; j + kLanes <= d; j += kLanes) {                               \
      for (int lane = 0; lane < kLanes; ++lane) {                        \
        const double by = double(x[j + lane]) - double(q[j + lane]);     \
        lanes[lane] += by * by;                                          \
      }                                                                  \
    }                                                                    \
    for (; j < d; ++j) {                                                 \
      const double by = double(x[j]) - double(q[j]);                     \
      sum += by * by;                                                    \
    }                                                                    \
    for (int lane = 0; lane < kLanes; ++lane) sum += lanes[lane];        \
    return sum;                                                          \
  }
JAXSEL_SQUARED_DISTANCE(OfFloats, float)
JAXSEL_SQUARED_DISTANCE(OfDoubles, double)

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
  float Slack(int64_t i, float distance) const {
    return kTiny + (Lost(i, distance) ? distance * kRounding : error[i] + query_error);
  }
  // At least the slack of every point at this distance.
  float MostSlack(float distance) const {
    return kTiny + std::min(most, distance * kTrust);
  }
  // Beyond this no true distance is as small as `reach`.
  float Within(float reach) const {
    reach += kTiny;
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

struct Settled {
  double distance;
  int32_t index;
};

// Sorts by distance, and by index where only rounding tells distances apart.
void SortTies(std::vector<Settled>& group, const Exact& exact) {
  std::sort(group.begin(), group.end(), [](const Settled& a, const Settled& b) {
    return a.distance < b.distance;
  });
  for (auto first = group.begin(), stop = first; first != group.end(); first = stop) {
    for (++stop; stop != group.end(); ++stop) {
      const double last = std::prev(stop)->distance;
      if (stop->distance - last > exact.Tie(stop->distance)) break;
    }
    if (stop - first == 1) continue;
    std::sort(first, stop, [](const Settled& a, const Settled& b) {
      return a.index < b.index;
    });
    for (auto tied = first; tied != stop; ++tied) tied->distance = first->distance;
  }
}

// The range of the gains, zero included.
double Span(const float* gain, int64_t n) {
  constexpr int kLanes = 16;  // side by side, or each step waits for the one before
  float low[kLanes] = {}, high[kLanes] = {};
  const int64_t even = n - n % kLanes;
  for (int64_t i = 0; i < even; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const float one = gain[i + lane];
      low[lane] = one < low[lane] ? one : low[lane];
      high[lane] = one > high[lane] ? one : high[lane];
    }
  }
  for (int64_t i = even; i < n; ++i) {
    low[0] = std::min(low[0], gain[i]);
    high[0] = std::max(high[0], gain[i]);
  }
  return *std::max_element(high, high + kLanes) - *std::min_element(low, low + kLanes);
}

// What the drops of the ranks say about an order. Computed again for others only.
struct Falls {
  const float* of = nullptr;
  double worth = 0;             // what a fall must exceed to matter
  std::vector<uint16_t> ahead;  // so many ranks from each on cannot: their order is free
  int64_t dense = 0;            // ranks up to here are not worth skipping

  void Read(const float* drop, int64_t n) {
    if (of == drop && static_cast<int64_t>(ahead.size()) == n) return;
    of = drop;
    ahead.resize(n);
    double sum = 0;
    for (int64_t r = 0; r < n; ++r) sum += std::abs(drop[r]);
    worth = kTolerance * sum;
    double steepest = 0;
    for (int64_t r = n - 1; r >= 0; --r) {
      const double free = steepest > 0 ? worth / (2 * steepest) : 256;
      ahead[r] = static_cast<uint16_t>(std::clamp(free, 1.0, 256.0));
      steepest = std::max<double>(steepest, std::abs(drop[r]));
    }
    dense = n;
    while (dense > 0 && ahead[dense - 1] >= 2) --dense;
  }
};

struct OrderScratch {
  SortScratch sort;
  Falls falls;
  std::vector<float> row, near, gain;
  std::vector<Settled> group;
  Ties ties;
};

// The end of the group that begins at `first`: points whose true distances may lie in
// any order, one linked to the next.
int64_t EndOfGroup(const int32_t* order, const float* distance, int64_t first, int64_t n,
                   const Exact& exact) {
  const float here = distance[order[first]];
  float reach = here + exact.Slack(order[first], here);
  int64_t stop = first + 1;
  for (int64_t look = stop; look < n; ++look) {
    const float far = distance[order[look]];
    if (far > exact.Within(reach)) break;
    if (far - exact.Slack(order[look], far) > reach) continue;
    for (; stop <= look; ++stop) {
      const float between = distance[order[stop]];
      reach = std::max(reach, between + exact.Slack(order[stop], between));
    }
  }
  return stop;
}

void SettleGroup(int32_t* order, Ties* ties, int64_t first, int64_t stop,
                 const Exact& exact, std::vector<Settled>& group) {
  group.clear();
  for (int64_t r = first; r < stop; ++r) {
    group.push_back({exact.Distance(order[r]), order[r]});
  }
  SortTies(group, exact);
  for (int64_t r = first; r < stop; ++r) {
    const Settled& point = group[r - first];
    order[r] = point.index;
    if (!ties || r == first) continue;
    const float before = static_cast<float>(group[r - first - 1].distance);
    (*ties)[r] = before == static_cast<float>(point.distance);
  }
}

// Computes the distances anew that lost their digits: they are all among the nearest.
// Returns the row, or a copy of it where any was.
const float* Regain(int32_t* order, const float* distance, int64_t n, const Exact& exact,
                    Ties* ties, OrderScratch& s) {
  int64_t stop = 0;
  // What is found may lie a little farther than it did: sort a little farther, too.
  const float bound = exact.lost_within * (1 + 4 * kTrust);
  while (stop < n && distance[order[stop]] <= bound) ++stop;
  if (stop == 0) return distance;
  if (distance != s.row.data()) s.row.assign(distance, distance + n);
  for (int64_t r = 0; r < stop; ++r) {
    float& one = s.row[order[r]];
    if (exact.Lost(order[r], one)) one = static_cast<float>(exact.Distance(order[r]));
  }
  std::sort(order, order + stop, [&](int32_t a, int32_t b) {
    return s.row[a] != s.row[b] ? s.row[a] < s.row[b] : a < b;
  });
  for (int64_t r = 1; ties && r < std::min(n, stop + 1); ++r) {
    (*ties)[r] = SortKey(s.row[order[r]]) == SortKey(s.row[order[r - 1]]);
  }
  return s.row.data();
}

// Brings points whose order float32 leaves open into their true order, wherever that
// moves a value by more than a share of the most that a point can be worth. `ties`, if
// given, is brought up to date.
void Settle(int32_t* order, const float* distance, int64_t n, const float* gain,
                    const float* drop, const Exact& exact, Ties* ties, OrderScratch& s) {
  distance = Regain(order, distance, n, exact, ties, s);
  s.falls.Read(drop, n);
  const double worth = s.falls.worth * Span(gain, n);
  // Ranks of weight are looked at one by one, from sorted copies; the others by strides.
  const int64_t dense = s.falls.dense;
  s.near.resize(dense);
  s.gain.resize(dense);
  for (int64_t r = 0; r < dense; ++r) {
    s.near[r] = distance[order[r]];
    s.gain[r] = gain[order[r]];
  }
  const auto linked = [&](float here, float there) {
    return there - here <= 2.01f * exact.MostSlack(there);
  };
  const auto close = [&](int64_t one, int64_t other) {
    return linked(distance[order[one]], distance[order[other]]);
  };
  // Whether the order of some ranks may move a value.
  const auto matters = [&](int64_t begin, int64_t end) {
    float low = gain[order[begin]], high = low;
    double fall = 0;
    for (int64_t r = begin + 1; r < end; ++r) {
      low = std::min(low, gain[order[r]]);
      high = std::max(high, gain[order[r]]);
      fall += std::abs(drop[r]);
    }
    return fall * (high - low) > worth;
  };
  // Settles all around `first` that might be linked by the largest slack. Returns the
  // rank behind it.
  int64_t settled = 0;
  const auto settle_around = [&](int64_t first) {
    int64_t stop = first + 1;
    while (stop < n && close(stop - 1, stop)) ++stop;
    while (first > settled && close(first - 1, first)) --first;
    if (matters(first, stop)) {
      for (int64_t begin = first, end; begin < stop; begin = end) {
        end = EndOfGroup(order, distance, begin, stop, exact);
        if (end > begin + 1 && matters(begin, end)) {
          SettleGroup(order, ties, begin, end, exact, s.group);
        }
      }
    }
    return settled = stop;
  };
  int64_t first = 0;
  while (first + 1 < dense) {
    constexpr int64_t kBlock = 16;
    const int64_t end = std::min(first + kBlock, dense - 1);
    int any = 0;
    for (int64_t r = first; r < end; ++r) {
      any |= linked(s.near[r], s.near[r + 1]) & (s.gain[r] != s.gain[r + 1]);
    }
    if (!any) {
      first = end;
      continue;
    }
    while (!linked(s.near[first], s.near[first + 1]) || s.gain[first] == s.gain[first + 1])
      ++first;
    first = settle_around(first);
  }
  while (first + 1 < n) {
    const int64_t ahead = std::min<int64_t>(first + s.falls.ahead[first], n - 1);
    first = close(first, ahead) ? settle_around(first) : ahead;
  }
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
  ForEachRow<OrderScratch>(
      pool, n ? CountRows(batch) : 0, [=](int64_t row, OrderScratch& s) {
        const float *distance = d + at_distance.Offset(row),
                    *gain = g + at_gain.Offset(row), *drop = p + at_drop.Offset(row);
        SortRow(distance, n, out + row * n, s.sort);
        if (const Exact exact = exacts.At(row)) {
          Settle(out + row * n, distance, n, gain, drop, exact, nullptr, s);
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

struct ValueScratch {
  OrderScratch ordering;
  std::vector<int32_t> order;
};

// v_r = weight_r u_r - sum over j > r of drop_j u_j, at each point's own place. With
// `average`, points at equal distance share the mean over all orders of them: see
// tie_average in jaxsel/value. The sums run in double precision: float32 would lose 1 %
// at a million points.
ffi::Error Semivalue(ffi::ThreadPool pool, Floats distances, Floats gains,
                     Floats weight, Floats drop, Raw points, Raw queries, Floats errors,
                     Floats query_errors, ffi::ResultBuffer<ffi::F32> values,
                     bool average, bool cosine) {
  const auto dims = values->dimensions();
  if (dims.size() == 0 || dims.back() > kMost) {
    return BadShape("jaxsel_semivalue: values must have shape [..., n]");
  }
  const int64_t n = dims.back();
  const auto batch = BatchOf(dims);
  for (const Floats& operand : {distances, gains, weight, drop}) {
    if (!Fits(operand.dimensions(), batch, n)) {
      return BadShape("jaxsel_semivalue: all operands must have rows of n entries");
    }
  }
  const Rows at_distance(distances.dimensions(), batch), at_gain(gains.dimensions(), batch),
      at_weight(weight.dimensions(), batch), at_drop(drop.dimensions(), batch);
  const Exacts exacts(points, queries, errors, query_errors, batch, cosine);
  if (!exacts.Fit(n)) return BadShape("jaxsel_semivalue: features and errors must be of n points");
  const float *d = distances.typed_data(), *g = gains.typed_data(),
              *w = weight.typed_data(), *p = drop.typed_data();
  float* out = values->typed_data();
  ForEachRow<ValueScratch>(
      pool, n ? CountRows(batch) : 0, [=](int64_t row, ValueScratch& s) {
        s.order.resize(n);
        const float* distance = d + at_distance.Offset(row);
        int32_t* order = s.order.data();
        Ties* ties = average ? &s.ordering.ties : nullptr;
        SortRow(distance, n, order, s.ordering.sort, ties);
        const float *gain = g + at_gain.Offset(row), *weight = w + at_weight.Offset(row),
                    *drop = p + at_drop.Offset(row);
        if (const Exact exact = exacts.At(row)) {
          Settle(order, distance, n, gain, drop, exact, ties, s.ordering);
        }
        float* value = out + row * n;
        double beyond = 0;
        for (int64_t stop = n, first; stop > 0; stop = first) {
          first = stop - 1;
          double sum = gain[order[first]];
          while (ties && (*ties)[first]) sum += gain[order[--first]];
          if (first == stop - 1) {
            value[order[first]] = static_cast<float>(weight[first] * sum - beyond);
            beyond += drop[first] * sum;
            continue;
          }
          double mass = 0, fall = 0;
          for (int64_t r = first; r < stop; ++r) {
            mass += weight[r];
            fall += drop[r];
          }
          const double size = stop - first, mean = mass / size;
          const double spread = (mean - weight[stop - 1]) / (size - 1);
          for (int64_t r = first; r < stop; ++r) {
            const double u = gain[order[r]];
            value[order[r]] =
                static_cast<float>(mean * u - (sum - u) * spread - beyond);
          }
          beyond += sum / size * fall;
        }
      });
  return ffi::Error::Success();
}

// ---------------------------------------------------------------------------------
// The k smallest

struct TopScratch {
  std::vector<uint64_t> best;
  std::vector<int32_t> order;
  OrderScratch ordering;
};

inline uint64_t Pair(const float* row, int64_t i) {
  return uint64_t{SortKey(row[i])} << 32 | static_cast<uint64_t>(i);
}

// A value that about 1.5 k entries of the row do not exceed, from a sample of them;
// infinity where the row is short.
float GuessBound(const float* row, int64_t n, int64_t k, std::vector<uint64_t>& sample) {
  constexpr int64_t kSample = 512;
  const int64_t rank = 3 * kSample * k / (2 * n) + 8;
  if (n < 4 * kSample || rank >= kSample) return std::numeric_limits<float>::infinity();
  sample.resize(kSample);
  for (int64_t j = 0; j < kSample; ++j) sample[j] = Pair(row, j * n / kSample);
  std::nth_element(sample.begin(), sample.begin() + rank, sample.end());
  const float bound = row[static_cast<uint32_t>(sample[rank])];
  return bound == bound ? bound : std::numeric_limits<float>::infinity();
}

// Leaves in `best` the entries that do not exceed a bound, or the k smallest of them.
void Collect(const float* row, int64_t n, int64_t k, float bound,
             std::vector<uint64_t>& best) {
  constexpr int64_t kBlock = 16;
  const int64_t capacity = 4 * k;
  best.resize(capacity + kBlock);
  int64_t count = 0;
  for (int64_t start = 0; start < n; start += kBlock) {
    const int64_t end = std::min(n, start + kBlock);
    int hit = 0;
    for (int64_t i = start; i < end; ++i) hit |= row[i] <= bound;
    if (!hit) continue;
    for (int64_t i = start; i < end; ++i) {
      best[count] = Pair(row, i);
      count += row[i] <= bound;
    }
    if (count >= capacity) {
      std::nth_element(best.begin(), best.begin() + (k - 1), best.begin() + count);
      count = k;
      bound = row[static_cast<uint32_t>(best[k - 1])];
    }
  }
  best.resize(count);
}

// Most entries cost one comparison. Equal ones come out by ascending index.
void TopRow(const float* row, int64_t n, int64_t k, float* out, int32_t* index,
            TopScratch& s) {
  auto& best = s.best;
  Collect(row, n, k, GuessBound(row, n, k, best), best);
  if (static_cast<int64_t>(best.size()) < k) {  // the sample was misleading
    Collect(row, n, k, std::numeric_limits<float>::infinity(), best);
  }
  if (static_cast<int64_t>(best.size()) < k) {  // NaN entries: never below a bound
    for (int64_t i = 0; i < n; ++i) {
      if (row[i] != row[i]) best.push_back(Pair(row, i));
    }
  }
  std::nth_element(best.begin(), best.begin() + (k - 1), best.end());
  std::sort(best.begin(), best.begin() + k);
  for (int64_t j = 0; j < k; ++j) {
    index[j] = static_cast<int32_t>(static_cast<uint32_t>(best[j]));
    out[j] = row[index[j]];
  }
}

// Leaves in `order` all entries up to a bound, ascending.
void CollectWithin(const float* row, int64_t n, float bound, TopScratch& s) {
  constexpr int64_t kBlock = 32;
  s.best.clear();
  for (int64_t start = 0; start < n; start += kBlock) {
    const int64_t end = std::min(n, start + kBlock);
    int hit = 0;
    for (int64_t i = start; i < end; ++i) hit |= row[i] <= bound;
    if (!hit) continue;
    for (int64_t i = start; i < end; ++i) {
      if (row[i] <= bound) s.best.push_back(Pair(row, i));
    }
  }
  std::sort(s.best.begin(), s.best.end());
  s.order.resize(s.best.size());
  for (size_t j = 0; j < s.best.size(); ++j) {
    s.order[j] = static_cast<int32_t>(static_cast<uint32_t>(s.best[j]));
  }
}

// The k nearest in their true order: with them are taken whatever may be as near.
void SettleTop(const float* row, int64_t n, int64_t k, const Exact& exact, float* out,
               int32_t* index, TopScratch& s) {
  if (out[0] <= exact.lost_within) {
    CollectWithin(row, n, exact.lost_within, s);
    s.ordering.row.assign(row, row + n);
    row = s.ordering.row.data();
    for (const int32_t i : s.order) {
      float& one = s.ordering.row[i];
      if (exact.Lost(i, one)) one = static_cast<float>(exact.Distance(i));
    }
    TopRow(row, n, k, out, index, s);
  }
  float reach = 0;
  for (int64_t j = 0; j < k; ++j) {
    reach = std::max(reach, out[j] + exact.Slack(index[j], out[j]));
  }
  CollectWithin(row, n, exact.Within(reach), s);
  const int64_t found = s.order.size();
  int32_t* order = s.order.data();
  for (int64_t first = 0, stop; first < k; first = stop) {
    stop = EndOfGroup(order, row, first, found, exact);
    if (stop > first + 1) {
      SettleGroup(order, nullptr, first, stop, exact, s.ordering.group);
    }
  }
  for (int64_t j = 0; j < k; ++j) {
    index[j] = order[j];
    out[j] = row[order[j]];
  }
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
                                  .Arg<Floats>()
                                  .Arg<Floats>()
                                  .Arg<Floats>()
                                  JAXSEL_EXACT
                                  .Ret<Floats>()
                                  .Attr<bool>("average")
                                  .Attr<bool>("cosine"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxselSmallest, Smallest,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<Floats>()
                                  JAXSEL_EXACT
                                  .Ret<Floats>()
                                  .Ret<ffi::Buffer<ffi::S32>>()
                                  .Attr<bool>("cosine"));
