#![no_main]

fuzz::target!(values::fuzzing::table, 16 << 10, 256);
