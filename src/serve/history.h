#pragma once
// The recorded history as JSON: whether it is being recorded, how the last 30 days were used, and what the policies of
// a sweep would have done to them. All of it is read in processes of their own (session/background.h) and kept: a
// request never waits for a disk, and neither does a sample.

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "loop/loop.h"
#include "serve/http.h"
#include "session/background.h"

namespace lull {

// An answer that takes long to make. Who asks gets the last one while the next one is made.
class MadeAnswer {
 public:
  MadeAnswer(Loop& loop, Background::Work work) : loop_(loop), work_(std::move(work)), making_(loop) {}

  // Null: it is being made, or may not be yet.
  DocumentPtr document() const { return document_; }
  bool being_made() const { return making_.running(); }
  bool due() const { return !being_made() && (!made_ || loop_.now() >= due_at_); }
  void make();
  void set_lasting(std::function<Duration(Duration took)> lasting) { lasting_ = std::move(lasting); }

 private:
  void made(const Result<std::string>& answer, Instant began);

  Loop& loop_;
  Background::Work work_;
  Background making_;
  DocumentPtr document_;
  bool made_ = false;
  Instant due_at_{};
  std::function<Duration(Duration took)> lasting_;
};

class HistoryApi {
 public:
  using Say = std::function<void(const std::string&)>;

  // `folder` is empty: none was named, and that is the answer.
  HistoryApi(std::string folder, Loop& loop, Say say);
  HistoryApi(const HistoryApi&) = delete;
  HistoryApi& operator=(const HistoryApi&) = delete;
  ~HistoryApi();

  // Null: it is not one of ours.
  DocumentPtr find(std::string_view path);

 private:
  void look();
  void looked(const Result<std::string>& seen);
  DocumentPtr answer(MadeAnswer& wanted, const MadeAnswer& other);

  std::string folder_;
  Loop& loop_;
  Say say_;
  Background looking_;
  std::optional<Loop::TimerId> look_timer_;
  DocumentPtr recording_;
  std::string trouble_;  // that was said
  MadeAnswer history_;
  MadeAnswer policy_;
  DocumentPtr none_, wait_;
};

}  // namespace lull
