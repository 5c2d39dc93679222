# What tests need when they are built with a sanitizer (RJDBI_SANITIZE): options
# for the sanitizer's runtime, the runtime itself for programs that are not
# instrumented, and a check that no process of any test has reported anything.
#
# Reports go to files, one per process: a test may kill or outlive a process that
# reports, or take its failure for the one it waits for, and it would be missed.
# Under the thread sanitizer reports leave the exit status alone: reports.py tells
# those of our code from those of libraries that are not instrumented.
set(RJDBI_SANITIZER_ENVIRONMENT "")
set(RJDBI_SANITIZER_RUNTIME "")  # to be preloaded ahead of an instrumented library
# Instrumented programs are slower by this factor at worst.
set(RJDBI_SANITIZER_SLOWDOWN 1)
if(RJDBI_SANITIZE)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  set(folder ${PROJECT_SOURCE_DIR}/tests/sanitizers)
  set(reports ${PROJECT_BINARY_DIR}/sanitizer-reports)
  set(RJDBI_SANITIZER_SLOWDOWN 4)
  set(common log_path=${reports}/report:handle_abort=0)
  if(RJDBI_SANITIZE STREQUAL "address")
    set(runtime libasan.so)
    # A program that links the runtime has the agent preloaded ahead of it.
    set(RJDBI_SANITIZER_ENVIRONMENT
      ASAN_OPTIONS=${common}:verify_asan_link_order=0:detect_stack_use_after_return=1:strict_string_checks=1
      UBSAN_OPTIONS=${common}:print_stacktrace=1
      LSAN_OPTIONS=suppressions=${folder}/lsan.supp:print_suppressions=0)
  else()
    set(runtime libtsan.so)
    set(RJDBI_SANITIZER_ENVIRONMENT
      TSAN_OPTIONS=${common}:suppressions=${folder}/tsan.supp:ignore_noninstrumented_modules=1:exitcode=0:die_after_fork=0)
  endif()
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=${runtime}
    OUTPUT_VARIABLE RJDBI_SANITIZER_RUNTIME OUTPUT_STRIP_TRAILING_WHITESPACE)

  foreach(step clear check)
    add_test(NAME sanitizer_reports_${step}
      COMMAND Python3::Interpreter ${folder}/reports.py ${step} ${reports})
  endforeach()
  set_tests_properties(sanitizer_reports_clear PROPERTIES FIXTURES_SETUP sanitizer_reports)
  set_tests_properties(sanitizer_reports_check PROPERTIES FIXTURES_CLEANUP sanitizer_reports)
endif()

# Call it for every test that runs instrumented code.
function(rjdbi_sanitized_test name)
  if(NOT RJDBI_SANITIZE)
    return()
  endif()
  get_property(timeout TEST ${name} PROPERTY TIMEOUT)
  math(EXPR timeout "${timeout} * ${RJDBI_SANITIZER_SLOWDOWN}")
  set_property(TEST ${name} PROPERTY TIMEOUT ${timeout})
  set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT ${RJDBI_SANITIZER_ENVIRONMENT})
  set_property(TEST ${name} APPEND PROPERTY FIXTURES_REQUIRED sanitizer_reports)
endfunction()
