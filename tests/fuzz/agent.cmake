# The daemon's replies, in the rjdbi agent.
rjdbi_fuzzer(agent_reply_fuzzer
  SOURCES ${PROJECT_SOURCE_DIR}/tests/agent/reply_fuzzer.cpp
          ${PROJECT_SOURCE_DIR}/agent/daemon_client/messages.cpp
          ${PROJECT_SOURCE_DIR}/agent/types.cpp
  LIBS rjdbi_agent_nanopb)
