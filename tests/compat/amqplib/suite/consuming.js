// Consumers, acknowledgements, prefetch, streams, and replies.

import { setTimeout as sleep } from 'node:timers/promises'

import { eventually, expect, holds, refused, scenario } from './harness.js'
import { consume, depth, expectEmpty, get, getAll, texts } from './session.js'

const body = text => Buffer.from(String(text))

function send(channel, queue, ...bodies) {
  bodies.forEach(one => channel.sendToQueue(queue, body(one)))
}

scenario('consume-and-acknowledge', async session => {
  const channel = await session.channel()
  const queue = await session.queue(channel)
  send(channel, queue, ...Array(50).keys())
  const consumer = await consume(channel, queue)
  const messages = await consumer.wait(50)
  expect(texts(messages), [...Array(50).keys()].map(String), 'bodies')
  channel.ack(messages[10])
  channel.ack(messages[30], true)
  channel.nack(messages[40], true, false)
  channel.reject(messages[41], false)
  await channel.close()
  expect(await getAll(await session.channel(), queue, 8), ['42', '43', '44', '45', '46', '47', '48', '49'], 'what comes back')
})

scenario('nack-and-reject-requeue', async session => {
  const channel = await session.channel()
  const queue = await session.queue(channel)
  send(channel, queue, 'a', 'b')
  const consumer = await consume(channel, queue)
  const [first, second] = await consumer.wait(2)
  channel.nack(first)
  let [again] = await consumer.wait(1)
  expect([again.content.toString(), again.fields.redelivered], ['a', true], 'nack')
  channel.reject(second)
  ;[again] = await consumer.wait(1)
  expect([again.content.toString(), again.fields.redelivered], ['b', true], 'reject')
  channel.nackAll(false)
  await channel.close()
  await expectEmpty(await session.channel(), queue)
})

scenario('ack-all', async session => {
  const channel = await session.channel()
  const queue = await session.queue(channel)
  send(channel, queue, 'a', 'b', 'c')
  await (await consume(channel, queue)).wait(3)
  channel.ackAll()
  await channel.close()
  await expectEmpty(await session.channel(), queue)
})

scenario('acknowledge-twice', async session => {
  const channel = await session.channel()
  const queue = await session.queue(channel)
  send(channel, queue, 'a')
  const message = await get(channel, queue, {})
  channel.ack(message)
  channel.ack(message)
  await eventually(10, 'the channel fails', () => channel.failure)
  holds(channel.failure.message.includes('PRECONDITION_FAILED - unknown delivery tag 1'), channel.failure.message)
})

scenario('recover', async session => {
  const channel = await session.channel()
  const queue = await session.queue(channel)
  send(channel, queue, 'a', 'b')
  const consumer = await consume(channel, queue)
  await consumer.wait(2)
  await channel.recover()
  expect((await consumer.wait(2)).map(({ content, fields }) => [content.toString(), fields.redelivered]), [['a', true], ['b', true]], 'again')
})

scenario('prefetch', async session => {
  const channel = await session.channel()
  const queue = await session.queue(channel)
  send(channel, queue, ...Array(10).keys())
  await channel.prefetch(3)
  const consumer = await consume(channel, queue)
  const messages = await consumer.wait(3)
  await consumer.stays(0)
  channel.ack(messages[0])
  await consumer.wait(1)
  await consumer.stays(0)
})

scenario('prefetch-of-the-channel', async session => {
  const channel = await session.channel()
  const queue = await session.queue(channel)
  send(channel, queue, ...Array(10).keys())
  await channel.prefetch(4, true)
  const [one, two] = [await consume(channel, queue), await consume(channel, queue)]
  await eventually(10, '4 deliveries', () => one.messages.length + two.messages.length === 4)
  await sleep(300)
  expect(one.messages.length + two.messages.length, 4, 'deliveries')
})

scenario('cancel', async session => {
  const channel = await session.channel()
  const queue = await session.queue(channel)
  const consumer = await consume(channel, queue, { consumerTag: 'mine' })
  expect(consumer.tag, 'mine', 'tag')
  await channel.cancel('mine')
  send(channel, queue, 'a')
  await consumer.stays(0)
  expect(await getAll(channel, queue, 1), ['a'], 'messages')
})

scenario('cancel-notification', async session => {
  const channel = await session.channel()
  const queue = await session.queue(channel)
  const consumer = await consume(channel, queue)
  await (await session.channel()).deleteQueue(queue)
  await eventually(10, 'the consumer is told', () => consumer.cancelled)
})

scenario('consumer-priority', async session => {
  const channel = await session.channel()
  const queue = await session.queue(channel)
  await channel.prefetch(1)
  const low = await consume(channel, queue, { priority: 1 })
  const high = await consume(channel, queue, { priority: 5 })
  send(channel, queue, 'a', 'b')
  expect(texts(await high.wait(1)), ['a'], 'the higher first')
  expect(texts(await low.wait(1)), ['b'], 'the lower when the higher is full')
})

scenario('exclusive-consumer', async session => {
  const channel = await session.channel()
  const queue = await session.queue(channel)
  await consume(channel, queue, { exclusive: true })
  await refused((await session.channel()).consume(queue, () => {}), 403, 'in exclusive use', 'another consumer')
})

scenario('single-active-consumer', async session => {
  const channels = await Promise.all([session.channel(), session.channel()])
  const queue = await session.queue(channels[0], { 'x-single-active-consumer': true })
  const [one, two] = [await consume(channels[0], queue), await consume(channels[1], queue)]
  send(channels[1], queue, 'a', 'b')
  expect(texts(await one.wait(2)), ['a', 'b'], 'the first')
  await two.stays(0)
  await channels[0].close()
  expect(texts(await two.wait(2)), ['a', 'b'], 'the second, afterwards')
})

scenario('lost-connection', async session => {
  const channel = await session.channel()
  const queue = await session.queue(channel)
  send(channel, queue, 'a', 'b', 'c')
  const other = await session.connect()
  await (await consume(await session.channel(other), queue)).wait(3)
  other.connection.stream.destroy()
  await eventually(10, 'all are back', async () => (await depth(channel, queue)) === 3)
  expect((await get(channel, queue)).fields.redelivered, true, 'redelivered')
})

scenario('direct-reply-to', async session => {
  const client = await session.channel()
  const queue = await session.queue(client)
  const replies = await consume(client, 'amq.rabbitmq.reply-to', { noAck: true })
  const server = await session.channel(await session.connect())
  await server.consume(queue, message => {
    server.sendToQueue(message.properties.replyTo, body(`re ${message.content}`), { correlationId: message.properties.correlationId })
    server.ack(message)
  })
  for (let number = 0; number < 50; number++) {
    client.sendToQueue(queue, body(number), { replyTo: 'amq.rabbitmq.reply-to', correlationId: `c${number}` })
  }
  const got = (await replies.wait(50)).map(({ content, properties }) => [content.toString(), properties.correlationId])
  expect(got, Array.from({ length: 50 }, (_, number) => [`re ${number}`, `c${number}`]), 'replies')
})

scenario('reply-queue', async session => {
  const client = await session.channel()
  const { queue: own } = await client.assertQueue('', { exclusive: true })
  const queue = await session.queue(client)
  const replies = await consume(client, own, { noAck: true })
  client.sendToQueue(queue, body('x'), { replyTo: own, correlationId: 'c' })
  const server = await session.channel(await session.connect())
  const request = await get(server, queue)
  server.sendToQueue(request.properties.replyTo, body('y'), { correlationId: request.properties.correlationId })
  const [reply] = await replies.wait(1)
  expect([reply.content.toString(), reply.properties.correlationId], ['y', 'c'], 'reply')
})

scenario('stream', async session => {
  const channel = await session.confirmChannel()
  const queue = await session.queue(channel, { 'x-queue-type': 'stream' })
  send(channel, queue, ...Array(10).keys())
  await channel.waitForConfirms()
  for (const [offset, first] of [['first', 0], [7, 7]]) {
    const own = await session.channel()
    await own.prefetch(100)
    const consumer = await consume(own, queue, { arguments: { 'x-stream-offset': offset } })
    const messages = await consumer.wait(10 - first)
    expect(texts(messages), Array.from({ length: 10 - first }, (_, index) => String(first + index)), `from ${offset}`)
    expect(messages[0].properties.headers['x-stream-offset'], first, 'x-stream-offset')
    own.ack(messages.at(-1), true)
  }
})

scenario('quorum-delivery-limit', async session => {
  const channel = await session.channel()
  const graves = await session.queue(channel, {}, 'graves')
  const queue = await session.queue(channel, {
    'x-queue-type': 'quorum',
    'x-delivery-limit': 1,
    'x-dead-letter-exchange': '',
    'x-dead-letter-routing-key': graves,
  })
  send(channel, queue, 'poison')
  for (let attempt = 0; attempt < 2; attempt++) channel.nack(await get(channel, queue, {}))
  const { content, properties } = await get(channel, graves)
  const [{ reason, count }] = properties.headers['x-death']
  expect([content.toString(), reason, count], ['poison', 'delivery_limit', 1], 'dead letter')
})
