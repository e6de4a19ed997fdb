// The k smallest entries of a row.

#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "settle.h"
#include "sort.h"

namespace {

struct TopScratch {
  std::vector<uint64_t> best;
  std::vector<int32_t> order;
  OrderScratch<float> ordering;
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

}  // namespace
