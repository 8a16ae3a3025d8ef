#pragma once
// A thread that calls Python for code that must not wait for the GIL: a program that hangs may never release it, and
// who watches it must go on watching. It sleeps while there is nothing to say.

#include <cxxabi.h>

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace lull::python {

class Callback {
 public:
  Callback();
  Callback(const Callback&) = delete;
  Callback& operator=(const Callback&) = delete;
  ~Callback();

  // To be called with the GIL, in the order of posting.
  void post(std::function<void()> task);
  // What was posted is done, then it ends. Called with the GIL, waits without it; a signal handler that raises ends the
  // waiting. On the thread of the callbacks it only says so.
  void finish();

 private:
  struct Shared {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::function<void()>> tasks;
    bool closing = false;
    bool ended = false;
  };
  static void run(const std::shared_ptr<Shared>& shared);

  std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
  std::thread thread_;
};

// A thread that hears no signal: those are the main thread's. Throws std::system_error.
std::thread start_thread(std::function<void()> body);

// Runs `work` on a thread of ours in the user's program: an exception must not end that program. `failed`
// gets what went wrong. Only the unwinding of a thread that ends (an interpreter does that to it) goes on.
template <typename Work, typename Failed>
void contain(Work&& work, Failed&& failed) {
  try {
    try {
      work();
    } catch (const abi::__forced_unwind&) {
      throw;
    } catch (const std::exception& error) {
      failed(error.what());
    } catch (...) {
      failed("something went wrong");
    }
  } catch (const abi::__forced_unwind&) {
    throw;
  } catch (...) {  // there is not even memory to say so
  }
}

}  // namespace lull::python
