// The reader; see code_object.h.
