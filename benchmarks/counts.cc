// What `python -m benchmarks.instructions` counts the instructions of: one compiled row
// operation, or its textbook form in the standard library, once, on fixed data. Not the
// operations that have clones for several processors: their counts depend on these.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "smallest.h"
#include "sort.h"

namespace {

constexpr int64_t kPoints = 20000, kFewer = 10000, kNearest = 100;

struct Data {
  std::vector<float> distance, value;
  std::vector<int32_t> order;
  SortScratch sort;
  TopScratch top;
  Ties ties;
};

// Numbers of [0, 1), in 2^23 steps, or in few so that many are alike; or of [1, 4), as
// distances of short rows are.
Data Draw(int64_t steps, bool shorter) {
  Data data;
  uint64_t state = 88172645463325252;
  const auto next = [&] {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return static_cast<float>(state % steps) / static_cast<float>(steps);
  };
  const int64_t points = shorter ? kFewer : kPoints;
  for (int64_t i = 0; i < points; ++i) {
    data.distance.push_back(shorter ? 1 + 3 * next() : next());
  }
  data.value.resize(points);
  data.order.resize(points);
  return data;
}

void StableSort(Data& data) {
  std::iota(data.order.begin(), data.order.end(), 0);
  const float* row = data.distance.data();
  std::stable_sort(data.order.begin(), data.order.end(),
                   [=](int32_t i, int32_t j) { return row[i] < row[j]; });
}

void PartialSort(Data& data) {
  std::vector<std::pair<float, int32_t>> pairs(kPoints);
  for (int32_t i = 0; i < kPoints; ++i) pairs[i] = {data.distance[i], i};
  std::partial_sort(pairs.begin(), pairs.begin() + kNearest, pairs.end());
  for (int64_t j = 0; j < kNearest; ++j) data.order[j] = pairs[j].second;
}

}  // namespace

extern "C" __attribute__((noinline)) void measured(const char* what, Data& data) {
  const auto is = [=](const char* name) { return std::strcmp(what, name) == 0; };
  const float* row = data.distance.data();
  const int64_t n = static_cast<int64_t>(data.distance.size());
  if (is("sort") || is("sort few") || is("sort short")) {
    SortRow(row, n, data.order.data(), data.sort);
  } else if (is("sort ties")) {
    SortRow(row, n, data.order.data(), data.sort, &data.ties);
  } else if (is("nearest")) {
    TopRow(row, kPoints, kNearest, data.value.data(), data.order.data(), data.top);
  } else if (std::strncmp(what, "std::stable_sort", 16) == 0) {
    StableSort(data);
  } else if (is("std::partial_sort")) {
    PartialSort(data);
  }
}

// Prints what was found: an operation and its textbook form agree on it.
int main(int, char** arguments) {
  const char* what = arguments[1];
  const bool few = std::strstr(what, "few") || std::strstr(what, "ties");
  Data data = Draw(few ? 100 : 1 << 23, std::strstr(what, "short"));
  measured(what, data);
  uint64_t found = 0;
  for (const int32_t point : data.order) found = found * 31 + point;
  std::printf("%llu\n", static_cast<unsigned long long>(found));
}
