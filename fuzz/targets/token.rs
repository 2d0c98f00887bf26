#![no_main]

fuzz::target!(tokens::fuzzing::any, 256 << 10, 256);
