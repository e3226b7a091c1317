#include "data/pool.h"

#if defined(__linux__)
#include <pthread.h>
#include <sched.h>
#endif

namespace rn::data {
namespace {

void bind(std::thread& thread, int32_t processor) {
#if defined(__linux__)
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(processor, &set);
  pthread_setaffinity_np(thread.native_handle(), sizeof set, &set);  // a wish: failure is harmless
#else
  (void)thread, (void)processor;
#endif
}

}  // namespace

Pool::Pool(int32_t workers, const int32_t* processors, int32_t processor_count)
    : workers_(workers) {
  threads_.reserve(workers - 1);
  try {
    for (int32_t number = 1; number < workers; ++number) {
      threads_.emplace_back([this, number] { work(number); });
      if (processor_count > 0) bind(threads_.back(), processors[number % processor_count]);
    }
  } catch (...) {  // the system refused another thread: leave none behind
    {
      std::lock_guard<std::mutex> lock(mutex_);
      stop_ = true;
    }
    begin_.notify_all();
    for (std::thread& thread : threads_) thread.join();
    throw;
  }
}

Pool::~Pool() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  begin_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Pool::run(const std::function<void(int32_t)>& job) {
  std::lock_guard<std::mutex> alone(one_job_);
  if (workers_ > 1) {
    std::lock_guard<std::mutex> lock(mutex_);
    job_ = &job;
    running_ = workers_ - 1;
    ++generation_;
  }
  begin_.notify_all();
  job(0);
  if (workers_ == 1) return;
  std::unique_lock<std::mutex> lock(mutex_);
  end_.wait(lock, [this] { return running_ == 0; });
  job_ = nullptr;
}

void Pool::work(int32_t number) {
  uint64_t seen = 0;
  for (;;) {
    const std::function<void(int32_t)>* job;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      begin_.wait(lock, [&] { return stop_ || generation_ != seen; });
      if (stop_) return;
      seen = generation_;
      job = job_;
    }
    (*job)(number);
    std::lock_guard<std::mutex> lock(mutex_);
    if (--running_ == 0) end_.notify_one();
  }
}

}  // namespace rn::data
