// What this machine's CPUs can do at most: bytes read and copied a second by size of the working set, operations a second by
// element type, and the cost of handing work to the other threads. Prints one JSON document.

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif
#ifdef __AMX_TILE__
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace {

using Clock = std::chrono::steady_clock;
constexpr double kSampleSeconds = 0.008;  // shorter than a time slice, so that on a busy machine some samples are undisturbed
constexpr int kSamples = 25;

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__AVX2__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif
typedef float Vector __attribute__((vector_size(kLanes * 4)));
typedef int32_t Integers __attribute__((vector_size(kLanes * 4)));

volatile float sink;

double Seconds(Clock::time_point from) { return std::chrono::duration<double>(Clock::now() - from).count(); }

// Work for all threads at once; each runs `body(thread)` between two barriers.
class Crew {
 public:
  explicit Crew(int threads) : size_(threads) {
    for (int i = 1; i < threads; ++i) {
      workers_.emplace_back([this, i] {
        for (int64_t seen = 0;;) {
          while (round_.load(std::memory_order_acquire) == seen) sched_yield();
          seen = round_.load(std::memory_order_acquire);
          if (stop_) return;
          (*body_)(i);
          done_.fetch_add(1, std::memory_order_release);
        }
      });
    }
  }

  ~Crew() {
    stop_ = true;
    round_.fetch_add(1, std::memory_order_release);
    for (auto& worker : workers_) worker.join();
  }

  void Run(const std::function<void(int)>& body) {
    body_ = &body;
    done_.store(0, std::memory_order_relaxed);
    round_.fetch_add(1, std::memory_order_release);
    body(0);
    while (done_.load(std::memory_order_acquire) < size_ - 1) sched_yield();
  }

  int size() const { return size_; }

 private:
  int size_;
  std::atomic<int64_t> round_{0};
  std::atomic<int> done_{0};
  std::atomic<bool> stop_{false};
  const std::function<void(int)>* body_ = nullptr;
  std::vector<std::thread> workers_;
};

// The best of several samples, in units of work a second: a ceiling is what is reached when nothing disturbs.
double Best(Crew* crew, double work, const std::function<void(int, int64_t)>& body) {
  int64_t repeats = 1;
  auto timed = [&] {
    auto from = Clock::now();
    crew->Run([&](int thread) { body(thread, repeats); });
    return Seconds(from);
  };
  while (timed() < kSampleSeconds / 2 && repeats < (int64_t{1} << 40)) repeats *= 2;
  double best = 1e30;
  for (int i = 0; i < kSamples; ++i) best = std::min(best, timed() / repeats);
  return work * crew->size() / best;
}

struct Memory {
  explicit Memory(size_t bytes) : bytes(bytes / 1024 * 1024), data(static_cast<float*>(std::aligned_alloc(64, this->bytes))) {
    if (data == nullptr) std::exit(2);
  }
  ~Memory() { std::free(data); }
  size_t bytes;
  float* data;
};

double ReadSpeed(Crew* crew, size_t bytes) {
  std::vector<Memory*> own(crew->size());
  size_t each = std::max<size_t>(4096, bytes / crew->size());
  crew->Run([&](int thread) {
    own[thread] = new Memory(each);
    std::memset(own[thread]->data, 1, own[thread]->bytes);
  });
  double speed = Best(crew, static_cast<double>(own[0]->bytes), [&](int thread, int64_t repeats) {
    const auto* from = reinterpret_cast<const Integers*>(own[thread]->data);
    size_t count = own[thread]->bytes / sizeof(Integers);
    Integers sums[8] = {};
    for (int64_t r = 0; r < repeats; ++r) {
      for (size_t i = 0; i + 8 <= count; i += 8) {
        for (int k = 0; k < 8; ++k) sums[k] ^= from[i + k];
      }
      asm volatile("" : : : "memory");
    }
    for (int k = 1; k < 8; ++k) sums[0] ^= sums[k];
    sink = static_cast<float>(sums[0][0]);
  });
  for (auto* memory : own) delete memory;
  return speed;
}

// Bytes read plus bytes written.
double CopySpeed(Crew* crew, size_t bytes) {
  std::vector<Memory*> from(crew->size()), to(crew->size());
  size_t each = bytes / crew->size() / 2;
  crew->Run([&](int thread) {
    from[thread] = new Memory(each);
    to[thread] = new Memory(each);
    std::memset(from[thread]->data, 1, from[thread]->bytes);
    std::memset(to[thread]->data, 0, to[thread]->bytes);
  });
  double speed = Best(crew, 2.0 * from[0]->bytes, [&](int thread, int64_t repeats) {
    for (int64_t r = 0; r < repeats; ++r) {
      std::memcpy(to[thread]->data, from[thread]->data, from[thread]->bytes);
      asm volatile("" : : : "memory");
    }
  });
  for (auto* memory : from) delete memory;
  for (auto* memory : to) delete memory;
  return speed;
}

double Float32Speed(Crew* crew) {
  constexpr int kChains = 12;
  return Best(crew, 2.0 * kLanes * kChains, [&](int, int64_t repeats) {
    Vector sums[kChains];
    Vector factor, term;
    for (int i = 0; i < kLanes; ++i) {
      factor[i] = 0.999f;
      term[i] = 0.001f;
    }
    asm volatile("" : "+m"(factor), "+m"(term));
    for (auto& sum : sums) sum = term;
    for (int64_t r = 0; r < repeats; ++r) {
#pragma GCC unroll 12
      for (int k = 0; k < kChains; ++k) sums[k] = sums[k] * factor + term;
    }
    for (int k = 1; k < kChains; ++k) sums[0] += sums[k];
    sink = sums[0][0];
  });
}

#ifdef __AVX512BF16__
double Bfloat16VectorSpeed(Crew* crew) {
  constexpr int kChains = 12;
  return Best(crew, 4.0 * 16 * kChains, [&](int, int64_t repeats) {
    __m512 sums[kChains];
    for (auto& sum : sums) sum = _mm512_set1_ps(0.5f);
    __m512bh left = _mm512_cvtne2ps_pbh(_mm512_set1_ps(0.5f), _mm512_set1_ps(0.25f));
    for (int64_t r = 0; r < repeats; ++r) {
#pragma GCC unroll 12
      for (int k = 0; k < kChains; ++k) {
        sums[k] = _mm512_dpbf16_ps(sums[k], left, left);
        asm volatile("" : "+v"(sums[k]));
      }
    }
    for (int k = 1; k < kChains; ++k) sums[0] = _mm512_add_ps(sums[0], sums[k]);
    sink = _mm512_reduce_add_ps(sums[0]);
  });
}
#endif

#if defined(__AVX512VNNI__)
double Int8VectorSpeed(Crew* crew) {
  constexpr int kChains = 12;
  return Best(crew, 8.0 * 16 * kChains, [&](int, int64_t repeats) {
    __m512i sums[kChains];
    for (auto& sum : sums) sum = _mm512_set1_epi32(1);
    __m512i left = _mm512_set1_epi8(1);
    for (int64_t r = 0; r < repeats; ++r) {
#pragma GCC unroll 12
      for (int k = 0; k < kChains; ++k) {
        sums[k] = _mm512_dpbusd_epi32(sums[k], left, left);
        asm volatile("" : "+v"(sums[k]));
      }
    }
    for (int k = 1; k < kChains; ++k) sums[0] = _mm512_add_epi32(sums[0], sums[k]);
    sink = static_cast<float>(_mm512_reduce_add_epi32(sums[0]));
  });
}
#endif

#ifdef __AMX_TILE__
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

// Linux lets a process use tiles only after it has asked.
bool MayUseTiles() {
  constexpr int kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

template <bool kIntegers>
double TileSpeed(Crew* crew) {
  // Four accumulators from two tiles of each operand, as a matrix product keeps them in registers.
  double operations = 4.0 * 2 * 16 * 16 * (kIntegers ? 64 : 32);
  return Best(crew, operations, [&](int, int64_t repeats) {
    TileConfig config;
    for (int i = 0; i < 8; ++i) {
      config.rows[i] = 16;
      config.row_bytes[i] = 64;
    }
    // GCC's intrinsic names the first eight bytes only as what it reads.
    asm volatile("" : : "r"(&config) : "memory");
    _tile_loadconfig(&config);
    alignas(64) static const uint8_t zeros[1024] = {};
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_loadd(4, zeros, 64);
    _tile_loadd(5, zeros, 64);
    _tile_loadd(6, zeros, 64);
    _tile_loadd(7, zeros, 64);
    for (int64_t r = 0; r < repeats; ++r) {
      if constexpr (kIntegers) {
        _tile_dpbssd(0, 4, 6);
        _tile_dpbssd(1, 4, 7);
        _tile_dpbssd(2, 5, 6);
        _tile_dpbssd(3, 5, 7);
      } else {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
      }
    }
    _tile_release();
  });
}
#endif

// Seconds from handing work that does nothing to all threads until all have done it.
double ForkSeconds(Crew* crew) {
  const std::function<void(int)> nothing = [](int) {};
  double best = 1e30;
  for (int i = 0; i < 200; ++i) {
    auto from = Clock::now();
    for (int k = 0; k < 20; ++k) crew->Run(nothing);
    best = std::min(best, Seconds(from) / 20);
  }
  return best;
}

}  // namespace

int main(int count, char** arguments) {
  int threads = count > 1 ? std::max(1, std::atoi(arguments[1])) : 1;
  size_t largest = count > 2 ? std::strtoull(arguments[2], nullptr, 10) : size_t{512} << 20;
  Crew crew(threads);
  std::printf("{\"bandwidth\": [");
  const char* comma = "";
  for (size_t bytes = size_t{32} << 10; bytes < largest; bytes *= 4) {
    std::printf("%s{\"bytes\": %zu, \"read\": %.6g}", comma, bytes, ReadSpeed(&crew, bytes));
    comma = ", ";
  }
  std::printf("%s{\"bytes\": %zu, \"read\": %.6g}", comma, largest, ReadSpeed(&crew, largest));
  std::printf("], \"copy\": %.6g, \"flops\": {\"float32\": %.6g", CopySpeed(&crew, largest), Float32Speed(&crew));
  double bfloat16 = 0, int8 = 0;
#ifdef __AVX512BF16__
  bfloat16 = Bfloat16VectorSpeed(&crew);
#endif
#ifdef __AVX512VNNI__
  int8 = Int8VectorSpeed(&crew);
#endif
#ifdef __AMX_TILE__
  if (MayUseTiles()) {
#ifdef __AMX_BF16__
    bfloat16 = std::max(bfloat16, TileSpeed<false>(&crew));
#endif
#ifdef __AMX_INT8__
    int8 = std::max(int8, TileSpeed<true>(&crew));
#endif
  }
#endif
  if (bfloat16 > 0) std::printf(", \"bfloat16\": %.6g", bfloat16);
  if (int8 > 0) std::printf(", \"int8\": %.6g", int8);
  std::printf("}, \"fork_seconds\": %.6g}\n", ForkSeconds(&crew));
  return 0;
}
