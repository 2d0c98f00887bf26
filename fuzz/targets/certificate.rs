#![no_main]

fuzz::target!(access::fuzzing::certificate, 4 << 20, 256);
