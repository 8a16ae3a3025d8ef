#include "callback.h"

#include <pthread.h>
#include <pybind11/pybind11.h>

#include <chrono>
#include <csignal>
#include <utility>

namespace py = pybind11;

namespace lull::python {
namespace {

constexpr std::chrono::milliseconds kHearSignals(20);

// A thread inherits the mask of who starts it. Where none can be started, the mask is put back all the same.
class NoSignals {
 public:
  NoSignals() {
    sigset_t all;
    sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  NoSignals(const NoSignals&) = delete;
  NoSignals& operator=(const NoSignals&) = delete;
  ~NoSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

}  // namespace

std::thread start_thread(std::function<void()> body) {
  const NoSignals blocked;
  return std::thread(std::move(body));
}

Callback::Callback() {
  thread_ = start_thread([shared = shared_] { run(shared); });
}

// By then it has ended, or is on its way: what it works with is its own.
Callback::~Callback() {
  {
    const std::scoped_lock lock(shared_->mutex);
    shared_->closing = true;
  }
  shared_->changed.notify_all();
  if (thread_.joinable()) thread_.detach();
}

void Callback::run(const std::shared_ptr<Shared>& shared) {
  std::unique_lock lock(shared->mutex);
  while (true) {
    shared->changed.wait(lock, [&] { return shared->closing || !shared->tasks.empty(); });
    if (shared->tasks.empty()) break;
    std::function<void()> task = std::move(shared->tasks.front());
    shared->tasks.pop_front();
    lock.unlock();
    const auto call = [&] {
      const py::gil_scoped_acquire acquire;
      contain(
          [&] {
            try {
              task();
            } catch (py::error_already_set& error) {
              error.discard_as_unraisable("lull");
            }
          },
          [](const char* why) {
            PyErr_SetString(PyExc_RuntimeError, why);
            PyErr_WriteUnraisable(nullptr);
          });
      task = nullptr;  // what it holds of Python goes while we have the GIL
    };
    contain(call, [](const char*) {});  // without memory for a thread state nothing can be called
    lock.lock();
  }
  shared->ended = true;
  lock.unlock();
  shared->changed.notify_all();
}

void Callback::post(std::function<void()> task) {
  {
    const std::scoped_lock lock(shared_->mutex);
    shared_->tasks.push_back(std::move(task));
  }
  shared_->changed.notify_all();
}

void Callback::finish() {
  {
    const std::scoped_lock lock(shared_->mutex);
    shared_->closing = true;
  }
  shared_->changed.notify_all();
  if (!thread_.joinable() || thread_.get_id() == std::this_thread::get_id()) return;
  bool ended = false;
  while (!ended) {
    {
      const py::gil_scoped_release release;
      std::unique_lock lock(shared_->mutex);
      ended = shared_->changed.wait_for(lock, kHearSignals, [&] { return shared_->ended; });
    }
    if (!ended && PyErr_CheckSignals() != 0) throw py::error_already_set();
  }
  const py::gil_scoped_release release;
  thread_.join();
}

}  // namespace lull::python
