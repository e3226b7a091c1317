// A pool of workers with static stride assignment: worker k of n takes items k, k + n, k + 2n, ...
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace rn::data {

// Threads wait between jobs. Which worker takes which item is fixed by its number alone: no queue,
// no lock per item. The caller's thread is worker 0, so a pool of one has no thread at all.
class Pool {
 public:
  Pool(int32_t workers, const int32_t* processors, int32_t processor_count);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  int32_t size() const { return workers_; }

  // Calls job(worker) once on every worker and returns when all have finished. One job at a time.
  void run(const std::function<void(int32_t)>& job);

 private:
  void work(int32_t number);

  const int32_t workers_;
  std::mutex one_job_, mutex_;
  std::condition_variable begin_, end_;
  const std::function<void(int32_t)>* job_ = nullptr;
  uint64_t generation_ = 0;
  int32_t running_ = 0;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace rn::data
