#![no_main]

fuzz::target!(record::fuzzing::batch, 16 << 20, 64);
