#![no_main]

fuzz::target!(access::fuzzing::message, 32 << 10, 32);
