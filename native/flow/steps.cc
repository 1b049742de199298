#include "flow/steps.h"

namespace warpjoin::flow {

void run_steps(Engine& engine, size_t items, const std::vector<Stage>& stages, Job& job, const std::function<void()>& wait) {
  if (items == 0) return;
  for (size_t step = 0; step + 1 < items + stages.size(); ++step) {
    std::vector<HostQueue> queues;
    for (size_t s = stages.size(); s-- > 0;) {
      if (s <= step && step - s < items) stages[s](step - s, queues);
    }
    transfer(engine, queues, job);
    if (wait) wait();
  }
}

}  // namespace warpjoin::flow
