# Compiler settings shared by every target, and the sanitizer switch.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo)
endif()
# -g1 keeps backtraces and halves link time of the gRPC-using programs.
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1")
set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O2 -g1")

# One word, so that it can stand in generator expressions and paths.
set(RJDBI_SANITIZE "" CACHE STRING "address (with undefined behaviour) or thread")
if(RJDBI_SANITIZE)
  if(RJDBI_SANITIZE STREQUAL "address")
    set(sanitizers address,undefined)
  elseif(RJDBI_SANITIZE STREQUAL "thread")
    set(sanitizers thread)
  else()
    message(FATAL_ERROR "RJDBI_SANITIZE is '${RJDBI_SANITIZE}': it must be address or thread")
  endif()
  add_compile_options(-fsanitize=${sanitizers} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${sanitizers})
  # GCC's manual: with sanitizers this warning has false positives; it found one
  # in <regex>.
  add_compile_options(-Wno-maybe-uninitialized)
  # protobuf's map fields have more members where this macro is set, and the
  # library was built without. The standard library is told by its own.
  if(RJDBI_SANITIZE STREQUAL "thread")
    add_compile_options(-U__SANITIZE_THREAD__ -D_GLIBCXX_TSAN=1)
  endif()
  # Instrumented -O2 takes twice as long to compile and finds no more.
  set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1")
  set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O1 -g1")
endif()

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()
find_program(MOLD mold)
if(MOLD)
  add_link_options(-fuse-ld=mold)
endif()

# Warnings are errors in our code; generated code is exempt (it does not link
# this target).
add_library(rjdbi_warnings INTERFACE)
target_compile_options(rjdbi_warnings INTERFACE
  -Wall -Wextra -Werror -Wno-missing-field-initializers
  $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor -Wextra-semi>
  # libstdc++ 12's own algorithms, seen by clang (the fuzzers' compiler).
  $<$<COMPILE_LANG_AND_ID:CXX,Clang>:-Wno-deprecated-declarations>)
target_include_directories(rjdbi_warnings INTERFACE ${PROJECT_SOURCE_DIR})
