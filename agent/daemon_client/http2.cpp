// nghttp2 session, socket and gRPC framing; see http2.h.
#include "agent/daemon_client/http2.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <exception>
#include <string_view>

namespace rjdbi::agent {
namespace {

constexpr size_t kRecvBytes = 256 << 10;
// Frames gathered before a send: one system call for many 16 KiB DATA frames.
constexpr size_t kGatherBytes = 256 << 10;
constexpr int32_t kLargestWindow = INT32_MAX;
constexpr uint32_t kMaxFrameBytes = 1 << 20;
constexpr size_t kMaxHeaderBytes = 32 << 10;
constexpr size_t kGrpcPrefixBytes = 5;  // compressed flag, 32-bit big-endian length
constexpr size_t kMaxStatusText = 256;

std::string ErrnoText(const char* what) {
  char buffer[128];
  return std::string(what) + ": " + strerror_r(errno, buffer, sizeof buffer);
}

// Text from the peer, made fit for a log line.
std::string Printable(const uint8_t* text, size_t size) {
  std::string out(reinterpret_cast<const char*>(text), std::min(size, kMaxStatusText));
  for (char& c : out) {
    if (c < 0x20 || c > 0x7e) c = '?';
  }
  return out;
}

nghttp2_nv Header(std::string_view name, std::string_view value) {
  return {const_cast<uint8_t*>(reinterpret_cast<const uint8_t*>(name.data())),
          const_cast<uint8_t*>(reinterpret_cast<const uint8_t*>(value.data())), name.size(),
          value.size(), NGHTTP2_NV_FLAG_NONE};
}

// grpc-timeout: at most eight digits and a unit.
std::string GrpcTimeout(Deadline deadline) {
  int64_t ms = std::clamp<int64_t>(deadline.RemainingNs() / kNsPerMs, 1, 99'999'999);
  return std::to_string(ms) + "m";
}

}  // namespace

Http2Connection::~Http2Connection() { Close(); }

void Http2Connection::Close() {
  if (session_) nghttp2_session_del(session_);
  session_ = nullptr;
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

Fault Http2Connection::Broken(Fault fault) {
  Close();
  broken_why_ = fault.detail;
  return fault;
}

namespace {

// A host that has closed its standard streams expects to open files in their
// place, or prints into nothing: never into our connection.
int AboveStandard(int fd) {
  if (fd < 0 || fd > STDERR_FILENO) return fd;
  const int moved = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  close(fd);
  return moved;
}

}  // namespace

Fault Http2Connection::Connect(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return Fault::Of(FaultKind::kUnreachable, "socket path too long: " + path);
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  fd_ = AboveStandard(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (fd_ < 0) return Fault::Of(FaultKind::kUnreachable, ErrnoText("socket"));
  int rc;
  do {
    rc = connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address);
  } while (rc < 0 && errno == EINTR);
  if (rc < 0) return Broken(Fault::Of(FaultKind::kUnreachable, ErrnoText(path.c_str())));
  return CreateSession();
}

Fault Http2Connection::CreateSession() {
  recv_buffer_.resize(kRecvBytes);
  nghttp2_session_callbacks* callbacks = nullptr;
  if (nghttp2_session_callbacks_new(&callbacks) != 0) {
    return Broken(Fault::Of(FaultKind::kOutOfMemory, "HTTP/2 callbacks"));
  }
  nghttp2_session_callbacks_set_on_header_callback(callbacks, &OnHeader);
  nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, &OnData);
  nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, &OnFrame);
  nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, &OnClose);
  nghttp2_session_callbacks_set_data_source_read_length_callback(callbacks, &ReadLength);
  int rc = nghttp2_session_client_new(&session_, callbacks, this);
  nghttp2_session_callbacks_del(callbacks);
  const nghttp2_settings_entry settings[] = {
      {NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
      {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, kLargestWindow},
      {NGHTTP2_SETTINGS_MAX_FRAME_SIZE, kMaxFrameBytes},
      {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, kMaxHeaderBytes},
  };
  if (rc == 0) {
    rc = nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, settings, std::size(settings));
  }
  // Messages are consumed as they come, so the window bounds nothing we need.
  if (rc == 0) {
    rc = nghttp2_session_set_local_window_size(session_, NGHTTP2_FLAG_NONE, 0, kLargestWindow);
  }
  if (rc != 0) return Broken(Fault::Of(FaultKind::kOutOfMemory, nghttp2_strerror(rc)));
  return Fault::Ok();
}

// ---- nghttp2 callbacks: C frames below, so nothing may be thrown ----

ssize_t Http2Connection::ReadLength(nghttp2_session*, uint8_t, int32_t, int32_t session_window,
                                    int32_t stream_window, uint32_t max_frame, void*) {
  return std::min<int64_t>({session_window, stream_window, max_frame});
}

ssize_t Http2Connection::ReadBody(nghttp2_session*, int32_t stream_id, uint8_t* buffer,
                                  size_t length, uint32_t* flags, nghttp2_data_source*,
                                  void* user) {
  Call& call = static_cast<Http2Connection*>(user)->call_;
  if (stream_id != call.stream_id) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
  size_t written = 0;
  size_t from_head = std::min(length, call.head.size() - call.head_sent);
  if (from_head > 0) {
    std::memcpy(buffer, call.head.data() + call.head_sent, from_head);
    call.head_sent += from_head;
    written += from_head;
  }
  size_t from_body = std::min(length - written, call.body.size);
  if (from_body > 0) {
    std::memcpy(buffer + written, call.body.data, from_body);
    call.body = {call.body.data + from_body, call.body.size - from_body};
    written += from_body;
  }
  bool drained = call.head_sent == call.head.size() && call.body.size == 0;
  if (drained && call.half_closed) *flags |= NGHTTP2_DATA_FLAG_EOF;
  if (written == 0 && !(*flags & NGHTTP2_DATA_FLAG_EOF)) {
    call.deferred = true;
    return NGHTTP2_ERR_DEFERRED;
  }
  return static_cast<ssize_t>(written);
}

int Http2Connection::OnHeader(nghttp2_session*, const nghttp2_frame* frame, const uint8_t* name,
                              size_t name_size, const uint8_t* value, size_t value_size, uint8_t,
                              void* user) {
  Call& call = static_cast<Http2Connection*>(user)->call_;
  if (frame->hd.stream_id != call.stream_id) return 0;
  call.header_bytes += name_size + value_size;
  if (call.header_bytes > kMaxHeaderBytes) return NGHTTP2_ERR_CALLBACK_FAILURE;
  std::string_view key(reinterpret_cast<const char*>(name), name_size);
  std::string_view text(reinterpret_cast<const char*>(value), value_size);
  try {
    if (key == ":status") {
      call.http_ok = text == "200";
    } else if (key == "grpc-message") {
      call.grpc_message = Printable(value, value_size);
    } else if (key == "grpc-status") {
      call.grpc_status = INT_MAX;  // a status that is not a small number
      if (!text.empty() && text.size() <= 3) {
        int status = 0;
        bool digits = true;
        for (char c : text) {
          digits = digits && c >= '0' && c <= '9';
          status = status * 10 + (c - '0');
        }
        if (digits) call.grpc_status = status;
      }
    }
  } catch (const std::exception&) {
    return NGHTTP2_ERR_CALLBACK_FAILURE;
  }
  return 0;
}

int Http2Connection::OnData(nghttp2_session*, uint8_t, int32_t stream_id, const uint8_t* data,
                            size_t size, void* user) {
  Call& call = static_cast<Http2Connection*>(user)->call_;
  if (stream_id != call.stream_id) return 0;
  try {
    call.in.insert(call.in.end(), data, data + size);
  } catch (const std::exception&) {
    return NGHTTP2_ERR_CALLBACK_FAILURE;
  }
  return 0;
}

// A server that has said everything need not wait for our half of the stream.
int Http2Connection::OnFrame(nghttp2_session*, const nghttp2_frame* frame, void* user) {
  Call& call = static_cast<Http2Connection*>(user)->call_;
  bool last = (frame->hd.type == NGHTTP2_DATA || frame->hd.type == NGHTTP2_HEADERS) &&
              (frame->hd.flags & NGHTTP2_FLAG_END_STREAM);
  if (last && frame->hd.stream_id == call.stream_id) call.closed = true;
  return 0;
}

int Http2Connection::OnClose(nghttp2_session*, int32_t stream_id, uint32_t error, void* user) {
  Call& call = static_cast<Http2Connection*>(user)->call_;
  if (stream_id != call.stream_id) return 0;
  call.closed = true;
  call.reset_code = error;
  return 0;
}

// ---- Socket ----

Fault Http2Connection::Write(bool* progressed) {
  if (out_sent_ == out_.size()) {
    out_.clear();
    out_sent_ = 0;
    while (out_.size() < kGatherBytes) {
      const uint8_t* frames = nullptr;
      ssize_t size = nghttp2_session_mem_send(session_, &frames);
      if (size < 0) {
        return Broken(Fault::Of(FaultKind::kProtocol, nghttp2_strerror(static_cast<int>(size))));
      }
      if (size == 0) break;
      out_.insert(out_.end(), frames, frames + size);
    }
  }
  while (out_sent_ < out_.size()) {
    ssize_t sent = send(fd_, out_.data() + out_sent_, out_.size() - out_sent_, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return Fault::Ok();
    if (sent < 0) return Broken(Fault::Of(FaultKind::kUnreachable, ErrnoText("send")));
    out_sent_ += static_cast<size_t>(sent);
    *progressed = true;
  }
  return Fault::Ok();
}

Fault Http2Connection::Read(bool* progressed) {
  ssize_t size;
  do {
    size = recv(fd_, recv_buffer_.data(), recv_buffer_.size(), 0);
  } while (size < 0 && errno == EINTR);
  if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return Fault::Ok();
  if (size < 0) return Broken(Fault::Of(FaultKind::kUnreachable, ErrnoText("recv")));
  if (size == 0) {
    return Broken(Fault::Of(FaultKind::kUnreachable, "the daemon closed the connection"));
  }
  *progressed = true;
  ssize_t parsed =
      nghttp2_session_mem_recv(session_, recv_buffer_.data(), static_cast<size_t>(size));
  if (parsed < 0) {
    return Broken(Fault::Of(FaultKind::kProtocol, nghttp2_strerror(static_cast<int>(parsed))));
  }
  return Fault::Ok();
}

Fault Http2Connection::Pump(Deadline deadline, bool wait) {
  if (!connected()) return Fault::Of(FaultKind::kUnreachable, broken_why_);
  bool progressed = false;
  if (Fault f = Write(&progressed); !f.ok()) return f;
  if (Fault f = Read(&progressed); !f.ok()) return f;
  // nghttp2 has sent GOAWAY after a violation by the peer, or received one.
  if (!nghttp2_session_want_read(session_) && !nghttp2_session_want_write(session_) &&
      out_sent_ == out_.size()) {
    return Broken(Fault::Of(FaultKind::kProtocol, "HTTP/2 session ended"));
  }
  int64_t remaining = deadline.RemainingNs();
  if (remaining <= 0) return Fault::Of(FaultKind::kDeadline, "no answer in time");
  if (progressed || !wait) return Fault::Ok();
  bool blocked = out_sent_ < out_.size();
  pollfd ready[2] = {{fd_, static_cast<short>(POLLIN | (blocked ? POLLOUT : 0)), 0},
                     {wake_fd_, POLLIN, 0}};  // ignored if negative
  timespec timeout{remaining / 1'000'000'000, remaining % 1'000'000'000};
  // EINTR and timeouts fall through: the next round looks at the clock.
  if (ppoll(ready, 2, &timeout, nullptr) > 0 && ready[1].revents != 0) {
    return Fault::Of(FaultKind::kInterrupted, "woken");
  }
  return Fault::Ok();
}

// ---- Calls ----

Fault Http2Connection::StartCall(const char* method, Deadline deadline) {
  if (!connected()) return Fault::Of(FaultKind::kUnreachable, broken_why_);
  if (call_.stream_id >= 0 && !call_.closed) {
    nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, call_.stream_id, NGHTTP2_CANCEL);
  }
  call_ = Call();
  std::string timeout = GrpcTimeout(deadline);
  const nghttp2_nv headers[] = {
      Header(":method", "POST"),
      Header(":scheme", "http"),
      Header(":path", method),
      Header(":authority", "localhost"),
      Header("te", "trailers"),
      Header("content-type", "application/grpc+proto"),
      Header("user-agent", "rjdbi-agent"),
      Header("grpc-timeout", timeout),
  };
  nghttp2_data_provider provider{};
  provider.read_callback = &ReadBody;
  int32_t id =
      nghttp2_submit_request(session_, nullptr, headers, std::size(headers), &provider, nullptr);
  // After the peer's GOAWAY a new connection is needed.
  if (id < 0) return Broken(Fault::Of(FaultKind::kUnreachable, nghttp2_strerror(id)));
  call_.stream_id = id;
  return Fault::Ok();
}

void Http2Connection::Resume() {
  if (!call_.deferred) return;
  call_.deferred = false;
  nghttp2_session_resume_data(session_, call_.stream_id);
}

bool Http2Connection::BodyDrained() const {
  return call_.head_sent == call_.head.size() && call_.body.size == 0;
}

Fault Http2Connection::SendMessage(ByteView head, ByteView body, Deadline deadline) {
  if (!connected()) return Fault::Of(FaultKind::kUnreachable, broken_why_);
  size_t size = head.size + body.size;
  if (size > UINT32_MAX) return Fault::Of(FaultKind::kTooLarge, "message over 4 GiB");
  while (!BodyDrained() && !call_.closed) {  // an earlier short message
    if (Fault f = Pump(deadline, true); !f.ok()) return f;
  }
  call_.head.clear();
  call_.head_sent = 0;
  call_.head.push_back(0);  // not compressed
  for (int shift = 24; shift >= 0; shift -= 8) {
    call_.head.push_back(static_cast<uint8_t>(size >> shift));
  }
  call_.head.insert(call_.head.end(), head.data, head.data + head.size);
  call_.body = body;
  Resume();
  Fault fault;
  bool answered = false;
  // A short message is sent together with what follows it (or by Receive).
  while (body.size > 0 && !BodyDrained() && !answered) {
    fault = Pump(deadline, true);
    answered = Answered();
    if (!fault.ok()) break;
  }
  // `body` is borrowed for this call only: what is left of it must not be touched.
  if (call_.body.size > 0) {
    call_.body = {};
    if (connected()) {
      nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, call_.stream_id, NGHTTP2_CANCEL);
    }
  }
  return fault;
}

Fault Http2Connection::HalfClose() {
  if (!connected()) return Fault::Of(FaultKind::kUnreachable, broken_why_);
  call_.half_closed = true;
  Resume();
  return Fault::Ok();
}

Fault Http2Connection::TakeMessage(size_t max_bytes, std::vector<uint8_t>* message, bool* taken) {
  *taken = false;
  const uint8_t* next = call_.in.data() + call_.in_taken;
  size_t have = call_.in.size() - call_.in_taken;
  if (have < kGrpcPrefixBytes) return Fault::Ok();
  if (next[0] != 0) return Broken(Fault::Of(FaultKind::kProtocol, "compressed message"));
  size_t size =
      (size_t{next[1]} << 24) | (size_t{next[2]} << 16) | (size_t{next[3]} << 8) | size_t{next[4]};
  if (size > max_bytes) {
    return Broken(Fault::Of(FaultKind::kProtocol, "message of " + std::to_string(size) +
                                                      " bytes where at most " +
                                                      std::to_string(max_bytes) + " are expected"));
  }
  if (have < kGrpcPrefixBytes + size) return Fault::Ok();
  message->assign(next + kGrpcPrefixBytes, next + kGrpcPrefixBytes + size);
  call_.in_taken += kGrpcPrefixBytes + size;
  if (call_.in_taken == call_.in.size()) {
    call_.in.clear();
    call_.in_taken = 0;
  } else if (call_.in_taken >= kRecvBytes) {
    call_.in.erase(call_.in.begin(), call_.in.begin() + static_cast<ptrdiff_t>(call_.in_taken));
    call_.in_taken = 0;
  }
  *taken = true;
  return Fault::Ok();
}

Fault Http2Connection::EndOfCall() const {
  if (call_.grpc_status > 0) {
    Fault fault = Fault::Of(FaultKind::kRemote, "gRPC status " + std::to_string(call_.grpc_status) +
                                                    " " + call_.grpc_message);
    fault.grpc_status = call_.grpc_status;
    return fault;
  }
  if (call_.grpc_status != 0 || !call_.http_ok || call_.in.size() > call_.in_taken) {
    return Fault::Of(FaultKind::kProtocol, "stream ended without a gRPC status (reset code " +
                                               std::to_string(call_.reset_code) + ")");
  }
  return Fault::Ok();
}

Fault Http2Connection::Receive(size_t max_bytes, Deadline deadline, std::vector<uint8_t>* message,
                               bool* end) {
  *end = false;
  for (;;) {
    bool taken = false;
    if (Fault f = TakeMessage(max_bytes, message, &taken); !f.ok() || taken) return f;
    if (call_.closed) {
      *end = true;
      return EndOfCall();
    }
    if (Fault f = Pump(deadline, true); !f.ok()) return f;
  }
}

Fault Http2Connection::Finish(Deadline deadline) {
  std::vector<uint8_t> message;
  bool end = false;
  Fault fault = Receive(0, deadline, &message, &end);
  if (fault.ok() && !end) return Broken(Fault::Of(FaultKind::kProtocol, "unexpected message"));
  return fault;
}

bool Http2Connection::PollOnce() {
  if (connected()) Pump(Deadline::After(kNsPerMs), false);
  return Answered();
}

void Http2Connection::AbandonDescriptor() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

}  // namespace rjdbi::agent
