// The three row operations that XLA is slow at on a CPU: a stable argsort, the KNN
// semivalues of one order, and the k smallest entries. Each works on the rows of a
// [..., n] array, many rows at once on XLA's own threads.
//
// Everything here has a pure JAX twin in jaxsel/neighbors and jaxsel/value, which is
// what runs where this file was not compiled, and what the tests compare it with.

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;
using Floats = ffi::Buffer<ffi::F32>;

namespace {

// ---------------------------------------------------------------------------------
// Rows, and the threads that take them

// Where each row of an operand starts. Under jax.vmap an operand that is not batched
// arrives with leading dimensions of size 1, so it is broadcast here and never copied.
class Rows {
 public:
  template <typename Dims>
  Rows(const Dims& dims, const std::vector<int64_t>& batch) {
    int64_t stride = dims.back();
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

// Writes the stable ascending order of row[0..n) to out, by a radix sort of
// (key, index) pairs: 5 ns an entry, whatever the data.
void SortRow(const float* row, int64_t n, int32_t* out, SortScratch& s) {
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
  for (const uint64_t pair : s.b) {
    out[high[pair >> (32 + 2 * kBits)]++] = static_cast<int32_t>(pair);
  }
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
// Semivalues

struct ValueScratch {
  SortScratch sort;
  std::vector<int32_t> order;
};

// v_r = weight_r u_r - sum over j > r of drop_j u_j, at each point's own place. With
// `average`, points at equal distance share the mean over all orders of them: see
// tie_average in jaxsel/value. The sums run in double precision: float32 would lose 1 %
// at a million points.
ffi::Error Semivalue(ffi::ThreadPool pool, Floats distances, Floats gains,
                     Floats weight, Floats drop, ffi::ResultBuffer<ffi::F32> values,
                     bool average) {
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
  const float *d = distances.typed_data(), *g = gains.typed_data(),
              *w = weight.typed_data(), *p = drop.typed_data();
  float* out = values->typed_data();
  ForEachRow<ValueScratch>(
      pool, n ? CountRows(batch) : 0, [=](int64_t row, ValueScratch& s) {
        s.order.resize(n);
        const float* distance = d + at_distance.Offset(row);
        SortRow(distance, n, s.order.data(), s.sort);
        const int32_t* order = s.order.data();
        const float *gain = g + at_gain.Offset(row), *weight = w + at_weight.Offset(row),
                    *drop = p + at_drop.Offset(row);
        float* value = out + row * n;
        double beyond = 0;
        for (int64_t stop = n, first; stop > 0; stop = first) {
          first = stop - 1;
          double sum = gain[order[first]];
          if (average) {
            // Not by value: threads that flush denormals take all of them for 0.
            const uint32_t key = SortKey(distance[order[first]]);
            while (first > 0 && SortKey(distance[order[first - 1]]) == key) {
              sum += gain[order[--first]];
            }
          }
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

ffi::Error Smallest(ffi::ThreadPool pool, Floats values, ffi::ResultBuffer<ffi::F32> top,
                    ffi::ResultBuffer<ffi::S32> indices) {
  const auto dims = values.dimensions();
  const auto kept = top->dimensions();
  if (dims.size() == 0 || kept.size() == 0 || dims.back() > kMost ||
      kept.back() > dims.back() || !Is(kept, BatchOf(dims), kept.back()) ||
      !Is(indices->dimensions(), BatchOf(dims), kept.back())) {
    return BadShape("jaxsel_smallest: of [..., n] values, k <= n: two of [..., k]");
  }
  const int64_t n = dims.back(), k = kept.back();
  const float* in = values.typed_data();
  float* out = top->typed_data();
  int32_t* index = indices->typed_data();
  ForEachRow<TopScratch>(pool, k ? CountRows(BatchOf(dims)) : 0,
                         [=](int64_t row, TopScratch& scratch) {
                           TopRow(in + row * n, n, k, out + row * k, index + row * k,
                                  scratch);
                         });
  return ffi::Error::Success();
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    JaxselArgsort, Argsort,
    ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().Arg<Floats>().Ret<ffi::Buffer<ffi::S32>>());

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxselSemivalue, Semivalue,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<Floats>()
                                  .Arg<Floats>()
                                  .Arg<Floats>()
                                  .Arg<Floats>()
                                  .Ret<Floats>()
                                  .Attr<bool>("average"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxselSmallest, Smallest,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ThreadPool>()
                                  .Arg<Floats>()
                                  .Ret<Floats>()
                                  .Ret<ffi::Buffer<ffi::S32>>());
