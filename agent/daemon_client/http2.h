// One gRPC call at a time over HTTP/2 on a unix socket, driven by the calling
// thread: no thread of its own, no lock, no signal, nothing global.
//
// The peer is not trusted: frames are parsed by nghttp2, message lengths are
// bounded before memory is taken, and every wait ends at the caller's deadline.
#ifndef RJDBI_AGENT_DAEMON_CLIENT_HTTP2_H_
#define RJDBI_AGENT_DAEMON_CLIENT_HTTP2_H_

#include <nghttp2/nghttp2.h>

#include <cstdint>
#include <string>
#include <vector>

#include "agent/daemon_client/fault.h"
#include "agent/types.h"

namespace rjdbi::agent {

class Http2Connection {
 public:
  Http2Connection() = default;
  ~Http2Connection();
  Http2Connection(const Http2Connection&) = delete;
  Http2Connection& operator=(const Http2Connection&) = delete;

  // Connects without ever blocking: a unix socket answers at once or not at all.
  Fault Connect(const std::string& path);
  bool connected() const { return fd_ >= 0; }
  // Waiting ends, with FaultKind::kInterrupted, once this descriptor is readable. The call
  // stays open. -1: none.
  void set_wake_fd(int fd) { wake_fd_ = fd; }

  // Starts a call, ending (by reset) whatever call was open before.
  Fault StartCall(const char* method, Deadline deadline);
  // Queues one gRPC message of head+body and pumps until it has been handed to
  // the socket; `body` is borrowed for that long. Stops early, with success, when
  // the peer has already answered or ended the stream.
  Fault SendMessage(ByteView head, ByteView body, Deadline deadline);
  // No more messages from us.
  Fault HalfClose();
  // The next message, or end of stream. `max_bytes` bounds the message.
  Fault Receive(size_t max_bytes, Deadline deadline, std::vector<uint8_t>* message, bool* end);
  // Waits for the trailers; any further message is a protocol fault.
  Fault Finish(Deadline deadline);
  // Whether the call has something to receive or has ended.
  bool Answered() const { return !connected() || call_.closed || call_.in.size() > call_.in_taken; }
  // Moves what can be moved without waiting; then Answered().
  bool PollOnce();
  // In a forked child: closes this process's copy of the descriptor, nothing else.
  void AbandonDescriptor();

 private:
  struct Call {
    int32_t stream_id = -1;
    // Outgoing: framed bytes not yet given to nghttp2.
    std::vector<uint8_t> head;
    size_t head_sent = 0;
    ByteView body;
    bool half_closed = false;
    bool deferred = false;
    // Incoming.
    std::vector<uint8_t> in;
    size_t in_taken = 0;  // consumed prefix of `in`
    size_t header_bytes = 0;
    bool http_ok = false;
    bool closed = false;  // the peer has ended the stream
    uint32_t reset_code = 0;
    int grpc_status = -1;
    std::string grpc_message;
  };

  static ssize_t ReadBody(nghttp2_session*, int32_t, uint8_t*, size_t, uint32_t*,
                          nghttp2_data_source*, void*);
  static int OnHeader(nghttp2_session*, const nghttp2_frame*, const uint8_t*, size_t,
                      const uint8_t*, size_t, uint8_t, void*);
  static int OnData(nghttp2_session*, uint8_t, int32_t, const uint8_t*, size_t, void*);
  static int OnFrame(nghttp2_session*, const nghttp2_frame*, void*);
  static int OnClose(nghttp2_session*, int32_t, uint32_t, void*);
  static ssize_t ReadLength(nghttp2_session*, uint8_t, int32_t, int32_t, int32_t, uint32_t, void*);

  Fault CreateSession();
  // One round of sending and receiving; waits for the socket at most until the
  // deadline when there is nothing to do.
  Fault Pump(Deadline deadline, bool wait);
  Fault Write(bool* progressed);
  Fault Read(bool* progressed);
  Fault FlushQueued();
  void Resume();
  bool BodyDrained() const;
  Fault TakeMessage(size_t max_bytes, std::vector<uint8_t>* message, bool* taken);
  Fault EndOfCall() const;
  Fault Broken(Fault fault);
  void Close();

  int fd_ = -1;
  int wake_fd_ = -1;
  nghttp2_session* session_ = nullptr;
  std::vector<uint8_t> out_;  // serialized frames not yet accepted by the socket
  size_t out_sent_ = 0;
  std::vector<uint8_t> recv_buffer_;
  Call call_;
  std::string broken_why_;
};

}  // namespace rjdbi::agent

#endif  // RJDBI_AGENT_DAEMON_CLIENT_HTTP2_H_
