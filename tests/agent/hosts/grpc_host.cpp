// A host with its own libprotobuf and libgrpc++, in use before, while and after
// the rjdbi agent works: grpc_host CODE_OBJECT. Exit status 0 is success.
#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "rjdbi/v1/admission.grpc.pb.h"
#include "tests/agent/hosts/hsa_use.h"

namespace {

class Service : public rjdbi::v1::Admission::Service {
  grpc::Status OpenSession(grpc::ServerContext*, const rjdbi::v1::OpenSessionRequest* request,
                           rjdbi::v1::OpenSessionReply* reply) override {
    reply->set_session_id("own:" + request->executable());
    return grpc::Status::OK;
  }
};

bool Call(rjdbi::v1::Admission::Stub& stub) {
  grpc::ClientContext context;
  rjdbi::v1::OpenSessionRequest request;
  request.set_executable("host");
  rjdbi::v1::OpenSessionReply reply;
  return stub.OpenSession(&context, request, &reply).ok() && reply.session_id() == "own:host";
}

int Fail(const char* what) {
  std::fprintf(stderr, "grpc_host: %s\n", what);
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return Fail("usage: CODE_OBJECT");
  const std::string address = "unix-abstract:rjdbi-grpc-host-" + std::to_string(getpid());
  Service service;
  grpc::ServerBuilder builder;
  builder.AddListeningPort(address, grpc::InsecureServerCredentials());
  builder.RegisterService(&service);
  auto server = builder.BuildAndStart();
  if (!server) return Fail("server");
  auto stub = rjdbi::v1::Admission::NewStub(
      grpc::CreateChannel(address, grpc::InsecureChannelCredentials()));
  if (!Call(*stub)) return Fail("call before");
  HsaUse use(argv[1]);
  if (!use.Init() || !use.Load()) return Fail("load");
  if (!Call(*stub)) return Fail("call while loaded");
  if (!use.Unload()) return Fail("unload");
  if (!Call(*stub)) return Fail("call after");
  std::puts("PASS");
  return 0;
}
