// Minimal AMQP 0-9-1 client: one connection with one channel and one consumer, as data for the AMQP pages.
import { connect } from "node:net";

const short = (text) => Buffer.concat([Buffer.from([Buffer.byteLength(text)]), Buffer.from(text)]);
const long = (bytes) => { const length = Buffer.alloc(4); length.writeUInt32BE(bytes.length); return Buffer.concat([length, bytes]); };
const u16 = (value) => { const bytes = Buffer.alloc(2); bytes.writeUInt16BE(value); return bytes; };
const table = (fields) => long(Buffer.concat(Object.entries(fields).flatMap(([name, value]) => [short(name), Buffer.from("S"), long(Buffer.from(value))])));

/** Opens a connection and starts a consumer. Ending the returned socket closes both. */
export async function openConsumer(address, { user, password, name, queue, tag, prefetch }) {
  const [host, port] = address.split(":");
  const socket = connect(Number(port), host);
  let [received, notify] = [Buffer.alloc(0), () => {}];
  socket.on("data", (bytes) => { received = Buffer.concat([received, bytes]); notify(); });
  socket.on("error", () => {});
  const method = (channel, id, ...parts) => {
    const payload = Buffer.concat([u16(id[0]), u16(id[1]), ...parts]);
    const head = Buffer.alloc(7);
    head.writeUInt8(1, 0); head.writeUInt16BE(channel, 1); head.writeUInt32BE(payload.length, 3);
    socket.write(Buffer.concat([head, payload, Buffer.from([0xce])]));
  };
  /** Waits for a method, skips other frames, and returns its arguments. */
  const expect = async (id) => {
    for (;;) {
      while (received.length < 7 || received.length < 8 + received.readUInt32BE(3)) await new Promise((resolve, reject) => { notify = resolve; socket.once("close", () => reject(new Error("closed"))); });
      const length = received.readUInt32BE(3);
      const [frameType, payload] = [received[0], received.subarray(7, 7 + length)];
      received = received.subarray(8 + length);
      if (frameType === 1 && payload.readUInt16BE(0) === id[0] && payload.readUInt16BE(2) === id[1]) return payload.subarray(4);
    }
  };
  socket.write(Buffer.from("AMQP\x00\x00\x09\x01", "latin1"));
  await expect([10, 10]);
  method(0, [10, 11], table({ product: "console-test", version: "1", connection_name: name }), short("PLAIN"), long(Buffer.from(`\0${user}\0${password}`)), short("en_US"));
  const limits = await expect([10, 30]);
  method(0, [10, 31], limits.subarray(0, 6), u16(0));
  method(0, [10, 40], short("/"), Buffer.from([0, 0]));
  await expect([10, 41]);
  method(1, [20, 10], short(""));
  await expect([20, 11]);
  method(1, [60, 10], Buffer.alloc(4), u16(prefetch), Buffer.from([0]));
  await expect([60, 11]);
  method(1, [60, 20], u16(0), short(queue), short(tag), Buffer.from([0]), table({}));
  await expect([60, 21]);
  return socket;
}
