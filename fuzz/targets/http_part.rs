#![no_main]

fuzz::target!(gateway_http::fuzzing::part, 64 << 10, 512);
