#include "serve/keep.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
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

}  // namespace

Result<KeepRequest> parse_keep_request(std::string_view text) {
  const auto wrong = [] { return fail(R"({"target": "slurm:22", "seconds": 14400} would be right)"); };
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("seconds")) return wrong();
  KeepRequest request;
  for (const auto& [name, value] : json.items()) {
    if (name == "target" && value.is_string()) {
      request.target = value.get<std::string>();
      const bool printed = std::ranges::none_of(request.target, [](unsigned char c) { return c < ' '; });
      if (request.target.size() > kLongestTarget || !printed) return wrong();
    } else if (name == "seconds" && value.is_number_unsigned()) {
      const auto seconds = value.get<std::uint64_t>();
      if (seconds == 0 || seconds > kMostSeconds) return wrong();
      request.time = std::chrono::seconds(seconds);
    } else {
      return wrong();
    }
  }
  return request;
}

void KeepApi::take(const PostRequest& request, std::function<void(DocumentPtr)> answer) {
  const auto refuse = [&](unsigned status, const std::string& why) {
    answer(std::make_shared<Document>(status, "application/json", error_json(why)));
  };
  const auto wanted = parse_keep_request(request.body);
  if (!wanted) return refuse(400, wanted.error().message());
  if (!request.user) return refuse(403, "unknown user: ask over the unix socket, or with the token of a user");
  const uid_t own = ::geteuid();
  if (own != 0 && *request.user != own)
    return refuse(403, fmt::format("this lull serve is {}'s, and asks for nobody else", user_name(own)));
  if (asking_.size() >= kMostKeeps) return refuse(503, "too many ask at once");
  // Root's own request is root's: what comes from there in another's name is that one's.
  std::string question = *request.user == own ? keep_question(wanted->target, wanted->time)
                                              : keep_question_for(*request.user, wanted->target, wanted->time);
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
  bool uncertain = false;
  bool refused = false;
  JsonWriter json;
  json.begin_object().key("answers").begin_array();
  for (const Reply& reply : replies) {
    kept = kept || reply.line.starts_with("kept");
    uncertain = uncertain || reply.line.starts_with("not certain");
    refused = refused || reply.line.starts_with("refused");
    json.value(printable(reply.line));
  }
  if (replies.empty()) json.value("nobody watches with `lull watch --per` here");
  json.end_array().member("kept", kept).end_object();
  if (kept && on_kept) on_kept();
  answer(std::make_shared<Document>(kept        ? 200
                                    : uncertain ? 202
                                    : refused   ? 403
                                                : 404,
                                    "application/json", json.take() + "\n"));
}

}  // namespace lull
