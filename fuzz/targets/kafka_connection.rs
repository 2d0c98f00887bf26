#![no_main]

fuzz::target!(gateway_kafka::fuzzing::connection, 256 << 10, 1_000);
