#pragma once
// The GPUs as rows of a live screen.

#include "view/live.h"
#include "view/status.h"

namespace lull {

class StatusRows : public LiveRows {
 public:
  explicit StatusRows(const StatusView& view) : view_(view) {}

  std::size_t size() const override { return view_.devices.size(); }
  std::string_view noun() const override { return "GPU"; }
  std::span<const std::string_view> orders() const override;
  double weight(std::size_t row, std::size_t order) const override;
  std::string words(std::size_t row) const override;
  std::string summary() const override { return status_summary(view_); }
  std::vector<std::string> table(std::span<const std::size_t> rows, std::optional<std::size_t> marked,
                                 const Screen& screen) const override;
  std::vector<std::string> why(std::size_t row) const override;
  bool has_processes() const override { return true; }
  std::vector<std::string> processes(std::span<const std::size_t> rows, const Screen& screen) const override;

 private:
  StatusView only(std::span<const std::size_t> rows) const;

  const StatusView& view_;
};

}  // namespace lull
