#![no_main]

fuzz::target!(gateway_kafka::fuzzing::request, 64 << 10, 1_000);
