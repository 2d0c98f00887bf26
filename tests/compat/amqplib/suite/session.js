// Resources of one scenario: connections that are closed after it, and unique names.

import { setTimeout as sleep } from 'node:timers/promises'

import amqplib from 'amqplib'

import { Failure, eventually } from './harness.js'

const [HOST, PORT] = process.env.AMQP.split(':')
export const address = { protocol: 'amqp', hostname: HOST, port: Number(PORT), username: 'guest', password: 'guest', vhost: '/' }

export class Session {
  connections = []
  queues = []
  exchanges = []

  constructor(name, runId) {
    this.name = name
    this.runId = runId
  }

  async connect(more = {}, options = {}) {
    const connection = await amqplib.connect({ ...address, ...more }, options)
    // Without a listener, an error of a connection ends the program.
    connection.on('error', error => (connection.failure = error))
    this.connections.push(connection)
    return connection
  }

  async connection() {
    this.main ??= await this.connect()
    return this.main
  }

  async channel(connection) {
    const channel = await (connection ?? (await this.connection())).createChannel()
    channel.on('error', error => (channel.failure = error))
    return channel
  }

  async confirmChannel(connection) {
    const channel = await (connection ?? (await this.connection())).createConfirmChannel()
    channel.on('error', error => (channel.failure = error))
    return channel
  }

  unique(suffix = 'q') {
    return `node-${this.name}-${this.runId}-${suffix}`
  }

  async queue(channel, args = {}, suffix = 'q', options = {}) {
    const name = this.unique(suffix)
    this.queues.push(name)
    await channel.assertQueue(name, { durable: true, ...options, arguments: args })
    return name
  }

  async exchange(channel, kind, suffix = 'x', options = {}) {
    const name = this.unique(suffix)
    this.exchanges.push(name)
    await channel.assertExchange(name, kind, options)
    return name
  }

  async bound(channel, exchange, key = '', suffix = 'q', bindArguments = {}) {
    const name = await this.queue(channel, {}, suffix)
    await channel.bindQueue(name, exchange, key, bindArguments)
    return name
  }

  async close() {
    const channel = await (await this.connect()).createChannel()
    channel.on('error', () => {})
    for (const name of this.queues) await channel.deleteQueue(name)
    for (const name of this.exchanges) await channel.deleteExchange(name)
    await Promise.all(this.connections.map(connection => connection.close().catch(() => {})))
  }
}

/** The next message; it must arrive within the time. */
export async function get(channel, queue, options = { noAck: true }) {
  return eventually(10, `a message in ${queue}`, () => channel.get(queue, options))
}

export async function getAll(channel, queue, count) {
  const bodies = []
  for (let index = 0; index < count; index++) bodies.push((await get(channel, queue)).content.toString())
  await expectEmpty(channel, queue)
  return bodies
}

export async function expectEmpty(channel, queue) {
  const message = await channel.get(queue, { noAck: true })
  if (message) throw new Failure(`${queue} should be empty and has ${message.content}`)
}

export async function depth(channel, queue) {
  return (await channel.checkQueue(queue)).messageCount
}

/** Collects the deliveries of a consumer; never acknowledges by itself. */
export async function consume(channel, queue, options = {}) {
  const messages = []
  const consumer = { messages, cancelled: false }
  const { consumerTag } = await channel.consume(queue, message => (message ? messages.push(message) : (consumer.cancelled = true)), options)
  consumer.tag = consumerTag
  consumer.wait = async (count, seconds = 10) => {
    await eventually(seconds, `${count} deliveries, has ${messages.length}`, () => messages.length >= count)
    return messages.splice(0, count)
  }
  consumer.stays = async (count, seconds = 0.3) => {
    await sleep(seconds * 1000)
    if (messages.length > count) throw new Failure(`${messages.length} deliveries, but no more than ${count} should come`)
  }
  return consumer
}

export const texts = messages => messages.map(message => message.content.toString())
