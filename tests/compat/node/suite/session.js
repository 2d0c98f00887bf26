// Resources of one scenario: unique names, and clients that are closed after it.

import { setTimeout as sleep } from 'node:timers/promises'

import { init as initZstd, compress as zstdCompress, decompress as zstdDecompress } from '@bokuweb/zstd-wasm'
import { Admin } from '@platformatic/kafka'
import { lz4Compress, lz4Decompress } from '@platformatic/wasm-utils'
import kafkajs from 'kafkajs'
import snappyCodec from 'kafkajs-snappy'

import { eventually, Failure } from './harness.js'

const { CompressionCodecs, CompressionTypes, Kafka, logLevel } = kafkajs

// kafkajs brings gzip; the other codecs are plugged in as its documentation says.
await initZstd()
CompressionCodecs[CompressionTypes.Snappy] = snappyCodec
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async encoder => lz4Compress(encoder.buffer),
  decompress: async buffer => lz4Decompress(buffer)
})
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async encoder => Buffer.from(zstdCompress(encoder.buffer)),
  decompress: async buffer => Buffer.from(zstdDecompress(buffer))
})

export const bootstrap = process.env.BOOTSTRAP

/** The number of brokers. */
export const BROKERS = Number(process.env.BROKERS ?? 1)

/** Whether leaders, and with them coordinators, change while the scenarios run. */
export const LEADERS_MOVE = 'LEADERS_MOVE' in process.env

/** The decimal numbers from 0 up to `count`. */
export const numbers = count => Array.from({ length: count }, (_, n) => String(n))

export const text = bytes => (bytes === null ? null : bytes.toString())

export class Session {
  #admin
  #prefix
  #topics = []
  #closers = []

  constructor(name, runId) {
    this.#prefix = `node-${name}-${runId}-`
  }

  unique(suffix) {
    return this.#prefix + suffix
  }

  client(options = {}) {
    const retry = { initialRetryTime: 50, maxRetryTime: 1000, retries: 10 }
    return new Kafka({ brokers: bootstrap.split(','), clientId: 'compat', logLevel: logLevel.NOTHING, retry, ...options })
  }

  closeAfterwards(close) {
    this.#closers.push(close)
  }

  deleteAfterwards(topic) {
    this.#topics.push(topic)
  }

  async admin() {
    if (!this.#admin) {
      this.#admin = this.client().admin()
      await this.#admin.connect()
    }
    return this.#admin
  }

  async topic(numPartitions = 1, config = {}, suffix = 't') {
    const topic = this.unique(suffix)
    const configEntries = Object.entries(config).map(([name, value]) => ({ name, value }))
    const admin = await this.admin()
    this.deleteAfterwards(topic)
    await admin.createTopics({
      waitForLeaders: false,
      topics: [{ topic, numPartitions, replicationFactor: -1, configEntries }]
    })
    // Kafka's metadata may show a topic before its leaders serve; a first idempotent batch would then be refused.
    await eventually(10, `${topic} is served`, async () => {
      const offsets = await admin.fetchTopicOffsets(topic).catch(() => [])
      return offsets.length === numPartitions
    })
    return topic
  }

  /** The earliest and latest offset of partition 0. */
  async bounds(topic) {
    const offsets = await (await this.admin()).fetchTopicOffsets(topic)
    const { low, high } = offsets.find(({ partition }) => partition === 0)
    return [Number(low), Number(high)]
  }

  /** Sets the group's offset of partition 0. */
  async setOffsets(groupId, topic, offset) {
    const admin = await this.admin()
    const set = () => admin.setOffsets({ groupId, topic, partitions: [{ partition: 0, offset }] })
    await this.changeOffsets(groupId, set, async () => {
      const [{ partitions }] = await admin.fetchOffsets({ groupId, topics: [topic] })
      return partitions.find(({ partition }) => partition === 0)?.offset === offset
    })
  }

  /**
   * Changes offsets of a group without members. The client does this by a consumer that seeks, fetches once and
   * leaves. It does not report whether the seek was committed, so `done` checks it. It sends LeaveGroup only to the
   * coordinator at which it joined; if the coordinator has moved, an operator removes the member.
   */
  async changeOffsets(groupId, change, done) {
    if (!LEADERS_MOVE) return change()
    const admin = await this.admin()
    let changed = false
    await eventually(60, 'offsets have changed, and the group has no member', async () => {
      const [{ members }] = (await admin.describeGroups([groupId])).groups
      if (members.length) {
        await this.removeMembers(groupId)
        return false
      }
      if (changed && (await done())) return true
      await change()
      changed = true
      return false
    })
  }

  /** Uses the other client, since kafkajs cannot do this. */
  async removeMembers(groupId) {
    const admin = new Admin({ clientId: 'compat', bootstrapBrokers: bootstrap.split(',') })
    try {
      // The coordinator may be moving, and the member may be gone already.
      await admin.removeMembersFromConsumerGroup({ groupId }).catch(() => {})
    } finally {
      await admin.close()
    }
  }

  async producer(options = {}, clientOptions = {}) {
    const producer = this.client(clientOptions).producer({ allowAutoTopicCreation: false, ...options })
    await producer.connect()
    this.closeAfterwards(() => producer.disconnect())
    return producer
  }

  /** Produces to partition 0 in one batch; returns its base offset. */
  async produce(topic, values, { acks = -1, compression, ...options } = {}) {
    const producer = await this.producer(options)
    const messages = values.map(value => ({ partition: 0, ...(value instanceof Object ? value : { value }) }))
    const [answer] = await producer.send({ topic, acks, compression, messages })
    await producer.disconnect()
    return answer && Number(answer.baseOffset)
  }

  /** A consumer of the group that records its messages; it commits only on request. */
  async consumer(groupId, topics, { fromBeginning = true, autoCommit = false, ...options } = {}) {
    const consumer = this.client().consumer({ groupId, maxWaitTimeInMs: 300, allowAutoTopicCreation: false, ...options })
    await consumer.connect()
    this.closeAfterwards(() => consumer.disconnect())
    await consumer.subscribe({ topics, fromBeginning })
    const messages = []
    await consumer.run({
      autoCommit,
      autoCommitInterval: 200,
      eachMessage: async ({ topic, partition, message }) => {
        messages.push({ topic, partition, ...message, offset: Number(message.offset) })
      }
    })
    return { consumer, messages }
  }

  /** The first `count` messages of a topic. */
  async read(topic, count, options = {}) {
    const { consumer, messages } = await this.consumer(this.unique(`reader-${Math.random()}`), [topic], options)
    await received(messages, count)
    await consumer.disconnect()
    return messages
  }

  async readValues(topic, count) {
    return (await this.read(topic, count)).map(({ value }) => text(value))
  }

  async close() {
    for (const close of this.#closers) await close().catch(() => {})
    if (this.#topics.length) await (await this.admin()).deleteTopics({ topics: this.#topics }).catch(() => {})
    await this.#admin?.disconnect()
  }
}

export async function received(messages, count, seconds = 20) {
  const end = Date.now() + seconds * 1000
  while (messages.length < count) {
    if (Date.now() > end) throw new Failure(`${messages.length} of ${count} messages within ${seconds} s`)
    await sleep(20)
  }
}
