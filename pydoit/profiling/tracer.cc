// Notes when each call of the virtual machine begins and ends, and the values of performance counters then.
// It stands between the machine and its kernels, so it allocates nothing while a run is traced.

#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <tvm/ffi/c_api.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <unordered_map>
#include <vector>

namespace {

constexpr int kMostCounters = 4;

struct Event {
  int64_t nanoseconds;
  uint64_t counters[kMostCounters];
  int32_t name;
  int32_t begins;
};

std::vector<Event> events;
size_t used = 0;
size_t lost = 0;
std::unordered_map<std::string, int32_t> numbers;
std::unordered_map<const char*, int32_t> places;
std::vector<std::string> names;
int counters[kMostCounters];
int opened = 0;
bool counting = false;

int64_t Now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return int64_t{time.tv_sec} * 1000000000 + time.tv_nsec;
}

std::string Text(const TVMFFIAny& value) {
  switch (value.type_index) {
    case kTVMFFIRawStr:
      return value.v_c_str;
    case kTVMFFISmallStr:
      return std::string(value.v_bytes, value.small_str_len);
    case kTVMFFIStr: {
      const auto* bytes = reinterpret_cast<const TVMFFIByteArray*>(reinterpret_cast<const char*>(value.v_obj) + sizeof(TVMFFIObject));
      return std::string(bytes->data, bytes->size);
    }
    default:
      return "?";
  }
}

// The machine keeps the names of its functions where they are, so that their places tell them apart; others are compared.
int32_t NumberOf(const TVMFFIAny& value) {
  bool stays = value.type_index == kTVMFFIRawStr;
  if (stays) {
    auto known = places.find(value.v_c_str);
    if (known != places.end()) return known->second;
  }
  auto [place, fresh] = numbers.try_emplace(Text(value), static_cast<int32_t>(names.size()));
  if (fresh) names.push_back(place->first);
  if (stays) places.emplace(value.v_c_str, place->second);
  return place->second;
}

void ReadCounters(Event* event) {
  if (!counting) return;
  for (int i = 0; i < opened; ++i) {
    if (read(counters[i], &event->counters[i], sizeof(uint64_t)) != sizeof(uint64_t)) event->counters[i] = 0;
  }
}

}  // namespace

extern "C" {

// Counts for this thread and those that it starts from now on; false where the machine has no such counter.
bool trace_count(uint32_t type, uint64_t config) {
  if (opened == kMostCounters) return false;
  perf_event_attr attributes;
  std::memset(&attributes, 0, sizeof attributes);
  attributes.size = sizeof attributes;
  attributes.type = type;
  attributes.config = config;
  attributes.inherit = 1;
  attributes.exclude_kernel = 1;
  attributes.exclude_hv = 1;
  int file = static_cast<int>(syscall(SYS_perf_event_open, &attributes, 0, -1, -1, PERF_FLAG_FD_CLOEXEC));
  if (file < 0) return false;
  counters[opened++] = file;
  return true;
}

// Reading a counter interrupts the CPUs of all threads that it counts: times are those of runs without.
void trace_begin(size_t capacity, bool with_counters) {
  events.assign(capacity, Event{});
  counting = with_counters;
  used = lost = 0;
}

size_t trace_events(const Event** first) {
  *first = events.data();
  return used;
}

size_t trace_lost() { return lost; }

const char* trace_name(int32_t number) { return names[number].c_str(); }

// Called by the machine with (function, name, whether the call begins, result, arguments...).
int __tvm_ffi_trace_event(void*, const TVMFFIAny* arguments, int32_t count, TVMFFIAny* result) {
  result->type_index = kTVMFFINone;
  result->v_int64 = 0;
  if (count < 3) return 0;
  if (used == events.size()) {
    ++lost;
    return 0;
  }
  Event& event = events[used++];
  event.begins = arguments[2].v_int64 != 0;
  if (event.begins) {
    event.name = NumberOf(arguments[1]);
    ReadCounters(&event);
    event.nanoseconds = Now();
  } else {
    event.nanoseconds = Now();
    ReadCounters(&event);
  }
  return 0;
}
}
