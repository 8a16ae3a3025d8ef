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

}  // namespace

std::thread start_thread(std::function<void()> body) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::move(body));
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
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
    {
      const py::gil_scoped_acquire acquire;
      try {
        task();
      } catch (py::error_already_set& error) {
        error.discard_as_unraisable("lull");
      } catch (const std::exception& error) {  // not `...`: an interpreter that ends unwinds this thread
        PyErr_SetString(PyExc_RuntimeError, error.what());
        PyErr_WriteUnraisable(nullptr);
      }
      task = nullptr;  // what it holds of Python goes while we have the GIL
    }
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
