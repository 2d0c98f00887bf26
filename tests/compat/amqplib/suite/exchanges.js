// Exchanges of each type, bindings, alternates, copies.

import { expect, holds, refused, scenario } from './harness.js'
import { depth, expectEmpty, get, getAll } from './session.js'

const body = text => Buffer.from(String(text))

scenario('direct-fanout-topic', async session => {
  const channel = await session.channel()
  for (const [kind, binding, hits, misses] of [
    ['direct', 'a', ['a'], ['b', 'a.b']],
    ['fanout', '', ['a', 'b', ''], []],
    ['topic', 'a.*.#', ['a.b', 'a.b.c'], ['a', 'b.a']],
  ]) {
    const exchange = await session.exchange(channel, kind, kind)
    const queue = await session.bound(channel, exchange, binding, kind)
    for (const key of [...hits, ...misses]) channel.publish(exchange, key, body(key))
    expect(await getAll(channel, queue, hits.length), hits, kind)
  }
})

scenario('headers', async session => {
  const channel = await session.channel()
  const exchange = await session.exchange(channel, 'headers')
  const all = await session.bound(channel, exchange, '', 'all', { 'x-match': 'all', a: 1, b: 'two' })
  const any = await session.bound(channel, exchange, '', 'any', { 'x-match': 'any', a: 1, b: 'two' })
  channel.publish(exchange, '', body('both'), { headers: { a: 1, b: 'two', c: 3 } })
  channel.publish(exchange, '', body('one'), { headers: { b: 'two' } })
  channel.publish(exchange, '', body('none'), { headers: { a: 2 } })
  expect(await getAll(channel, all, 1), ['both'], 'all')
  expect(await getAll(channel, any, 2), ['both', 'one'], 'any')
})

scenario('consistent-hash', async session => {
  const channel = await session.confirmChannel()
  const exchange = await session.exchange(channel, 'x-consistent-hash')
  const queues = []
  for (const name of ['a', 'b', 'c']) queues.push(await session.bound(channel, exchange, '10', name))
  for (let number = 0; number < 600; number++) channel.publish(exchange, `key-${number}`, body(number))
  await channel.waitForConfirms()
  const depths = await Promise.all(queues.map(queue => depth(channel, queue)))
  expect(depths.reduce((a, b) => a + b), 600, 'each message is in one queue')
  holds(depths.every(count => count > 90 && count < 330), `by weight: ${depths}`)
})

scenario(
  'delayed-message',
  async session => {
    const channel = await session.confirmChannel()
    const exchange = await session.exchange(channel, 'x-delayed-message', 'x', { arguments: { 'x-delayed-type': 'topic' } })
    const queue = await session.bound(channel, exchange, 'k.#')
    const start = Date.now()
    for (const delay of [900, 300]) channel.publish(exchange, 'k.a', body(delay), { headers: { 'x-delay': delay } })
    channel.publish(exchange, 'k', body('now'))
    await channel.waitForConfirms()
    for (const [text, after] of [['now', 0], ['300', 300], ['900', 900]]) {
      expect((await get(channel, queue)).content.toString(), text, 'message')
      holds(Date.now() - start >= after, `${text} is not early`)
    }
  },
  { needs: 'DELAYED_MESSAGES' },
)

scenario('exchange-to-exchange', async session => {
  const channel = await session.channel()
  const source = await session.exchange(channel, 'topic', 'source')
  const target = await session.exchange(channel, 'fanout', 'target')
  await channel.bindExchange(target, source, 'a.#')
  const queue = await session.bound(channel, target)
  channel.publish(source, 'a.b', body('through'))
  channel.publish(source, 'b', body('lost'))
  expect(await getAll(channel, queue, 1), ['through'], 'messages')
  await channel.unbindExchange(target, source, 'a.#')
  channel.publish(source, 'a.b', body('lost'))
  await expectEmpty(channel, queue)
})

scenario('alternate-exchange', async session => {
  const channel = await session.channel()
  const alternate = await session.exchange(channel, 'fanout', 'alternate')
  const exchange = await session.exchange(channel, 'direct', 'x', { alternateExchange: alternate })
  const own = await session.bound(channel, exchange, 'own', 'own')
  const rest = await session.bound(channel, alternate, '', 'rest')
  channel.publish(exchange, 'own', body('own'))
  channel.publish(exchange, 'other', body('rest'))
  expect(await getAll(channel, own, 1), ['own'], 'own')
  expect(await getAll(channel, rest, 1), ['rest'], 'rest')
})

scenario('cc-and-bcc', async session => {
  const channel = await session.channel()
  const queues = {}
  for (const name of ['to', 'copy', 'blind']) queues[name] = await session.queue(channel, {}, name)
  channel.sendToQueue(queues.to, body('x'), { CC: [queues.copy], BCC: [queues.blind] })
  for (const queue of Object.values(queues)) {
    const message = await get(channel, queue)
    expect(message.properties.headers, { CC: [queues.copy] }, `headers in ${queue}`)
  }
})

scenario('exchange-errors', async session => {
  const fresh = () => session.channel()
  const gone = session.unique('gone')
  await refused((await fresh()).checkExchange(gone), 404, `NOT_FOUND - no exchange '${gone}' in vhost '/'`, 'check')
  await refused((await fresh()).assertExchange('amq.mine', 'direct'), 403, "ACCESS_REFUSED - exchange name 'amq.mine'", 'reserved')
  await refused((await fresh()).bindQueue(gone, 'amq.direct', 'k'), 404, `NOT_FOUND - no queue '${gone}' in vhost '/'`, 'bind')
  const channel = await fresh()
  const exchange = await session.exchange(channel, 'direct')
  await refused(channel.assertExchange(exchange, 'fanout'), 406, "PRECONDITION_FAILED - inequivalent arg 'type'", 'again')
  await refused((await fresh()).assertExchange(gone, 'strange'), 406, "PRECONDITION_FAILED - unknown exchange type 'strange'", 'type')
})

scenario('auto-delete-exchange', async session => {
  const channel = await session.channel()
  const exchange = await session.exchange(channel, 'fanout', 'x', { autoDelete: true })
  const queue = await session.bound(channel, exchange)
  await channel.unbindQueue(queue, exchange, '')
  await refused(channel.checkExchange(exchange), 404, 'NOT_FOUND', 'gone with its last binding')
})
