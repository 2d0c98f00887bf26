#![no_main]

fuzz::target!(links::fuzzing::frames, 128 << 10, 64);
