#include "serve/keep.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/json_writer.h"
#include "base/text.h"
#include "base/users.h"
#include "serve/api.h"
#include "session/each_session.h"

namespace lull {
namespace {

constexpr std::size_t kMostKeeps = 16;       // at once
constexpr std::size_t kLongestTarget = 256;  // as `lull keep` takes
constexpr std::uint64_t kMostSeconds = 10'000ULL * 24 * 3600;

// Words of JSON, of which such a wish has few kinds.
class WishReader {
 public:
  explicit WishReader(std::string_view text) : rest_(text) {}
  bool take(char c) {
    skip();
    if (!rest_.starts_with(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }
  std::optional<std::string> string() {
    if (!take('"')) return std::nullopt;
    std::string text;
    while (!rest_.empty()) {
      const char c = rest_.front();
      rest_.remove_prefix(1);
      if (c == '"') return text;
      if (c == '\\') {
        if (rest_.empty() || (rest_[0] != '"' && rest_[0] != '\\' && rest_[0] != '/')) return std::nullopt;
        text += rest_[0];
        rest_.remove_prefix(1);
      } else if (static_cast<unsigned char>(c) < ' ') {
        return std::nullopt;
      } else {
        text += c;
      }
    }
    return std::nullopt;
  }
  std::optional<std::uint64_t> number() {
    skip();
    const std::size_t end = std::min(rest_.find_first_not_of("0123456789"), rest_.size());
    const auto value = to_unsigned(rest_.substr(0, end));
    rest_.remove_prefix(end);
    return value;
  }
  bool over() {
    skip();
    return rest_.empty();
  }

 private:
  void skip() {
    while (!rest_.empty() && std::string_view(" \t\r\n").contains(rest_.front())) rest_.remove_prefix(1);
  }
  std::string_view rest_;
};

}  // namespace

Result<KeepWish> parse_keep_wish(std::string_view json) {
  const auto wrong = [] { return fail(R"({"target": "slurm:22", "seconds": 14400} would be right)"); };
  WishReader reader(json);
  KeepWish wish;
  bool timed = false;
  if (!reader.take('{')) return wrong();
  do {
    const auto name = reader.string();
    if (!name || !reader.take(':')) return wrong();
    if (*name == "target") {
      auto target = reader.string();
      if (!target || target->size() > kLongestTarget) return wrong();
      wish.target = *std::move(target);
    } else if (*name == "seconds") {
      const auto seconds = reader.number();
      if (!seconds || *seconds == 0 || *seconds > kMostSeconds) return wrong();
      wish.time = std::chrono::seconds(*seconds);
      timed = true;
    } else {
      return wrong();
    }
  } while (reader.take(','));
  if (!reader.take('}') || !reader.over() || !timed) return wrong();
  return wish;
}

void KeepApi::take(const PostRequest& request, std::function<void(DocumentPtr)> answer) {
  const auto refuse = [&](unsigned status, const std::string& why) {
    answer(std::make_shared<Document>(status, "application/json", error_json(why)));
  };
  const auto wish = parse_keep_wish(request.body);
  if (!wish) return refuse(400, wish.error().message());
  if (!request.user)
    return refuse(403, "who you are cannot be told: ask over the unix socket, or with a token that is a user's");
  const uid_t own = ::geteuid();
  if (own != 0 && *request.user != own)
    return refuse(403, fmt::format("this lull serve is {}'s, and asks for nobody else", user_name(own)));
  if (asking_.size() >= kMostKeeps) return refuse(503, "too many ask at once");
  // Root's own wish is root's: what comes from there in another's name is that one's.
  std::string question = *request.user == own ? keep_question(wish->target, wish->time)
                                              : keep_question_for(*request.user, wish->target, wish->time);
  const auto place = asking_.insert(asking_.end(), nullptr);
  *place =
      std::make_unique<Asking>(loop_, ControlOf::keep, std::move(question),
                               [this, place, answer = std::move(answer)](const std::vector<Reply>& replies) {
                                 // Called from inside of it: it goes when the stack is empty.
                                 loop_.in(Duration::zero(), [over = std::shared_ptr<Asking>(std::move(*place))] {});
                                 const auto tell = answer;
                                 asking_.erase(place);
                                 answered(replies, tell);
                               });
}

void KeepApi::answered(const std::vector<Reply>& replies, const std::function<void(DocumentPtr)>& answer) {
  bool kept = false;
  bool refused = false;
  JsonWriter json;
  json.begin_object().key("answers").begin_array();
  for (const Reply& reply : replies) {
    kept = kept || reply.line.starts_with("kept");
    refused = refused || reply.line.starts_with("refused");
    json.value(printable(reply.line));
  }
  if (replies.empty()) json.value("nobody watches with `lull watch --per` here");
  json.end_array().member("kept", kept).end_object();
  if (kept && on_kept) on_kept();
  answer(std::make_shared<Document>(kept ? 200 : refused ? 403 : 404, "application/json", json.take() + "\n"));
}

}  // namespace lull
