// A peer for the client that can be told to misbehave at any point: it speaks
// HTTP/2 and gRPC through nghttp2's server side, and stalls, closes, lies or
// corrupts its bytes as scripted. Good behaviour is tested against rjdbid itself.
#ifndef RJDBI_TESTS_AGENT_FAKE_DAEMON_H_
#define RJDBI_TESTS_AGENT_FAKE_DAEMON_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "rjdbi/v1/admission.pb.h"

namespace rjdbi::agent::testing {

// Where in the conversation a misbehaviour takes place.
enum class Point {
  kNever,
  kAccept,       // before reading anything
  kOpenSession,  // instead of its reply
  kHeader,       // instead of the answer to an object's header
  kUpload,       // after the first chunk
  kDecision,     // instead of the decision
  kMidImage,     // after half of the patched image
  kTrailers,     // instead of the status
  kReport,       // instead of the reply to a report
};

struct Script {
  Point stall = Point::kNever;
  Point close = Point::kNever;
  bool need_bytes = false;
  // What Admit answers. The image is what is sent; the decision may lie about it.
  v1::AdmitDecision decision;
  std::string image;
  size_t image_chunk = 1000;  // bytes
  // Instead of well-formed messages or statuses.
  std::string raw_greeting;     // sent on accept, ahead of everything
  std::string raw_admit_reply;  // gRPC-framed bytes in place of the answer
  int open_status = 0;
  int admit_status = 0;
  int report_status = 0;
  std::string http_status = "200";
  bool omit_trailers = false;
  bool knows_watch = false;
  // Called with each run of outgoing bytes and its offset in the connection.
  std::function<void(size_t offset, std::string* bytes)> corrupt;
};

// What holds for objects that are loaded, from some moment on.
struct LiveState {
  uint64_t generation = 0;
  uint32_t attachments = 0;
  v1::AdmitDecision decision;  // about images beside
  std::string image;
  bool need_bytes = false;
  bool hang_up = false;  // instead of an answer
  int admit_status = 0;
};

class FakeDaemon {
 public:
  FakeDaemon(std::string socket_path, Script script);
  ~FakeDaemon();  // closes everything

  // What was heard so far.
  int sessions() const { return sessions_; }
  int connections() const { return connections_; }
  int bytes_sent() const { return static_cast<int>(bytes_sent_); }
  std::vector<v1::OpenSessionRequest> opened();
  std::vector<v1::ObjectHeader> headers();
  std::vector<std::string> uploads();
  std::vector<v1::ReportRequest> reports();
  int closed_sessions() const { return closed_sessions_; }
  std::vector<v1::WatchRequest> watches();
  // Whether some agent has said that it has the generation in place, within 20 s.
  bool WaitInPlace(uint64_t generation);
  void SetLive(LiveState live);
  // Sessions that were opened so far are not known any more.
  void ForgetSessions();

  class Connection;

 private:
  friend class Connection;
  void Serve();

  const std::string path_;
  const Script script_;
  int listen_fd_ = -1;
  int stop_fds_[2] = {-1, -1};
  std::thread thread_;
  std::vector<std::thread> connection_threads_;
  std::atomic<int> sessions_{0};
  std::atomic<int> closed_sessions_{0};
  std::atomic<int> connections_{0};
  std::atomic<size_t> bytes_sent_{0};
  std::mutex mutex_;
  std::vector<v1::OpenSessionRequest> opened_;
  std::vector<v1::ObjectHeader> headers_;
  std::vector<std::string> uploads_;
  std::vector<v1::ReportRequest> reports_;
  std::vector<v1::WatchRequest> watches_;
  LiveState live_;
  int forgotten_ = 0;
};

// A fresh socket path in a fresh directory, removed with the object.
class SocketPath {
 public:
  SocketPath();
  ~SocketPath();
  const std::string& path() const { return path_; }
  const std::string& directory() const { return directory_; }

 private:
  std::string directory_;
  std::string path_;
};

std::string Sha256Of(const std::string& bytes);
std::string GrpcFrame(const std::string& message);

}  // namespace rjdbi::agent::testing

#endif  // RJDBI_TESTS_AGENT_FAKE_DAEMON_H_
