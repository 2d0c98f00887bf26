#![no_main]

fuzz::target!(gateway_amqp::fuzzing::header, 16 << 10, 32);
