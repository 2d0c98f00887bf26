// Confirms, returns, properties and headers, bodies of any size, and Kafka's side of them.

import { randomBytes } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'

import amqplib from 'amqplib'

import { eventually, expect, holds, refused, scenario } from './harness.js'
import { address, depth, expectEmpty, get, getAll } from './session.js'

const body = text => Buffer.from(String(text))

scenario('confirm-callbacks', async session => {
  const channel = await session.confirmChannel()
  const queue = await session.queue(channel)
  const outcomes = []
  for (let number = 0; number < 1000; number++) {
    channel.sendToQueue(queue, body(number), { persistent: true }, error => outcomes.push(error))
  }
  await channel.waitForConfirms()
  expect(outcomes.length, 1000, 'confirms')
  expect(outcomes.filter(Boolean), [], 'refusals')
  expect(await depth(channel, queue), 1000, 'depth')
})

scenario('confirm-nack-on-overflow', async session => {
  const channel = await session.confirmChannel()
  const queue = await session.queue(channel, { 'x-max-length': 5, 'x-overflow': 'reject-publish' })
  const outcomes = []
  for (let number = 0; number < 20; number++) channel.sendToQueue(queue, body(number), {}, error => outcomes.push([number, Boolean(error)]))
  await eventually(10, 'all are answered', () => outcomes.length === 20)
  expect(outcomes.filter(([, isRefused]) => !isRefused).map(([number]) => number).sort((a, b) => a - b), [0, 1, 2, 3, 4], 'taken')
  expect(await getAll(channel, queue, 5), ['0', '1', '2', '3', '4'], 'messages')
})

scenario('mandatory-return', async session => {
  const channel = await session.confirmChannel()
  const returned = []
  channel.on('return', message => returned.push(message))
  channel.publish('amq.direct', session.unique('nowhere'), body('x'), { mandatory: true, messageId: 'm' })
  await channel.waitForConfirms()
  expect(returned.length, 1, 'returned')
  const { fields, properties, content } = returned[0]
  expect([fields.replyCode, fields.replyText, fields.exchange, properties.messageId, content.toString()], [312, 'NO_ROUTE', 'amq.direct', 'm', 'x'], 'return')
})

scenario('properties', async session => {
  const channel = await session.channel()
  const queue = await session.queue(channel)
  const wanted = {
    contentType: 'text/plain',
    contentEncoding: 'utf-8',
    deliveryMode: 2,
    priority: 3,
    correlationId: 'c',
    replyTo: 'r',
    expiration: '60000',
    messageId: 'm',
    timestamp: 1_700_000_000,
    type: 't',
    userId: 'guest',
    appId: 'a',
  }
  channel.sendToQueue(queue, body('x'), wanted)
  const { properties } = await get(channel, queue)
  for (const [name, value] of Object.entries(wanted)) expect(properties[name], value, name)
})

scenario('headers-of-all-types', async session => {
  const channel = await session.channel()
  const queue = await session.queue(channel)
  const typed = {
    byte: { '!': 'byte', value: -128 },
    short: { '!': 'short', value: -32768 },
    int: { '!': 'int', value: -2147483648 },
    long: { '!': 'long', value: 2 ** 52 },
    float: { '!': 'float', value: 1.5 },
    double: { '!': 'double', value: 0.1 },
    timestamp: { '!': 'timestamp', value: 1_700_000_000 },
    decimal: { '!': 'decimal', value: { digits: 12345, places: 3 } },
  }
  const plain = { text: 'grüße', yes: true, no: false, nothing: null, list: [1, 'a', [true], { b: null }], table: { c: { d: 'e' } }, bytes: Buffer.from([0, 255]) }
  channel.sendToQueue(queue, body('x'), { headers: { ...typed, ...plain } })
  const { headers } = (await get(channel, queue)).properties
  for (const [name, value] of Object.entries(plain)) expect(headers[name], value, name)
  for (const name of ['byte', 'short', 'int', 'long', 'float', 'double']) expect(headers[name], typed[name].value, name)
  expect(headers.timestamp, { '!': 'timestamp', value: 1_700_000_000 }, 'timestamp')
  expect(headers.decimal, { '!': 'decimal', value: { digits: 12345, places: 3 } }, 'decimal')
})

scenario('bodies-of-any-size', async session => {
  const channel = await session.confirmChannel()
  const queue = await session.queue(channel)
  for (const size of [0, 1, 4088, 4096, 131_063, 131_064, 131_065, 2_000_000]) {
    const content = randomBytes(size)
    channel.sendToQueue(queue, content)
    await channel.waitForConfirms()
    holds((await get(channel, queue)).content.equals(content), `body of ${size} bytes`)
  }
})

scenario('small-frames', async session => {
  const connection = await session.connect({ frameMax: 8192 })
  const channel = await session.channel(connection)
  const queue = await session.queue(channel)
  const content = randomBytes(100_000)
  channel.sendToQueue(queue, content)
  holds((await get(channel, queue)).content.equals(content), 'body')
})

scenario('back-pressure', async session => {
  // publish() returns false when its buffer is full; the event `drain` signals when to continue.
  const channel = await session.confirmChannel()
  const queue = await session.queue(channel)
  const content = randomBytes(50_000)
  for (let number = 0; number < 300; number++) {
    if (!channel.sendToQueue(queue, content)) {
      await new Promise(resolve => channel.once('drain', resolve))
    }
  }
  await channel.waitForConfirms()
  expect(await depth(channel, queue), 300, 'depth')
})

scenario('publish-to-nowhere-closes-the-channel', async session => {
  const channel = await session.channel()
  const gone = session.unique('gone')
  channel.publish(gone, 'k', body('x'))
  await eventually(10, 'the channel fails', () => channel.failure)
  expect([channel.failure.code, channel.failure.message.includes(`NOT_FOUND - no exchange '${gone}' in vhost '/'`)], [404, true], 'error')
})

scenario('user-id', async session => {
  const channel = await session.channel()
  const queue = await session.queue(channel)
  channel.sendToQueue(queue, body('x'), { userId: 'somebody' })
  await eventually(10, 'the channel fails', () => channel.failure)
  expect(channel.failure.code, 406, 'error')
})

scenario('login-amqplain', async session => {
  const connection = await session.connect({}, { credentials: amqplib.credentials.amqplain('guest', 'guest') })
  const channel = await session.channel(connection)
  const queue = await session.queue(channel)
  channel.sendToQueue(queue, body('x'))
  expect(await getAll(channel, queue, 1), ['x'], 'messages')
})

scenario('login-refused', async session => {
  for (const more of [{ password: 'wrong' }, { vhost: 'no-such-vhost' }]) {
    try {
      await session.connect(more)
    } catch (error) {
      holds(/ACCESS[-_]REFUSED|NOT[-_]ALLOWED|ConnectionClose/i.test(error.message), `reason: ${error.message}`)
      continue
    }
    holds(false, `${JSON.stringify(more)} was let in`)
  }
})

scenario('heartbeats', async session => {
  const connection = await session.connect({ heartbeat: 1 })
  const channel = await session.channel(connection)
  const queue = await session.queue(channel)
  await sleep(5000)
  channel.sendToQueue(queue, body('x'))
  expect(await getAll(channel, queue, 1), ['x'], 'messages')
  expect(connection.failure, undefined, 'failure')
  holds(address.port > 0, 'address')
})

scenario('expired-message', async session => {
  const channel = await session.confirmChannel()
  const queue = await session.queue(channel)
  channel.sendToQueue(queue, body('short'), { expiration: 200 })
  channel.sendToQueue(queue, body('none'))
  await channel.waitForConfirms()
  await sleep(500)
  expect(await getAll(channel, queue, 1), ['none'], 'messages')
  await expectEmpty(channel, queue)
})

scenario('many-channels-at-once', async session => {
  const connection = await session.connect()
  const queue = await session.queue(await session.channel(connection))
  const channels = await Promise.all(Array.from({ length: 300 }, () => session.confirmChannel(connection)))
  channels.forEach((channel, index) => channel.sendToQueue(queue, body(index)))
  await Promise.all(channels.map(channel => channel.waitForConfirms()))
  expect(await depth(channels[0], queue), 300, 'depth')
  await Promise.all(channels.slice(1).map(channel => channel.close()))
})

scenario('operations-at-once', async session => {
  // Pipelined calls of one channel, with replies in order.
  const channel = await session.channel()
  const names = Array.from({ length: 50 }, (_, index) => session.unique(`q${index}`))
  session.queues.push(...names)
  const declared = await Promise.all(names.map(name => channel.assertQueue(name, { durable: false, exclusive: true })))
  expect(declared.map(({ queue }) => queue), names, 'names')
  await Promise.all(names.map(name => channel.bindQueue(name, 'amq.direct', name)))
  names.forEach(name => channel.publish('amq.direct', name, body(name)))
  const got = await Promise.all(names.map(name => channel.get(name, { noAck: true })))
  expect(got.map(message => message && message.content.toString()), names, 'messages')
  await refused(channel.checkQueue(session.unique('gone')), 404, 'NOT_FOUND', 'check')
})
