#![no_main]

fuzz::target!(gateway_amqp::fuzzing::method, 16 << 10, 128);
