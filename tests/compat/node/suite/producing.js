// Produced records are read back exactly, at every level of acknowledgement and with every compression.

import net from 'node:net'

import kafkajs from 'kafkajs'

import { eventually, expect, holds, refused, scenario, slowScenario } from './harness.js'
import { numbers, text } from './session.js'

const { CompressionTypes } = kafkajs

/** Absent and empty are different things, in keys and values. */
function samples() {
  const all = Buffer.from(Array.from({ length: 256 }, (_, n) => n))
  // Young enough for the default retention, old enough to differ from the time of appending.
  const start = Date.now() - 3_600_000
  return Array.from({ length: 20 }, () => [
    { key: 'key', value: 'value', headers: { a: ['1', '2'], empty: '' } },
    { key: null, value: 'no key' },
    { key: 'tombstone', value: null },
    { key: '', value: '' },
    { key: null, value: null },
    { key: 'ключ', value: all, headers: { заголовок: all } },
    { key: 'long', value: '0123456789abcdef'.repeat(2048) }
  ])
    .flat()
    .map((message, n) => ({ partition: 0, headers: {}, timestamp: String(start + n), ...message }))
}

const bytes = value => (value === null ? null : Buffer.from(value))

const headerBytes = headers =>
  Object.fromEntries(Object.entries(headers).map(([key, value]) => [key, Array.isArray(value) ? value.map(bytes) : bytes(value)]))

async function roundTrip(session, compression) {
  const topic = await session.topic()
  const sent = samples()
  expect(await session.produce(topic, sent, { compression }), 0, 'base offset')
  const messages = await session.read(topic, sent.length)
  messages.forEach((message, n) => {
    expect(message.offset, n, 'offset')
    expect(message.key, bytes(sent[n].key), `key ${n}`)
    expect(message.value, bytes(sent[n].value), `value ${n}`)
    expect({ ...message.headers }, headerBytes(sent[n].headers), `headers ${n}`)
    expect(message.timestamp, sent[n].timestamp, `timestamp ${n}`)
  })
}

for (const [name, compression] of Object.entries({
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD
})) {
  scenario(`compression-${name}`, session => roundTrip(session, compression))
}

scenario('acks-0', async session => {
  const topic = await session.topic()
  await session.produce(topic, numbers(100), { acks: 0 })
  await eventually(10, 'all are stored', async () => (await session.bounds(topic))[1] === 100)
  expect(await session.readValues(topic, 100), numbers(100), 'records')
})

for (const [name, acks] of [['1', 1], ['all', -1]]) {
  scenario(`acks-${name}`, async session => {
    const topic = await session.topic()
    expect(await session.produce(topic, numbers(100), { acks }), 0, 'base offset')
    expect(await session.readValues(topic, 100), numbers(100), 'records')
  })
}

/** Sends `count` requests one after the other; each record is stored once, in order. */
async function manyRequests(session, count, clientOptions) {
  const topic = await session.topic()
  const producer = await session.producer({ idempotent: true, maxInFlightRequests: 1 }, clientOptions)
  for (let n = 0; n < count; n++) {
    await producer.send({ topic, messages: [{ partition: 0, value: String(n) }] })
  }
  expect(await session.readValues(topic, count), numbers(count), 'each once, in order')
  expect(await session.bounds(topic), [0, count], 'offsets')
}

scenario('idempotent-producer', session => manyRequests(session, 300))

/** Breaks every tenth connection right after a produce request, so that its response is lost. */
function flakySockets() {
  const lost = { answers: 0 }
  let requests = 0
  const socketFactory = ({ host, port, onConnect }) => {
    const socket = net.connect({ host, port }, onConnect)
    const write = socket.write.bind(socket)
    socket.write = (request, ...rest) => {
      const written = write(request, ...rest)
      // A request begins with its size and its API key; Produce is key 0.
      const produce = Buffer.isBuffer(request) && request.length > 6 && request.readInt16BE(4) === 0
      if (produce && ++requests % 10 === 0) {
        lost.answers++
        socket.pause()
        setTimeout(() => socket.destroy(new Error('the network broke')), 30)
      }
      return written
    }
    return socket
  }
  return { socketFactory, lost }
}

slowScenario('idempotent-retries', async session => {
  const { socketFactory, lost } = flakySockets()
  await manyRequests(session, 200, { socketFactory })
  holds(lost.answers >= 10, `answers were lost: ${lost.answers}`)
})

// max.message.bytes is 1,048,588 by default: a value of 1,000,000 bytes is within it.
scenario('large-record', async session => {
  const topic = await session.topic()
  const value = Buffer.alloc(1_000_000, 7)
  await session.produce(topic, [{ value }])
  holds(value.equals((await session.read(topic, 1))[0].value), 'the value is the same')
})

scenario('record-over-the-limit', async session => {
  const small = await session.topic(1, { 'max.message.bytes': '10000' }, 'small')
  const standard = await session.topic(1, {}, 'standard')
  await session.produce(small, ['x'.repeat(9000)])
  await refused(session.produce(small, ['x'.repeat(10_001)]), 'MESSAGE_TOO_LARGE', "over the topic's limit")
  await refused(session.produce(standard, ['x'.repeat(1_100_000)]), 'MESSAGE_TOO_LARGE', 'over the default limit')
  expect([await session.bounds(small), await session.bounds(standard)], [[0, 1], [0, 0]], 'offsets')
})

scenario('log-append-time', async session => {
  const topic = await session.topic(1, { 'message.timestamp.type': 'LogAppendTime' })
  const before = Date.now()
  await session.produce(topic, [{ value: 'x', timestamp: String(before - 3_600_000) }])
  const [message] = await session.read(topic, 1)
  holds(Math.abs(Number(message.timestamp) - before) < 10_000, "the broker's own time")
})

scenario('partitions-keep-order', async session => {
  const topic = await session.topic(10)
  const producer = await session.producer()
  for (let start = 0; start < 20_000; start += 2000) {
    const messages = numbers(2000).map(n => ({ partition: n % 10, value: String(start + Number(n)) }))
    await producer.send({ topic, messages })
  }
  const seen = Array.from({ length: 10 }, () => [])
  for (const { partition, offset, value } of await session.read(topic, 20_000)) {
    expect(offset, seen[partition].length, 'offset')
    seen[partition].push(Number(text(value)))
  }
  seen.forEach((values, partition) => {
    expect(values, Array.from({ length: 2000 }, (_, n) => n * 10 + partition), `records of partition ${partition}`)
  })
})
