#pragma once
// The screen of `lull status --watch` and `lull leases --watch`: which rows are shown, in which order, and what keys
// change about that. Pure: keys and rows in, lines out; whoever owns the terminal draws them.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "view/columns.h"
#include "view/status.h"

namespace lull {

// Keys as a terminal sends them: letters, and sequences that begin with an escape, which may arrive in pieces.
enum class KeyKind : std::uint8_t {
  text,
  enter,
  backspace,
  escape,
  up,
  down,
  left,
  right,
  page_up,
  page_down,
  home,
  end
};

struct Key {
  KeyKind kind = KeyKind::text;
  std::string text = {};  // one UTF-8 letter, of `text`
  bool operator==(const Key&) const = default;
};

class KeyReader {
 public:
  // The keys in what has arrived. An escape at the very end is kept until more comes, or flush() is called.
  std::vector<Key> feed(std::string_view bytes);
  bool pending() const { return !rest_.empty(); }
  std::vector<Key> flush();  // nothing more came: it was the key Escape

 private:
  std::string rest_;
};

// What there is to show, a row for each GPU or lease. Rows are counted as they come, however they are sorted.
class LiveRows {
 public:
  LiveRows() = default;
  LiveRows(const LiveRows&) = delete;
  LiveRows& operator=(const LiveRows&) = delete;
  virtual ~LiveRows() = default;

  virtual std::size_t size() const = 0;
  virtual std::string_view noun() const = 0;                     // "GPU": one of the rows
  virtual std::span<const std::string_view> orders() const = 0;  // by what they can be sorted; the first: as they come
  // The greatest comes first; what is unknown is NaN, and comes last.
  virtual double weight(std::size_t row, std::size_t order) const = 0;
  virtual std::string search_text(std::size_t row) const = 0;  // by which a person may look for it, in small letters
  virtual std::string summary() const = 0;
  // Titles, then a line for each of `rows`; the place of the marked one among them.
  virtual std::vector<std::string> table(std::span<const std::size_t> rows, std::optional<std::size_t> marked,
                                         const Screen& screen) const = 0;
  std::vector<std::string> whole_table(const Screen& screen) const;
  // All that is known of one, and why not more.
  virtual std::vector<std::string> why(std::size_t row) const = 0;
  virtual bool has_processes() const { return false; }
  virtual std::vector<std::string> processes(std::span<const std::size_t> /*rows*/, const Screen& /*screen*/) const {
    return {};
  }
};

class LiveScreen {
 public:
  // False: the person wants to leave.
  bool press(const Key& key);

  // Exactly as many lines as the screen is high, none wider than it. `heading` stands at the top ("11:04:29  every
  // 1s").
  std::vector<std::string> draw(const LiveRows& rows, const std::string& heading, const Screen& screen);

 private:
  bool type(const Key& key);
  std::vector<std::size_t> chosen(const LiveRows& rows) const;
  std::vector<std::string> below(const LiveRows& rows, std::span<const std::size_t> shown, const Screen& screen) const;
  std::string foot(const LiveRows& rows, std::size_t hidden_above, std::size_t hidden_below, std::size_t width) const;

  std::size_t order_ = 0;  // counts on; its rest by the number of orders is the one
  std::string filter_;
  bool typing_ = false;  // letters go into the filter
  bool processes_ = false;
  bool why_ = false;
  bool help_ = false;
  std::size_t marked_ = 0;  // the row that the arrows are on
  std::size_t top_ = 0;     // the first row that is shown
  std::size_t rows_ = 0;    // how many there were when it was last drawn
  std::size_t page_ = 1;
};

// The GPUs as rows of a live screen.
class StatusRows : public LiveRows {
 public:
  explicit StatusRows(const StatusView& view) : view_(view) {}

  std::size_t size() const override { return view_.devices.size(); }
  std::string_view noun() const override { return "GPU"; }
  std::span<const std::string_view> orders() const override;
  double weight(std::size_t row, std::size_t order) const override;
  std::string search_text(std::size_t row) const override;
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
