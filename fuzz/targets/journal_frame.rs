#![no_main]

fuzz::target!(journal::fuzzing::frame, 64 << 10, 256);
