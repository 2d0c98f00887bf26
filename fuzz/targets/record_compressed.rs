#![no_main]

fuzz::target!(record::fuzzing::compressed, 16 << 20, 16);
