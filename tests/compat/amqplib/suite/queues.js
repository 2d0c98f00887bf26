// Queues: durability and lifetime, limits, times to live, priorities and dead letters.

import { setTimeout as sleep } from 'node:timers/promises'

import { eventually, expect, holds, refused, scenario } from './harness.js'
import { consume, depth, expectEmpty, get, getAll } from './session.js'

const body = text => Buffer.from(String(text))

async function send(channel, queue, ...bodies) {
  bodies.forEach(one => channel.sendToQueue(queue, body(one)))
  await channel.waitForConfirms()
}

scenario('server-named', async session => {
  const channel = await session.channel()
  const { queue, messageCount, consumerCount } = await channel.assertQueue('', { exclusive: true })
  holds(queue.startsWith('amq.gen-'), queue)
  expect([messageCount, consumerCount], [0, 0], 'counts')
})

scenario('exclusive', async session => {
  const connection = await session.connect()
  const queue = await session.queue(await session.channel(connection), {}, 'q', { exclusive: true })
  await refused((await session.channel()).checkQueue(queue), 405, 'RESOURCE_LOCKED - cannot obtain exclusive access to locked queue', 'another')
  await connection.close()
  await refused((await session.channel()).checkQueue(queue), 404, 'NOT_FOUND', 'gone')
})

scenario('auto-delete', async session => {
  const channel = await session.channel()
  const queue = await session.queue(channel, {}, 'q', { autoDelete: true })
  const consumer = await consume(channel, queue)
  await channel.cancel(consumer.tag)
  await refused(channel.checkQueue(queue), 404, 'NOT_FOUND', 'gone with its last consumer')
})

scenario('counts-purge-and-delete', async session => {
  const channel = await session.confirmChannel()
  const queue = await session.queue(channel)
  await send(channel, queue, 1, 2, 3)
  expect(await channel.checkQueue(queue), { queue, messageCount: 3, consumerCount: 0 }, 'counts')
  expect(await channel.purgeQueue(queue), { messageCount: 3 }, 'purged')
  await send(channel, queue, 1)
  expect(await channel.deleteQueue(queue), { messageCount: 1 }, 'deleted')
  expect(await channel.deleteQueue(queue), { messageCount: 0 }, 'again')
})

scenario('delete-conditions', async session => {
  const channel = await session.confirmChannel()
  const queue = await session.queue(channel)
  await send(channel, queue, 1)
  await refused((await session.channel()).deleteQueue(queue, { ifEmpty: true }), 406, 'not empty', 'if empty')
  await consume(await session.channel(), queue)
  await refused((await session.channel()).deleteQueue(queue, { ifUnused: true }), 406, 'in use', 'if unused')
})

scenario('inequivalent-arguments', async session => {
  const channel = await session.channel()
  const queue = await session.queue(channel, { 'x-max-length': 5 })
  await refused(channel.assertQueue(queue, { durable: true }), 406, "PRECONDITION_FAILED - inequivalent arg 'x-max-length' for queue", 'argument')
  await refused((await session.channel()).assertQueue(queue, { durable: false, arguments: { 'x-max-length': 5 } }), 406, "inequivalent arg 'durable'", 'durable')
})

scenario('message-ttl', async session => {
  const channel = await session.confirmChannel()
  const { queue } = await channel.assertQueue(session.unique(), { messageTtl: 300 })
  session.queues.push(queue)
  await send(channel, queue, 'a')
  await sleep(700)
  await expectEmpty(channel, queue)
})

scenario('expires', async session => {
  const channel = await session.channel()
  const { queue } = await channel.assertQueue(session.unique(), { expires: 500 })
  await eventually(15, 'it is gone', async () => {
    await sleep(1500)
    const own = await session.channel()
    return own.checkQueue(queue).then(() => false, error => error.code === 404)
  })
})

scenario('max-length', async session => {
  const channel = await session.confirmChannel()
  const { queue } = await channel.assertQueue(session.unique(), { maxLength: 3 })
  session.queues.push(queue)
  await send(channel, queue, ...Array(10).keys())
  expect(await getAll(channel, queue, 3), ['7', '8', '9'], 'the newest')
})

scenario('max-length-bytes', async session => {
  const channel = await session.confirmChannel()
  const queue = await session.queue(channel, { 'x-max-length-bytes': 3500 })
  for (let number = 0; number < 8; number++) await send(channel, queue, `${number}`.repeat(1000))
  const count = await depth(channel, queue)
  holds(count >= 2 && count <= 3, `depth ${count}`)
})

scenario('max-priority', async session => {
  const channel = await session.confirmChannel()
  const { queue } = await channel.assertQueue(session.unique(), { maxPriority: 5 })
  session.queues.push(queue)
  for (const priority of [1, 5, 0, 3]) channel.sendToQueue(queue, body(priority), { priority })
  await channel.waitForConfirms()
  expect(await getAll(channel, queue, 4), ['5', '3', '1', '0'], 'order')
})

scenario('dead-letter', async session => {
  const channel = await session.confirmChannel()
  const exchange = await session.exchange(channel, 'topic', 'dlx')
  const graves = await session.bound(channel, exchange, '#', 'graves')
  const { queue } = await channel.assertQueue(session.unique(), { deadLetterExchange: exchange, deadLetterRoutingKey: 'dead', messageTtl: 400 })
  session.queues.push(queue)
  await send(channel, queue, 'rejected')
  channel.nack(await get(channel, queue, {}), false, false)
  await send(channel, queue, 'expired')
  for (const reason of ['rejected', 'expired']) {
    const { content, fields, properties } = await get(channel, graves)
    const death = properties.headers['x-death'][0]
    expect([content.toString(), fields.routingKey, death.reason, death.queue, death.count], [reason, 'dead', reason, queue, 1], 'dead letter')
    expect(death['routing-keys'], [queue], 'routing keys')
    expect(properties.headers['x-first-death-reason'], reason, 'first reason')
  }
})

scenario('connection-error', async session => {
  const connection = await session.connect()
  const channel = await session.channel(connection)
  const queue = await session.queue(channel)
  await consume(channel, queue, { consumerTag: 'twice' })
  await channel.consume(queue, () => {}, { consumerTag: 'twice' }).catch(() => {})
  await eventually(10, 'the connection fails', () => connection.failure)
  holds(connection.failure.message.includes("NOT_ALLOWED - attempt to reuse consumer tag 'twice'"), connection.failure.message)
})
