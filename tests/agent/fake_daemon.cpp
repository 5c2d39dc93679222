// See fake_daemon.h.
#include "tests/agent/fake_daemon.h"

#include <nghttp2/nghttp2.h>
#include <openssl/sha.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string_view>

namespace rjdbi::agent::testing {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kNotFound = 5;
constexpr int kUnimplemented = 12;

// The value must outlive the call it is passed to.
nghttp2_nv Nv(const char* name, std::string_view value) {
  return {reinterpret_cast<uint8_t*>(const_cast<char*>(name)),
          reinterpret_cast<uint8_t*>(const_cast<char*>(value.data())), std::strlen(name),
          value.size(), NGHTTP2_NV_FLAG_NONE};
}

struct Stream {
  std::string method;
  std::string in;
  std::string out;
  size_t out_sent = 0;
  bool end = false;  // nothing more will be queued
  int status = 0;
  bool deferred = false;
  bool remote_done = false;
  std::string upload;
  bool got_header = false;
  std::optional<LiveState> live;  // the question is about an image beside
  bool answered = false;
};

}  // namespace

class FakeDaemon::Connection {
 public:
  Connection(FakeDaemon& daemon, int fd) : daemon_(daemon), script_(daemon.script_), fd_(fd) {}
  ~Connection() {
    if (session_) nghttp2_session_del(session_);
    close(fd_);
  }

  void Run() {
    if (Misbehave(Point::kAccept)) return Idle();
    Send(script_.raw_greeting);
    Start();
    while (!closing_) {
      Flush();
      if (stalled_) return Idle();
      pollfd ready[2] = {{fd_, POLLIN, 0}, {daemon_.stop_fds_[0], POLLIN, 0}};
      poll(ready, 2, watching_ != 0 ? 5 : -1);
      if (ready[1].revents) return;
      AnswerWatch();
      if (!ready[0].revents) continue;
      char buffer[65536];
      ssize_t size = recv(fd_, buffer, sizeof buffer, 0);
      if (size <= 0) return;
      if (nghttp2_session_mem_recv(session_, reinterpret_cast<uint8_t*>(buffer),
                                   static_cast<size_t>(size)) < 0) {
        return;
      }
    }
    Flush();
  }

 private:
  static Connection& Self(void* user) { return *static_cast<Connection*>(user); }

  // Keeps the socket open, silent, until the daemon object goes.
  void Idle() {
    if (closing_) return;
    pollfd stop{daemon_.stop_fds_[0], POLLIN, 0};
    poll(&stop, 1, -1);
  }

  bool Misbehave(Point point) {
    if (script_.stall == point) stalled_ = true;
    if (script_.close == point) closing_ = true;
    return stalled_ || closing_;
  }

  void Start() {
    nghttp2_session_callbacks* callbacks;
    nghttp2_session_callbacks_new(&callbacks);
    nghttp2_session_callbacks_set_on_begin_headers_callback(
        callbacks, [](nghttp2_session*, const nghttp2_frame* frame, void* user) {
          Self(user).streams_[frame->hd.stream_id] = std::make_unique<Stream>();
          return 0;
        });
    nghttp2_session_callbacks_set_on_header_callback(
        callbacks,
        [](nghttp2_session*, const nghttp2_frame* frame, const uint8_t* name, size_t name_size,
           const uint8_t* value, size_t value_size, uint8_t, void* user) {
          if (std::string(reinterpret_cast<const char*>(name), name_size) == ":path") {
            Self(user).streams_[frame->hd.stream_id]->method.assign(
                reinterpret_cast<const char*>(value), value_size);
          }
          return 0;
        });
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(
        callbacks,
        [](nghttp2_session*, uint8_t, int32_t id, const uint8_t* data, size_t size, void* user) {
          auto found = Self(user).streams_.find(id);
          if (found == Self(user).streams_.end()) return 0;
          found->second->in.append(reinterpret_cast<const char*>(data), size);
          Self(user).Advance(id, *found->second);
          return 0;
        });
    nghttp2_session_callbacks_set_on_frame_recv_callback(
        callbacks, [](nghttp2_session*, const nghttp2_frame* frame, void* user) {
          auto found = Self(user).streams_.find(frame->hd.stream_id);
          if (found != Self(user).streams_.end() && (frame->hd.flags & NGHTTP2_FLAG_END_STREAM)) {
            found->second->remote_done = true;
            Self(user).Advance(frame->hd.stream_id, *found->second);
          }
          return 0;
        });
    nghttp2_session_server_new(&session_, callbacks, this);
    nghttp2_session_callbacks_del(callbacks);
    nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, nullptr, 0);
  }

  static ssize_t ReadOut(nghttp2_session* session, int32_t id, uint8_t* buffer, size_t length,
                         uint32_t* flags, nghttp2_data_source* source, void* user) {
    auto* stream = static_cast<Stream*>(source->ptr);
    size_t size = std::min(length, stream->out.size() - stream->out_sent);
    std::memcpy(buffer, stream->out.data() + stream->out_sent, size);
    stream->out_sent += size;
    if (stream->out_sent == stream->out.size() && stream->end) {
      *flags |= NGHTTP2_DATA_FLAG_EOF;
      if (!Self(user).script_.omit_trailers) {
        *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
        std::string status = std::to_string(stream->status);
        nghttp2_nv trailers[] = {Nv("grpc-status", status), Nv("grpc-message", "scripted")};
        nghttp2_submit_trailer(session, id, trailers, 2);
      }
    } else if (size == 0) {
      stream->deferred = true;
      return NGHTTP2_ERR_DEFERRED;
    }
    return static_cast<ssize_t>(size);
  }

  void Answer(int32_t id, Stream& stream, const std::string& bytes, bool end, int status = 0) {
    stream.out += bytes;
    stream.end = end;
    stream.status = status;
    if (!stream.answered) {
      stream.answered = true;
      nghttp2_data_provider provider;
      provider.source.ptr = &stream;
      provider.read_callback = &ReadOut;
      nghttp2_nv headers[] = {Nv(":status", script_.http_status),
                              Nv("content-type", "application/grpc")};
      nghttp2_submit_response(session_, id, headers, 2, &provider);
    } else if (stream.deferred) {
      stream.deferred = false;
      nghttp2_session_resume_data(session_, id);
    }
  }

  // Takes one gRPC message off `in`.
  static bool Take(Stream& stream, std::string* message) {
    if (stream.in.size() < 5) return false;
    uint32_t size = 0;
    for (int i = 1; i < 5; ++i) size = size << 8 | static_cast<uint8_t>(stream.in[i]);
    if (stream.in.size() < 5 + size_t{size}) return false;
    *message = stream.in.substr(5, size);
    stream.in.erase(0, 5 + size_t{size});
    return true;
  }

  void Advance(int32_t id, Stream& stream) {
    if (stalled_ || closing_) return;
    if (stream.method.ends_with("/Admit")) return AdvanceAdmit(id, stream);
    std::string message;
    if (!stream.remote_done || !Take(stream, &message)) return;
    if (stream.method.ends_with("/OpenSession")) {
      if (Misbehave(Point::kOpenSession)) return;
      v1::OpenSessionRequest request;
      request.ParseFromString(message);
      std::lock_guard lock(daemon_.mutex_);
      daemon_.opened_.push_back(request);
      ++daemon_.sessions_;
      v1::OpenSessionReply reply;
      reply.set_session_id(SessionId(daemon_.sessions_));
      reply.set_report_interval_ms(20);
      reply.set_max_code_object_bytes(64 << 20);
      bool bad = script_.open_status != 0;
      Answer(id, stream, bad ? "" : GrpcFrame(reply.SerializeAsString()), true,
             script_.open_status);
    } else if (stream.method.ends_with("/Report")) {
      if (Misbehave(Point::kReport)) return;
      v1::ReportRequest request;
      request.ParseFromString(message);
      std::lock_guard lock(daemon_.mutex_);
      if (script_.report_status == 0) daemon_.reports_.push_back(request);
      bool bad = script_.report_status != 0;
      Answer(id, stream, bad ? "" : GrpcFrame(""), true, script_.report_status);
    } else if (stream.method.ends_with("/Watch")) {
      if (!script_.knows_watch) return Answer(id, stream, "", true, kUnimplemented);
      v1::WatchRequest request;
      request.ParseFromString(message);
      std::lock_guard lock(daemon_.mutex_);
      if (!Known(request.session_id())) return Answer(id, stream, "", true, kNotFound);
      daemon_.watches_.push_back(request);
      watching_ = id;
      seen_ = request.seen();
      watch_until_ = Clock::now() + std::chrono::milliseconds(request.max_wait_ms());
    } else {
      ++daemon_.closed_sessions_;
      Answer(id, stream, GrpcFrame(""), true);
    }
  }

  static std::string SessionId(int number) {
    std::string id = "0123456789abcdef";
    if (number > 1) id.back() = static_cast<char>('A' + number);
    return id;
  }

  bool Known(const std::string& session) const {
    for (int i = 1; i <= daemon_.forgotten_; ++i) {
      if (session == SessionId(i)) return false;
    }
    return true;
  }

  void AnswerWatch() {
    if (watching_ == 0) return;
    v1::WatchReply reply;
    {
      std::lock_guard lock(daemon_.mutex_);
      reply.set_generation(daemon_.live_.generation);
      reply.set_attachments(daemon_.live_.attachments);
    }
    if (reply.generation() == seen_ && Clock::now() < watch_until_) return;
    const auto found = streams_.find(watching_);
    if (found != streams_.end()) {
      Answer(watching_, *found->second, GrpcFrame(reply.SerializeAsString()), true);
    }
    watching_ = 0;
  }

  void AdvanceAdmit(int32_t id, Stream& stream) {
    std::string message;
    while (!stream.end && Take(stream, &message)) {
      v1::AdmitRequest request;
      request.ParseFromString(message);
      if (request.has_header()) {
        {
          std::lock_guard lock(daemon_.mutex_);
          daemon_.headers_.push_back(request.header());
        }
        if (Misbehave(Point::kHeader)) return;
        {
          std::lock_guard lock(daemon_.mutex_);
          if (!Known(request.header().session_id())) {
            return Answer(id, stream, "", true, kNotFound);
          }
          stream.live.reset();
          if (request.header().beside()) stream.live = daemon_.live_;
          closing_ = stream.live && stream.live->hang_up;
        }
        if (closing_) return;
        if (!NeedBytes(stream)) return Decide(id, stream);
        v1::AdmitReply reply;
        reply.mutable_need_bytes();
        Answer(id, stream, GrpcFrame(reply.SerializeAsString()), false);
      } else {
        stream.upload += request.chunk();
        if (Misbehave(Point::kUpload)) return;
      }
    }
    if (stream.remote_done && !stream.end && NeedBytes(stream)) {
      {
        std::lock_guard lock(daemon_.mutex_);
        daemon_.uploads_.push_back(stream.upload);
      }
      Decide(id, stream);
    }
  }

  bool NeedBytes(const Stream& stream) const {
    return stream.live ? stream.live->need_bytes : script_.need_bytes;
  }

  void Decide(int32_t id, Stream& stream) {
    if (Misbehave(Point::kDecision)) return;
    if (!script_.raw_admit_reply.empty()) {
      return Answer(id, stream, script_.raw_admit_reply, true, script_.admit_status);
    }
    v1::AdmitReply reply;
    *reply.mutable_decision() = stream.live ? stream.live->decision : script_.decision;
    const std::string& image = stream.live ? stream.live->image : script_.image;
    std::string out = GrpcFrame(reply.SerializeAsString());
    for (size_t at = 0; at < image.size(); at += script_.image_chunk) {
      v1::AdmitReply chunk;
      chunk.set_chunk(image.substr(at, script_.image_chunk));
      out += GrpcFrame(chunk.SerializeAsString());
      if (at >= image.size() / 2 && Misbehave(Point::kMidImage)) {
        return Answer(id, stream, out, false);
      }
    }
    if (Misbehave(Point::kTrailers)) return Answer(id, stream, out, false);
    Answer(id, stream, out, true, stream.live ? stream.live->admit_status : script_.admit_status);
  }

  void Flush() {
    const uint8_t* data;
    for (;;) {
      ssize_t size = nghttp2_session_mem_send(session_, &data);
      if (size <= 0) return;
      Send(std::string(reinterpret_cast<const char*>(data), static_cast<size_t>(size)));
    }
  }

  void Send(std::string bytes) {
    size_t offset = daemon_.bytes_sent_;
    daemon_.bytes_sent_ += bytes.size();
    if (script_.corrupt) script_.corrupt(offset, &bytes);
    size_t sent = 0;
    while (sent < bytes.size()) {
      ssize_t n = send(fd_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (n <= 0) {
        closing_ = true;
        return;
      }
      sent += static_cast<size_t>(n);
    }
  }

  FakeDaemon& daemon_;
  const Script& script_;
  int fd_;
  nghttp2_session* session_ = nullptr;
  std::map<int32_t, std::unique_ptr<Stream>> streams_;
  bool stalled_ = false;
  bool closing_ = false;
  int32_t watching_ = 0;  // the stream of a Watch that waits
  uint64_t seen_ = 0;
  Clock::time_point watch_until_;
};

FakeDaemon::FakeDaemon(std::string socket_path, Script script)
    : path_(std::move(socket_path)), script_(std::move(script)) {
  listen_fd_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path_.c_str(), sizeof address.sun_path - 1);
  unlink(path_.c_str());
  if (bind(listen_fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      listen(listen_fd_, 64) != 0 || pipe(stop_fds_) != 0) {
    std::perror("fake daemon");
    std::abort();
  }
  thread_ = std::thread([this] { Serve(); });
}

FakeDaemon::~FakeDaemon() {
  unlink(path_.c_str());
  (void)!write(stop_fds_[1], "x", 1);  // never read: stays readable for every thread
  thread_.join();
  for (std::thread& thread : connection_threads_) thread.join();
  close(listen_fd_);
  close(stop_fds_[0]);
  close(stop_fds_[1]);
}

void FakeDaemon::Serve() {
  for (;;) {
    pollfd ready[2] = {{listen_fd_, POLLIN, 0}, {stop_fds_[0], POLLIN, 0}};
    poll(ready, 2, -1);
    if (ready[1].revents) return;
    int fd = accept4(listen_fd_, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) continue;
    ++connections_;
    connection_threads_.emplace_back([this, fd] { Connection(*this, fd).Run(); });
  }
}

std::vector<v1::OpenSessionRequest> FakeDaemon::opened() {
  std::lock_guard lock(mutex_);
  return opened_;
}
std::vector<v1::ObjectHeader> FakeDaemon::headers() {
  std::lock_guard lock(mutex_);
  return headers_;
}
std::vector<std::string> FakeDaemon::uploads() {
  std::lock_guard lock(mutex_);
  return uploads_;
}
std::vector<v1::WatchRequest> FakeDaemon::watches() {
  std::lock_guard lock(mutex_);
  return watches_;
}

bool FakeDaemon::WaitInPlace(uint64_t generation) {
  for (const auto end = Clock::now() + std::chrono::seconds(20); Clock::now() < end;) {
    {
      std::lock_guard lock(mutex_);
      if (!watches_.empty() && watches_.back().seen() == generation) return true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

void FakeDaemon::SetLive(LiveState live) {
  std::lock_guard lock(mutex_);
  live_ = std::move(live);
}

void FakeDaemon::ForgetSessions() {
  std::lock_guard lock(mutex_);
  forgotten_ = sessions_;
}

std::vector<v1::ReportRequest> FakeDaemon::reports() {
  std::lock_guard lock(mutex_);
  return reports_;
}

SocketPath::SocketPath() {
  std::string pattern = (std::filesystem::temp_directory_path() / "rjdbi-agent-XXXXXX").string();
  directory_ = mkdtemp(pattern.data());
  path_ = directory_ + "/agent.sock";
}

SocketPath::~SocketPath() {
  std::error_code ignored;
  std::filesystem::remove_all(directory_, ignored);
}

std::string Sha256Of(const std::string& bytes) {
  unsigned char digest[32];
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest);
  return std::string(reinterpret_cast<char*>(digest), sizeof digest);
}

std::string GrpcFrame(const std::string& message) {
  std::string out(1, '\0');
  for (int shift = 24; shift >= 0; shift -= 8) {
    out += static_cast<char>(message.size() >> shift);
  }
  return out + message;
}

}  // namespace rjdbi::agent::testing
