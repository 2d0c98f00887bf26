#![no_main]

fuzz::target!(gateway_amqp::fuzzing::connection, 256 << 10, 64);
