#![no_main]

fuzz::target!(journal::fuzzing::stored, 64 << 10, 512);
