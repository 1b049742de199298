// Rows of one join that go home while the tuples of the next one arrive: both directions of the links are busy then.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/job.h"
#include "engine/engine.h"
#include "transfer/host_transfer.h"

namespace warpjoin {

/// Rows that a join has found and that wait on devices which don't address host memory, each at the bottom of its stack. The
/// devices, the host memory that rows go to, and the job must outlive them.
class WaitingRows {
 public:
  /// `bytes`: of rows to expect on a device.
  WaitingRows(Engine& engine, std::span<Device* const> devices, size_t bytes, Job& job);

  /// Reserves device memory for a join of so many bytes and, where there is enough for both, for rows beside it. Nothing else
  /// may be allocated there. Rows that are in the way go home before.
  void reserve(size_t device, size_t join_bytes);
  /// Whether there is room for columns of so many bytes in all, each aligned.
  bool has_room(size_t device, size_t bytes) const;
  /// Takes some of it for a column of rows that go to `home`; it is to be written before the queues are asked for.
  void* take(size_t device, void* home, size_t bytes);

  /// The way home of `part` of `whole` of the rows that wait, to be run before anything else is asked of them. What is left waits
  /// on.
  std::vector<HostQueue> queues(uint64_t part, uint64_t whole);
  /// Takes all rows home.
  void go_home();

 private:
  struct Place {
    Device* device;
    Buffer room;
    size_t used = 0;
    std::vector<HostCopy::Stretch> waiting;
  };

  Engine& engine_;
  Job& job_;
  const size_t bytes_;
  std::vector<Place> places_;
};

}  // namespace warpjoin
