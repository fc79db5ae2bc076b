// For how much of their time this machine's processors had nothing to do.
//
//   const ProcessorTime before = processor_time();
//   work();
//   const double idle = (processor_time() - before).idle_share();
//
// Counted by the kernel in ticks of usually 10 ms, of all processors together, whoever used them.
// Threads: any.
#pragma once

#include <cstdint>
#include <string_view>

namespace jige {

struct ProcessorTime {
  int64_t idle = 0, all = 0;  // ticks

  // 1 where nothing was counted.
  double idle_share() const {
    return all > 0 ? static_cast<double>(idle) / static_cast<double>(all) : 1;
  }
  ProcessorTime operator-(const ProcessorTime& other) const {
    return {idle - other.idle, all - other.all};
  }
  ProcessorTime& operator+=(const ProcessorTime& other) {
    idle += other.idle;
    all += other.all;
    return *this;
  }
  bool operator==(const ProcessorTime&) const = default;
};

// Since the machine started; nothing counted where the kernel does not tell.
ProcessorTime processor_time();

// Of the text of /proc/stat; nothing counted where it begins otherwise.
ProcessorTime parse_processor_time(std::string_view stat);

}  // namespace jige
