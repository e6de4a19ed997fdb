// Operands as rows, and the threads that take them.

#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "xla/ffi/api/ffi.h"

namespace {

namespace ffi = xla::ffi;
using Floats = ffi::Buffer<ffi::F32>;
using Raw = ffi::AnyBuffer;

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

// As many threads at a time as there are cores, whoever called them. Eight devices of one
// process would sort eight rows at once, and hold the scratch memory of all.
class Turnstile {
 public:
  static Turnstile& Get() {
    static Turnstile turnstile;
    return turnstile;
  }
  void Enter() {
    std::unique_lock<std::mutex> lock(mutex_);
    left_.wait(lock, [&] { return free_ > 0; });
    --free_;
  }
  void Leave() {
    std::lock_guard<std::mutex> lock(mutex_);
    ++free_;
    left_.notify_one();
  }

 private:
  std::mutex mutex_;
  std::condition_variable left_;
  unsigned free_ = std::max(1u, std::thread::hardware_concurrency());
};

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
    if (state->next.load() >= rows) return;
    Turnstile::Get().Enter();
    {
      Scratch scratch;
      for (int64_t row; (row = state->next.fetch_add(1)) < rows;) {
        work(row, scratch);
        if (state->done.fetch_add(1) + 1 == rows) {
          std::lock_guard<std::mutex> lock(state->mutex);
          state->finished.notify_all();
        }
      }
    }
    Turnstile::Get().Leave();
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

}  // namespace
